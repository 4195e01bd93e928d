//! Folders of pods and workloads that are named, and are not there or are none.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::disks::asked;
use super::document::{Node, Origins, Value, path_to};
use super::finding::Finding;
use crate::disks::discover::below;

/// A folder that somebody named.
struct Named<'a> {
    node: &'a Node,
    path: PathBuf,
    /// What is the matter as long as it is not there.
    lost: &'static str,
}

/// What is said of each of them. Where one does not answer the others are not asked: it would take as long with each.
pub(super) fn findings(tree: &Node, root: &Path, origins: &Origins) -> Vec<Finding> {
    let mut found = Vec::new();
    for Named { node, path, lost } in named(tree, root) {
        let shown = node.scalar().unwrap_or_default();
        let is_folder = asked(move || fs::metadata(path).map(|found| found.is_dir()));
        let problem = match &is_folder {
            None => format!("its filesystem does not answer within 1 s; until it does, {lost}"),
            Some(Ok(false)) => format!("this is no folder: {lost}"),
            Some(Err(error)) if error.kind() == ErrorKind::NotFound => {
                format!("there is no such folder; until it is there, {lost}")
            }
            Some(Err(error)) if error.kind() == ErrorKind::NotADirectory => {
                format!("what it is to be in is no folder: {lost}")
            }
            // One that may not be looked at may be there.
            Some(Ok(true) | Err(_)) => continue,
        };
        let finding = Finding::at(origins, node.site, path_to(tree, node), problem);
        found.push(finding.written(format!("{shown:?}")));
        if is_folder.is_none() {
            break;
        }
    }
    found
}

fn named<'a>(tree: &'a Node, root: &Path) -> Vec<Named<'a>> {
    const NOT_COUNTED: &str = "nothing in it is counted";
    let mut all = Vec::new();
    let mut add = |node: Option<&'a Node>, root: Option<&Path>, lost| {
        if let Some((node, text)) = node.and_then(|node| Some((node, node.scalar()?))) {
            let path =
                root.map_or_else(|| PathBuf::from(text), |root| below(root, Path::new(text)));
            all.push(Named { node, path, lost });
        }
    };
    let storage = tree.get("storage");
    for key in ["rootDir", "podLogsDir"] {
        add(
            storage.and_then(|storage| storage.get(key)),
            Some(root),
            NOT_COUNTED,
        );
    }
    let workloads = tree.get("workloads");
    let key = |key| workloads.and_then(|workloads| workloads.get(key));
    // Those alone are read where this process sees them, and may be named by a relative path.
    add(key("manifests"), None, "no pod of it is known");
    for rule in items(key("cgroups")) {
        for directory in items(rule.get("directories")) {
            add(Some(directory), Some(root), NOT_COUNTED);
        }
    }
    all
}

fn items(node: Option<&Node>) -> &[Node] {
    match node.map(|node| &node.value) {
        Some(Value::List(items)) => items,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::super::document::{Limits, parse};
    use super::*;

    #[test]
    fn what_is_no_folder_is_told_by_its_place_and_a_folder_is_not() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("there")).unwrap();
        fs::write(root.path().join("file"), "").unwrap();
        let text = "storage: {rootDir: /file, podLogsDir: /there}\n\
                    workloads: {manifests: /nonexistent/pods, cgroups: [{directories: [/there, /none, /file/in]}]}\n";
        let tree = parse(text.as_bytes(), Origins::DEFAULT, Limits::WRITTEN);
        let tree = tree
            .unwrap_or_else(|error| panic!("{}", error.message))
            .swap_remove(0);
        let found = findings(&tree, root.path(), &Origins::default());
        let said: Vec<String> = found.iter().map(Finding::statement).collect();
        let expected = [
            "storage.rootDir: \"/file\": this is no folder: nothing in it is counted",
            "workloads.manifests: \"/nonexistent/pods\": there is no such folder; until it is there, no pod of it is known",
            "workloads.cgroups[0].directories[1]: \"/none\": there is no such folder; until it is there, nothing in it is counted",
            "workloads.cgroups[0].directories[2]: \"/file/in\": what it is to be in is no folder: nothing in it is counted",
        ];
        assert_eq!(said, expected);
    }
}
