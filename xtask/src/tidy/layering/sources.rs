//! The layers as the sources have them: every name of a crate, modules from elsewhere, and the core's halves.
use super::{
    super::{
        Problem, Tree,
        tokens::{Kind, Token, attributes},
    },
    ALL, allowed, is_ours, may_test_with, wrong_edge,
};

/// The core's first file.
const CORE_ROOT: &str = "agent/core/src/lib.rs";

/// The core's two halves; neither names the other.
const CORE_HALVES: [(&str, &str); 2] = [
    ("agent/core/src/node/", "cluster"),
    ("agent/core/src/cluster/", "node"),
];

pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = edges(tree);
    problems.extend(core_halves(tree));
    problems.extend(core_without_std(tree));
    problems
}

fn edges(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (file, rust) in tree.rust() {
        let Some((folder, package)) = tree.package_of(&file.path) else {
            continue;
        };
        let may = allowed(&package.name).unwrap_or(ALL);
        let is_test =
            file.path.starts_with(&format!("{folder}/tests/")) || file.path.ends_with("_tests.rs");
        for token in &rust.tokens {
            let name = token.word().unwrap_or_default().replace('_', "-");
            let is_crate = name.starts_with("brink-") && is_ours(&name);
            let is_shared = is_test && may_test_with(&package.name, &name);
            if is_crate && !is_shared && name != package.name && !may.contains(&name.as_str()) {
                problems.push(wrong_edge(&file.path, token.line, &package.name, &name));
            }
        }
        problems.extend(borrowed_modules(&file.path, &rust.tokens));
    }
    problems
}

/// `#[path = "…"]` that leads out of the file's own folder: a dependency that no manifest shows.
fn borrowed_modules(path: &str, tokens: &[Token]) -> impl Iterator<Item = Problem> {
    attributes(tokens).filter_map(move |(line, inside)| {
        let [
            first,
            ..,
            Token {
                kind: Kind::Literal(module),
                ..
            },
        ] = inside
        else {
            return None;
        };
        (first.is_word("path") && module.contains("..")).then(|| {
            let message = format!("a module is taken from outside its folder: {module}");
            let remedy = "depend on the crate that owns it, if the layers allow it";
            Problem::fault(path, line, message, remedy)
        })
    })
}

fn core_halves(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (half, other) in CORE_HALVES {
        for (file, rust) in tree.rust().filter(|(file, _)| file.path.starts_with(half)) {
            for line in paths_through(&rust.tokens, other) {
                let message = format!("`{other}` is named here");
                let remedy = "`node/` and `cluster/` know `base/` and never each other";
                problems.push(Problem::fault(&file.path, line, message, remedy));
            }
        }
    }
    problems
}

/// The lines where `word` is a part of a path (`a::word`, `word::b`, `a::{word, c}`).
fn paths_through(tokens: &[Token], word: &str) -> Vec<usize> {
    // For each open group: whether it lists the ends of a path.
    let mut groups = vec![false];
    let mut lines = Vec::new();
    let is_colons = |at: Option<usize>| {
        at.and_then(|at| tokens.get(at..at + 2))
            .is_some_and(|pair| pair.iter().all(|token| token.is_sign(':')))
    };
    for (at, token) in tokens.iter().enumerate() {
        match &token.kind {
            Kind::Open(_) => groups.push(is_colons(at.checked_sub(2))),
            Kind::Close(_) => drop(groups.pop()),
            Kind::Word(own) if own == word => {
                let in_list = groups.last().copied().unwrap_or_default();
                if in_list || is_colons(at.checked_sub(2)) || is_colons(Some(at + 1)) {
                    lines.push(token.line);
                }
            }
            _ => {}
        }
    }
    lines
}

fn core_without_std(tree: &Tree) -> Option<Problem> {
    let (_, rust) = tree.rust().find(|(file, _)| file.path == CORE_ROOT)?;
    let is_no_std = |inside: &[Token]| inside.len() == 1 && inside[0].is_word("no_std");
    let unconditional = attributes(&rust.tokens).any(|(_, inside)| is_no_std(inside));
    let remedy = "begin it with `#![no_std]`: the core has no clock, file or socket";
    let fault = || Problem::fault(CORE_ROOT, 0, "the core is not `no_std`", remedy);
    (!unconditional).then(fault)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::samples::{Expect, check_rule, package, tree_of};

    fn check_source(path: &str, source: &str, expected: &Expect) {
        let packages = [
            ("agent", package("brink", &[])),
            ("agent/core", package("brink-core", &[])),
            ("agent/host", package("brink-host", &[])),
            ("ebpf", package("brink-ebpf", &[])),
            ("ebpf/abi", package("brink-abi", &[])),
        ];
        let files = [
            (path, source),
            ("agent/core/src/lib.rs", "//! Core.\n#![no_std]\n"),
        ];
        check_rule(check, &tree_of(&files, packages), expected);
    }

    #[test]
    fn a_crate_names_only_what_its_layer_may_know() {
        let host = "agent/host/src/a.rs";
        check_source(
            host,
            "//! A.\nuse brink_core::base;\nuse brink_abi as abi;\n",
            &[],
        );
        check_source(
            host,
            "//! A.\nfn f() { brink_kube::go(); }\n",
            &[(host, 2, "`brink-kube`")],
        );
        let abi = "ebpf/abi/src/a.rs";
        check_source(
            abi,
            "//! A.\n\nuse brink_core::X;\n",
            &[(abi, 3, "`brink-core`")],
        );
        check_source("ebpf/src/a.rs", "//! A.\nuse brink_abi::X;\n", &[]);
        check_source(
            abi,
            "//! A.\n// brink_core in prose\nconst A: &str = \"brink_core\";\n",
            &[],
        );
        let agent = "agent/src/a.rs";
        let shared = "//! A.\nuse brink_tests::schema;\n";
        check_source("agent/tests/a.rs", shared, &[]);
        check_source(agent, shared, &[(agent, 2, "`brink-tests`")]);
        let borrowed = "//! A.\n#[path = \"../core/src/base.rs\"]\nmod base;\n";
        check_source(agent, borrowed, &[(agent, 2, "outside its folder")]);
    }

    #[test]
    fn the_halves_of_the_core_do_not_know_each_other() {
        let node = "agent/core/src/node/rank.rs";
        for source in [
            "//! A.\nuse crate::cluster::zone;\n",
            "//! A.\nuse crate::{base, cluster};\n",
            "//! A.\nfn f() -> crate::cluster::Zone { todo() }\n",
            "//! A.\nuse super::super::cluster as c;\n",
        ] {
            check_source(node, source, &[(node, 2, "`cluster`")]);
        }
        check_source(
            node,
            "//! A.\nfn f(cluster: u8) -> u8 { cluster + 1 }\n",
            &[],
        );
        let cluster = "agent/core/src/cluster/zone.rs";
        check_source(
            cluster,
            "//! A.\nuse crate::node::Rank;\n",
            &[(cluster, 2, "`node`")],
        );
        check_source(
            "agent/core/src/lib2.rs",
            "//! A.\nuse crate::{node, cluster};\n",
            &[],
        );
    }

    #[test]
    fn the_core_has_no_std() {
        for head in ["", "#![cfg_attr(not(test), no_std)]", "// #![no_std]"] {
            let source = format!("//! Core.\n{head}\n");
            check_rule(
                check,
                &tree_of(&[(CORE_ROOT, &source)], []),
                &[(CORE_ROOT, 0, "not `no_std`")],
            );
        }
        check_rule(
            check,
            &tree_of(&[(CORE_ROOT, "//! Core.\n#![no_std]\n")], []),
            &[],
        );
    }
}
