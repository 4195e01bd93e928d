//! What the node says of itself: at once, right again after a crash, a restart and an update, and nothing at the end.

use std::fs;
use std::time::Duration;

use brink_tests::slowed;
use rustix::process::Signal;

use crate::agent::all_told;
use crate::figures::{Spread, hold};
use crate::node_watch::NodeWatch;
use crate::running::Agent;
use crate::support::{Cluster, NODE, PODS, holds_in_time};
use crate::told::condition;

/// Before the value of a soft threshold on memory, at the end of the settings.
const SOFT: &str = "evictionSoft: {memory.available: ";
/// Of the threshold: no node has so much available, and every one has more than so little.
const IS_SHORT: &str = "100Ti";
const HAS_ENOUGH: &str = "2Mi";

/// The taint of a node whose memory is short.
pub(crate) const TAINT: &str = "brink.dev/memory-pressure";

/// The status of our condition on memory, and whether the node has our taint.
type Said<'a> = (Option<&'a str>, bool);

const SHORT: Said<'static> = (Some("True"), true);
const ENOUGH: Said<'static> = (Some("False"), false);
const NOTHING: Said<'static> = (None, false);

/// How often a shortage begins and ends where the node's word is timed, and how late that may be in the median.
const ROUNDS: usize = 5;
const SAID_WITHIN: Duration = Duration::from_millis(100);
/// The status of our condition alone.
const STATUS: &str = r#"{.status.conditions[?(@.type=="brink.dev/MemoryPressure")].status}"#;

/// One whose node is short of memory, and that evicts nobody before the test is over.
fn settings() -> String {
    format!(
        "mode: enforce\nmemoryPolicy: kubelet\nheadroomHard: 0%\nkernelPrograms: false\nrealtime: {{priority: 0}}\n\
         node: {{cgroup: {PODS}}}\nenforceNodeAllocatable: []\nevictionHard: {{memory.available: 1Mi}}\n\
         evictionSoftGracePeriod: {{memory.available: 1h}}\nevictionPressureTransitionPeriod: 1s\n\
         {SOFT}{IS_SHORT}}}\n"
    )
}

/// Gives the threshold another value, which counts from the next start or SIGHUP on.
fn set(agent: &Agent, value: &str) {
    let path = agent.path("config.yaml");
    let text = fs::read_to_string(&path).unwrap();
    let (before, _) = text.split_once(SOFT).unwrap();
    fs::write(path, format!("{before}{SOFT}{value}}}\n")).unwrap();
}

fn says(cluster: &Cluster, expected: Said<'_>) -> bool {
    let node = cluster.get("node", NODE).unwrap();
    let ours = condition(&node, "brink.dev/MemoryPressure");
    let status = ours.as_ref().and_then(|ours| ours["status"].as_str());
    let taints = node["spec"]["taints"].as_array();
    let is_tainted = taints.is_some_and(|taints| taints.iter().any(|taint| taint["key"] == TAINT));
    (status, is_tainted) == expected
}

#[track_caller]
fn comes_to(cluster: &Cluster, agent: &Agent, expected: Said<'_>) {
    assert!(
        holds_in_time(|| says(cluster, expected)),
        "not {expected:?}: {:#}\n{}",
        cluster.get("node", NODE).unwrap(),
        agent.log()
    );
}

#[track_caller]
fn comes_to_be(agent: &Agent, mode: &str) {
    let is_so = || agent.status().is_some_and(|status| status.mode == mode);
    assert!(holds_in_time(is_so), "not {mode}: {}", agent.log());
}

/// A taint that an agent could not take off again would keep the pods of all other tests away.
pub(crate) struct Untainted<'a>(pub(crate) &'a Cluster);

impl Drop for Untainted<'_> {
    fn drop(&mut self) {
        let off = format!("{TAINT}-");
        let _was_there = self.0.answers(&["taint", "nodes", NODE, &off]);
    }
}

