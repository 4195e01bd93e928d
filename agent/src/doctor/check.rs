//! One check: what was found, what follows from it, and what to do next.

use serde::Serialize;

/// How a check ended, the most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Something that is needed does not work.
    Failed,
    /// It works less well, or otherwise, than it looks.
    Warning,
    /// It could not be looked at.
    Unknown,
    /// Worth knowing.
    Note,
    /// All is well.
    Ok,
}

/// One check. Ids are stable; texts are for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// `area.subject`.
    pub id: String,
    /// What is looked at.
    pub title: &'static str,
    /// How it ended.
    pub state: State,
    /// What was found.
    pub found: String,
    /// The same one by one, where it is several things; otherwise empty.
    #[serde(skip)]
    pub parts: Vec<String>,
    /// What follows from it.
    pub follows: Option<String>,
    /// What to do about it; any one of several.
    pub next: Vec<Step>,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// In words.
    pub text: String,
    /// The command that does it, where there is one.
    pub command: Option<String>,
}

/// A check that is not well. It becomes one that can be told by what to do about it, so none fails or warns without that.
#[must_use]
#[derive(Clone, Debug)]
pub(super) struct Trouble(Check);

/// Which check: its id and its title.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject(pub(super) &'static str, pub(super) &'static str);

impl Subject {
    fn check(self, state: State, found: impl Into<String>) -> Check {
        Check {
            id: self.0.to_owned(),
            title: self.1,
            state,
            found: tidied(&found.into()),
            parts: Vec::new(),
            follows: None,
            next: Vec::new(),
        }
    }

    /// Several things found, each a line of its own on a page; of more than `most` the rest is counted.
    fn several(self, state: State, all: &[String], most: usize) -> Check {
        let mut parts: Vec<String> = all.iter().take(most).map(|one| tidied(one)).collect();
        if let Some(more) = all.len().checked_sub(most).filter(|more| *more > 0) {
            parts.push(format!("and {more} more"));
        }
        Check {
            found: parts.join("; "),
            parts,
            ..self.check(state, "")
        }
    }

    pub(super) fn ok(self, found: impl Into<String>) -> Check {
        self.check(State::Ok, found)
    }

    pub(super) fn note(self, found: impl Into<String>) -> Check {
        self.check(State::Note, found)
    }

    pub(super) fn warning(self, found: impl Into<String>) -> Trouble {
        self.trouble(State::Warning, found)
    }

    pub(super) fn failed(self, found: impl Into<String>) -> Trouble {
        self.trouble(State::Failed, found)
    }

    /// For a state that hangs on something.
    pub(super) fn trouble(self, state: State, found: impl Into<String>) -> Trouble {
        Trouble(self.check(state, found))
    }

    pub(super) fn unknown(self, why: impl Into<String>) -> Check {
        self.check(State::Unknown, why)
    }

    /// A warning of several things.
    pub(super) fn warning_of(self, all: &[String], most: usize) -> Trouble {
        Trouble(self.several(State::Warning, all, most))
    }

    /// Several things that are not known.
    pub(super) fn unknown_of(self, all: &[String], most: usize) -> Check {
        self.several(State::Unknown, all, most)
    }
}

impl Trouble {
    /// The same with what follows.
    pub(super) fn follows(self, text: impl Into<String>) -> Self {
        Self(self.0.follows(text))
    }

    /// The check with something to do that is no command.
    pub(super) fn next(self, text: impl Into<String>) -> Check {
        self.0.next(text)
    }

    /// The check with a command.
    pub(super) fn run(self, text: impl Into<String>, command: impl Into<String>) -> Check {
        self.0.run(text, command)
    }

    /// The check with a step.
    pub(super) fn step(self, step: Step) -> Check {
        self.0.steps([step])
    }

    /// The check with steps, of which only the last is sure to be there.
    pub(super) fn steps(self, before: impl IntoIterator<Item = Step>, last: Step) -> Check {
        self.0.steps(before).steps([last])
    }
}

impl Step {
    /// One in words.
    pub(super) fn words(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            command: None,
        }
    }

    /// One with its command.
    pub(super) fn with_command(text: impl Into<String>, command: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            command: Some(command.into()),
        }
    }
}

