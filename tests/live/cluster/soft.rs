//! Soft thresholds on a real kubelet: who goes for one is asked to end first, and has the smaller of two graces for that.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use brink_core::base::{Format, Quantity};
use brink_tests::slowed;
use serde_json::{Value, json};

use crate::LAST_WORD;
use crate::agent::knows;
use crate::leak::wait_for_room;
use crate::manifest::waiting;
use crate::running::{Agent, ROOM};
use crate::running_pod::RunningPod;
use crate::support::{
    Cluster, PODS, available, groups_beside, holds_in_time, pids_in, read_inside,
};
use crate::told::{condition, events, is_failed};
use crate::watch::Watch;

/// The grace that the node grants at the most, in seconds.
const MOST: u64 = 3;
/// The grace that each pod names, and the one that it gets.
const GRACES: [(u64, u64); 2] = [(30, MOST), (2, 2)];
/// So long the threshold is to be met before somebody is asked, in seconds.
const MET: i64 = 2;
/// So much later than at its end SIGKILL is sent, and seen to have been.
const LATE: Duration = Duration::from_millis(300);
const SEEN_LATE: Duration = Duration::from_millis(800);
/// Clocks that are read one after the other.
const EARLY: Duration = Duration::from_millis(30);
/// The shell writes down that it was asked when it is its turn, and in hundredths of a second.
const WRITTEN_LATE: Duration = Duration::from_millis(500);
/// Where a pod writes when it was asked: the seconds since the machine was started.
const WORD: &str = "/m/asked";
const UPTIME: &str = "/proc/uptime";
/// What chooses the pods.
const LABEL: &str = "soft";
/// What the watch of both tells of a pod.
const FIELDS: [&str; 3] = ["/metadata/name", "/status/phase", "/status/reason"];

/// A node of which all pods together are one, with [`ROOM`] left to a soft threshold and more to the hard one.
fn settings() -> String {
    format!(
        "mode: enforce\nmemoryPolicy: kubelet\nheadroomHard: 0%\nnode: {{cgroup: {PODS}}}\nenforceNodeAllocatable: []\n\
         evictionHard: {{memory.available: 1Mi}}\nevictionSoft: {{memory.available: \"{}\"}}\n\
         evictionSoftGracePeriod: {{memory.available: {MET}s}}\nevictionMaxPodGracePeriod: {MOST}\n\
         evictionPressureTransitionPeriod: 1s\n",
        available() - ROOM
    )
}

/// A pod that takes more than there is room for once it is told to, writes down when it is asked to end, and does not end. What it took
/// is held by another process of it, which does: memory that comes back in its grace is no mercy.
fn deaf(grace: u64) -> Value {
    // The shell reads and writes by itself: a program of its own would be asked to end as well. The reader of the pipe never reads, so
    // what the writer has read, it keeps.
    let stay = "while :; do sleep 1; done";
    let script = format!(
        "trap 'read up rest <{UPTIME}; echo $up >>{WORD}; {stay}' TERM; dd if=/dev/zero bs=250M count=1 | sleep 3600; {stay}"
    );
    let resources = json!({ "limits": { "memory": "400Mi" }, "requests": { "memory": "16Mi" } });
    let name = format!("soft-{}-{grace}", std::process::id());
    let mut pod = waiting(&name, &[&script], &resources);
    pod["metadata"]["labels"] = json!({ "brink-test": LABEL });
    pod["spec"]["terminationGracePeriodSeconds"] = json!(grace);
    pod
}

/// Waits for the word of its first SIGTERM, and then for the end of its processes; says how much later that was.
fn lives_on(one: &RunningPod<'_>, agent: &Agent) -> Duration {
    let mut asked = None;
    let is_asked = || {
        asked = read_inside(&one.group, WORD)
            .as_deref()
            .and_then(first_number);
        asked.is_some()
    };
    assert!(
        holds_in_time(is_asked),
        "nobody has asked {}\n{}",
        one.pod.name,
        agent.log()
    );
    assert!(
        holds_in_time(|| pids_in(&one.group).is_empty()),
        "{} is not killed\n{}",
        one.pod.name,
        agent.log()
    );
    let uptime = fs::read_to_string(UPTIME).unwrap();
    let ended = first_number(&uptime).unwrap();
    Duration::from_secs_f64(ended - asked.unwrap())
}

fn is_apart(one: &RunningPod<'_>) -> bool {
    !one.group.exists() && groups_beside(&one.group).is_empty()
}

fn first_number(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok()
}

