//! Words that say "not finished" or "not looked at", and names that say nothing.
use proc_macro2::Delimiter;

use super::{
    Problem, Tree,
    tokens::{Token, attributes, closing},
};

/// Macros that mark unfinished work.
const UNFINISHED: [&str; 3] = ["todo", "unimplemented", "dbg"];
/// The comment that marks it; in two parts, so that this file may stand under its own rule.
const MARK: &str = concat!("FIX", "ME");

pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (file, rust) in tree.rust() {
        problems.extend(unfinished(&file.path, &rust.tokens));
        problems.extend(bare_attributes(&file.path, &rust.tokens));
    }
    for file in tree.files.iter().filter(|file| !file.has_extension("md")) {
        let lines = file.text().unwrap_or_default().lines().enumerate();
        for (index, _) in lines.filter(|(_, line)| line.contains(MARK)) {
            let message = format!("a `{MARK}` is left");
            let remedy = "fix it now, or write an issue and say in the code what holds today";
            problems.push(Problem::fault(&file.path, index + 1, message, remedy));
        }
        if file.is_rust() && file.name().starts_with("util") {
            let remedy = "name it after what it holds";
            problems.push(Problem::fault(
                &file.path,
                0,
                "a name that says nothing",
                remedy,
            ));
        }
    }
    problems
}

fn unfinished<'a>(path: &'a str, tokens: &'a [Token]) -> impl Iterator<Item = Problem> {
    let is_call = |three: &&[Token]| {
        three[1].is_sign('!') && matches!(three[2].kind, super::tokens::Kind::Open(_))
    };
    tokens.windows(3).filter(is_call).filter_map(move |three| {
        let name = three[0].word().filter(|word| UNFINISHED.contains(word))?;
        let remedy = "finish it, or return an error that says what is missing";
        Some(Problem::fault(
            path,
            three[0].line,
            format!("`{name}!` is left"),
            remedy,
        ))
    })
}

fn bare_attributes(path: &str, tokens: &[Token]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (line, inside) in attributes(tokens) {
        for (at, token) in inside.iter().enumerate() {
            let Some(name) = token
                .word()
                .filter(|word| ["allow", "expect"].contains(word))
            else {
                continue;
            };
            let opens = inside
                .get(at + 1)
                .is_some_and(|next| next.opens(Delimiter::Parenthesis));
            let list = inside
                .get(at + 1..closing(inside, at + 1))
                .unwrap_or_default();
            if opens && !list.iter().any(|word| word.is_word("reason")) {
                let message = format!("`#[{name}]` without a reason");
                let remedy = "write `#[expect(lint, reason = \"…\")]`";
                problems.push(Problem::fault(path, line, message, remedy));
            }
        }
        if let [only] = inside
            && only.is_word("ignore")
        {
            let remedy = "write `#[ignore = \"…\"]`: what is skipped says why";
            problems.push(Problem::fault(
                path,
                line,
                "`#[ignore]` without a reason",
                remedy,
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::samples::{Expect, check_file};

    const PATH: &str = "agent/src/a.rs";

    fn check_body(body: &str, expected: &Expect) {
        check_file(check, PATH, &format!("//! A.\n{body}\n"), expected);
    }

    #[test]
    fn unfinished_work_is_found_in_code_and_not_in_prose() {
        check_body("fn f() { todo!() }", &[(PATH, 2, "`todo!`")]);
        check_body(
            "fn f() {\nvec![unimplemented!(\"a\")];\n}",
            &[(PATH, 3, "`unimplemented!`")],
        );
        check_body("fn f() { std::dbg!(1); }", &[(PATH, 2, "`dbg!`")]);
        check_body("// todo!() in prose\nconst A: &str = \"dbg!(1)\";", &[]);
        check_body("fn f(todo: u8) -> bool { todo != 1 }", &[]);
    }

    #[test]
    fn the_mark_is_found_in_comments_too() {
        check_body(&format!("fn f() {{}}\n// {MARK} later"), &[(PATH, 3, MARK)]);
        check_file(
            check,
            "a.toml",
            &format!("# {MARK}\n"),
            &[("a.toml", 1, MARK)],
        );
        check_file(check, "docs/a.md", &format!("No {MARK} here.\n"), &[]);
    }

    #[test]
    fn an_exception_has_a_reason() {
        check_body("#[allow(dead_code)]\nfn f() {}", &[(PATH, 2, "`#[allow]`")]);
        check_body("#![allow(dead_code)]", &[(PATH, 2, "`#[allow]`")]);
        check_body(
            "#[cfg_attr(test, expect(dead_code))]\nfn f() {}",
            &[(PATH, 2, "`#[expect]`")],
        );
        check_body("#[expect(dead_code, reason = \"later\")]\nfn f() {}", &[]);
        check_body("fn f() { a().expect(\"b\"); }", &[]);
        check_body("#[test]\n#[ignore]\nfn f() {}", &[(PATH, 3, "`#[ignore]`")]);
        check_body("#[test]\n#[ignore = \"slow\"]\nfn f() {}", &[]);
    }

    #[test]
    fn names_say_something() {
        for path in [
            "agent/src/util.rs",
            "agent/src/utils.rs",
            "tests/live/util_cgroup.rs",
        ] {
            check_file(check, path, "//! A.\n", &[(path, 0, "says nothing")]);
        }
        check_file(check, "agent/src/utilization.txt", "", &[]);
    }
}
