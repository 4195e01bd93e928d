//! Static pods are known by the uid that their groups have, which is not that of their images in the API, and are never evicted.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::agent::knows;
use crate::manifest::{GO, container, pod_of, waiting};
use crate::running::Agent;
use crate::support::{
    Cluster, FOLDER, NODE, container_group, holds_in_time, pids_in, write_inside,
};
use crate::{group_of, wait_running};

/// In the cluster's folder, the kubelet's `staticPodPath`.
const MANIFESTS: &str = "node/manifests";
/// How the names of our manifests there begin.
const OURS: &str = "brink-test-";
/// Annotations of the kubelet: what a static pod's groups are named after, in its image.
const MIRROR: &str = "kubernetes.io/config.mirror";
const HASH: &str = "kubernetes.io/config.hash";
/// What the pod holds and has not requested, in bytes.
const HELD: u64 = 64 << 20;

fn manifests() -> PathBuf {
    Path::new(FOLDER).join(MANIFESTS)
}

/// Takes away what a test has left that was killed in the middle; nothing otherwise, and on a cluster of somebody else's.
pub(crate) fn clear() {
    let entries = fs::read_dir(manifests()).into_iter().flatten().flatten();
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.trim_start_matches('.').starts_with(OURS))
    };
    let left = entries.map(|entry| entry.path()).filter(is_ours);
    for path in left {
        // Whoever cannot be removed is found by the wait for all pods' ends.
        let _gone_already = fs::remove_file(path);
    }
}

/// A manifest in the folder; the pod ends with this.
struct Placed(PathBuf);

impl Placed {
    /// The kubelet reads no name that begins with a dot, and so never half of it.
    fn new(name: &str, pod: &Value) -> Self {
        let aside = manifests().join(format!(".{name}.json"));
        let placed = Self(manifests().join(format!("{name}.json")));
        fs::write(&aside, pod.to_string()).unwrap();
        fs::rename(&aside, &placed.0).unwrap();
        placed
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        let _gone_already = fs::remove_file(&self.0);
    }
}

/// A pod that holds memory from its start on and has requested none: by the kubelet's order it is the first.
fn holder(name: &str) -> Value {
    // The reader never reads: what the writer has read, it keeps.
    let script = format!("dd if=/dev/zero bs={HELD} count=1 | sleep 3600");
    let holds = container("holder", &["sh", "-c", &script], &json!({}));
    pod_of(name, &[holds])
}

/// A pod that takes more than there is room for once it is told to, and less than it has requested.
fn leaker() -> Value {
    let resources = json!({ "requests": { "memory": "300Mi" }, "limits": { "memory": "400Mi" } });
    let name = format!("beside-{}", std::process::id());
    let leak = "exec dd if=/dev/zero of=/dev/null bs=250M";
    waiting(&name, &[leak], &resources)
}

/// What the agent says of a workload; nothing while it knows none of that name.
fn explained(agent: &Agent, name: &str) -> Option<Value> {
    let socket = agent.path("state/brink.sock").display().to_string();
    let words = ["explain", name, "--socket", &socket, "-o", "json"];
    let output = agent.command(&words).output().unwrap();
    serde_json::from_slice(&output.stdout).ok()
}

/// The image of the static pod in the API, once it runs.
fn wait_image(cluster: &Cluster, name: &str) -> Value {
    let running = || {
        let found = cluster.get("pod", name)?;
        (found["status"]["phase"] == "Running").then_some(found)
    };
    assert!(
        holds_in_time(|| running().is_some()),
        "{}",
        cluster.answer(&["describe", "pod", name])
    );
    running().unwrap()
}

/// It is no candidate, and the group that the kubelet made for it is bound to it, not one of the image's own uid.
fn check_known(agent: &Agent, image: &str, hash: &str) {
    let name = format!("default/{image}");
    let is_bound = || {
        let why = explained(agent, &name);
        why.is_some_and(|why| why["cgroups"] != json!([]))
    };
    assert!(
        holds_in_time(is_bound),
        "{:#?}\n{}",
        explained(agent, &name),
        agent.log()
    );
    let why = explained(agent, &name).unwrap();
    let workload = &why["workload"];
    assert_eq!(
        [&workload["uid"], &workload["refusal"], &why["place"]],
        [&json!(hash), &json!("mirror"), &Value::Null],
        "{why:#}"
    );
    let cgroups = why["cgroups"].as_array().unwrap();
    let is_its_own = |path: &Value| path.as_str().is_some_and(|path| path.contains(hash));
    assert!(cgroups.iter().all(is_its_own), "{why:#}");
    let reasons = why["reasons"].as_array().unwrap();
    let mirror = "It is no candidate: a mirror pod, of which the static pod behind it is ranked.";
    assert_eq!(reasons, &[json!(mirror)], "{why:#}");
}

/// The kubelet refuses to evict it too. Whoever takes memory within its request goes in its place.
#[test]
fn a_static_pod_is_known_by_the_hash_of_its_manifest_and_lives_through_a_crossing() {
    let cluster = cluster!(with_pods_here);
    let name = format!("{OURS}{}", std::process::id());
    let image = format!("{name}-{NODE}");
    let placed = Placed::new(&name, &holder(&name));
    let beside = cluster.pod(&leaker());
    let found = wait_image(&cluster, &image);
    let metadata = &found["metadata"];
    let hash = metadata["annotations"][MIRROR].as_str().unwrap().to_owned();
    assert_eq!(metadata["annotations"][HASH], json!(hash), "{found:#}");
    assert_ne!(metadata["uid"], json!(hash), "the image has its own");
    let id = found["status"]["containerStatuses"][0]["containerID"].as_str();
    let id = id.and_then(|id| id.strip_prefix("containerd://")).unwrap();
    let group = container_group(&hash, id).expect("a group that the hash leads to");
    let holds = || {
        let usage = fs::read_to_string(group.join("memory.usage_in_bytes")).unwrap();
        usage.trim().parse::<u64>().unwrap()
    };
    assert!(holds_in_time(|| holds() >= HELD), "{} bytes", holds());
    let taker = wait_running(&beside);
    let uid = taker["metadata"]["uid"].as_str().unwrap();

    let (_line, agent) = Agent::on_pods(&cluster, "enforce", "", "");
    check_known(&agent, &image, &hash);
    assert!(holds_in_time(|| knows(&agent, &beside)), "{}", agent.log());
    let processes = pids_in(&group);
    write_inside(&group_of(&taker), GO, "go");
    agent.wait_told(uid);
    let record = agent.decision(uid).unwrap();
    let ranked: Vec<&str> = record.ranking.iter().map(|one| one.uid.as_str()).collect();
    assert_eq!(ranked, [uid], "{record:#?}");
    assert_eq!(agent.decisions().len(), 1, "nobody else: {}", agent.log());
    assert_eq!(pids_in(&group), processes, "all of them live");
    let status = cluster.get("pod", &image).unwrap()["status"].take();
    assert_eq!(status["phase"], "Running", "{status:#}");
    assert_eq!(status["containerStatuses"][0]["restartCount"], 0);

    drop(placed);
    let is_gone = || cluster.get("pod", &image).is_none() && !group.exists();
    assert!(
        holds_in_time(is_gone),
        "{}",
        cluster.answer(&["describe", "pod", &image])
    );
}
