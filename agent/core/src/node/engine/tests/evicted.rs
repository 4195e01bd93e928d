//! Pods that a kubelet runs: what it starts again, and memory that comes back when it unmounts volumes.

use super::*;

/// The usual node, where a kubelet runs the first workload.
fn node() -> Node {
    with(hard())
}

fn with(thresholds: Vec<Threshold>) -> Node {
    let mut node = Node::enforcing(thresholds);
    let mut workloads = ["a", "b", "c"].map(named).to_vec();
    workloads[0].by_kubelet = true;
    node.workloads(workloads);
    node
}

/// Its processes are gone at `at` ms, and files of so many MiB stay.
fn gone(node: &mut Node, at: i64, kept: u64) {
    node.now = ms(at);
    node.holds(0, kept);
    node.step(Input::Gone {
        workload: 0,
        kept: kept * MIB as u64,
        unseen: 0,
    });
}

#[test]
fn what_a_kubelet_starts_again_belongs_to_the_eviction() {
    let mut node = node();
    assert_eq!(kills(&node.at(0, 50)), [0]);
    gone(&mut node, 10, 0);
    assert_eq!(ends(&node.at(30, 150)), [End::MemoryBack]);
    node.holds(0, 300);
    assert_eq!(node.engine.evicted_by(ms(100), 0), Some(1));
    assert_eq!(kills(&node.at(20_000, 50)), [1], "it is not ordered twice");
    let first = node.engine.decision().unwrap().ranking.as_slice()[0];
    assert_eq!((first.workload, first.refusal), (0, Some(Reason::Evicted)));
    assert_eq!(
        node.engine.evicted_by(ms(20_000), 1),
        None,
        "nobody starts it again"
    );
    assert_eq!(node.engine.evicted_by(ms(300_000), 0), None);
    node.holds(1, 0);
    assert_eq!(ends(&node.at(299_000, 150)), [End::MemoryBack]);
    assert_eq!(
        kills(&node.at(300_001, 50)),
        [0],
        "nobody was told for too long"
    );
}

#[test]
fn what_is_started_after_a_grace_belongs_to_the_eviction_from_the_kill_on() {
    let mut node = with(soft_and_hard());
    node.at(0, 150);
    assert_eq!(kills(&node.at(60_000, 150)), [], "it is asked");
    node.now = ms(65_000);
    assert_eq!(kills(&node.step(Input::Tick)), [0]);
    assert_eq!(node.engine.evicted_by(ms(364_999), 0), Some(1));
    assert_eq!(node.engine.evicted_by(ms(365_000), 0), None);
}

#[test]
fn an_order_that_could_not_be_carried_out_evicts_nobody() {
    let mut node = node();
    assert_eq!(kills(&node.at(0, 50)), [0]);
    node.step(Input::Outcome {
        order: 1,
        delivered: Delivery::Failed,
    });
    assert_eq!(node.engine.evicted_by(ms(1), 0), None);
}

#[test]
fn an_eviction_outlives_its_agent() {
    let mut node = node();
    node.now = ms(60_000);
    let evicted = |workload| Recalled::Evicted {
        workload,
        order: 7,
        at: ms(10_000),
    };
    node.step(Input::Recall(evicted(0)));
    node.step(Input::Recall(evicted(1)));
    assert_eq!(node.engine.evicted_by(ms(60_000), 0), Some(7));
    assert_eq!(
        kills(&node.at(60_000, 50)),
        [1],
        "no kubelet starts that one again"
    );
}

#[test]
fn a_dry_run_evicts_nobody() {
    let mut node = node();
    node.step(Input::Control(Control::Pause(None)));
    node.at(0, 50);
    assert_eq!(node.engine.evicted_by(ms(1), 0), None);
}

#[test]
fn mounted_memory_of_an_evicted_pod_is_waited_for_while_it_is_enough() {
    let mut node = node();
    assert_eq!(kills(&node.at(0, 50)), [0]);
    gone(&mut node, 10, 80);
    let actions = node.at(30, 60);
    assert_eq!(ends(&actions), [End::Gone]);
    assert_eq!(kills(&actions), []);
    assert_eq!(held(&actions), [Reason::Credited]);
    assert_eq!(kills(&node.at(29_000, 60)), []);
    assert_eq!(
        kills(&node.at(29_001, 15)),
        [1],
        "it is not enough any more"
    );
}

#[test]
fn mounted_memory_that_nobody_unmounts_is_given_up() {
    let mut node = node();
    node.at(0, 50);
    gone(&mut node, 10, 80);
    assert_eq!(kills(&node.at(30, 60)), []);
    assert_eq!(kills(&node.at(30_009, 60)), []);
    assert_eq!(kills(&node.at(30_010, 60)), [1]);
}

#[test]
fn nobody_unmounts_what_no_kubelet_runs() {
    let mut node = Node::enforcing(hard());
    node.at(0, 50);
    gone(&mut node, 10, 80);
    assert_eq!(kills(&node.at(30, 60)), [1]);
}
