//! A storm while the API server is away: afterwards every eviction is told once, and of the kernel's kills few events count all.

use std::fs;
use std::path::Path;
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use brink::control::http;
use brink_stream::model::event::Event;
use brink_stream::model::kind::Kind;
use brink_tests::skip;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::LAST_WORD;
use crate::kubelet::Held;
use crate::manifest::{leaking, waiting};
use crate::running::Agent;
use crate::running_pod::RunningPod;
use crate::support::{Cluster, NODE, Pod, available, holds_in_time};
use crate::told::{condition, events, is_failed};
use crate::watch::Watch;

const MIB: u64 = 1 << 20;

/// A storm.
#[derive(Debug, Clone, Copy)]
struct Storm {
    /// The server is away for so long.
    away: Duration,
    /// Pods that are evicted in that time, one after the other.
    victims: u32,
    /// Kills of the kernel's in that time.
    kills: u64,
    /// Whether the server stands still, for whomever it is there. Otherwise the agent's line to it is cut.
    is_held: bool,
}

const LONG: Storm = Storm {
    away: Duration::from_mins(1),
    victims: 6,
    kills: 24,
    is_held: false,
};
/// The same while the server itself stands still, for the kubelet and the controllers too. They take the node for one that is away, and
/// pods are taken from such a node only after five minutes; the kubelet's next word ends that.
const HELD: Storm = Storm {
    is_held: true,
    ..LONG
};
/// Longer than an agent waits for an answer: what it was sent before, the server does afterwards all the same.
const BRIEF: Storm = Storm {
    away: Duration::from_secs(12),
    victims: 2,
    kills: 4,
    is_held: true,
};

/// Events about those that may follow each other at once; after them one a minute counts the others.
const AT_ONCE: usize = 8;
/// All but so much must be available again before the next pod leaks.
const SLACK: u64 = 60 * MIB;
/// The taints of a node of whose kubelet nothing is heard.
const AWAY: [&str; 2] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
];
/// The program by which the guard hears of the kernel's kills.
const PROGRAM: &str = "mark_victim";

/// One of the pods that leak.
fn leaker(number: u32) -> Value {
    let mut pod = leaking(&format!("storm-{number}"));
    pod["metadata"]["labels"] = json!({ "brink-test": "storm" });
    pod
}

/// A pod within its request, of which the kernel kills so many processes, one every two seconds.
fn bomber(kills: u64) -> Value {
    let both = json!({ "cpu": "20m", "memory": "32Mi" });
    let resources = json!({ "limits": both, "requests": both });
    let script = format!(
        "for i in $(seq {kills}); do dd if=/dev/zero of=/dev/null bs=64M count=1; sleep 2; done; sleep 3600"
    );
    let name = format!("bomber-{}", std::process::id());
    waiting(&name, &[&script], &resources)
}

/// What the kernel itself has counted of its kills in a group.
fn kernel_kills(group: &Path) -> u64 {
    let text = fs::read_to_string(group.join("memory.oom_control")).unwrap();
    let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    count.unwrap().trim().parse().unwrap()
}

/// Events of an agent, until the answer ends or breaks off.
fn read(socket: &Path, query: &str) -> Vec<Event> {
    let mut answer = http::get(socket, &format!("/v1/events?{query}")).unwrap();
    assert_eq!(answer.status, 200, "{query}");
    let mut found = Vec::new();
    while let Ok(Some(line)) = answer.next_line() {
        found.push(serde_json::from_slice(&line).unwrap());
    }
    found
}

/// Reads what an agent tells from its first event on, until it ends.
fn follow(agent: &Agent) -> JoinHandle<Vec<Event>> {
    let socket = agent.path("state/events.sock");
    let is_served = || http::get(&socket, "/v1/events?limit=1").is_ok();
    assert!(holds_in_time(is_served), "{}", agent.log());
    thread::spawn(move || read(&socket, "follow=1&since=0"))
}

/// Why it does not hear of the kernel's kills; nothing where it does. Waits until that is known.
fn deafness(agent: &Agent) -> Option<String> {
    let status = agent.settled();
    let mut programs = status.programs.iter();
    let runs = programs.any(|program| program.name == PROGRAM && program.running);
    (!runs).then(|| format!("{PROGRAM} does not run here: {:?}", status.rung_reasons))
}

