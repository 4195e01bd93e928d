//! Whom a real agent chooses, and whom it passes over.
use std::fs;

use crate::support::{MIB, Node, PATIENCE, gone_after, lives};
use brink::control::protocol::{Answer, Question};
use brink_host::hog::Load;
use brink_tests::wait_until;
use rustix::process::Signal;

/// Has the manifest of a workload ask for something.
fn asks(node: &Node, name: &str, word: &str) {
    let path = node.path("manifests").join(format!("{name}.yaml"));
    let text = fs::read_to_string(&path).unwrap();
    let asking = format!("annotations: {{brink.dev/eviction: {word}, ");
    fs::write(&path, text.replace("annotations: {", &asking)).unwrap();
}

/// A node whose larger workload asks never to be evicted, and an idle one to be the last, with annotations that count in
/// these namespaces.
fn asking(namespaces: &str) -> (Node, [usize; 2]) {
    let mut node = Node::new(300);
    let [large, small, _] =
        ["large", "small", "idle"].map(|name| node.workload(name, "containers: [{name: c}]"));
    asks(&node, "large", "never");
    asks(&node, "idle", "last");
    let hard = "evictionHard: {memory.available: 60Mi}";
    let allowed = format!("{hard}\nannotationNamespaces: {namespaces}");
    node.configure("enforce", &allowed);
    (node, [large, small])
}

/// Why `brink explain` says that a workload stands where it does.
fn explained(node: &Node, name: &str) -> String {
    let question = Question::ExplainWorkload {
        workload: name.to_owned(),
        signal: None,
        against: None,
    };
    match node.ask(&question) {
        Ok(Answer::Explanation(why)) => why.reasons.join("\n"),
        _ => String::new(),
    }
}

#[test]
fn a_pod_that_asks_never_to_go_stays_where_its_namespace_may_ask() {
    let (mut node, [large, small]) = asking("[other, test]");
    node.start(&[]);
    let kept = node.holding(large, 140);
    let leak = node.load(small, Load::Anon, 110 * MIB);
    gone_after(&leak);
    let record = node.finished(1);
    assert_eq!(record.victim_name(), "test/small");
    assert!(lives(&kept));
    let place = |name: &str| record.ranking.iter().find(|each| each.name == name);
    let refuses = place("large").expect("it is ranked");
    assert_eq!(refuses.refusal.as_deref(), Some("annotated"));
    let last = record.ranking.last().expect("three are ranked");
    let asked = (last.name.as_str(), last.preference.as_str());
    assert_eq!(asked, ("idle", "avoid"));
    assert_eq!(last.preference_by.as_deref(), Some("annotation"));
    assert!(
        record.why.iter().any(|why| why.contains("says never")),
        "{record:#?}"
    );
    let why = explained(&node, "test/large");
    assert!(why.contains("says never (annotated)"), "{why}");
    let why = explained(&node, "test/idle");
    assert!(why.contains("brink.dev/eviction puts it last"), "{why}");
}

#[test]
fn what_a_pod_asks_for_elsewhere_counts_for_nothing_and_is_told_once() {
    let (mut node, [large, small]) = asking("[other]");
    node.start(&[]);
    let innocent = node.holding(large, 140);
    let leak = node.load(small, Load::Anon, 110 * MIB);
    gone_after(&innocent);
    let record = node.finished(1);
    assert_eq!(record.victim_name(), "test/large");
    assert!(lives(&leak));
    let mut ranking = record.ranking.iter();
    let is_plain = ranking.all(|each| each.preference == "normal" && each.preference_by.is_none());
    assert!(is_plain, "{record:#?}");
    let log = node.log();
    let told = "namespace test: annotationNamespaces does not name it";
    assert_eq!(log.matches(told).count(), 1, "{log}");
}

#[test]
fn a_reload_says_whose_annotations_count() {
    let (mut node, _) = asking("[]");
    node.start(&[]);
    let is_heard = |node: &Node, expected: bool| {
        let found = wait_until(PATIENCE, || {
            let why = explained(node, "test/large");
            let is_so = !why.is_empty() && why.contains("(annotated)") == expected;
            is_so.then_some(())
        });
        assert!(found.is_some(), "{expected}: {}", node.log());
    };
    is_heard(&node, false);
    let hard = "evictionHard: {memory.available: 60Mi}";
    node.configure("enforce", &format!("{hard}\nannotationNamespaces: ['*']"));
    node.signal(Signal::HUP);
    is_heard(&node, true);
    node.configure("enforce", hard);
    node.signal(Signal::HUP);
    is_heard(&node, false);
}

#[test]
fn a_manifest_whose_pod_does_not_run_takes_no_order() {
    let mut node = Node::new(300);
    let leaker = node.workload("leaker", "containers: [{name: c}]");
    let bystander = node.workload("bystander", "containers: [{name: c}]");
    let absent = "apiVersion: v1\nkind: Pod\nmetadata: {name: absent, namespace: test, uid: uid-absent, annotations: {brink.dev/cgroup: /nowhere/at/all}}\nspec: {priority: -10, containers: [{name: c}]}\n";
    fs::write(node.path("manifests/absent.yaml"), absent).unwrap();
    node.configure("enforce", "evictionHard: {memory.available: 60Mi}");
    node.start(&[]);
    let bystander = node.holding(bystander, 10);
    let leak = node.load(leaker, Load::Anon, 290 * MIB);
    gone_after(&leak);
    let record = node.finished(1);
    assert_eq!(record.victim_name(), "test/leaker");
    let absent = record.ranking.iter().find(|each| each.name == "absent");
    let absent = absent.expect("it is ranked");
    assert_eq!(
        (absent.usage, absent.refusal.as_deref()),
        (Some(0), Some("empty")),
        "{absent:?}"
    );
    assert!(lives(&bystander));
    assert_eq!(node.decisions().len(), 1);
}
