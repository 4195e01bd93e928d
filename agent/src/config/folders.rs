//! Folders, control groups and a kubeconfig that are named, and are not there or are none.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use brink_host::cgroup::{Controller, Layout};

use super::disks::asked;
use super::document::{Node, Origins, Value, path_to};
use super::finding::Finding;
use crate::disks::discover::below;

/// What somebody named.
struct Named<'a> {
    node: &'a Node,
    path: PathBuf,
    wanted: Wanted,
    /// What is the matter as long as it is not there.
    lost: &'static str,
}

/// What it is to be.
#[derive(Clone, Copy)]
enum Wanted {
    Folder,
    Group,
    File,
}

impl Wanted {
    const fn word(self) -> &'static str {
        match self {
            Self::Folder => "folder",
            Self::Group => "control group",
            Self::File => "file",
        }
    }

    fn is(self, found: &fs::Metadata) -> bool {
        match self {
            Self::Folder | Self::Group => found.is_dir(),
            Self::File => found.is_file(),
        }
    }
}

/// What is said of each of them. Where one does not answer the others are not asked: it would take as long with each.
pub(super) fn findings(tree: &Node, root: &Path, origins: &Origins) -> Vec<Finding> {
    let mut found = Vec::new();
    for Named {
        node,
        path,
        wanted,
        lost,
    } in named(tree, root)
    {
        let shown = node.scalar().unwrap_or_default();
        let word = wanted.word();
        let is_there = asked(move || fs::metadata(path).map(|found| wanted.is(&found)));
        let problem = match &is_there {
            None => format!("its filesystem does not answer within 1 s; until it does, {lost}"),
            Some(Ok(false)) => format!("this is no {word}: {lost}"),
            Some(Err(error)) if error.kind() == ErrorKind::NotFound => {
                format!("there is no such {word}; until it is there, {lost}")
            }
            Some(Err(error)) if error.kind() == ErrorKind::NotADirectory => {
                format!("what it is to be in is no folder: {lost}")
            }
            // One that may not be looked at may be there.
            Some(Ok(true) | Err(_)) => continue,
        };
        let finding = Finding::at(origins, node.site, path_to(tree, node), problem);
        found.push(finding.written(format!("{shown:?}")));
        if is_there.is_none() {
            break;
        }
    }
    found
}

fn named<'a>(tree: &'a Node, root: &Path) -> Vec<Named<'a>> {
    const NOT_COUNTED: (Wanted, &str) = (Wanted::Folder, "nothing in it is counted");
    const NO_START: &str = "brink run does not start";
    let mut all = Vec::new();
    let mut add = |node: Option<&'a Node>, root: Option<&Path>, (wanted, lost)| {
        if let Some((node, text)) = node.and_then(|node| Some((node, node.scalar()?))) {
            let path =
                root.map_or_else(|| PathBuf::from(text), |root| below(root, Path::new(text)));
            all.push(Named {
                node,
                path,
                wanted,
                lost,
            });
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
    let pods = (Wanted::Folder, "no pod of it is known");
    add(key("manifests"), None, pods);
    for rule in items(key("cgroups")) {
        for directory in items(rule.get("directories")) {
            add(Some(directory), Some(root), NOT_COUNTED);
        }
    }
    let kubeconfig = tree
        .get("kubernetes")
        .and_then(|kubernetes| kubernetes.get("kubeconfig"));
    let server = (Wanted::File, "the API server is not reached");
    add(kubeconfig, None, server);
    let machine = tree.get("paths").and_then(|paths| paths.get("root"));
    add(machine, None, (Wanted::Folder, NO_START));
    let node = tree.get("node").and_then(|node| node.get("cgroup"));
    all.extend(groups([node, tree.get("podsCgroup")], root, NO_START));
    all
}

