//! What a real API server has been told: of evictions, once each and also after it was away, and of the node.

use std::fs;
use std::time::{Duration, Instant};

use brink::guard;
use brink_core::base::{Format, Quantity};
use brink_tests::slowed;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::agent::{all_told, knows, told};
use crate::manifest::{GO, container, leaking, pod_of};
use crate::running::Agent;
use crate::support::{Cluster, NODE, Pod, groups_beside, holds_in_time, write_inside};
use crate::watch::Watch;
use crate::{LAST_WORD, group_of, wait_running};

/// Within so long the annotation on the node stops enforcement.
const STOPS_WITHIN: Duration = Duration::from_secs(1);
/// How often that is measured.
const PAUSES: usize = 3;

/// A pod of two containers, of which one takes more than there is room for, some time after it was started.
pub(crate) fn leaker(name: &str) -> Value {
    let one = |name: &str, script: &str, limit: &str| {
        let resources = json!({ "limits": { "memory": limit }, "requests": { "memory": "16Mi" } });
        container(name, &["sh", "-c", script], &resources)
    };
    let leak = "sleep 20; exec dd if=/dev/zero of=/dev/null bs=250M";
    let containers = [
        one("leaker", leak, "400Mi"),
        one("beside", "sleep 3600", "32Mi"),
    ];
    pod_of(&format!("{name}-{}", std::process::id()), &containers)
}

