//! The top level of the tree: what may lie there, by name.
use super::{Problem, Tree};

/// Folders of the workspace.
const FOLDERS: [&str; 8] = [
    ".cargo", ".ci", "agent", "deploy", "docs", "ebpf", "tests", "xtask",
];
/// Pages, licences, manifests and the configuration of tools.
const FILES: [&str; 14] = [
    ".gitattributes",
    ".gitignore",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "SECURITY.md",
    "clippy.toml",
    "deny.toml",
    "rustfmt.toml",
];

/// Files outside the folders of the workspace.
pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    let strays = tree.files.iter().filter(|file| {
        file.path.split_once('/').map_or_else(
            || !FILES.contains(&file.path.as_str()),
            |(folder, _)| !FOLDERS.contains(&folder),
        )
    });
    strays
        .map(|file| {
            Problem::fault(
                &file.path,
                0,
                "does not belong at the top level",
                "remove it, or move it to the folder it is for",
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::samples::{check_rule, tree_of};
    use super::*;

    #[test]
    fn strays_are_found_and_what_belongs_is_not() {
        let files = [
            ("README.md", ""),
            ("agent/src/a.rs", ""),
            ("log", ""),
            ("scratch/README.md", ""),
        ];
        let why = "does not belong";
        check_rule(
            check,
            &tree_of(&files, []),
            &[("log", 0, why), ("scratch/README.md", 0, why)],
        );
    }
}
