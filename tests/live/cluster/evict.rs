//! An eviction on a real kubelet: containers die and the sandbox does not, and what the kubelet starts again until it has heard.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use brink::record::DecisionRecord;
use brink_tests::agent_binary;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::api::Proxy;
use crate::manifest::{container, pod_of};
use crate::support::{
    PODS, available, commands_in, decisions, groups_beside, has_shim, holds_in_time, id_of,
};
use crate::{evicted, group_of, wait_running};

const MIB: u64 = 1 << 20;
/// The room that is left to the threshold.
const ROOM: u64 = 150 * MIB;
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

/// A `brink run` whose node is the group of all pods; it ends with this.
struct Agent {
    child: Child,
    folder: tempfile::TempDir,
}

impl Agent {
    /// Starts one that knows one pod.
    fn start(pod: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("manifests")).unwrap();
        fs::write(path("manifests/pod.json"), pod.to_string()).unwrap();
        let text = format!(
            "apiVersion: brink.dev/v1alpha1\nkind: AgentConfiguration\nmode: enforce\nmemoryPolicy: kubelet\nheadroomHard: 0%\n\
             node: {{cgroup: {PODS}}}\nenforceNodeAllocatable: []\nevictionHard: {{memory.available: \"{}\"}}\n\
             workloads: {{manifests: \"{}\"}}\npaths: {{stateDir: \"{}\"}}\nevents: {{enabled: false}}\n",
            available() - ROOM,
            path("manifests").display(),
            path("state").display(),
        );
        fs::write(path("config.yaml"), text).unwrap();
        let log = fs::File::create(path("log")).unwrap();
        let mut command = Command::new(agent_binary().unwrap());
        command.arg("run").arg("--config").arg(path("config.yaml"));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let child = command.spawn().unwrap();
        Self { child, folder }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn decisions(&self) -> Vec<DecisionRecord> {
        decisions(&self.folder.path().join("state/brink.sock"))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // One that has ended already needs no end.
        let _ended = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _reaped = self.child.wait();
    }
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
    let agent = Agent::start(&found);

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
