//! Keys that ask for what `brink run` cannot do: act on disks, evict nobody, or call what is not there.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;

use brink_core::node::policy::read_threshold;

use super::document::{Node, Origins, Value};
use super::finding::Finding;

/// First parts of the names of signals that nobody measures for the live engine.
const DISKS: [&str; 3] = ["nodefs.", "imagefs.", "containerfs."];

/// What is said of every such key that somebody wrote here. Defaults and what is inherited from the kubelet, which does
/// act on them, are nobody's wish.
pub(super) fn findings(tree: &Node, inherited: Option<&Node>, origins: &Origins) -> Vec<Finding> {
    let mut found = Vec::new();
    for key in ["evictionHard", "evictionSoft"] {
        let theirs = inherited.and_then(|kubelets| kubelets.get(key));
        for entry in tree.get(key).map_or(&[][..], Node::entries) {
            let is_disk = DISKS.iter().any(|disk| entry.key.starts_with(disk));
            let inherited = theirs.and_then(|map| map.get(&entry.key));
            if is_disk && is_on(&entry.node) && is_written(&entry.node, inherited) {
                let path = format!("{key}.{}", entry.key);
                let problem = "brink run does not measure disks yet and never meets this; brink simulate does";
                found.push(Finding::at(origins, entry.node.site, path, problem));
            }
        }
    }
    found.extend(nobody(tree, origins));
    let hooks = ["beforeKill", "afterKill"].into_iter();
    found.extend(hooks.filter_map(|key| hook(tree, key, origins)));
    found
}

/// What is said of mode `enforce` where no workload can ever be known.
fn nobody(tree: &Node, origins: &Origins) -> Option<Finding> {
    let mode = tree
        .get("mode")
        .filter(|mode| mode.scalar() == Some("enforce"))?;
    let workloads = tree.get("workloads");
    let manifests = workloads.and_then(|node| node.get("manifests")?.scalar());
    let cgroups = workloads.and_then(|node| node.get("cgroups"));
    let is_a_group = |node: &Node| matches!(&node.value, Value::List(items) if !items.is_empty());
    let kubernetes = tree.get("kubernetes").and_then(|node| node.get("enabled"));
    let has_pods = kubernetes.is_some_and(|node| matches!(node.value, Value::Bool(true, _)));
    let is_anybody = has_pods || manifests.is_some() || cgroups.is_some_and(is_a_group);
    let problem = "there is nobody to evict; name a folder of pod manifests (workloads.manifests) or control groups \
                   (workloads.cgroups), or take the pods of a cluster (kubernetes.enabled)";
    let finding = Finding::at(origins, mode.site, "mode".to_owned(), problem);
    (!is_anybody).then(|| finding.written("\"enforce\""))
}

/// What is said of a hook whose program cannot be run.
fn hook(tree: &Node, key: &str, origins: &Origins) -> Option<Finding> {
    let node = tree.get("hooks")?.get(key)?;
    let program = match &node.value {
        Value::List(words) => words.first()?.scalar()?,
        _ => node.scalar()?,
    };
    let problem = match fs::metadata(program) {
        Ok(found) if !found.is_file() => "the program is no file",
        Ok(found) if found.permissions().mode() & 0o111 == 0 => "nobody may execute the program",
        Err(error) if error.kind() == ErrorKind::NotFound => "there is no such program",
        Ok(_) | Err(_) => return None,
    };
    let path = format!("hooks.{key}");
    Some(Finding::at(origins, node.site, path, problem).written(format!("{program:?}")))
}

fn is_written(node: &Node, inherited: Option<&Node>) -> bool {
    node.site.source != Origins::DEFAULT && inherited.is_none_or(|theirs| theirs.site != node.site)
}

/// A threshold that is switched off asks for nothing.
fn is_on(node: &Node) -> bool {
    let text = node.scalar().unwrap_or_default();
    matches!(read_threshold(text), Ok(Some(_)))
}
