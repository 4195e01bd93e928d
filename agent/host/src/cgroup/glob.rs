//! Patterns over group paths: `*` within a name, `**` over any number of names, `?`, and sets like `[a-c]`.
//!
//! `/user.slice/**` matches `/user.slice` and everything below, `/user.slice` only itself. A leading `/` is implied.

/// A pattern, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    text: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    AnyDepth,
    Name(Vec<Token>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Any,
    One,
    Literal(char),
    Set {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
}

/// Why a pattern is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GlobError {
    /// Nothing in it.
    #[error("the pattern is empty")]
    Empty,
    /// `[` without `]`, or nothing between them.
    #[error("the set at character {at} of {pattern:?} is not closed or empty")]
    BadSet {
        /// The pattern.
        pattern: String,
        /// Where the set begins, counted from 1.
        at: usize,
    },
    /// A name like `a**b`.
    #[error(
        "in {pattern:?} ** stands beside other characters of {name:?}; it must be a name of its own"
    )]
    BadDepth {
        /// The pattern.
        pattern: String,
        /// The name.
        name: String,
    },
}

impl Glob {
    /// Checks a pattern.
    ///
    /// # Errors
    /// [`GlobError`] with what is wrong.
    pub fn new(pattern: &str) -> Result<Self, GlobError> {
        if pattern.is_empty() {
            return Err(GlobError::Empty);
        }
        let mut parts = Vec::new();
        let mut at = 1;
        for name in pattern.split('/') {
            match name {
                "" => {}
                "**" => parts.push(Part::AnyDepth),
                name if name.contains("**") => {
                    return Err(GlobError::BadDepth {
                        pattern: pattern.to_owned(),
                        name: name.to_owned(),
                    });
                }
                name => parts.push(Part::Name(tokens(name, pattern, at)?)),
            }
            at += name.chars().count() + 1;
        }
        parts.dedup_by(|next, last| *next == Part::AnyDepth && *last == Part::AnyDepth);
        Ok(Self {
            text: pattern.to_owned(),
            parts,
        })
    }

