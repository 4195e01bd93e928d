//! A real Kubernetes on this machine: `cargo xtask cluster test` runs these on one; without one they are skipped.
#![cfg(test)]

/// The cluster that is up, found in one way or another; a test that finds none ends as skipped, with the reason.
macro_rules! cluster {
    () => {
        cluster!(find)
    };
    ($way:ident) => {
        match $crate::support::Cluster::$way() {
            Ok(cluster) => cluster,
            Err(reason) => brink_tests::skip!("{reason}"),
        }
    };
}

mod agent;
mod api;
mod beside;
mod daemonset;
mod dozens;
mod dying;
mod evict;
mod figures;
mod installed;
mod kubelet;
mod leak;
mod limits;
mod line;
mod lives;
mod manifest;
mod node_watch;
mod order;
mod parity;
mod replaced;
mod running;
mod running_pod;
mod sampler;
mod soft;
mod statics;
mod storm;
mod support;
mod tokens;
mod told;
mod turns;
mod watch;
mod wishes;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::api::Proxy;
use self::manifest::{container, pod_of};
use self::support::{
    Pod, commands_in, container_group, groups_beside, has_shim, holds_in_time, id_of, kill_all,
    sandbox_beside,
};

/// After so long without one, a kubelet has no more to say of a pod: it looks at all of them every 10 s.
const LAST_WORD: Duration = Duration::from_secs(12);

/// A pod that sleeps, and ends at once when it is asked to.
fn sleeper(name: &str) -> Value {
    let resources = json!({ "requests": { "memory": "16Mi" }, "limits": { "memory": "32Mi" } });
    pod_of(
        name,
        &[container("sleeper", &["sleep", "3600"], &resources)],
    )
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

/// The group of the pod's first container.
fn group_of(pod: &Value) -> PathBuf {
    group_of_status(pod, &pod["status"]["containerStatuses"][0])
}

/// The groups of all of its containers.
fn groups_of(pod: &Value) -> Vec<PathBuf> {
    let statuses = pod["status"]["containerStatuses"].as_array().unwrap();
    let groups = statuses.iter().map(|status| group_of_status(pod, status));
    groups.collect()
}

fn group_of_status(pod: &Value, status: &Value) -> PathBuf {
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let id = status["containerID"].as_str().unwrap();
    let id = id.strip_prefix("containerd://").unwrap();
    let Some(group) = container_group(uid, id) else {
        panic!("no group of pod {uid} and container {id} on this machine");
    };
    group
}

#[test]
fn a_pod_runs_in_the_group_its_uid_and_container_lead_to_and_is_gone_when_deleted() {
    let cluster = cluster!();
    let pod = cluster.pod(&sleeper(&format!("sleeper-{}", std::process::id())));
    let group = group_of(&wait_running(&pod));
    assert_eq!(commands_in(&group), ["/busybox sleep 3600"]);
    // An eviction must leave it alone.
    let sandbox = sandbox_beside(&group);
    assert_eq!(commands_in(&sandbox), ["/pause"]);
    assert!(
        has_shim(id_of(&sandbox)),
        "no shim of {}",
        sandbox.display()
    );
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
        holds_in_time(|| !has_shim(id_of(&sandbox))),
        "the shim of {} stays",
        sandbox.display()
    );
}

/// What an eviction beside the kubelet stands on: a kubelet takes a pod apart that somebody else has killed and marked as failed. It
/// may first write its own word over that and start again what was killed, so both are done as often as they are undone. In
/// the end phase and condition stay; reason and message a kubelet of this age does not keep.
#[test]
fn a_pod_that_somebody_else_kills_and_marks_as_failed_is_taken_apart_by_the_kubelet() {
    let cluster = cluster!();
    let api = Proxy::start(cluster.command());
    let pod = cluster.pod(&sleeper(&format!("victim-{}", std::process::id())));
    let group = group_of(&wait_running(&pod));
    let sandbox = sandbox_beside(&group);
    let insist = || {
        let mut containers = groups_beside(&sandbox);
        containers.retain(|group| kill_all(group));
        if pod.status()["phase"] != "Failed" {
            api.patch_status(&pod.name, &evicted());
        }
        containers.is_empty() && !sandbox.exists()
    };
    assert!(holds_in_time(insist), "{}", pod.described());
    assert!(
        holds_in_time(|| !has_shim(id_of(&sandbox))),
        "the shim of {} stays",
        sandbox.display()
    );
    let end = Instant::now() + LAST_WORD;
    let is_over = || pod.status()["reason"] != "Evicted" || Instant::now() > end;
    assert!(holds_in_time(is_over));
    let status = pod.status();
    assert_eq!(status["phase"], "Failed", "{status:#}");
    let conditions = status["conditions"].as_array().unwrap();
    let is_ours = |condition: &Value| {
        condition["type"] == "DisruptionTarget" && condition["status"] == "True"
    };
    assert!(conditions.iter().any(is_ours), "{status:#}");
}

/// The status of an evicted pod, as far as the kubelet writes it for an eviction of its own.
fn evicted() -> Value {
    let message = "The node was low on resource: memory. ";
    json!({
        "status": {
            "phase": "Failed",
            "reason": "Evicted",
            "message": message,
            "conditions": [{
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "TerminationByKubelet",
                "message": message,
            }],
        },
    })
}
