//! Which crate may know which.
mod manifests;
mod sources;

use super::{Problem, Tree};

/// Each package and the packages of this workspace it may name.
const EDGES: [(&str, &[&str]); 11] = [
    ("brink-abi", &[]),
    ("brink-core", &[]),
    ("brink-cri", &["brink-core"]),
    ("brink-host", &["brink-abi", "brink-core"]),
    ("brink-kube", &["brink-core"]),
    ("brink-stream", &[]),
    ("brink-ebpf", &["brink-abi"]),
    (
        "brink",
        &[
            "brink-core",
            "brink-cri",
            "brink-host",
            "brink-kube",
            "brink-stream",
        ],
    ),
    ("brink-tests", ALL),
    ("brink-fuzz", ALL),
    ("xtask", ALL),
];

/// What a package's tests may name beside that, as a development dependency only.
const TEST_EDGES: [(&str, &str); 2] = [("brink", "brink-tests"), ("brink-stream", "brink-tests")];

const ALL: &[&str] = &[
    "brink",
    "brink-abi",
    "brink-core",
    "brink-cri",
    "brink-host",
    "brink-kube",
    "brink-stream",
    "brink-tests",
    "xtask",
];

pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    [manifests::check(tree), sources::check(tree)].concat()
}

fn allowed(package: &str) -> Option<&'static [&'static str]> {
    EDGES
        .iter()
        .find(|(name, _)| *name == package)
        .map(|(_, may)| *may)
}

fn may_test_with(package: &str, name: &str) -> bool {
    TEST_EDGES.contains(&(package, name))
}

fn is_ours(package: &str) -> bool {
    EDGES.iter().any(|(own, _)| *own == package)
}

fn wrong_edge(path: &str, line: usize, from: &str, to: &str) -> Problem {
    let message = format!("`{from}` names `{to}`");
    let remedy = "allowed edges: ebpf → abi ← host → core ← kube, core ← cri; brink → core, host, kube, cri, stream";
    Problem::fault(path, line, message, remedy)
}
