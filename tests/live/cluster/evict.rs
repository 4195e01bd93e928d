//! An eviction on a real kubelet: containers die and the sandbox does not, and what the kubelet starts again until it has heard.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::agent::knows;
use crate::api::Proxy;
use crate::manifest::{GO, leaking};
use crate::running::{Agent, pods_as_node};
use crate::support::{commands_in, groups_beside, has_shim, holds_in_time, id_of, write_inside};
use crate::{evicted, group_of, wait_running};

/// What was started again holds less than this when it is killed, in bytes.
const LEAST: u64 = 16 << 20;

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

/// The most that the containers of a pod hold together from here on, by the kernel's own count of the pod's group. It goes on when the
/// groups of containers are gone.
struct Peak {
    file: PathBuf,
    /// What was held when this began.
    before: u64,
}

impl Peak {
    /// Of the pod that this group of a container or sandbox is in.
    fn begin(inside: &Path) -> Self {
        let file = inside.parent().unwrap().join("memory.max_usage_in_bytes");
        // It counts anew from what is held.
        fs::write(&file, "0").unwrap();
        let before = bytes(&file);
        Self { file, before }
    }

    /// Beyond what was held when it began.
    fn grown(&self) -> u64 {
        bytes(&self.file).saturating_sub(self.before)
    }
}

fn bytes(file: &Path) -> u64 {
    fs::read_to_string(file).unwrap().trim().parse().unwrap()
}

#[test]
fn an_evicted_pod_keeps_its_sandbox_and_dies_again_until_the_kubelet_has_heard() {
    let cluster = cluster!(with_pods_here);
    let api = Proxy::start(cluster.command());
    let pod = cluster.pod(&leaking("leaker"));
    let found = wait_running(&pod);
    let uid = found["metadata"]["uid"].as_str().unwrap();
    let group = group_of(&found);
    let beside = groups_beside(&group);
    let is_pause = |group: &&PathBuf| commands_in(group) == ["/pause"];
    let sandbox = beside.iter().find(is_pause).expect("a sandbox").clone();
    let manifests = tempfile::tempdir().unwrap();
    let agent = agent(manifests.path(), &found);
    assert!(holds_in_time(|| knows(&agent, &pod)), "{}", agent.log());

    write_inside(&group, GO, "go");
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

    // What is started again does not wait: it takes as much as the first one did, if it is let.
    let peak = Peak::begin(&sandbox);
    let again = || {
        record()
            .and_then(|record| record.again)
            .map_or(0, |again| again.kills)
    };
    let before = again();
    assert!(
        holds_in_time(|| again() > before),
        "{}\n{}",
        pod.described(),
        agent.log()
    );
    let grown = peak.grown();
    println!("what was started again held {grown} bytes at the most");
    assert!(grown < LEAST, "{grown}");
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