/// The record of an eviction for the soft threshold, by which SIGKILL came at the end of the grace.
fn check_record(agent: &Agent, uid: &str, grace: Duration) {
    let is_over = || {
        agent
            .decision(uid)
            .is_some_and(|record| record.end.is_some())
    };
    assert!(holds_in_time(is_over), "{}", agent.log());
    let record = agent.decision(uid).unwrap();
    let threshold = &record.threshold;
    assert_eq!(
        (threshold.signal.as_str(), threshold.hard),
        ("memory.available", false)
    );
    assert_eq!(threshold.grace_seconds, MET, "{record:#?}");
    let at = |stage: &str| {
        let since = record.since_sample(stage);
        since.unwrap_or_else(|| panic!("no {stage}: {record:#?}"))
    };
    let granted = u64::try_from(at("firstSignal") - at("asked")).unwrap();
    let granted = Duration::from_nanos(granted);
    println!("{}: {granted:.3?} of {grace:?}", record.victim_name());
    assert!(
        granted + EARLY > grace && granted < grace + slowed(LATE),
        "{granted:?}"
    );
    let kill = record.kill.as_ref();
    assert!(kill.is_some_and(|kill| kill.signalled >= 1), "{record:#?}");
    assert_eq!(record.again, None, "the kubelet had heard of it before");
}

/// What is told of it is what is told of any other eviction, once.
fn check_words(cluster: &Cluster, agent: &Agent, one: &RunningPod<'_>, told: &[String]) {
    let record = agent.decision(&one.uid).unwrap();
    let posted = events(cluster, &one.uid, "Evicted");
    assert_eq!(posted.len(), 1, "{posted:#?}");
    let event = &posted[0];
    let words = [&event["type"], &event["count"]];
    assert_eq!(words, [&json!("Warning"), &json!(1)], "{event:#}");
    let message = event["message"].as_str().unwrap();
    // The threshold was written as a plain number.
    let quantity = Quantity::new(record.threshold.quantity, Format::DecimalSi);
    let begin = format!(
        "The node was low on resource: memory. Threshold quantity: {quantity}, available: "
    );
    assert!(message.starts_with(&begin), "{message}");
    let usage = "Container c0 was using ";
    let beyond = ", request is 16Mi, has larger consumption of memory. ";
    assert!(
        message.contains(usage) && message.ends_with(beyond),
        "{message}"
    );
    let status = one.pod.status();
    assert_eq!(status["phase"], "Failed", "{status:#}");
    assert_eq!(status["containerStatuses"][0]["restartCount"], 0);
    let target = condition(&json!({ "status": status }), "DisruptionTarget").unwrap();
    let words = ["status", "reason", "message"].map(|key| target[key].as_str());
    let expected = ["True", "TerminationByKubelet", message].map(Some);
    assert_eq!(words, expected, "{target:#}");

    let own = told.iter().filter_map(|line| {
        let (name, told) = line.split_once(' ')?;
        (name == one.pod.name).then_some(told)
    });
    let since: Vec<&str> = own.skip_while(|told| !told.starts_with("Failed")).collect();
    assert_eq!(since.first(), Some(&"Failed Evicted"), "{told:#?}");
    // A kubelet of 1.20 that has not heard of it yet says what it sees, containers that run, and then what it was told for good.
    let shown = since.iter().filter(|told| told.starts_with("Running"));
    let shown = shown.count();
    println!(
        "{}: shown as Running {shown} times in its grace",
        one.pod.name
    );
    assert!(shown <= 1, "{told:#?}");
}

/// One pod names more grace than the node grants, the other less. Both would stay for good, and are killed when the smaller one is over.
#[test]
fn a_soft_crossing_asks_first_and_kills_when_the_smaller_grace_is_over() {
    let cluster = cluster!(with_pods_here);
    let made = GRACES.map(|(own, granted)| (cluster.pod(&deaf(own)), granted));
    let victims = made.map(|(pod, granted)| (RunningPod::new(pod), Duration::from_secs(granted)));
    let selector = format!("brink-test={LABEL}");
    let of_both = ("labelSelector", selector.as_str());
    let phases = Watch::of(&cluster, of_both, &FIELDS);
    let (_line, mut agent) = Agent::with_line(&cluster, &settings(), "");
    agent.start();
    let are_known = || victims.iter().all(|(one, _)| knows(&agent, &one.pod));
    assert!(holds_in_time(are_known), "{}", agent.log());

    let before = available();
    for (victim, grace) in &victims {
        wait_for_room(before, &agent);
        victim.begin();
        let lived = lives_on(victim, &agent);
        println!("{}: dead {lived:.2?} after SIGTERM", victim.pod.name);
        assert!(
            lived + slowed(WRITTEN_LATE) > *grace && lived < *grace + slowed(SEEN_LATE),
            "{lived:?} of {grace:?}\n{}",
            agent.log()
        );
        check_record(&agent, &victim.uid, *grace);
        let is_told = || agent.has_told(&victim.uid) && is_failed(&victim.pod);
        assert!(
            holds_in_time(is_told),
            "{}\n{}",
            victim.pod.described(),
            agent.log()
        );
    }
    for (victim, _) in &victims {
        assert!(
            holds_in_time(|| is_apart(victim)),
            "{}",
            victim.pod.described()
        );
    }
    // A kubelet's last word is behind it.
    sleep(LAST_WORD);
    let told = phases.told();
    for (victim, _) in &victims {
        check_words(&cluster, &agent, victim, &told);
    }
    assert_eq!(agent.decisions().len(), victims.len(), "nobody else");
}