/// The storm: the kernel kills in one pod all the time, and one after the other the others are evicted.
fn rage(storm: Storm, agent: &Agent, victims: &[RunningPod<'_>], bomber: &RunningPod<'_>) {
    let began = Instant::now();
    let before = available();
    // A server that stands still would keep whoever asks it waiting.
    let described = |pod: &Pod<'_>| {
        if storm.is_held {
            String::new()
        } else {
            pod.described()
        }
    };
    bomber.begin();
    for (number, victim) in (0..).zip(victims) {
        let due = storm.away * number / storm.victims;
        sleep(due.saturating_sub(began.elapsed()));
        let has_room = || available() + SLACK >= before;
        assert!(
            holds_in_time(has_room),
            "memory does not come back\n{}",
            agent.log()
        );
        victim.begin();
        assert!(
            holds_in_time(|| agent.waits(&victim.uid)),
            "{}\n{}",
            described(&victim.pod),
            agent.log()
        );
    }
    let are_killed = || kernel_kills(&bomber.group) >= storm.kills;
    assert!(holds_in_time(are_killed), "{}", described(&bomber.pod));
    sleep(storm.away.saturating_sub(began.elapsed()));
}

/// One order, one condition, one event, and the kubelet's reason when it was written.
fn check_once(cluster: &Cluster, agent: &Agent, victim: &RunningPod<'_>, told: &[String]) {
    let RunningPod { pod, uid, .. } = victim;
    let decisions = agent.decisions();
    let orders = decisions.iter().filter(|record| record.victim.uid == *uid);
    assert_eq!(orders.count(), 1, "{decisions:#?}");
    let posted = events(cluster, uid, "Evicted");
    assert_eq!(posted.len(), 1, "{posted:#?}");
    assert_eq!(posted[0]["count"], 1, "{posted:#?}");
    assert!(is_failed(pod), "{}", pod.described());
    let status = json!({ "status": pod.status() });
    let target = condition(&status, "DisruptionTarget").unwrap();
    assert_eq!(target["message"], posted[0]["message"]);
    let words = format!("{} Failed Evicted", pod.name);
    assert!(told.contains(&words), "{told:#?}");
}

/// Each of the kernel's kills is counted by one event, and there are few of them.
fn check_kills(storm: Storm, cluster: &Cluster, agent: &Agent, bomber: &RunningPod<'_>) {
    let posted = || events(cluster, &bomber.uid, "OOMKilled");
    let count = |events: &[Value]| -> u64 {
        let counts = events.iter().map(|event| event["count"].as_u64().unwrap());
        counts.sum()
    };
    assert!(
        holds_in_time(|| count(&posted()) >= storm.kills),
        "{:#?}\n{}",
        posted(),
        agent.log()
    );
    let posted = posted();
    println!(
        "{} kills of the kernel's in {} events, {} evictions",
        storm.kills,
        posted.len(),
        storm.victims
    );
    assert_eq!(count(&posted), storm.kills, "{posted:#?}");
    assert_eq!(kernel_kills(&bomber.group), storm.kills);
    // One more for each minute that has begun.
    let most = AT_ONCE + 2;
    assert!(posted.len() <= most, "{posted:#?}");
    let status = bomber.pod.status();
    assert_eq!(status["phase"], "Running", "{status:#}");
    assert_eq!(status["containerStatuses"][0]["restartCount"], 0);
}

/// The controllers have heard of the kubelet again, and have shut nobody out.
fn check_node(cluster: &Cluster) {
    let node = || cluster.get("node", NODE).unwrap();
    let is_ready = || {
        let node = node();
        let ready = condition(&node, "Ready");
        let taints = node["spec"]["taints"].as_array().into_iter().flatten();
        let mut keys = taints.filter_map(|taint| taint["key"].as_str());
        ready.is_some_and(|ready| ready["status"] == "True") && !keys.any(|key| AWAY.contains(&key))
    };
    assert!(holds_in_time(is_ready), "{:#}", node());
}

