//! What the agent keeps for its next run beside the Kubernetes API: the pods it knew, what it told of the node, and of which order last.

use std::sync::Arc;

use brink::config::document::{Limits, Origins, Reader, parse};
use brink::config::finding::Report;
use brink::pod::{Reading, read_pod};
use brink_core::node::condition::{Condition, ConditionSet};
use brink_kube::outbox::last;
use brink_kube::pods::{LARGEST_POD, MOST_PODS, Pod, Pods, kept};
use brink_kube::write::conditions::{patch, standings};
use brink_kube::write::kept as node;
use jiff::Timestamp;

use crate::Taken;
use crate::bundle::Bundle;

/// What this node and boot are called.
const NODE: &str = "node";
const BOOT: &str = "boot";
/// A time to the second, as Kubernetes takes it: `2026-11-22T10:00:00Z`.
const TIME: usize = 20;

/// `pods.json`, `node.json` and `outbox.last`.
pub(crate) fn cluster_files(bytes: &[u8]) -> Taken {
    let files = Bundle::split("pods.json", bytes);
    let pods = files.get("pods.json").is_some_and(check_pods);
    let node = files.get("node.json").is_some_and(check_node);
    let last = files.get("outbox.last").is_some_and(check_last);
    Taken::from_accepted(pods || node || last)
}

/// No more pods are known than a node has, each is as small as one that the API tells of, and what is kept of them comes back.
fn check_pods(text: &[u8]) -> bool {
    let known = match kept::read(text, NODE) {
        Ok(known) => known,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return false;
        }
    };
    assert!(known.pods.len() <= MOST_PODS);
    let pods = Arc::new(Pods::new(|| {}));
    pods.recall(known.pods, known.as_of);
    let (_, listed) = pods.snapshot();
    listed.iter().for_each(check_pod);
    let written = kept::write(NODE, known.as_of, &listed).unwrap_or_default();
    let again = kept::read(&written, NODE);
    let living: Vec<Pod> = listed.into_iter().filter(|pod| !pod.is_over).collect();
    assert!(again.is_ok_and(|again| again.as_of == known.as_of && is_same(&again.pods, &living)));
    true
}

/// A file has no versions of the objects.
fn is_same(one: &[Pod], other: &[Pod]) -> bool {
    let key = |pod: &Pod| (pod.uid.clone(), pod.json.clone());
    one.iter().map(key).eq(other.iter().map(key))
}

/// It is read as a manifest is, or refused.
fn check_pod(pod: &Pod) {
    assert!(!pod.uid.is_empty() && pod.json.len() <= LARGEST_POD);
    let (origins, mut report) = (Origins::default(), Report::default());
    let documents = parse(&pod.json, Origins::DEFAULT, Limits::WRITTEN).unwrap_or_default();
    for document in &documents {
        let mut reader = Reader::new(document, &origins, &mut report);
        if let Some(manifest) = read_pod(&mut reader, document, Reading::AsAdmitted) {
            assert!(!manifest.workload.uid.is_empty());
        }
    }
}

/// Each condition is told once, since a time that a server takes.
fn check_node(text: &[u8]) -> bool {
    let now = Timestamp::from_second(1_795_000_000).unwrap_or_default();
    let Ok(known) = node::read(text, now) else {
        return false;
    };
    assert!(known.conditions.len() <= Condition::ALL.len());
    let all: ConditionSet = Condition::ALL.into_iter().collect();
    let told = standings(
        all,
        ConditionSet::EMPTY,
        &known.conditions,
        &now.to_string(),
    );
    let patch = patch(&told, &now.to_string());
    let conditions = patch["status"]["conditions"].as_array();
    for condition in conditions.into_iter().flatten() {
        let since = condition["lastTransitionTime"].as_str().unwrap_or_default();
        assert!(
            since.len() == TIME && since.parse::<Timestamp>().is_ok(),
            "{since}"
        );
    }
    let again = serde_json::to_vec(&known).map(|text| node::read(&text, now));
    assert!(again.is_ok_and(|again| again.is_ok_and(|again| again == known)));
    true
}

/// An order of another boot is none of this one.
fn check_last(text: &[u8]) -> bool {
    let Ok(order) = last::read(text, BOOT) else {
        return false;
    };
    assert!(order.is_none() || last::read(text, "another").is_ok_and(|of| of.is_none()));
    true
}
