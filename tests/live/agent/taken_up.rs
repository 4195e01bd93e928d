//! A soft order that is open when its agent ends: the next one goes on with it, and kills once for one cause.

use std::thread;
use std::time::Duration;

use crate::journal::events;
use crate::standby::two_agents;
use crate::support::{Node, PATIENCE, gone_after, lives};
use brink::control::client::ask;
use brink::control::protocol::{Answer, Question};
use brink::record::DecisionRecord;
use brink_host::hog::Load;
use brink_stream::model::field::Field;
use brink_stream::model::incident::Incident;
use brink_stream::model::kind::Kind;
use brink_tests::{Hog, slowed, wait_until};
use rustix::process::Signal;

/// How long a victim may take to end.
const POD_GRACE: Duration = Duration::from_secs(3);
/// Between the end of a grace and the signal.
const NOTICE: Duration = Duration::from_millis(300);
const SOFT: &str = "evictionHard: {memory.available: 20Mi}\nevictionSoft: {memory.available: 150Mi}\nevictionSoftGracePeriod: {memory.available: 500ms}\nevictionMaxPodGracePeriod: 3\nevents: {enabled: true}";

/// A deaf workload that takes more than its share, and one that would be next.
fn scene(settings: &str) -> (Node, Hog, Hog) {
    let mut node = Node::new(300);
    let leaker = node.workload("leaker", "containers: [{name: c}]");
    let next = node.workload("next", "containers: [{name: c}]");
    node.configure("enforce", settings);
    let next = node.holding(next, 40);
    node.start(&[]);
    let deaf = node.deaf(leaker, Load::Anon, 200);
    (node, deaf, next)
}

fn at(record: &DecisionRecord, stage: &str) -> Option<i64> {
    let mut stages = record.stages.iter();
    let found = stages.find(|time| time.stage == stage);
    found.map(|time| time.at.monotonic_ns)
}

/// Waits until the first order has come to a stage.
fn reached(node: &Node, stage: &str) -> i64 {
    let reached = || at(node.decisions().first()?, stage);
    wait_until(PATIENCE, reached).unwrap_or_else(|| panic!("{}", node.log()))
}

/// What has become of the only order there is to be.
fn only_order(node: &Node, next: &Hog) -> DecisionRecord {
    let record = node.finished(1);
    // A second one would come at once, or after the patience of the first.
    thread::sleep(slowed(Duration::from_millis(700)));
    let told = node.decisions();
    assert_eq!(told.len(), 1, "one cause: {told:#?}\n{}", node.log());
    assert_eq!(record.victim_name(), "test/leaker");
    assert!(lives(next), "{}", node.log());
    record
}

fn check_deadline(record: &DecisionRecord, asked: i64) {
    let killed =
        at(record, "firstSignal").unwrap_or_else(|| panic!("it did not listen: {record:#?}"));
    let after = Duration::from_nanos(u64::try_from(killed - asked).unwrap());
    assert!(
        after + slowed(Duration::from_millis(50)) > POD_GRACE && after < POD_GRACE + slowed(NOTICE),
        "killed {after:?} after it was asked"
    );
    assert_eq!(at(record, "asked"), Some(asked), "it is the same record");
}

/// The order is one incident, which both agents tell of.
fn check_incident(node: &Node) {
    let told = || {
        let of_order = events(node, "since=1d").into_iter().filter_map(|event| {
            let incident: Incident = serde_json::from_str(event.data.get()).ok()?;
            Some((event.of, incident))
        });
        let of_order = of_order.filter(|(of, _)| of.is_incident() || of.closes_incident());
        let of_order: Vec<(Kind, Incident)> = of_order.collect();
        let is_over = |(of, _): &(Kind, Incident)| *of == Kind::EvictionCompleted;
        of_order.iter().any(is_over).then_some(of_order)
    };
    let told = wait_until(PATIENCE, told).unwrap_or_else(|| panic!("{}", node.log()));
    let [(first, opened), .., (last, closed)] = &told[..] else {
        panic!("{told:#?}");
    };
    assert_eq!(
        (first, last),
        (&Kind::EvictionOrdered, &Kind::EvictionCompleted)
    );
    assert!(told.iter().all(|(_, one)| one.id == opened.id), "{told:#?}");
    assert!(closed.revision > opened.revision, "{told:#?}");
    assert_eq!(closed.course.container_survived, Field::Value(false));
    assert!(closed.course.killed.value().is_some(), "{closed:#?}");
}

