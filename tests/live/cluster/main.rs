//! A real Kubernetes on this machine: `cargo xtask cluster test` runs these on one; without one they are skipped.
#![cfg(test)]

mod support;

use brink_tests::skip;
use serde_json::{Value, json};

use self::support::{Cluster, IMAGE, Pod, commands_in, container_group, has_shim, holds_in_time};

/// A pod that sleeps, and ends at once when it is asked to.
fn sleeper(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "sleeper",
                "image": IMAGE,
                "imagePullPolicy": "Never",
                "args": ["sleep", "3600"],
                "resources": { "requests": { "memory": "16Mi" }, "limits": { "memory": "32Mi" } },
            }],
        },
    })
}

/// The pod once its only container runs.
fn wait_running(pod: &Pod<'_>) -> Value {
    let running = || {
        pod.read()
            .filter(|found| found["status"]["phase"] == "Running")
    };
    assert!(holds_in_time(|| running().is_some()), "{}", pod.described());
    running().unwrap()
}

#[test]
fn a_pod_runs_in_the_group_its_uid_and_container_lead_to_and_is_gone_when_deleted() {
    let cluster = match Cluster::find() {
        Ok(cluster) => cluster,
        Err(reason) => skip!("{reason}"),
    };
    let pod = cluster.pod(&sleeper(&format!("sleeper-{}", std::process::id())));
    let found = wait_running(&pod);
    let uid = found["metadata"]["uid"].as_str().unwrap();
    let id = found["status"]["containerStatuses"][0]["containerID"]
        .as_str()
        .unwrap();
    let id = id.strip_prefix("containerd://").unwrap();
    let Some(group) = container_group(uid, id) else {
        panic!("no group of pod {uid} and container {id} on this machine");
    };
    assert_eq!(commands_in(&group), ["/busybox sleep 3600"]);
    // The sandbox has a group of its own beside it, which an eviction must leave alone.
    let siblings = std::fs::read_dir(group.parent().unwrap())
        .unwrap()
        .flatten();
    let siblings: Vec<_> = siblings
        .filter(|entry| entry.path().is_dir() && entry.path() != group)
        .collect();
    assert_eq!(siblings.len(), 1, "{siblings:?}");
    let sandbox = &siblings[0];
    assert_eq!(commands_in(&sandbox.path()), ["/pause"]);
    let sandbox = sandbox.file_name().into_string().unwrap();
    assert!(has_shim(&sandbox), "no shim of {sandbox}");
    pod.delete();
    assert!(
        holds_in_time(|| pod.read().is_none()),
        "{}",
        pod.described()
    );
    assert!(
        holds_in_time(|| !group.exists()),
        "{} stays",
        group.display()
    );
    assert!(
        holds_in_time(|| !has_shim(&sandbox)),
        "the shim of {sandbox} stays"
    );
}
