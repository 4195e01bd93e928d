//! Keys that ask for what `brink run` cannot do: evict nobody, or call what is not there.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;

use super::document::{Node, Origins, Value};
use super::finding::Finding;

/// What is said of every such key that somebody wrote here.
pub(super) fn findings(tree: &Node, origins: &Origins) -> Vec<Finding> {
    let mut found = Vec::from_iter(nobody(tree, origins));
    found.extend(of_kubernetes(tree, origins));
    let variable = env::var_os("KUBECONFIG");
    found.extend(context(tree, variable.as_deref(), origins));
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

/// What is said of switches of `kubernetes` that change nothing as the rest is written.
fn of_kubernetes(tree: &Node, origins: &Origins) -> Vec<Finding> {
    let Some(kubernetes) = tree.get("kubernetes") else {
        return Vec::new();
    };
    let is_true = |node: &&Node| matches!(node.value, Value::Bool(true, _));
    let is_reached = kubernetes.get("enabled").as_ref().is_some_and(is_true);
    let enforces = tree.get("mode").and_then(Node::scalar) == Some("enforce");
    let switches = [
        (
            "configz",
            !is_reached,
            "the kubelet is asked by way of the API server alone; set kubernetes.enabled: true",
        ),
        (
            "taint",
            !is_reached,
            "the node is tainted by way of the API server alone; set kubernetes.enabled: true",
        ),
        (
            "dryRunEvents",
            !is_reached,
            "events are posted by way of the API server alone; set kubernetes.enabled: true",
        ),
        (
            "taint",
            is_reached && !enforces,
            "who only observes taints no node; it counts with mode: enforce",
        ),
        (
            "dryRunEvents",
            is_reached && enforces,
            "who enforces evicts pods, and tells none that it would have been evicted; it counts with mode: observe",
        ),
    ];
    let said = |(key, is_idle, problem): (&str, bool, &str)| {
        let switch = kubernetes.get(key).filter(is_true).filter(|_| is_idle)?;
        let path = format!("kubernetes.{key}");
        Some(Finding::at(origins, switch.site, path, problem).written("\"true\""))
    };
    switches.into_iter().filter_map(said).collect()
}

/// What is said of a context where no kubeconfig is named that could have it, here or by the variable `KUBECONFIG`.
fn context(tree: &Node, variable: Option<&OsStr>, origins: &Origins) -> Option<Finding> {
    let kubernetes = tree.get("kubernetes")?;
    let context = kubernetes.get("context")?;
    let mut paths = variable.into_iter().flat_map(env::split_paths);
    let is_named = paths.any(|path| !path.as_os_str().is_empty());
    if is_named || kubernetes.get("kubeconfig").is_some() {
        return None;
    }
    let problem = "a context is one of a kubeconfig, and neither kubernetes.kubeconfig nor the variable KUBECONFIG of this \
                   process names one: the service account of a pod has none";
    let path = "kubernetes.context".to_owned();
    let finding = Finding::at(origins, context.site, path, problem);
    Some(finding.written(context.preview()?))
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

#[cfg(test)]
mod tests {
    use super::super::document::{Limits, parse};
    use super::*;

    #[test]
    fn a_context_counts_where_a_kubeconfig_is_named_here_or_by_the_variable() {
        const PROBLEM: &str = "kubernetes.context: \"c\": a context is one of a kubeconfig";
        let check = |text: &str, variable: Option<&str>, is_told: bool| {
            let tree = parse(text.as_bytes(), Origins::DEFAULT, Limits::WRITTEN);
            let tree = tree
                .unwrap_or_else(|error| panic!("{}", error.message))
                .swap_remove(0);
            let told = context(&tree, variable.map(OsStr::new), &Origins::default());
            let told = told.map(|finding| finding.statement());
            let starts = told.as_ref().is_some_and(|told| told.starts_with(PROBLEM));
            assert_eq!(
                (told.is_some(), starts),
                (is_told, is_told),
                "{text}: {told:?}"
            );
        };
        let alone = "kubernetes: {enabled: true, context: c}";
        check(alone, None, true);
        check(alone, Some(""), true);
        check(alone, Some("/k"), false);
        check("kubernetes: {context: c, kubeconfig: /k}", None, false);
        check("kubernetes: {enabled: true}", None, false);
    }
}