#[test]
fn what_the_node_says_is_right_after_a_crash_a_restart_and_an_update_and_gone_at_the_end() {
    let cluster = cluster!(with_pods_here);
    let _untainted = Untainted(&cluster);
    let (_line, mut agent) = Agent::with_line(&cluster, &settings(), ", taint: true");
    agent.start();
    comes_to(&cluster, &agent, SHORT);

    // Of a crash nobody can tell the node; whoever comes next can, however it stands by then.
    agent.stop(Signal::KILL);
    assert!(says(&cluster, SHORT));
    set(&agent, HAS_ENOUGH);
    agent.start();
    comes_to(&cluster, &agent, ENOUGH);
    set(&agent, IS_SHORT);
    agent.signal(Signal::HUP);
    comes_to(&cluster, &agent, SHORT);

    // Whoever is asked to end takes it along, in the middle of a shortage too.
    agent.stop(Signal::TERM);
    assert!(says(&cluster, NOTHING), "{}", agent.log());
    agent.start();
    comes_to(&cluster, &agent, SHORT);

    // The next one of an update stands by until then, and what it says is not taken away by the last words of the one before.
    let mut next = agent.successor();
    next.start();
    comes_to_be(&next, "standby");
    assert!(says(&cluster, SHORT), "{}", next.log());
    agent.stop(Signal::TERM);
    comes_to_be(&next, "enforcing");
    comes_to(&cluster, &next, SHORT);
    next.stop(Signal::TERM);
    assert!(says(&cluster, NOTHING), "{}", next.log());
}

/// What the guard has seen of the node, by the agent's own events: whether its memory is short, and since when.
fn seen(agent: &Agent) -> Vec<(bool, i64)> {
    let events = all_told(agent, "pressure").into_iter();
    let changes = events.map(|event| {
        let held = event["data"]["conditions"].as_array().unwrap();
        let is_short = held.iter().any(|one| one == "MemoryPressure");
        (is_short, event["at"]["monotonicNs"].as_i64().unwrap())
    });
    let mut changes: Vec<(bool, i64)> = changes.collect();
    // Another condition is told in the same way.
    changes.dedup_by_key(|(is_short, _)| *is_short);
    changes
}

/// The same by what a watch has told of the node, each time from the moment in which it was told.
fn said(node: &NodeWatch) -> Vec<(bool, i64)> {
    let lines = node.told().into_iter();
    // What an agent that was killed had left was told before ours.
    let lines = lines.skip_while(|line| line.text != "False");
    let mut changes: Vec<(bool, i64)> = lines
        .map(|line| (line.text == "True", line.at_ns))
        .collect();
    changes.dedup_by_key(|(is_short, _)| *is_short);
    changes
}

/// From the look that shows a shortage, or its end, to whoever watches the node.
#[test]
fn the_node_says_within_milliseconds_what_the_guard_has_seen() {
    let cluster = cluster!(with_pods_here);
    let (_line, mut agent) = Agent::with_line(&cluster, &settings(), "");
    set(&agent, HAS_ENOUGH);
    let node = NodeWatch::of(&cluster, STATUS);
    agent.start();
    let says = |status: &str| {
        let told = node.told();
        told.last().is_some_and(|line| line.text == status)
    };
    assert!(holds_in_time(|| says("False")), "{}", agent.log());
    for _ in 0..ROUNDS {
        for (value, status) in [(IS_SHORT, "True"), (HAS_ENOUGH, "False")] {
            set(&agent, value);
            agent.signal(Signal::HUP);
            assert!(
                holds_in_time(|| says(status)),
                "not {status}: {:#?}\n{}",
                node.told(),
                agent.log()
            );
        }
    }
    let seen = seen(&agent);
    // Before all of them there is that it has enough, which is no change of the guard's.
    let said: Vec<(bool, i64)> = said(&node).split_off(1);
    let words = |changes: &[(bool, i64)]| -> Vec<bool> {
        changes.iter().map(|(is_short, _)| *is_short).collect()
    };
    assert_eq!(words(&said), [true, false].repeat(ROUNDS), "{said:?}");
    assert_eq!(words(&seen), words(&said), "{seen:?}");
    let late = said.iter().zip(&seen).map(|((_, told), (_, seen))| {
        let nanos = u64::try_from(told - seen).expect("nobody tells it before it is seen");
        Duration::from_nanos(nanos)
    });
    let late: Vec<Duration> = late.collect();
    println!("the node says it after {late:.1?}");
    let millis = |time: &Duration| time.as_secs_f64() * 1e3;
    let median = Spread::of(late.iter().map(millis)).median();
    let most = millis(&slowed(SAID_WITHIN));
    hold(&[("ms from the guard's look to the node's word", median, most)]);
}
