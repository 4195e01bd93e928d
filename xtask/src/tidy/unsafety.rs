//! `unsafe` stays in the kernel programs and in a short list of files, and each use says why it is sound.
use proc_macro2::Delimiter;

use super::{
    Problem, Tree,
    tokens::{Kind, Token},
};

/// Where `unsafe` may stand (one `*` a path, for any part of a name), and why it has to.
const PLACES: [(&str, &str); 9] = [
    (
        "ebpf/*.rs",
        "kernel programs: helpers and kernel pointers have no safe form",
    ),
    (
        "agent/host/src/disk/raw.rs",
        "change feeds, project quotas and the class of I/O: system calls without a wrapper",
    ),
    (
        "agent/host/src/kill/mrelease.rs",
        "process_mrelease has no wrapper: a raw system call",
    ),
    (
        "agent/host/src/realtime.rs",
        "scheduling policy and memory locking of one thread",
    ),
    (
        "agent/host/src/realtime/program.rs",
        "which pages of our own program are read in",
    ),
    (
        "agent/host/src/ledger*.rs",
        "a shared mapping that outlives the agent",
    ),
    (
        "agent/host/src/probe/*.rs",
        "plain-data marks for maps and globals, records out of a ring",
    ),
    (
        "agent/host/src/hog/raw.rs",
        "mappings, advice, locks and bare forks of a load",
    ),
    (
        "*/counting_allocator.rs",
        "a global allocator that counts, for the test of the hard path",
    ),
];

pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (file, rust) in tree.rust() {
        let mut uses = rust
            .tokens
            .iter()
            .enumerate()
            .filter(|(_, token)| token.is_word("unsafe"));
        if !PLACES.iter().any(|(place, _)| matches(place, &file.path)) {
            problems.extend(
                uses.next()
                    .map(|(_, token)| outside(&file.path, token.line)),
            );
            continue;
        }
        let lines: Vec<&str> = file.text().unwrap_or_default().lines().collect();
        for (at, token) in uses {
            let Some(note) = note_owed(&rust.tokens, at) else {
                continue;
            };
            let candidates = [token.line, statement_line(&rust.tokens, at)];
            if !candidates.iter().any(|line| has_note(&lines, *line, note)) {
                let message = format!("`unsafe` without its `{note}` note");
                let remedy = "say above it why it is needed and why it is sound";
                problems.push(Problem::fault(&file.path, token.line, message, remedy));
            }
        }
    }
    problems
}

fn outside(path: &str, line: usize) -> Problem {
    let remedy = "use a safe wrapper, move it to a file of PLACES in xtask/src/tidy/unsafety.rs, \
                  or add the file there with its reason";
    Problem::fault(path, line, "`unsafe` outside its places", remedy)
}

fn matches(place: &str, path: &str) -> bool {
    match place.split_once('*') {
        None => path == place,
        Some((head, tail)) => {
            path.len() >= head.len() + tail.len() && path.starts_with(head) && path.ends_with(tail)
        }
    }
}

/// What the `unsafe` at `at` owes: a block or an implementation a reason, a function its contract.
fn note_owed(tokens: &[Token], at: usize) -> Option<&'static str> {
    let mut next = tokens.get(at + 1..)?.iter();
    let first = next.next()?;
    if first.opens(Delimiter::Brace) || first.is_word("impl") {
        return Some("SAFETY:");
    }
    // `unsafe fn name`, with or without an ABI between; `unsafe fn(…)` is only a type.
    let is_abi = |token: &&Token| token.is_word("extern") || matches!(token.kind, Kind::Literal(_));
    let mut rest = tokens[at + 1..].iter().skip_while(is_abi);
    let is_item = rest.next()?.is_word("fn") && rest.next()?.word().is_some();
    is_item.then_some("# Safety")
}

/// The line where the statement, arm or field around `at` begins.
fn statement_line(tokens: &[Token], at: usize) -> usize {
    let mut line = tokens[at].line;
    // Where the part after the nearest comma begins: that is all there is in a list of arms or
    // fields, and nothing to go by in a list of arguments.
    let mut after_comma = None;
    let mut depth = 0_usize;
    for token in tokens[..at].iter().rev() {
        match &token.kind {
            Kind::Close(Delimiter::Brace) | Kind::Sign(';') if depth == 0 => return line,
            Kind::Open(Delimiter::Brace) if depth == 0 => return after_comma.unwrap_or(line),
            Kind::Open(_) if depth == 0 => after_comma = None,
            Kind::Sign(',') if depth == 0 => after_comma = after_comma.or(Some(line)),
            Kind::Open(_) => depth -= 1,
            Kind::Close(_) => depth += 1,
            _ => {}
        }
        line = token.line;
    }
    line
}