#[test]
fn a_victim_that_was_asked_keeps_its_deadline_over_a_restart() {
    for signal in [Signal::KILL, Signal::TERM] {
        let (mut node, deaf, next) = scene(SOFT);
        let asked = reached(&node, "asked");
        // Whoever is killed at once has not written it.
        let is_written = || {
            let ordered = events(&node, "since=0&kind=eviction-ordered");
            let journal = node.status()?.events?.journal?;
            (!ordered.is_empty() && journal.waiting == 0).then_some(())
        };
        assert!(wait_until(PATIENCE, is_written).is_some(), "{}", node.log());
        node.stop(signal);
        thread::sleep(Duration::from_millis(300));
        node.launch(&[]);
        let is_open = || node.status()?.open_order.filter(|open| open.order == 1);
        assert!(wait_until(PATIENCE, is_open).is_some(), "{}", node.log());
        gone_after(&deaf);
        check_deadline(&only_order(&node, &next), asked);
        check_incident(&node);
        node.replay();
    }
}

#[test]
fn a_deadline_that_passes_without_an_agent_is_kept_by_the_next_one() {
    let (mut node, deaf, next) = scene(SOFT);
    reached(&node, "asked");
    node.stop(Signal::KILL);
    thread::sleep(POD_GRACE);
    node.start(&[]);
    gone_after(&deaf);
    only_order(&node, &next);
}

#[test]
fn the_agent_that_stands_by_takes_an_open_order_up() {
    let mut node = Node::new(300);
    let leaker = node.workload("leaker", "containers: [{name: c}]");
    two_agents(&mut node, SOFT);
    // On a slow machine its grace may be over before it has all.
    let deaf = node.going_deaf(leaker, Load::Anon, 200);
    let asked = reached(&node, "asked");
    node.stop_first(Signal::KILL);
    gone_after(&deaf);
    let over = || {
        let Ok(Answer::Decisions(told)) = ask(&node.path("other.sock"), &Question::Decisions)
        else {
            return None;
        };
        told.iter()
            .all(|record| record.end.is_some())
            .then_some(told)
    };
    let told = wait_until(PATIENCE, over).unwrap();
    assert_eq!(told.len(), 1, "{told:#?}\n{}", node.log());
    check_deadline(&told[0], asked);
}

#[test]
fn a_stop_button_that_is_pressed_while_no_agent_runs_lets_go_of_the_asked() {
    let (mut node, deaf, _next) = scene(SOFT);
    reached(&node, "asked");
    node.stop(Signal::TERM);
    std::fs::write(node.path("state/pause"), "").unwrap();
    node.start(&[]);
    assert_eq!(node.finished(1).end.as_deref(), Some("stopped"));
    thread::sleep(POD_GRACE + NOTICE);
    assert!(lives(&deaf), "{}", node.log());
}

/// Whoever has come in the place of the asked while no agent ran is nobody's victim.
#[test]
fn who_came_after_the_asked_had_gone_is_left_alone() {
    let mut node = Node::new(300);
    let leaker = node.workload("leaker", "containers: [{name: c}]");
    node.configure("enforce", SOFT);
    node.start(&[]);
    let deaf = node.deaf(leaker, Load::Anon, 200);
    reached(&node, "asked");
    node.stop(Signal::KILL);
    drop(deaf);
    let fresh = node.holding(leaker, 20);
    node.start(&[]);
    assert_eq!(node.finished(1).end.as_deref(), Some("gone"));
    thread::sleep(POD_GRACE + NOTICE);
    assert!(lives(&fresh), "{}", node.log());
    assert_eq!(node.decisions().len(), 1);
}
