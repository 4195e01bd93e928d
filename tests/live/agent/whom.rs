//! Whom a real agent chooses, and whom it passes over.
use std::fs;

use crate::support::{MIB, Node, gone_after, lives};
use brink_host::hog::Load;

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