/// The numbers of what was told rise by one, and all of it that is to be kept is in the journal.
fn check_numbers(
    storm: Storm,
    told: &[Event],
    kept: &[Event],
    (victims, bomber): (&[RunningPod<'_>], &RunningPod<'_>),
) {
    let gaps = told
        .windows(2)
        .filter(|pair| pair[0].seq + 1 != pair[1].seq);
    let gaps: Vec<(u64, u64)> = gaps.map(|pair| (pair[0].seq, pair[1].seq)).collect();
    assert_eq!(gaps, [], "numbers after which some are missing");
    let last = kept.last().expect("something is kept").seq;
    let journalled = |events: &[Event]| -> Vec<u64> {
        let events = events.iter().filter(|event| event.of.is_journalled());
        let numbers = events.map(|event| event.seq);
        numbers.filter(|number| *number <= last).collect()
    };
    assert_eq!(journalled(kept), journalled(told));
    let count = |of: Kind, uid: &str| {
        let about = |event: &&Event| {
            let subject = event.subject.as_ref();
            event.of == of && subject.is_some_and(|subject| subject.uid == uid)
        };
        told.iter().filter(about).count() as u64
    };
    assert_eq!(count(Kind::OomKill, &bomber.uid), storm.kills);
    for victim in victims {
        assert_eq!(count(Kind::EvictionOrdered, &victim.uid), 1);
        assert_eq!(count(Kind::EvictionCompleted, &victim.uid), 1);
    }
}

#[test]
#[ignore = "slow: a minute of storm, and all that is told after it"]
fn a_storm_while_the_server_is_away_is_told_once_afterwards() {
    check(LONG);
}

#[test]
#[ignore = "slow: the same minute, in which the server itself stands still"]
fn a_storm_while_the_server_stands_still_for_a_minute_is_told_once_afterwards() {
    check(HELD);
}

#[test]
fn a_short_storm_while_the_server_stands_still_is_told_once_afterwards() {
    check(BRIEF);
}

fn check(storm: Storm) {
    let cluster = cluster!(with_pods_here);
    let pods: Vec<Pod<'_>> = (0..storm.victims)
        .map(|number| cluster.pod(&leaker(number)))
        .collect();
    let bomber = RunningPod::new(cluster.pod(&bomber(storm.kills)));
    let victims: Vec<RunningPod<'_>> = pods.into_iter().map(RunningPod::new).collect();
    let phases = Watch::of(
        &cluster,
        ("labelSelector", "brink-test=storm"),
        &["/metadata/name", "/status/phase", "/status/reason"],
    );
    let (mut line, mut agent) = Agent::on_pods(&cluster, "enforce", "", "");
    if let Some(reason) = deafness(&agent) {
        skip!("{reason}");
    }
    let told = follow(&agent);
    assert!(holds_in_time(|| agent.is_connected()), "{}", agent.log());
    assert_eq!(agent.outbox(), 0);

    let held = storm.is_held.then(Held::api_server);
    if held.is_none() {
        line.cut();
    }
    rage(storm, &agent, &victims, &bomber);
    assert!(storm.is_held || !agent.is_connected(), "{}", agent.log());
    // All of it waits on disk.
    let least = victims.len() + AT_ONCE.min(usize::try_from(storm.kills).unwrap());
    let waiting = (agent.outbox(), agent.untold());
    assert!(
        waiting.0 >= least && waiting.1 >= least,
        "{waiting:?} of {least}\n{}",
        agent.log()
    );

    if held.is_none() {
        line.mend();
    }
    drop(held);
    // One that has stood still for long takes its time.
    let answers = || cluster.answers(&["get", "--raw", "/readyz"]);
    assert!(holds_in_time(answers), "the server does not come back");
    for victim in &victims {
        assert!(
            holds_in_time(|| agent.has_told(&victim.uid)),
            "{}\n{}",
            victim.pod.described(),
            agent.log()
        );
        assert!(
            holds_in_time(|| is_failed(&victim.pod)),
            "{}",
            victim.pod.described()
        );
    }
    check_kills(storm, &cluster, &agent, &bomber);
    assert!(holds_in_time(|| agent.outbox() == 0), "{}", agent.log());
    // A kubelet's last word is behind it.
    sleep(LAST_WORD);
    assert_eq!(phases.gaps(), 0, "all that was told was seen");
    let phases = phases.told();
    for victim in &victims {
        check_once(&cluster, &agent, victim, &phases);
    }
    check_node(&cluster);
    assert_eq!(agent.decisions().len(), victims.len(), "nobody else");
    assert_eq!((agent.outbox(), agent.untold()), (0, 0));
    let view = agent.kubernetes();
    assert_eq!((view.connected, view.why), (true, None));
    let kept = read(&agent.path("state/events.sock"), "since=1d");
    agent.stop(Signal::TERM);
    let told = told.join().unwrap();
    check_numbers(storm, &told, &kept, (&victims, &bomber));
}