/// Control groups lie where the memory controller is mounted; where that is not known, or does not show them, nothing is known of them.
fn groups<'a>(nodes: [Option<&'a Node>; 2], root: &Path, lost: &'static str) -> Vec<Named<'a>> {
    let nodes: Vec<&Node> = nodes.into_iter().flatten().collect();
    if nodes.is_empty() {
        return Vec::new();
    }
    let root = root.to_owned();
    let Some(Ok(layout)) = asked(move || Layout::detect(&root)) else {
        return Vec::new();
    };
    let memory = layout.hierarchy(Controller::Memory);
    let named = |node: &'a Node| {
        let path = memory?.folder(node.scalar()?)?;
        Some(Named {
            node,
            path,
            wanted: Wanted::Group,
            lost,
        })
    };
    nodes.into_iter().filter_map(named).collect()
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
    use crate::fake;

    fn said(text: &str, root: &Path) -> Vec<String> {
        let tree = parse(text.as_bytes(), Origins::DEFAULT, Limits::WRITTEN);
        let tree = tree
            .unwrap_or_else(|error| panic!("{}", error.message))
            .swap_remove(0);
        let found = findings(&tree, root, &Origins::default());
        found.iter().map(Finding::statement).collect()
    }

    #[test]
    fn a_kubeconfig_is_a_file_where_this_process_sees_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("k");
        let check = |problem: Option<&str>| {
            let text = format!("kubernetes: {{kubeconfig: {}}}\n", file.display());
            let shown = file.display().to_string();
            let expected =
                problem.map(|problem| format!("kubernetes.kubeconfig: {shown:?}: {problem}"));
            assert_eq!(
                said(&text, Path::new("/nonexistent")),
                Vec::from_iter(expected)
            );
        };
        check(Some(
            "there is no such file; until it is there, the API server is not reached",
        ));
        fs::create_dir(&file).unwrap();
        check(Some("this is no file: the API server is not reached"));
        fs::remove_dir(&file).unwrap();
        fs::write(&file, "").unwrap();
        check(None);
    }

    #[test]
    fn what_is_no_folder_is_told_by_its_place_and_a_folder_is_not() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("there")).unwrap();
        fs::write(root.path().join("file"), "").unwrap();
        let text = "storage: {rootDir: /file, podLogsDir: /there}\n\
                    workloads: {manifests: /nonexistent/pods, cgroups: [{directories: [/there, /none, /file/in]}]}\n";
        let said = said(text, root.path());
        let expected = [
            "storage.rootDir: \"/file\": this is no folder: nothing in it is counted",
            "workloads.manifests: \"/nonexistent/pods\": there is no such folder; until it is there, no pod of it is known",
            "workloads.cgroups[0].directories[1]: \"/none\": there is no such folder; until it is there, nothing in it is counted",
            "workloads.cgroups[0].directories[2]: \"/file/in\": what it is to be in is no folder: nothing in it is counted",
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn a_machine_or_a_control_group_that_is_not_there_keeps_the_agent_from_starting() {
        let machine = tempfile::tempdir().unwrap();
        let root = machine.path();
        fake::mount_unified(root);
        fs::create_dir(root.join("sys/fs/cgroup/there")).unwrap();
        let text = |node: &str, pods: &str, root: &str| {
            format!("node: {{cgroup: {node}}}\npodsCgroup: {pods}\npaths: {{root: {root}}}\n")
        };
        let why = "until it is there, brink run does not start";
        assert_eq!(
            said(&text("/none", "/there/none", "/nonexistent"), root),
            [
                format!("paths.root: \"/nonexistent\": there is no such folder; {why}"),
                format!("node.cgroup: \"/none\": there is no such control group; {why}"),
                format!("podsCgroup: \"/there/none\": there is no such control group; {why}"),
            ]
        );
        assert_eq!(said(&text("/there/", "/there", "/"), root), [""; 0]);
        // Where no control groups are mounted nothing is known of them.
        let bare = tempfile::tempdir().unwrap();
        assert_eq!(said(&text("/none", "/none", "/"), bare.path()), [""; 0]);
    }
}
