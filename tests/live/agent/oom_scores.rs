//! `oom_score_adj` on the real kernel: a wrong one is found and told, set where that is asked for, and a refusal is told too.

use std::fs;
use std::path::PathBuf;

use brink_stream::model::data::{OomScoreAdj, ScoreResult};
use brink_stream::model::kind::Kind;
use brink_tests::{Hog, lacks, wait_until};
use rustix::thread::{CapabilitySet, capabilities};
use serde_json::Value;

use crate::kinds::told;
use crate::support::{Node, PATIENCE};

/// What every load begins with, and what nobody without the right may go below.
const WRONG: i64 = 100;
const KEPT: &str = "containers: [{name: c, resources: {limits: {cpu: 1, memory: 60Mi}}}]";
const FIRST: &str = "containers: [{name: c}]";
const BY_REQUEST: &str = "containers: [{name: c, resources: {requests: {memory: 30Mi}}}]";

/// A node of 300 MiB with one workload for each of these, in which a load runs with the wrong value.
struct Scene {
    node: Node,
    loads: Vec<Hog>,
}

impl Scene {
    fn new(workloads: &[(&str, &str)]) -> Self {
        let mut node = Node::new(300);
        let indexes: Vec<usize> = workloads
            .iter()
            .map(|(name, spec)| node.workload(name, spec))
            .collect();
        let load = |index: usize| {
            // A load makes itself the first to go before it takes anything.
            let load = node.holding(index, 1);
            fs::write(file(&load), WRONG.to_string()).unwrap();
            load
        };
        let loads = indexes.into_iter().map(load).collect();
        fs::create_dir(node.path("conf.d")).unwrap();
        Self { node, loads }
    }

    fn start(&mut self, mode: &str, setting: &str) {
        let text = format!("workloads: {{oomScoreAdj: {setting}}}\n");
        fs::write(self.node.path("conf.d/scores.yaml"), text).unwrap();
        self.node.configure(mode, "");
        let folder = self.folder();
        self.node.start(&["--config-dir", &folder]);
    }

    fn folder(&self) -> String {
        self.node.path("conf.d").display().to_string()
    }

    fn values(&self) -> Vec<i64> {
        let value = |load: &Hog| fs::read_to_string(file(load)).unwrap();
        let values = self.loads.iter().map(value);
        values.map(|text| text.trim().parse().unwrap()).collect()
    }

    /// What is told of each workload, once that is so many.
    #[track_caller]
    fn told(&self, count: usize) -> Vec<(String, OomScoreAdj)> {
        let all = || {
            let events = told(&self.node).unwrap_or_default().into_iter();
            let of = events.filter(|event| event.of == Kind::OomScoreAdjDiffers);
            let mut found: Vec<(String, OomScoreAdj)> = of
                .map(|event| {
                    let data = serde_json::from_str(event.data.get()).unwrap();
                    (event.subject.unwrap().name, data)
                })
                .collect();
            found.sort_by(|one, other| one.0.cmp(&other.0));
            found
        };
        let found = wait_until(PATIENCE, || Some(all()).filter(|all| all.len() >= count));
        let found = found.unwrap_or_else(|| panic!("{:?}: {}", all(), self.node.log()));
        assert_eq!(found.len(), count, "{found:?}");
        found
    }

    fn doctor(&self) -> Value {
        let output = self
            .node
            .said(&["doctor", "-o", "json", "--config-dir", &self.folder()]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let checks = report["checks"].as_array().unwrap().iter();
        let mut ours = checks.filter(|check| check["id"] == "workloads.oom-scores");
        ours.next().unwrap().clone()
    }
}

fn file(load: &Hog) -> PathBuf {
    format!("/proc/{}/oom_score_adj", load.pid()).into()
}

#[test]
fn a_wrong_value_is_told_and_nothing_is_changed_in_mode_observe() {
    let mut scene = Scene::new(&[("by-request", BY_REQUEST), ("kept", KEPT)]);
    scene.start("observe", "set");
    let told = scene.told(2);
    for ((name, data), (expected_name, expected)) in
        told.iter().zip([("by-request", 900), ("kept", -997)])
    {
        assert_eq!((name.as_str(), data.expected), (expected_name, expected));
        assert_eq!((data.value, data.result), (WRONG, ScoreResult::Differs));
        assert_eq!((data.set, &data.why), (0, &None));
    }
    assert_eq!(told[1].1.pid, scene.loads[1].pid());
    assert_eq!(scene.values(), [WRONG, WRONG]);
    let check = scene.doctor();
    assert_eq!(check["state"], "warning", "{check}");
    let found = check["found"].as_str().unwrap();
    assert!(
        found.contains("test/kept has 100 and should have -997"),
        "{found}"
    );
    assert_eq!(scene.values(), [WRONG, WRONG]);
}

#[test]
fn it_is_set_where_that_is_asked_for_and_orders_are_carried_out() {
    let mut scene = Scene::new(&[("by-request", BY_REQUEST), ("first", FIRST)]);
    scene.start("enforce", "set");
    for (_, data) in scene.told(2) {
        assert_eq!((data.value, data.result), (WRONG, ScoreResult::Set));
        assert!(data.set >= 1, "{data:?}");
    }
    assert_eq!(scene.values(), [900, 1000]);
    let check = scene.doctor();
    assert_eq!(check["state"], "ok", "{check}");
}

#[test]
fn with_the_right_it_is_lowered() {
    let held = capabilities(None).unwrap().effective;
    if !held.contains(CapabilitySet::SYS_RESOURCE) {
        lacks!("CAP_SYS_RESOURCE is missing");
    }
    let mut scene = Scene::new(&[("kept", KEPT)]);
    scene.start("enforce", "set");
    let told = scene.told(1);
    assert_eq!(told[0].1.result, ScoreResult::Set, "{told:?}");
    assert_eq!(scene.values(), [-997]);
}

#[test]
fn without_the_right_it_is_raised_and_not_lowered_and_that_is_told() {
    let mut scene = Scene::new(&[("by-request", BY_REQUEST), ("kept", KEPT)]);
    scene.node.without = CapabilitySet::SYS_RESOURCE;
    scene.start("enforce", "set");
    let told = scene.told(2);
    let results: Vec<ScoreResult> = told.iter().map(|(_, data)| data.result).collect();
    assert_eq!(
        results,
        [ScoreResult::Set, ScoreResult::Refused],
        "{told:?}"
    );
    let why = told[1].1.why.as_deref().unwrap_or_default();
    assert!(why.contains("CAP_SYS_RESOURCE"), "{why}");
    assert_eq!(scene.values(), [900, WRONG]);
    let check = scene.doctor();
    assert_eq!(check["state"], "warning", "{check}");
    assert!(
        check["next"].to_string().contains("CAP_SYS_RESOURCE"),
        "{check}"
    );
}
