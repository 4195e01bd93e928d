//! Keys that ask for what `brink run` cannot do: evict nobody, or call what is not there.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;

use super::document::{Node, Origins, Value};
use super::finding::Finding;

/// What is said of every such key that somebody wrote here.
pub(super) fn findings(tree: &Node, origins: &Origins) -> Vec<Finding> {
    let mut found = Vec::from_iter(nobody(tree, origins));
    found.extend(unasked(tree, origins));
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

/// What is said where the kubelet is to be asked, and nobody reaches the API server that would ask it.
fn unasked(tree: &Node, origins: &Origins) -> Option<Finding> {
    let kubernetes = tree.get("kubernetes")?;
    let is_true = |key: &str| {
        let node = kubernetes.get(key);
        node.is_some_and(|node| matches!(node.value, Value::Bool(true, _)))
    };
    let configz = kubernetes.get("configz").filter(|_| is_true("configz"))?;
    let problem =
        "the kubelet is asked by way of the API server alone; set kubernetes.enabled: true";
    let path = "kubernetes.configz".to_owned();
    let finding = Finding::at(origins, configz.site, path, problem);
    (!is_true("enabled")).then(|| finding.written("\"true\""))
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
