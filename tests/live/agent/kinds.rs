//! The kinds of events that the life of an agent brings, from a real one.

use std::collections::BTreeSet;
use std::fs;

use brink::control::http;
use brink_host::hog::Load;
use brink_stream::model::data::{Configuration, Pressure, Rung};
use brink_stream::model::event::Event;
use brink_stream::model::kind::Kind;
use brink_tests::wait_until;

use crate::support::{MIB, Node, PATIENCE, gone_after};

/// Everything that was told so far.
pub(crate) fn told(node: &Node) -> Option<Vec<Event>> {
    let answer = http::get(&node.path("state/events.sock"), "/v1/events?since=0");
    let text = answer.ok()?.text().ok()?;
    let event = |line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}"));
    Some(text.lines().map(event).collect())
}

/// What was told once all of these kinds are there.
#[track_caller]
fn told_with(node: &Node, wanted: &[Kind]) -> Vec<Event> {
    let all = wait_until(PATIENCE, || {
        let told = told(node)?;
        let has = |kind: &Kind| told.iter().any(|event| event.of == *kind);
        wanted.iter().all(has).then_some(told)
    });
    all.unwrap_or_else(|| {
        let kinds = told(node).unwrap_or_default();
        let kinds: BTreeSet<&str> = kinds.iter().map(|event| event.of.word()).collect();
        panic!("{wanted:?} is not in {kinds:?}: {}", node.log())
    })
}

#[test]
fn what_an_agent_lives_through_is_told_kind_by_kind() {
    let mut node = Node::new(300);
    let leaker = node.workload("leaker", "containers: [{name: c}]");
    let hard = "evictionHard: {memory.available: 60Mi}\nevents: {enabled: true}";
    node.configure("enforce", hard);
    let status = node.start(&[]);
    let late = node.workload("late", "containers: [{name: c}]");
    told_with(&node, &[Kind::WorkloadStarted]);
    gone_after(&node.load(leaker, Load::Anon, 280 * MIB));
    node.finished(1);
    drop(node.groups.remove(late));
    fs::remove_file(node.path("manifests").join("late.yaml")).unwrap();
    let wanted = [
        Kind::RungChanged,
        Kind::ConfigurationChanged,
        Kind::ThresholdCrossed,
        Kind::Pressure,
        Kind::EvictionCompleted,
        Kind::ThresholdCleared,
        Kind::WorkloadEnded,
    ];
    let told = told_with(&node, &wanted);
    assert_eq!(told[0].of, Kind::AgentStarted, "{told:#?}");
    assert!(told.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    let of = |kind: Kind| told.iter().filter(move |event| event.of == kind);
    for kind in [Kind::WorkloadStarted, Kind::WorkloadEnded] {
        let names: Vec<_> = of(kind)
            .filter_map(|event| event.subject.as_ref())
            .map(|subject| subject.name.as_str())
            .collect();
        assert_eq!(names, ["late"], "who was there at the start is not told");
    }
    let rung = of(Kind::RungChanged).next_back().unwrap();
    let rung: Rung = serde_json::from_str(rung.data.get()).unwrap();
    assert_eq!(Some(rung.rung), status.rung);
    let known = of(Kind::ConfigurationChanged).next_back().unwrap();
    let known: Configuration = serde_json::from_str(known.data.get()).unwrap();
    assert_eq!(known.thresholds, ["memory.available<60Mi"]);
    assert_eq!(known.parts[0].value, "60Mi");
    let pressure = of(Kind::Pressure).next().unwrap();
    let pressure: Pressure = serde_json::from_str(pressure.data.get()).unwrap();
    assert_eq!(pressure.conditions, ["MemoryPressure"]);
}