impl Check {
    /// The same with what follows.
    #[must_use]
    pub(super) fn follows(mut self, text: impl Into<String>) -> Self {
        self.follows = Some(tidied(&text.into()));
        self
    }

    /// The same with something to do that is no command.
    #[must_use]
    pub(super) fn next(mut self, text: impl Into<String>) -> Self {
        self.next.push(Step::words(text));
        self
    }

    /// The same with a command.
    #[must_use]
    pub(super) fn run(mut self, text: impl Into<String>, command: impl Into<String>) -> Self {
        self.next.push(Step::with_command(text, command));
        self
    }

    /// The same with more steps.
    #[must_use]
    pub(super) fn steps(mut self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.next.extend(steps);
        self
    }
}

/// What errors say, without the numbers that the words stand for, and without saying a cause twice.
pub(super) fn tidied(text: &str) -> String {
    const NUMBER: &str = " (os error ";
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(NUMBER) {
        let end = after.find(|letter: char| !letter.is_ascii_digit());
        plain.push_str(before);
        if let Some(end) = end.filter(|end| *end > 0 && after[*end..].starts_with(')')) {
            rest = &after[end + 1..];
        } else {
            plain.push_str(NUMBER);
            rest = after;
        }
    }
    plain.push_str(rest);
    let mut parts: Vec<&str> = plain.split(": ").collect();
    parts.dedup();
    parts.join(": ")
}

impl State {
    /// All of them, the most important first.
    pub const ALL: [Self; 5] = [
        Self::Failed,
        Self::Warning,
        Self::Unknown,
        Self::Note,
        Self::Ok,
    ];

    /// The word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Warning => "warning",
            Self::Unknown => "unknown",
            Self::Note => "note",
            Self::Ok => "ok",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn errors_lose_their_numbers_and_echoes() {
        for (text, expected) in [
            (
                "/run/x: Permission denied (os error 13)",
                "/run/x: Permission denied",
            ),
            ("a (os error 2); b (os error 3) c", "a; b c"),
            ("map: no `A`: no `A`: EPERM", "map: no `A`: EPERM"),
            (
                "(os error x) (os error ) (os error 5",
                "(os error x) (os error ) (os error 5",
            ),
            ("", ""),
        ] {
            assert_eq!(tidied(text), expected);
        }
    }

    #[test]
    fn of_several_things_some_are_told_and_the_rest_is_counted() {
        let all = ["a (os error 2)", "b", "c"].map(str::to_owned);
        let check = |most| Subject("a.b", "c").several(State::Note, &all, most);
        assert_eq!(check(3).parts, ["a", "b", "c"]);
        assert_eq!(check(1).parts, ["a", "and 2 more"]);
        assert_eq!(check(1).found, "a; and 2 more");
    }

    #[test]
    fn what_is_not_well_is_told_with_what_to_do_about_it() {
        const SUBJECT: Subject = Subject("a.b", "c");
        let step = || Step::with_command("look", "true");
        for state in State::ALL {
            for (check, expected) in [
                (SUBJECT.trouble(state, "d").next("look"), 1),
                (SUBJECT.trouble(state, "d").run("look", "true"), 1),
                (SUBJECT.trouble(state, "d").step(step()), 1),
                (SUBJECT.trouble(state, "d").steps(None, step()), 1),
                (SUBJECT.trouble(state, "d").steps([step()], step()), 2),
            ] {
                assert_eq!((check.state, check.next.len()), (state, expected));
            }
        }
        let check = SUBJECT.failed("d").follows("e").next("f");
        assert_eq!(check.follows.as_deref(), Some("e"));
        assert_eq!(check.next, [Step::words("f")]);
        let several = SUBJECT.warning_of(&["g".to_owned()], 1).next("f");
        assert_eq!(
            (several.state, several.found.as_str()),
            (State::Warning, "g")
        );
    }

    proptest! {
        #[test]
        fn any_text_is_tidied(text in any::<String>()) {
            prop_assert!(tidied(&text).len() <= text.len());
        }
    }
}
