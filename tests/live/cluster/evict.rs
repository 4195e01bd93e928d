//! An eviction on a real kubelet: containers die and the sandbox does not, and what the kubelet starts again until it has heard.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::api::Proxy;
use crate::manifest::{container, pod_of};
use crate::running::{Agent, pods_as_node};
use crate::support::{commands_in, groups_beside, has_shim, holds_in_time, id_of};
use crate::{evicted, group_of, wait_running};

/// How long the pod rests first, each time it is started.
const REST: &str = "20";

/// A pod that takes more than there is room for, some time after it was started.
fn leaker(name: &str) -> Value {
    let script = format!("sleep {REST}; exec dd if=/dev/zero of=/dev/null bs=250M");
    let resources = json!({ "limits": { "memory": "400Mi" }, "requests": { "memory": "16Mi" } });
    pod_of(
        name,
        &[container("leaker", &["sh", "-c", &script], &resources)],
    )
}

/// Starts an agent that knows one pod, by its manifest in this folder and without an API server.
fn agent(folder: &Path, pod: &Value) -> Agent {
    fs::write(folder.join("pod.json"), pod.to_string()).unwrap();
    let settings = format!(
        "{}workloads: {{manifests: \"{}\"}}\nevents: {{enabled: false}}",
        pods_as_node("enforce"),
        folder.display()
    );
    let mut agent = Agent::new(&settings);
    agent.start();
    agent
}

#[test]
fn an_evicted_pod_keeps_its_sandbox_and_dies_again_until_the_kubelet_has_heard() {
    let cluster = cluster!(with_pods_here);
    let api = Proxy::start(cluster.command());
    let pod = cluster.pod(&leaker(&format!("leaker-{}", std::process::id())));
    let found = wait_running(&pod);
    let uid = found["metadata"]["uid"].as_str().unwrap();
    let group = group_of(&found);
    let beside = groups_beside(&group);
    let is_pause = |group: &&PathBuf| commands_in(group) == ["/pause"];
    let sandbox = beside.iter().find(is_pause).expect("a sandbox").clone();
    let manifests = tempfile::tempdir().unwrap();
    let agent = agent(manifests.path(), &found);

    let record = || agent.decisions().pop();
    let is_over = || record().is_some_and(|record| record.end.is_some());
    assert!(holds_in_time(is_over), "{}", agent.log());
    let first = record().unwrap();
    assert_eq!(first.victim.uid, uid, "{first:#?}");
    assert!(
        first.kill.as_ref().is_some_and(|kill| kill.signalled >= 1),
        "{first:#?}"
    );
    assert_eq!(commands_in(&sandbox), ["/pause"], "the sandbox lives");

    let is_killed_again = || record().is_some_and(|record| record.again.is_some());
    assert!(
        holds_in_time(is_killed_again),
        "{}\n{}",
        pod.described(),
        agent.log()
    );
    assert_eq!(commands_in(&sandbox), ["/pause"], "the sandbox lives");

    let is_taken_apart = || {
        if pod.status()["phase"] != "Failed" {
            api.patch_status(&pod.name, &evicted());
        }
        !sandbox.exists()
    };
    assert!(
        holds_in_time(is_taken_apart),
        "{}\n{}",
        pod.described(),
        agent.log()
    );
    assert!(
        holds_in_time(|| !has_shim(id_of(&sandbox))),
        "the shim of {} stays",
        sandbox.display()
    );
    assert_eq!(agent.decisions().len(), 1, "{}", agent.log());
}