/// Whether the comments directly above `line` (attributes between them allowed) hold `note`.
fn has_note(lines: &[&str], line: usize, note: &str) -> bool {
    let above = lines.get(..line.saturating_sub(1)).unwrap_or_default();
    let here = lines
        .get(line.saturating_sub(1))
        .copied()
        .unwrap_or_default();
    let belongs =
        |text: &&&str| text.trim_start().starts_with("//") || text.trim_start().starts_with("#[");
    let before_code = here.split("unsafe").next().unwrap_or_default();
    before_code.contains(note)
        || above
            .iter()
            .rev()
            .take_while(belongs)
            .any(|text| text.contains(note))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::samples::{Expect, check_file};

    const NAMED: &str = "agent/host/src/realtime.rs";
    const OUTSIDE: &str = "agent/host/src/kill/mod.rs";

    #[test]
    fn unsafe_stands_only_where_it_is_named() {
        let source = "//! A.\n// SAFETY: sound.\nunsafe impl Send for A {}\n";
        for place in [
            NAMED,
            "ebpf/src/oom.rs",
            "agent/host/src/kill/mrelease.rs",
            "agent/host/src/ledger.rs",
            "agent/host/src/ledger/map.rs",
            "agent/host/src/probe/decode.rs",
            "tests/live/counting_allocator.rs",
        ] {
            check_file(check, place, source, &[]);
        }
        check_file(check, OUTSIDE, source, &[(OUTSIDE, 3, "outside")]);
        let prose =
            "//! A.\n// unsafe in prose\nconst A: &str = \"unsafe {\";\n#![deny(unsafe_code)]\n";
        check_file(check, OUTSIDE, prose, &[]);
    }

    fn check_noted(body: &str, expected: &Expect) {
        check_file(check, NAMED, &format!("//! A.\n{body}\n"), expected);
    }

    #[test]
    fn a_block_says_why_it_is_sound() {
        check_noted("fn f() {\n// SAFETY: a.\nunsafe { g() }\n}", &[]);
        check_noted("fn f() {\nunsafe { g() }\n}", &[(NAMED, 3, "SAFETY:")]);
        check_noted(
            "fn f() {\n// because\nunsafe { g() }\n}",
            &[(NAMED, 4, "SAFETY:")],
        );
        check_noted(
            "fn f() {\n// SAFETY: a.\n\nunsafe { g() }\n}",
            &[(NAMED, 5, "SAFETY:")],
        );
        check_noted("fn f() {\nlet a = /* SAFETY: a. */ unsafe { g() };\n}", &[]);
        check_noted("fn f() {\n// SAFETY: a.\n#[cold]\nunsafe { g() }\n}", &[]);
    }

    #[test]
    fn the_note_may_stand_above_the_statement() {
        check_noted(
            "fn f() {\n// SAFETY: a.\nlet a = h(\n1,\nunsafe { g() },\n);\n}",
            &[],
        );
        check_noted(
            "fn f() {\n// SAFETY: a.\nassert!(\nunsafe { g() } == 1\n);\n}",
            &[],
        );
        let arm = "fn f(x: u8) {\nmatch x {\n1 => h(),\n// SAFETY: a.\n0 =>\nunsafe { g() },\n_ => {}\n}\n}";
        check_noted(arm, &[]);
        let other =
            "fn f(x: u8) {\nmatch x {\n// SAFETY: a.\n1 => h(),\n0 =>\nunsafe { g() },\n}\n}";
        check_noted(other, &[(NAMED, 7, "SAFETY:")]);
        let second = "fn f() {\n// SAFETY: a.\nlet a = unsafe { g() };\nlet b = unsafe { g() };\n}";
        check_noted(second, &[(NAMED, 5, "SAFETY:")]);
    }

    #[test]
    fn a_function_states_its_contract() {
        check_noted(
            "/// F.\n///\n/// # Safety\n/// Call once.\nunsafe fn f() {}",
            &[],
        );
        check_noted(
            "/// F.\npub unsafe extern \"C\" fn f() {}",
            &[(NAMED, 3, "# Safety")],
        );
        check_noted(
            "type F = unsafe extern \"C\" fn(u8);\nunsafe extern \"C\" {\nfn f();\n}",
            &[],
        );
        check_noted("unsafe impl Sync for A {}", &[(NAMED, 2, "SAFETY:")]);
    }
}