    /// Whether the pattern covers a group path.
    pub fn matches(&self, group: &str) -> bool {
        let names: Vec<&str> = group.split('/').filter(|name| !name.is_empty()).collect();
        matches_path(&self.parts, &names)
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

fn tokens(name: &str, pattern: &str, at: usize) -> Result<Vec<Token>, GlobError> {
    let characters: Vec<char> = name.chars().collect();
    let mut tokens = Vec::new();
    let mut index = 0;
    while let Some(character) = characters.get(index) {
        index += 1;
        tokens.push(match character {
            '*' => Token::Any,
            '?' => Token::One,
            '[' => {
                let bad = GlobError::BadSet {
                    pattern: pattern.to_owned(),
                    at: at + index - 1,
                };
                let (set, length) = set(&characters[index..]).ok_or(bad)?;
                index += length;
                set
            }
            literal => Token::Literal(*literal),
        });
    }
    Ok(tokens)
}

/// A set and how many characters it took, the closing bracket included. `]` as the first member is itself.
fn set(after_bracket: &[char]) -> Option<(Token, usize)> {
    let negated = matches!(after_bracket.first(), Some('!' | '^'));
    let start = usize::from(negated);
    let close = (start + 1..after_bracket.len()).find(|index| after_bracket[*index] == ']')?;
    let mut members = &after_bracket[start..close];
    let mut ranges = Vec::new();
    while let [first, rest @ ..] = members {
        let (last, after) = if let ['-', last, after @ ..] = rest {
            (last, after)
        } else {
            (first, rest)
        };
        ranges.push((*first, *last));
        members = after;
    }
    Some((Token::Set { negated, ranges }, close + 1))
}

/// Both matchers walk the pattern once and go back only to the last star, so their time is at most the product of the
/// two lengths.
fn matches_path(parts: &[Part], names: &[&str]) -> bool {
    backtrack(
        parts,
        names,
        |part| *part == Part::AnyDepth,
        |part, name| match part {
            Part::AnyDepth => true,
            Part::Name(tokens) => matches_name(tokens, name),
        },
    )
}

fn matches_name(tokens: &[Token], name: &str) -> bool {
    let characters: Vec<char> = name.chars().collect();
    backtrack(
        tokens,
        &characters,
        |token| *token == Token::Any,
        |token, character| match token {
            Token::Any | Token::One => true,
            Token::Literal(literal) => literal == character,
            Token::Set { negated, ranges } => {
                ranges
                    .iter()
                    .any(|(first, last)| (first..=last).contains(&character))
                    != *negated
            }
        },
    )
}

fn backtrack<P, I>(
    pattern: &[P],
    items: &[I],
    is_star: impl Fn(&P) -> bool,
    fits: impl Fn(&P, &I) -> bool,
) -> bool {
    let (mut at, mut item) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while item < items.len() {
        match pattern.get(at) {
            Some(part) if is_star(part) => {
                star = Some((at, item));
                at += 1;
            }
            Some(part) if fits(part, &items[item]) => {
                at += 1;
                item += 1;
            }
            _ => {
                let Some((star_at, taken)) = star else {
                    return false;
                };
                star = Some((star_at, taken + 1));
                at = star_at + 1;
                item = taken + 1;
            }
        }
    }
    pattern[at..].iter().all(is_star)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns_cover_what_they_say() {
        fn check(pattern: &str, covered: &[&str], not: &[&str]) {
            let glob = Glob::new(pattern).expect("a pattern");
            for group in covered {
                assert!(glob.matches(group), "{pattern} should cover {group}");
            }
            for group in not {
                assert!(!glob.matches(group), "{pattern} should not cover {group}");
            }
        }
        check("/", &["/", ""], &["/a"]);
        check("/a", &["/a", "a", "/a/"], &["/", "/ab", "/a/b"]);
        check(
            "/user.slice/**",
            &["/user.slice/x", "/user.slice/x/y", "/user.slice"],
            &["/user.slicex", "/x"],
        );
        check(
            "**/*.service",
            &["/a.service", "/s/t/a.service"],
            &["/a.service/sub", "/service"],
        );
        check(
            "/system.slice/*.service",
            &["/system.slice/ssh.service"],
            &["/system.slice/a/b.service"],
        );
        check(
            "/user-[0-9]*.slice",
            &["/user-1000.slice"],
            &["/user-a.slice"],
        );
        check("/[!ab]?", &["/cd"], &["/ad", "/c", "/cde"]);
        check("/[]x]", &["/]", "/x"], &["/a"]);
        check("/a/**/z", &["/a/z", "/a/b/c/z"], &["/a", "/a/b"]);
        check("/a*b*c", &["/abc", "/axbxbc"], &["/ab", "/acb"]);
        check("/[a-]", &["/a", "/-"], &["/b"]);
    }

    #[test]
    fn a_bad_pattern_says_where() {
        fn check(pattern: &str, expected: &str) {
            assert_eq!(Glob::new(pattern).expect_err(pattern).to_string(), expected);
        }
        check("", "the pattern is empty");
        check(
            "/a/b[cd",
            "the set at character 5 of \"/a/b[cd\" is not closed or empty",
        );
        check(
            "/[]",
            "the set at character 2 of \"/[]\" is not closed or empty",
        );
        check(
            "/a**",
            "in \"/a**\" ** stands beside other characters of \"a**\"; it must be a name of its own",
        );
    }

    proptest! {
        #[test]
        fn any_pattern_is_judged_without_panic(pattern in ".{0,30}", group in ".{0,60}") {
            if let Ok(glob) = Glob::new(&pattern) {
                glob.matches(&group);
            }
        }

        #[test]
        fn a_path_without_special_characters_covers_exactly_itself(
            path in "(/[a-z.0-9-]{1,8}){1,5}", other in "(/[a-z.0-9-]{1,8}){1,5}",
        ) {
            let glob = Glob::new(&path).expect("no special characters");
            prop_assert!(glob.matches(&path));
            prop_assert_eq!(glob.matches(&other), path == other);
        }

        #[test]
        fn stars_agree_with_a_naive_matcher(pattern in "[ab*?]{0,8}", name in "[ab]{0,8}") {
            fn naive(pattern: &[u8], name: &[u8]) -> bool {
                match (pattern.first(), name.first()) {
                    (None, None) => true,
                    (Some(b'*'), _) => naive(&pattern[1..], name) || (!name.is_empty() && naive(pattern, &name[1..])),
                    (Some(b'?'), Some(_)) => naive(&pattern[1..], &name[1..]),
                    (Some(one), Some(other)) => one == other && naive(&pattern[1..], &name[1..]),
                    _ => false,
                }
            }
            prop_assume!(!pattern.contains("**") && !pattern.is_empty() && !name.is_empty());
            let glob = Glob::new(&pattern).expect("no sets");
            prop_assert_eq!(glob.matches(&name), naive(pattern.as_bytes(), name.as_bytes()));
        }
    }
}
