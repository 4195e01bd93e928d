//! An agent that takes its pods from the API server: whom it knows, and what it knows when the server is away.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use brink::control::client::ask;
use brink::control::protocol::{Answer, KubernetesView, Question, Status};
use brink::record::DecisionRecord;
use brink::record::wire::RankedWorkload;
use brink_tests::agent_binary;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::line::Line;
use crate::manifest::{container, pod_of};
use crate::order::LEAST;
use crate::support::{Cluster, NODE, PODS, Pod, decisions, holds_in_time};

/// A pod that sleeps, with what its container asks for.
fn pod(name: &str, resources: &Value) -> Value {
    let name = format!("{name}-{}", std::process::id());
    let mut pod = pod_of(
        &name,
        &[container("sleeper", &["sleep", "3600"], resources)],
    );
    pod["metadata"]["annotations"] = json!({ "brink.dev/cgroup": "/" });
    pod
}

/// An agent that only observes, with nothing to protect but pods of the API.
pub(crate) struct Agent {
    folder: tempfile::TempDir,
    child: Option<Child>,
}

impl Agent {
    /// One that reaches the server by the line.
    pub(crate) fn new(cluster: &Cluster) -> (Self, Line) {
        Self::with(cluster, "")
    }

    /// The same with more lines of configuration.
    pub(crate) fn with(cluster: &Cluster, more: &str) -> (Self, Line) {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let line = Line::to(cluster, &kubeconfig);
        let text = format!(
            "apiVersion: brink.dev/v1alpha1\nkind: AgentConfiguration\nmode: observe\npodsCgroup: {PODS}\nkernelPrograms: false\n\
             realtime: {{priority: 0}}\npaths: {{stateDir: \"{}\"}}\n\
             kubernetes: {{enabled: true, kubeconfig: \"{}\", nodeName: {NODE}}}\n{more}",
            folder.path().join("state").display(),
            kubeconfig.display()
        );
        fs::write(folder.path().join("config.yaml"), text).unwrap();
        (
            Self {
                folder,
                child: None,
            },
            line,
        )
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(agent_binary().unwrap());
        command
            .args(words)
            .env_remove("KUBECONFIG")
            .env_remove("NODE_NAME");
        command.env("BRINK_CONFIG", self.path("config.yaml"));
        command
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn start(&mut self) {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.path("log"));
        let mut command = self.command(&["run"]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.unwrap());
        self.child = Some(command.spawn().unwrap());
        assert!(holds_in_time(|| self.status().is_some()), "{}", self.log());
    }

