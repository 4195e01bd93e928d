//! The components that are in no variant: what the agent of a pod does with them on a node, and with the rights that they grant.

use brink_tests::skip;
use serde_json::{Value, json};

use super::{ALWAYS, ENFORCING, NEVER, check, check_rights, doctor, no_image, wait_mode};
use crate::installed::{Installed, SET};
use crate::leak::{Kind, MIB, Waiting, leaker};
use crate::lives::{TAINT, Untainted};
use crate::running::ROOM;
use crate::support::{Cluster, NODE, PODS, Pod, available, holds_in_time};
use crate::told::condition;
use crate::{sleeper, wait_running};

/// The rights of `taint` beyond those of the overlay `enforce`.
const TAINTING: [&[&str]; 2] = [&["get", "nodes"], &["patch", "nodes"]];
/// Agents that are to be placed on a node with the taint.
const NEXT: &str = "brink-next";
/// What each of the pods takes that bring memory to be short.
const TAKEN: u64 = 300 * MIB;

/// The effect of our taint; none where the node has not got it.
fn taint(cluster: &Cluster) -> Option<Value> {
    let node = cluster.get("node", NODE).unwrap();
    let mut taints = node["spec"]["taints"].as_array()?.iter();
    let ours = taints.find(|taint| taint["key"] == TAINT)?;
    Some(ours["effect"].clone())
}

#[track_caller]
fn wait_taint(installed: &Installed<'_>, cluster: &Cluster, expected: Option<&str>) {
    let expected = expected.map(Value::from);
    assert!(
        holds_in_time(|| taint(cluster) == expected),
        "not {expected:?}: {}",
        installed.described()
    );
}

/// Whether the scheduler has found no place for a pod, for our taint.
fn is_kept_away(pod: &Pod<'_>) -> bool {
    let placed = condition(&json!({ "status": pod.status() }), "PodScheduled");
    placed.is_some_and(|placed| {
        let message = placed["message"].as_str().unwrap_or_default();
        placed["status"] == "False" && message.contains(TAINT)
    })
}

/// Memory is short by a soft threshold whose grace nobody lives to see the end of, so that all who take it live until the test ends them.
#[test]
fn with_taint_a_node_takes_agents_alone_while_memory_is_short_and_others_afterwards() {
    let cluster = cluster!(with_pods_here);
    if let Some(reason) = no_image(&cluster) {
        skip!("{reason}");
    }
    let _untainted = Untainted(&cluster);
    let mut installed = Installed::with(&cluster, "enforce", &["taint"]);
    installed.wait_ready();
    let name = |name: &str| format!("{name}-{}", std::process::id());
    let manifests = ["first", "second"].map(|one| {
        let manifest = leaker(&name(one), "taint", Kind::Small, TAKEN);
        (Kind::Small, manifest)
    });
    let waiting = Waiting::start(&cluster, manifests);
    let settings = format!(
        "memoryPolicy: kubelet\nheadroomHard: 0%\nnode: {{cgroup: {PODS}}}\nenforceNodeAllocatable: []\n\
         evictionHard: {{memory.available: 1Mi}}\nevictionSoft: {{memory.available: \"{}\"}}\n\
         evictionSoftGracePeriod: {{memory.available: 1h}}\nevictionPressureTransitionPeriod: 1s\n",
        available() - ROOM
    );
    installed.configure("brink-taints", &settings);
    installed.apply();
    installed.wait_ready();
    let agent = installed.pod();
    wait_mode(&installed, &agent, "enforcing");
    let mut refused = NEVER.to_vec();
    refused.retain(|words| !TAINTING.contains(words));
    let granted = [&ALWAYS[..], &ENFORCING, &TAINTING].concat();
    check_rights(&installed, &granted, &refused);
    assert_eq!(taint(&cluster), None, "{}", installed.described());

    waiting[0].begin();
    wait_taint(&installed, &cluster, Some("NoSchedule"));
    let usual = cluster.pod(&sleeper(&name("kept-away")));
    assert!(
        holds_in_time(|| is_kept_away(&usual)),
        "{}",
        usual.described()
    );
    installed.add_set(NEXT);
    installed.apply();
    installed.wait_set_ready(NEXT);
    assert_eq!(installed.pod_of(SET), agent, "it stays");
    assert!(is_kept_away(&usual), "{}", usual.described());
    installed.end_set(NEXT);
    assert!(taint(&cluster).is_some(), "who only stood by takes nothing");

    waiting[0].pod.delete();
    wait_taint(&installed, &cluster, None);
    wait_running(&usual);
    assert_eq!(installed.pod(), agent, "it has lived through all of it");

    // Uninstalled in the middle of a shortage.
    waiting[1].begin();
    wait_taint(&installed, &cluster, Some("NoSchedule"));
    installed.end();
    assert_eq!(taint(&cluster), None);
}

#[test]
fn with_disks_a_threshold_on_a_disk_is_in_effect() {
    let cluster = cluster!();
    if let Some(reason) = no_image(&cluster) {
        skip!("{reason}");
    }
    let installed = Installed::with(&cluster, "observe", &["disks"]);
    installed.wait_ready();
    let name = installed.pod();
    wait_mode(&installed, &name, "observing");
    // What keeps the disks is found out a moment after the start; beside a kubelet nobody goes for one.
    let status = || installed.brink(&name, &["status"]);
    let is_known = || {
        let status = status();
        let disks = &status["disks"];
        let runtime = disks["runtime"]["name"].as_str().unwrap_or_default();
        disks["held"] == "kubelet" && runtime.contains("containerd")
    };
    assert!(holds_in_time(is_known), "{:#}", status());
    let status = status();
    let mut thresholds = status["thresholds"].as_array().unwrap().iter();
    let room = thresholds.find(|one| one["signal"] == "nodefs.available");
    let room = room.unwrap_or_else(|| panic!("{status:#}"));
    // The kubelet's default, of what the filesystem of its pods has in all.
    let said = ["value", "hard", "observed"].map(|key| &room[key]);
    assert_eq!(
        said,
        [&json!("10%"), &json!(true), &json!(true)],
        "{room:#}"
    );
    assert!(room["quantity"].as_i64() > Some(0), "{room:#}");

    let doctor = doctor(&installed, &name);
    let filesystems = check(&doctor, "disks.filesystems");
    assert_eq!(filesystems["state"], "ok", "{filesystems:#}");
    let runtime = check(&doctor, "disks.runtime");
    let found = runtime["found"].to_string();
    assert!(found.contains("containerd"), "{runtime:#}");
}