pub(crate) fn uid_of(pod: &Pod<'_>) -> String {
    let found = wait_running(pod);
    found["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// The events about a pod that are of this reason.
pub(crate) fn events(cluster: &Cluster, uid: &str, reason: &str) -> Vec<Value> {
    let selector = format!("involvedObject.uid={uid},reason={reason}");
    let words = ["get", "events", "--field-selector", &selector, "-o", "json"];
    let list: Value = serde_json::from_str(&cluster.kubectl(&words, "")).unwrap();
    list["items"].as_array().unwrap().clone()
}

pub(crate) fn condition(object: &Value, kind: &str) -> Option<Value> {
    let mut conditions = object["status"]["conditions"].as_array()?.iter();
    conditions.find(|one| one["type"] == kind).cloned()
}

fn node(cluster: &Cluster) -> Value {
    cluster.get("node", NODE).unwrap()
}

pub(crate) fn is_failed(pod: &Pod<'_>) -> bool {
    let status = pod.status();
    status["phase"] == "Failed"
        && condition(&json!({ "status": status }), "DisruptionTarget").is_some()
}

/// What [`is_shown_running_again`] is to be told of each change.
pub(crate) const PHASES: [&str; 2] = ["/metadata/name", "/status/phase"];

/// A kubelet that has not heard of the eviction starts what was killed.
pub(crate) fn is_started_again(pod: &Pod<'_>) -> bool {
    let status = pod.status();
    let mut containers = status["containerStatuses"].as_array().into_iter().flatten();
    containers.any(|container| container["restartCount"] != 0)
}

/// A kubelet of this age writes a status that it made up before it heard over ours, and Brink writes `Failed` over that. `lines` are of
/// a watch that tells [`PHASES`].
pub(crate) fn is_shown_running_again(pod: &Pod<'_>, lines: &[String]) -> bool {
    let pairs = lines.iter().filter_map(|line| line.split_once(' '));
    let own = pairs.filter(|(name, _)| *name == pod.name);
    let told: Vec<&str> = own.map(|(_, phase)| phase).collect();
    let first = told.iter().position(|phase| *phase == "Failed");
    let since = &told[first.unwrap_or_else(|| panic!("{}: {told:?}", pod.name))..];
    since.iter().any(|phase| *phase != "Failed")
}

/// All that is said of an eviction, word for word but for the times. Of the pod's own reason and message what its watch told counts:
/// a kubelet of 1.20 takes them away again each time it looks.
#[test]
fn an_eviction_is_told_as_the_kubelet_tells_it_and_the_pod_never_runs_again() {
    let cluster = cluster!(with_pods_here);
    let pod = cluster.pod(&leaker("told"));
    let found = wait_running(&pod);
    let uid = found["metadata"]["uid"].as_str().unwrap().to_owned();
    let group = group_of(&found);
    let choice = format!("metadata.name={}", pod.name);
    let phases = Watch::of(
        &cluster,
        ("fieldSelector", choice.as_str()),
        &["/status/phase", "/status/reason", "/status/message"],
    );
    assert!(
        holds_in_time(|| !phases.told().is_empty()),
        "a watch of the pod"
    );
    let (_line, agent) = Agent::on_pods(&cluster, "enforce", "", "");
    assert!(
        holds_in_time(|| agent.has_told(&uid)),
        "{}\n{}",
        pod.described(),
        agent.log()
    );
    assert!(holds_in_time(|| is_failed(&pod)), "{}", pod.described());

    let record = agent.decision(&uid).unwrap();
    let posted = events(&cluster, &uid, "Evicted");
    assert_eq!(posted.len(), 1, "{posted:#?}");
    let event = &posted[0];
    let annotations = &event["metadata"]["annotations"];
    let used = annotations["offending_containers_usage"].as_str().unwrap();
    let amount = |bytes| Quantity::new(bytes, Format::BinarySi);
    // The threshold was written as a plain number.
    let quantity = Quantity::new(record.threshold.quantity, Format::DecimalSi);
    let message = format!(
        "The node was low on resource: memory. Threshold quantity: {quantity}, available: {}. Container leaker was using {used}, \
         request is 16Mi, has larger consumption of memory. ",
        amount(record.threshold.available)
    );
    let named = json!({
        "starved_resource": "memory",
        "offending_containers": "leaker",
        "offending_containers_usage": used,
    });
    assert_eq!(*annotations, named, "{event:#}");
    let held: Quantity = used.parse().unwrap();
    assert!(
        (16 << 20..400 << 20).contains(&held.value()),
        "more than its request, and no more than its limit: {used}"
    );
    let about = json!({
        "apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": pod.name, "uid": uid,
    });
    assert_eq!(event["involvedObject"], about);
    let words = ["type", "reason", "message", "count"].map(|key| &event[key]);
    assert_eq!(
        words,
        [
            &json!("Warning"),
            &json!("Evicted"),
            &json!(message),
            &json!(1)
        ]
    );
    assert_eq!(
        event["source"],
        json!({ "component": "brink", "host": NODE })
    );

    // The kubelet takes it apart, and has said its last word.
    let is_gone = || !group.exists() && groups_beside(&group).is_empty();
    assert!(holds_in_time(is_gone), "{}", pod.described());
    let end = Instant::now() + LAST_WORD;
    assert!(holds_in_time(|| Instant::now() > end));
    let status = pod.status();
    assert_eq!(status["phase"], "Failed", "{status:#}");
    let mut target = condition(&json!({ "status": status }), "DisruptionTarget").unwrap();
    for time in ["lastTransitionTime", "lastProbeTime"] {
        target.as_object_mut().unwrap().remove(time);
    }
    let expected = json!({
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "TerminationByKubelet",
        "message": message,
    });
    assert_eq!(target, expected);
    for container in status["containerStatuses"].as_array().unwrap() {
        assert_eq!(container["restartCount"], 0, "{container:#}");
    }
    check_failed_for_good(&phases, &message);
    assert_eq!(events(&cluster, &uid, "Evicted").len(), 1, "once");
}

/// From its first line as `Failed`, which has the status's own words, a pod is never anything else.
fn check_failed_for_good(phases: &Watch, message: &str) {
    let told = phases.told();
    let first = told.iter().position(|told| told.starts_with("Failed"));
    let since = &told[first.unwrap_or_else(|| panic!("{told:#?}"))..];
    let first = format!("Failed Evicted {message}");
    assert_eq!(since[0], first, "word for word: {told:#?}");
    assert!(
        since.iter().all(|told| told.starts_with("Failed")),
        "it never runs again: {told:#?}"
    );
    assert_eq!(phases.gaps(), 0, "all of it was seen");
}

#[test]
fn a_server_that_was_away_is_told_once_after_a_restart_too() {
    let cluster = cluster!(with_pods_here);
    let pod = cluster.pod(&leaker("late"));
    let uid = uid_of(&pod);
    let (mut line, mut agent) = Agent::on_pods(&cluster, "enforce", "", "");
    assert!(holds_in_time(|| agent.is_connected()), "{}", agent.log());
    line.cut();
    let is_decided = || agent.decision(&uid).is_some();
    assert!(
        holds_in_time(is_decided),
        "{}\n{}",
        pod.described(),
        agent.log()
    );
    assert!(holds_in_time(|| agent.waits(&uid)), "{}", agent.log());
    assert_eq!(agent.outbox(), 1);
    agent.stop(Signal::KILL);
    agent.start();
    line.mend();
    assert!(holds_in_time(|| agent.has_told(&uid)), "{}", agent.log());
    assert!(holds_in_time(|| is_failed(&pod)), "{}", pod.described());
    assert_eq!(events(&cluster, &uid, "Evicted").len(), 1);
    pod.delete();
    assert!(holds_in_time(|| agent.outbox() == 0), "{}", agent.log());
}

/// The next agent knows its pods from what the last one kept, and nobody tells it anything until the end.
#[test]
fn an_agent_that_is_started_without_the_server_protects_all_the_same_and_tells_it_once() {
    let cluster = cluster!(with_pods_here);
    let pod = cluster.pod(&leaking("alone"));
    let found = wait_running(&pod);
    let uid = found["metadata"]["uid"].as_str().unwrap();
    let (mut line, mut agent) = Agent::on_pods(&cluster, "enforce", "", "");
    let kept = agent.path("state/pods.json");
    let is_kept = || fs::read_to_string(&kept).is_ok_and(|text| text.contains(uid));
    assert!(holds_in_time(is_kept), "{}", agent.log());
    line.cut();
    agent.stop(Signal::KILL);
    agent.start();
    assert!(holds_in_time(|| knows(&agent, &pod)), "{}", agent.log());
    assert!(!agent.is_connected());

    write_inside(&group_of(&found), GO, "go");
    let is_killed = || {
        let kill = agent.decision(uid).and_then(|record| record.kill);
        kill.is_some_and(|kill| kill.signalled >= 1)
    };
    assert!(
        holds_in_time(is_killed),
        "{}\n{}",
        pod.described(),
        agent.log()
    );
    assert!(holds_in_time(|| agent.waits(uid)), "{}", agent.log());
    assert_eq!(agent.decision(uid).unwrap().mode, "enforcing");
    assert!(!agent.is_connected(), "the server is still away");
    assert_eq!(agent.outbox(), 1);
    assert!(events(&cluster, uid, "Evicted").is_empty());

    line.mend();
    assert!(holds_in_time(|| agent.has_told(uid)), "{}", agent.log());
    assert!(holds_in_time(|| is_failed(&pod)), "{}", pod.described());
    let decisions = agent.decisions();
    assert_eq!(decisions.len(), 1, "{decisions:#?}");
    pod.delete();
    assert!(holds_in_time(|| agent.outbox() == 0), "{}", agent.log());
    assert_eq!(events(&cluster, uid, "Evicted").len(), 1, "once");
}

#[test]
fn the_node_says_how_it_stands_and_an_annotation_of_it_stops_enforcement() {
    let cluster = cluster!(with_pods_here);
    let (_line, mut agent) = Agent::on_pods(&cluster, "enforce", ", taint: true", "");
    let said = || condition(&node(&cluster), "brink.dev/MemoryPressure");
    let is_said = |status: &str| said().is_some_and(|said| said["status"] == status);
    assert!(holds_in_time(|| is_said("False")), "{}", agent.log());
    assert_eq!(said().unwrap()["reason"], "BrinkHasSufficientMemory");
    check_pauses(&cluster, &agent);
    let pod = cluster.pod(&leaker("pressure"));
    let uid = uid_of(&pod);
    let has_taint = || {
        let node = node(&cluster);
        let taints = node["spec"]["taints"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        taints
            .iter()
            .any(|taint| taint["key"] == "brink.dev/memory-pressure")
    };
    assert!(
        holds_in_time(|| is_said("True") && has_taint()),
        "{:#}\n{}",
        node(&cluster),
        agent.log()
    );
    assert!(holds_in_time(|| agent.has_told(&uid)), "{}", agent.log());
    assert!(
        holds_in_time(|| is_said("False") && !has_taint()),
        "{:#}\n{}",
        node(&cluster),
        agent.log()
    );
    agent.stop(Signal::TERM);
    assert_eq!(said(), None, "{}", agent.log());
}

#[test]
fn an_agent_that_only_observes_changes_nothing_and_posts_a_marked_event() {
    let cluster = cluster!(with_pods_here);
    let pod = cluster.pod(&leaker("dry"));
    let uid = uid_of(&pod);
    let said = || condition(&node(&cluster), "brink.dev/MemoryPressure");
    let before = said();
    let (_line, agent) = Agent::on_pods(&cluster, "observe", ", dryRunEvents: true", "");
    let posted = || events(&cluster, &uid, "WouldEvict");
    assert!(
        holds_in_time(|| !posted().is_empty()),
        "{}\n{}",
        pod.described(),
        agent.log()
    );
    let found = posted();
    assert_eq!((found.len(), &found[0]["type"]), (1, &json!("Normal")));
    assert_eq!(
        found[0]["metadata"]["annotations"]["brink.dev/dry-run"],
        "true"
    );
    assert_eq!(pod.status()["phase"], "Running");
    assert_eq!(said(), before, "the node says what it said");
}

/// Who reads an incident knows a container by the name that its pod has for it, and finds it by the id that its runtime has.
#[test]
fn a_container_at_its_own_limit_is_told_by_its_name() {
    let cluster = cluster!(with_pods_here);
    let small = json!({ "limits": { "memory": "32Mi" } });
    let leak = "sleep 20; exec dd if=/dev/zero of=/dev/null bs=100M";
    let mut manifest = pod_of(
        &format!("limited-{}", std::process::id()),
        &[
            container("beside", &["sleep", "3600"], &small),
            container("leaker", &["sh", "-c", leak], &small),
        ],
    );
    manifest["spec"]["restartPolicy"] = json!("Never");
    let pod = cluster.pod(&manifest);
    let found = wait_running(&pod);
    let statuses = found["status"]["containerStatuses"].as_array().unwrap();
    let status = statuses.iter().find(|one| one["name"] == "leaker");
    let id = status.unwrap()["containerID"].as_str().unwrap();
    let (_, id) = id.split_once("://").unwrap();
    let (_line, agent) = Agent::on_pods(&cluster, "observe", "", "");
    for kind in ["oom-kill", "incident-closed"] {
        let about = || told(&agent, &pod, kind);
        assert!(
            holds_in_time(|| about().is_some()),
            "{kind}: {}\n{}",
            pod.described(),
            agent.log()
        );
        let incident = about().unwrap()["data"].take();
        let workload = &incident["workload"]["value"];
        assert_eq!(workload["container"], "leaker", "{incident:#}");
        assert_eq!(workload["containerId"], id, "{incident:#}");
        assert_eq!(workload["containerMissing"], Value::Null);
        assert_eq!(incident["cause"], "memcgOom", "{incident:#}");
    }
}

/// An annotation from afar stops enforcement in time, and no longer than it is there.
fn check_pauses(cluster: &Cluster, agent: &Agent) {
    let is_in = |mode: &str| agent.status().is_some_and(|status| status.mode == mode);
    assert!(holds_in_time(|| is_in("enforcing")), "{}", agent.log());
    for before in 0..PAUSES {
        let pause = Annotation::put(cluster);
        let put = guard::now();
        let since = || pauses(agent).get(before).copied();
        assert!(holds_in_time(|| since().is_some()), "{}", agent.log());
        assert!(is_in("paused"), "{}", agent.log());
        // It may have heard of it before the command that wrote it was over.
        let took = since().unwrap() - put.as_nanos();
        println!("paused {} ms after the command's end", took / 1_000_000);
        let longest = i64::try_from(slowed(STOPS_WITHIN).as_nanos()).unwrap();
        assert!(took <= longest, "{took} ns\n{}", agent.log());
        drop(pause);
        assert!(holds_in_time(|| is_in("enforcing")), "{}", agent.log());
    }
}

/// When the guard stopped enforcing, each time, by its own word and on the clock that it has in common with us. Whoever only asks how
/// it stands hears of it later.
fn pauses(agent: &Agent) -> Vec<i64> {
    let changes = all_told(agent, "configuration-changed");
    let paused = changes
        .iter()
        .filter(|event| event["data"]["mode"] == "paused");
    paused
        .map(|event| event["at"]["monotonicNs"].as_i64().unwrap())
        .collect()
}

/// The node's annotation; it goes with this.
struct Annotation<'a>(&'a Cluster);

impl<'a> Annotation<'a> {
    fn put(cluster: &'a Cluster) -> Self {
        cluster.kubectl(
            &[
                "annotate",
                "node",
                NODE,
                "brink.dev/pause=true",
                "--overwrite",
            ],
            "",
        );
        Self(cluster)
    }
}

impl Drop for Annotation<'_> {
    fn drop(&mut self) {
        self.0
            .kubectl(&["annotate", "node", NODE, "brink.dev/pause-"], "");
    }
}
