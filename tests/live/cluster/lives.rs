//! What the node says of itself from one agent to the next: right again after a crash, a restart and an update, and nothing at the end.

use std::fs;

use rustix::process::Signal;

use crate::running::Agent;
use crate::support::{Cluster, NODE, PODS, holds_in_time};
use crate::told::condition;

/// Before the value of a soft threshold on memory, at the end of the settings.
const SOFT: &str = "evictionSoft: {memory.available: ";
/// Of the threshold: no node has so much available, and every one has more than so little.
const IS_SHORT: &str = "100Ti";
const HAS_ENOUGH: &str = "2Mi";

/// The taint of a node whose memory is short.
const TAINT: &str = "brink.dev/memory-pressure";

/// The status of our condition on memory, and whether the node has our taint.
type Said<'a> = (Option<&'a str>, bool);

const SHORT: Said<'static> = (Some("True"), true);
const ENOUGH: Said<'static> = (Some("False"), false);
const NOTHING: Said<'static> = (None, false);

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
struct Untainted<'a>(&'a Cluster);

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
