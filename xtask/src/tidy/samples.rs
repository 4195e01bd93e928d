//! Small trees for the tests of the rules, and the comparison of what a rule found in them.
use super::{Problem, Rule, Tree, Weight, tree::SourceFile};
use crate::workspace::{Dependency, Package};

/// What a rule must find: file, line (0 for the whole file) and a part of the message.
pub(super) type Expect = [(&'static str, usize, &'static str)];

pub(super) fn tree_of<const N: usize>(
    files: &[(&str, &str)],
    packages: [(&str, Package); N],
) -> Tree {
    let files = files
        .iter()
        .map(|(path, text)| SourceFile::new(path, text.as_bytes().to_vec()));
    let packages = packages
        .into_iter()
        .map(|(folder, package)| (folder.to_owned(), package));
    Tree {
        files: files.collect(),
        packages: packages.collect(),
    }
}

pub(super) fn package(name: &str, dependencies: &[Dependency]) -> Package {
    let dependencies = dependencies.to_vec();
    Package {
        name: name.to_owned(),
        dependencies,
        ..Package::default()
    }
}

/// Runs one rule and compares its faults with `expected`, in any order.
pub(super) fn check_rule(rule: Rule, tree: &Tree, expected: &Expect) {
    check_weight(Weight::Fault, rule, tree, expected);
}

/// The same for its advice.
pub(super) fn check_advice(rule: Rule, tree: &Tree, expected: &Expect) {
    check_weight(Weight::Advice, rule, tree, expected);
}

/// One file outside every package.
pub(super) fn check_file(rule: Rule, path: &str, text: &str, expected: &Expect) {
    check_rule(rule, &tree_of(&[(path, text)], []), expected);
}

fn check_weight(weight: Weight, rule: Rule, tree: &Tree, expected: &Expect) {
    let found: Vec<Problem> = rule(tree)
        .into_iter()
        .filter(|problem| problem.weight == weight)
        .collect();
    let is = |problem: &Problem, (path, line, part): &(&str, usize, &str)| {
        problem.path == *path && problem.line == *line && problem.message.contains(part)
    };
    let matches = found.len() == expected.len()
        && expected
            .iter()
            .all(|each| found.iter().any(|problem| is(problem, each)));
    let sources: Vec<_> = tree
        .files
        .iter()
        .map(|file| file.text().unwrap_or("binary"))
        .collect();
    assert!(
        matches,
        "expected {expected:#?}\nfound {found:#?}\nin {sources:#?}"
    );
}