    /// Ends it by a signal.
    fn stop(&mut self, signal: Signal) {
        if let Some(mut child) = self.child.take() {
            let _ended_already = kill_process(Pid::from_child(&child), signal);
            child.wait().unwrap();
        }
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    fn status(&self) -> Option<Status> {
        match ask(&self.path("state/brink.sock"), &Question::Status) {
            Ok(Answer::Status(status)) => Some(*status),
            _ => None,
        }
    }

    fn kubernetes(&self) -> KubernetesView {
        let status = self.status().unwrap_or_else(|| panic!("{}", self.log()));
        status.kubernetes.unwrap()
    }

    /// All workloads of the cluster's own namespace, the first to go in front.
    pub(crate) fn ranking(&self) -> Vec<RankedWorkload> {
        let question = Question::Rank { signal: None };
        let Ok(Answer::Ranking(ranking)) = ask(&self.path("state/brink.sock"), &question) else {
            return Vec::new();
        };
        let mut workloads = ranking.workloads;
        workloads.retain(|one| one.namespace == "default");
        workloads
    }

    /// A pod as it is ranked.
    fn ranked(&self, pod: &Pod<'_>) -> Option<RankedWorkload> {
        let mut workloads = self.ranking().into_iter();
        workloads.find(|one| one.name == pod.name)
    }

    /// Whether a pod of a mix is known with all that it has taken.
    pub(crate) fn knows_what_it_holds(&self, pod: &Pod<'_>) -> bool {
        let ranked = self.ranked(pod).and_then(|ranked| ranked.usage);
        ranked.is_some_and(|usage| usage >= LEAST)
    }

    pub(crate) fn decisions(&self) -> Vec<DecisionRecord> {
        decisions(&self.path("state/brink.sock"))
    }

    /// Whether a pod is known and bound to its group.
    fn knows(&self, pod: &Pod<'_>) -> bool {
        self.ranked(pod)
            .is_some_and(|ranked| ranked.usage.is_some())
    }

    /// What was told of a pod when it appeared.
    fn told(&self, pod: &Pod<'_>) -> Option<Value> {
        let socket = self.path("state/events.sock").display().to_string();
        let words = [
            "events",
            "--socket",
            &socket,
            "--kind",
            "workload-started",
            "-o",
            "json",
        ];
        let output = self.command(&words).output().unwrap();
        let lines = String::from_utf8(output.stdout).unwrap();
        let mut events = lines
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.find(|event| event["subject"]["name"] == json!(pod.name))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop(Signal::TERM);
    }
}

/// The pods of a node by name, class, priority and requests, as they come and go; and a group that a pod names is not its own.
#[test]
fn an_agent_knows_the_pods_of_its_node() {
    let cluster = cluster!();
    let (mut agent, _line) = Agent::new(&cluster);
    agent.start();
    let is_followed = || agent.kubernetes().connected;
    assert!(holds_in_time(is_followed), "{}", agent.log());
    let both = json!({"cpu": "10m", "memory": "32Mi"});
    let sorts = [
        (
            "burstable",
            json!({"requests": {"memory": "16Mi"}, "limits": {"memory": "32Mi"}}),
            "Burstable",
            16,
        ),
        (
            "guaranteed",
            json!({"requests": both, "limits": both}),
            "Guaranteed",
            32,
        ),
        ("best-effort", json!({}), "BestEffort", 0),
    ];
    let pods = sorts
        .map(|(name, resources, qos, request)| (cluster.pod(&pod(name, &resources)), qos, request));
    for (pod, qos, request) in &pods {
        assert!(
            holds_in_time(|| agent.knows(pod)),
            "{}\n{}",
            pod.described(),
            agent.log()
        );
        let ranked = agent.ranked(pod).unwrap();
        let found = pod.read().unwrap();
        assert_eq!(json!(ranked.uid), found["metadata"]["uid"]);
        assert_eq!((ranked.request, ranked.priority), (request << 20, 0));
        assert!(
            ranked.usage < Some(64 << 20),
            "its own group, not the root: {ranked:?}"
        );
        let told = agent.told(pod).unwrap();
        assert_eq!(told["data"]["qos"], json!(qos), "{told}");
        assert_eq!(found["status"]["qosClass"], json!(qos));
    }
    let (gone, ..) = &pods[0];
    gone.delete();
    assert!(
        holds_in_time(|| agent.ranked(gone).is_none()),
        "{}",
        agent.log()
    );
    let view = agent.kubernetes();
    assert_eq!(
        (view.node.as_str(), view.failures, view.why),
        (NODE, 0, None)
    );
}

/// An agent whose server is away goes on from what it knew, as does the next one; what happened meanwhile is known afterwards.
#[test]
fn pods_are_known_while_the_server_is_away_and_over_a_restart() {
    let cluster = cluster!();
    let (mut agent, mut line) = Agent::new(&cluster);
    agent.start();
    let stays = cluster.pod(&pod("stays", &json!({"requests": {"memory": "16Mi"}})));
    assert!(
        holds_in_time(|| agent.knows(&stays)),
        "{}\n{}",
        stays.described(),
        agent.log()
    );
    line.cut();
    assert!(
        holds_in_time(|| !agent.kubernetes().connected),
        "{}",
        agent.log()
    );
    let late = cluster.pod(&pod("late", &json!({})));
    assert!(agent.knows(&stays));
    let age = || agent.kubernetes().state_age_ms.unwrap();
    let first = age();
    assert!(holds_in_time(|| age() > first), "it grows old");
    assert!(
        agent
            .kubernetes()
            .why
            .is_some_and(|why| why.contains("refused")),
        "{}",
        agent.log()
    );
    agent.stop(Signal::TERM);
    agent.start();
    assert!(holds_in_time(|| agent.knows(&stays)), "{}", agent.log());
    let view = agent.kubernetes();
    assert!(
        !view.connected && view.state_age_ms > Some(first),
        "{view:?}"
    );
    assert!(agent.ranked(&late).is_none());
    line.mend();
    assert!(
        holds_in_time(|| agent.kubernetes().connected),
        "{}",
        agent.log()
    );
    assert!(
        holds_in_time(|| agent.knows(&late)),
        "{}\n{}",
        late.described(),
        agent.log()
    );
    assert!(agent.knows(&stays));
    // A list and a watch, over and over by one connection.
    assert!(
        line.connections() <= 2,
        "{} connections",
        line.connections()
    );
}

/// One that cannot even say goodbye has told the next what it knew.
#[test]
fn an_agent_that_was_killed_leaves_what_it_knew() {
    let cluster = cluster!();
    let (mut agent, mut line) = Agent::new(&cluster);
    let stays = cluster.pod(&pod("stays", &json!({})));
    agent.start();
    assert!(
        holds_in_time(|| agent.knows(&stays)),
        "{}\n{}",
        stays.described(),
        agent.log()
    );
    let file = agent.path("state/pods.json");
    let is_kept = || fs::read_to_string(&file).is_ok_and(|text| text.contains(&stays.name));
    assert!(holds_in_time(is_kept), "{}", agent.log());
    agent.stop(Signal::KILL);
    line.cut();
    agent.start();
    assert!(holds_in_time(|| agent.knows(&stays)), "{}", agent.log());
    assert!(!agent.kubernetes().connected);
}
