//! An agent that takes its pods from the API server: whom it knows, and what it knows when the server is away.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::line::Line;
use crate::manifest::{container, pod_of};
use crate::running::Agent;
use crate::support::{Cluster, NODE, PODS, Pod, holds_in_time};

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

/// An agent that only observes, with nothing to protect but pods of the API; it is still to be started.
pub(crate) fn observer(cluster: &Cluster, more: &str) -> (Line, Agent) {
    let settings = format!(
        "mode: observe\npodsCgroup: {PODS}\nkernelPrograms: false\nrealtime: {{priority: 0}}\n{more}"
    );
    Agent::with_line(cluster, &settings, "")
}

/// Whether a pod is known and bound to its group.
pub(crate) fn knows(agent: &Agent, pod: &Pod<'_>) -> bool {
    let ranked = agent.ranked(pod);
    ranked.is_some_and(|ranked| ranked.usage.is_some())
}

/// The events of a kind that were told, in their order.
pub(crate) fn all_told(agent: &Agent, kind: &str) -> Vec<Value> {
    let socket = agent.path("state/events.sock").display().to_string();
    let words = ["events", "--socket", &socket, "--kind", kind, "-o", "json"];
    let output = agent.command(&words).output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The first event of a kind that was told of a pod.
pub(crate) fn told(agent: &Agent, pod: &Pod<'_>, kind: &str) -> Option<Value> {
    let mut events = all_told(agent, kind).into_iter();
    events.find(|event| event["subject"]["name"] == json!(pod.name))
}

/// The pods of a node by name, class, priority and requests, as they come and go; and a group that a pod names is not its own.
#[test]
fn an_agent_knows_the_pods_of_its_node() {
    let cluster = cluster!();
    let (_line, mut agent) = observer(&cluster, "");
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
            holds_in_time(|| knows(&agent, pod)),
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
        let told = told(&agent, pod, "workload-started").unwrap();
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
    let (mut line, mut agent) = observer(&cluster, "");
    agent.start();
    let stays = cluster.pod(&pod("stays", &json!({"requests": {"memory": "16Mi"}})));
    assert!(
        holds_in_time(|| knows(&agent, &stays)),
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
    assert!(knows(&agent, &stays));
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
    assert!(holds_in_time(|| knows(&agent, &stays)), "{}", agent.log());
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
        holds_in_time(|| knows(&agent, &late)),
        "{}\n{}",
        late.described(),
        agent.log()
    );
    assert!(knows(&agent, &stays));
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
    let (mut line, mut agent) = observer(&cluster, "");
    let stays = cluster.pod(&pod("stays", &json!({})));
    agent.start();
    assert!(
        holds_in_time(|| knows(&agent, &stays)),
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
    assert!(holds_in_time(|| knows(&agent, &stays)), "{}", agent.log());
    assert!(!agent.kubernetes().connected);
}
