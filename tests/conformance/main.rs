//! The kubelet's reference cases as data: every case of every area runs, none is passed over in silence.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops at what it does not expect"
)]

mod actions;
mod decode;
mod gate;
mod limits;
mod policy;
mod rank;
mod timeline;

use std::collections::BTreeSet;

use serde_json::Value;

/// One case of the reference set.
#[derive(Clone, Debug)]
struct Case {
    id: String,
    area: String,
    input: Value,
    expect: Value,
}

/// Areas, and the test that runs their cases.
const AREAS: &[(&str, &str)] = &[
    ("parse", "policy::parse"),
    ("allocatable-copy", "policy::allocatable_copy"),
    ("defaults", "policy::defaults"),
    ("percentage-rounding", "policy::percentage_rounding"),
    ("threshold-equality", "policy::threshold_equality"),
    ("containerfs-thresholds", "policy::containerfs_thresholds"),
    ("thresholds-met", "gate::thresholds_met"),
    ("updated-stats", "gate::updated_stats"),
    ("first-observed", "gate::first_observed"),
    ("grace", "gate::grace"),
    ("node-conditions", "gate::node_conditions"),
    ("threshold-order", "gate::threshold_order"),
    ("rank-exceeds-memory-only", "rank::every_area"),
    ("rank-exceeds-disk-only", "rank::every_area"),
    ("rank-priority-only", "rank::every_area"),
    ("rank-disk-usage-only", "rank::every_area"),
    ("rank-inodes-usage-only", "rank::every_area"),
    ("rank-memory-usage-only", "rank::every_area"),
    ("rank-disk", "rank::every_area"),
    ("rank-inodes", "rank::every_area"),
    ("rank-memory", "rank::every_area"),
    ("rank-pid", "rank::every_area"),
    ("rank-disk-split-imagefs", "rank::every_area"),
    ("timeline", "timeline::every_case"),
    ("node-reclaim", "actions::node_reclaim"),
    ("status-message", "actions::status_message"),
    ("local-storage", "limits::local_storage"),
    ("local-storage-e2e", "limits::local_storage"),
    ("admission", "actions::admission"),
    ("memcg-notifier", "actions::memcg_notifier"),
    ("observations", "actions::observations_of_signals"),
    ("grace-override", "actions::grace_override"),
    // Prose only: each has a scenario of the same name in the `scenarios` target.
    ("e2e", "scenarios"),
];

fn cases() -> Vec<Case> {
    let file: Value = serde_json::from_str(include_str!("kubelet-eviction.json")).unwrap();
    let text = |case: &Value, key: &str| case[key].as_str().unwrap().to_string();
    let cases = file["cases"].as_array().unwrap().iter();
    cases
        .map(|case| Case {
            id: text(case, "id"),
            area: text(case, "area"),
            input: case["input"].clone(),
            expect: case["expect"].clone(),
        })
        .collect()
}

/// The cases of some areas; at least one for each, so that a misspelt area fails.
fn of_areas(areas: &[&str]) -> Vec<Case> {
    let cases = cases();
    for area in areas {
        assert!(
            cases.iter().any(|case| case.area == *area),
            "no case of area {area}"
        );
    }
    cases
        .into_iter()
        .filter(|case| areas.contains(&&*case.area))
        .collect()
}

#[test]
fn every_area_of_the_file_has_a_test() {
    let cases = cases();
    let present: BTreeSet<&str> = cases.iter().map(|case| &*case.area).collect();
    let known: BTreeSet<&str> = AREAS.iter().map(|(area, _)| *area).collect();
    assert_eq!(present, known);
    let ids: BTreeSet<&str> = cases.iter().map(|case| &*case.id).collect();
    assert_eq!(ids.len(), cases.len(), "ids are unique");
}
