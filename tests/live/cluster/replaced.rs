//! What becomes of an evicted pod's place and volumes: its controller puts another one there, and the kubelet unmounts what it had.

use serde_json::{Value, json};

use crate::group_of;
use crate::kubelet::{mounts_of, wait_unmounted};
use crate::manifest::{GO, leaking};
use crate::running::Agent;
use crate::support::{Cluster, groups_beside, holds_in_time, write_inside};
use crate::told::{condition, events};

/// A set of one pod that leaks once it is told to; it goes with this.
struct ReplicaSet<'a> {
    cluster: &'a Cluster,
    name: String,
    selector: String,
}

impl<'a> ReplicaSet<'a> {
    fn of_one(cluster: &'a Cluster) -> Self {
        let mut pod = leaking("replaced");
        let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
        let labels = json!({ "brink-test": name });
        let set = json!({
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": { "name": name },
            "spec": {
                "replicas": 1,
                "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": pod["spec"].take() },
            },
        });
        let selector = format!("brink-test={name}");
        let made = Self {
            cluster,
            name,
            selector,
        };
        cluster.kubectl(&["create", "-f", "-"], &set.to_string());
        made
    }

    fn pods(&self) -> Vec<Value> {
        let words = ["get", "pods", "--selector", &self.selector, "-o", "json"];
        let list: Value = serde_json::from_str(&self.cluster.kubectl(&words, "")).unwrap();
        list["items"].as_array().unwrap().clone()
    }

    /// The pod of this uid, whatever has become of it.
    fn pod(&self, uid: &str) -> Option<Value> {
        let mut pods = self.pods().into_iter();
        pods.find(|pod| pod["metadata"]["uid"] == uid)
    }

    /// Waits until a pod of it runs that has another uid than this, which may be that of none.
    #[track_caller]
    fn wait_running(&self, but: &str) -> Value {
        let running = || {
            let mut pods = self.pods().into_iter();
            pods.find(|pod| pod["status"]["phase"] == "Running" && pod["metadata"]["uid"] != but)
        };
        assert!(
            holds_in_time(|| running().is_some()),
            "{}",
            self.described()
        );
        running().unwrap()
    }

    fn described(&self) -> String {
        let words = ["describe", "replicasets,pods", "--selector", &self.selector];
        self.cluster.answer(&words)
    }
}

impl Drop for ReplicaSet<'_> {
    fn drop(&mut self) {
        // The set first: it would have another pod made.
        let words = ["delete", "replicaset", &self.name, "--ignore-not-found"];
        self.cluster.answers(&words);
        let words = ["delete", "pods", "--selector", &self.selector];
        let how = ["--grace-period=0", "--force"];
        self.cluster.answers(&[&words[..], &how].concat());
    }
}

#[test]
fn an_evicted_pod_is_replaced_by_its_controller_and_its_volumes_are_unmounted() {
    let cluster = cluster!(with_pods_here);
    let set = ReplicaSet::of_one(&cluster);
    let first = set.wait_running("");
    let uid = first["metadata"]["uid"].as_str().unwrap();
    let group = group_of(&first);
    let mounts = mounts_of(uid).expect("a kubelet");
    let volume = format!("{uid}/volumes/kubernetes.io~empty-dir/m");
    assert!(
        mounts.iter().any(|mount| mount.contains(&volume)),
        "{mounts:#?}"
    );
    let (_line, agent) = Agent::on_pods(&cluster, "enforce", "", "");
    let is_known = || {
        let mut ranking = agent.ranking().into_iter();
        ranking.any(|one| one.uid == uid && one.usage.is_some())
    };
    assert!(holds_in_time(is_known), "{}", agent.log());

    write_inside(&group, GO, "go");
    assert!(
        holds_in_time(|| agent.has_told(uid)),
        "{}\n{}",
        set.described(),
        agent.log()
    );
    let next = set.wait_running(uid);
    let owner = &next["metadata"]["ownerReferences"][0];
    assert_eq!(owner["name"], json!(set.name), "{next:#}");
    let is_apart = || !group.exists() && groups_beside(&group).is_empty();
    assert!(holds_in_time(is_apart), "{}", set.described());
    wait_unmounted(uid);

    let before = set.pod(uid).expect("it is there as evicted");
    assert_eq!(before["status"]["phase"], "Failed", "{before:#}");
    assert!(condition(&before, "DisruptionTarget").is_some());
    assert_eq!(events(&cluster, uid, "Evicted").len(), 1);
    let after = set.pod(next["metadata"]["uid"].as_str().unwrap()).unwrap();
    assert_eq!(after["status"]["phase"], "Running", "{after:#}");
    assert_eq!(agent.decisions().len(), 1, "nobody else: {}", agent.log());
}
