//! What is left of pods that are deleted: a threshold that is taken while they die counts what they hold as taken for good.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::support::{Cluster, PODS, holds_in_time, pods_group};

/// Where in the group of all pods a kubelet has those of each class.
const CLASSES: [&str; 3] = ["", "burstable", "besteffort"];

/// Waits until no pod that is deleted has a group any more. A kubelet removes that as the last, after containers and volumes: what is
/// in a volume of memory counts to it until then.
pub(crate) fn wait_for_their_end(cluster: &Cluster) {
    let mut left = Vec::new();
    let are_gone = || {
        left = groups_left(cluster);
        left.is_empty()
    };
    assert!(
        holds_in_time(are_gone),
        "pods that are deleted do not end, and what they hold would count in this test: below {PODS} there are still {left:#?}"
    );
}

/// The groups of pods that the server does not know, or knows as deleted; none on a cluster whose pods are not on this machine.
fn groups_left(cluster: &Cluster) -> Vec<PathBuf> {
    // Before the server is asked: it has known every pod that has a group by now.
    let mut groups = groups();
    if !groups.is_empty() {
        let staying = staying(cluster);
        groups.retain(|(uid, _)| !staying.contains(uid));
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// The groups of all pods, each with the uid that it is named after.
fn groups() -> Vec<(String, PathBuf)> {
    let folders = CLASSES.map(|class| pods_group().join(class));
    let listed = folders
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok());
    let named = listed.flatten().flatten().filter_map(|entry| {
        let uid = entry.file_name().to_str()?.strip_prefix("pod")?.to_owned();
        Some((uid, entry.path()))
    });
    named.collect()
}

/// The uids of pods that nobody has deleted.
fn staying(cluster: &Cluster) -> BTreeSet<String> {
    let words = ["get", "pods", "--all-namespaces", "-o", "json"];
    let found: Value = serde_json::from_str(&cluster.kubectl(&words, "")).unwrap();
    let pods = found["items"].as_array().unwrap().iter();
    let staying = pods.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    let uids = staying.filter_map(|pod| pod["metadata"]["uid"].as_str());
    uids.map(str::to_owned).collect()
}
