//! The kubelet's reference cases through the command line: configuration and thresholds.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use super::{run, stderr, stdout, tests_folder};

/// One case of the reference set.
pub(crate) struct Case {
    pub(crate) id: String,
    pub(crate) area: String,
    pub(crate) input: Value,
    pub(crate) expect: Value,
}

/// The cases of the areas whose names begin so; never none.
pub(crate) fn cases(area: &str) -> Vec<Case> {
    let path = tests_folder("conformance/kubelet-eviction.json");
    let set: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let text = |case: &Value, key: &str| case[key].as_str().unwrap().to_string();
    let all = set["cases"].as_array().unwrap().iter();
    let found: Vec<Case> = all
        .filter(|case| text(case, "area").starts_with(area))
        .map(|case| Case {
            id: text(case, "id"),
            area: text(case, "area"),
            input: case["input"].clone(),
            expect: case["expect"].clone(),
        })
        .collect();
    assert!(!found.is_empty(), "{area}");
    found
}

const KINDS: [(&str, &str); 2] = [
    ("brink.dev/v1alpha2", "AgentConfiguration"),
    ("kubelet.config.k8s.io/v1beta1", "KubeletConfiguration"),
];

/// What `config check -o json` says of a configuration of either kind: thresholds, or nothing if
/// it is refused.
fn checked(id: &str, keys: &Value) -> Option<Value> {
    let mut answers = KINDS.map(|(version, kind)| {
        let mut file = keys.clone();
        file["apiVersion"] = json!(version);
        file["kind"] = json!(kind);
        let output = run(&["config", "check", "-o", "json", "-"], &file.to_string());
        let found: Value = serde_json::from_str(&stdout(&output)).unwrap();
        match output.status.code() {
            Some(0) => Some(found["thresholds"].clone()),
            Some(2) => {
                assert!(!found["faults"].as_array().unwrap().is_empty(), "{id}");
                None
            }
            code => panic!("{id}: {code:?} {}", stderr(&output)),
        }
    });
    assert_eq!(answers[0], answers[1], "{id}");
    answers[0].take()
}

/// Sorted as published: by signal, then by grace.
fn sorted(thresholds: &Value) -> Vec<Value> {
    let mut list = thresholds.as_array().unwrap().clone();
    list.sort_by_key(|threshold| {
        let signal = threshold["signal"].as_str().unwrap().to_string();
        (signal, threshold["grace_s"].as_i64())
    });
    list
}

#[test]
fn parse() {
    for case in cases("parse") {
        let keys = match case.input.get("text") {
            Some(text) => json!({"evictionMinimumReclaim": {"memory.available": text}}),
            None => case.input.clone(),
        };
        let found = checked(&case.id, &keys);
        assert_eq!(found.is_none(), case.expect["error"] == true, "{}", case.id);
        if let Some(found) = found {
            assert_eq!(
                found,
                json!(sorted(&case.expect["thresholds"])),
                "{}",
                case.id
            );
        }
    }
}

#[test]
fn allocatable_copies() {
    for case in cases("allocatable-copy") {
        let mut keys = json!({"evictionHard": {}, "evictionSoft": {}, "evictionSoftGracePeriod": {}, "evictionMinimumReclaim": {}});
        let list = case.input.as_array().unwrap();
        for (at, threshold) in list.iter().enumerate() {
            let signal = threshold["signal"].as_str().unwrap();
            let value = threshold["value"]["bytes_or_count"].to_string();
            // A second one of a signal can only be a soft one without grace.
            let grace = threshold["grace_ns"].as_i64().unwrap_or(0);
            let map = if at == 0 && grace == 0 {
                "evictionHard"
            } else {
                "evictionSoft"
            };
            keys[map][signal] = json!(value);
            if map == "evictionSoft" {
                keys["evictionSoftGracePeriod"][signal] = json!(format!("{grace}ns"));
            }
            let reclaim = threshold["min_reclaim"]["bytes_or_count"].to_string();
            keys["evictionMinimumReclaim"][signal] = json!(reclaim);
        }
        let found = checked(&case.id, &keys).unwrap();
        let copies: Vec<&Value> = found
            .as_array()
            .unwrap()
            .iter()
            .filter(|threshold| threshold["signal"] == "allocatableMemory.available")
            .collect();
        let expected = case.expect["added"].as_array().cloned().unwrap_or_default();
        assert_eq!(copies.len(), expected.len(), "{}", case.id);
        for (copy, expected) in copies.into_iter().zip(&expected) {
            assert_eq!(copy["value"], expected["value"], "{}", case.id);
        }
    }
}

#[test]
fn defaults() {
    let folder = tempfile::tempdir().unwrap();
    for case in cases("defaults") {
        for (version, kind) in KINDS {
            let head = |map: &Value| {
                json!({
                    "apiVersion": version, "kind": kind, "evictionHard": map,
                    "mergeDefaultEvictionSettings": case.input["merge"], "enforceNodeAllocatable": [],
                })
            };
            let base = case
                .input
                .get("base_evictionHard")
                .unwrap_or(&case.input["evictionHard"]);
            let mut args = vec!["config", "check", "-o", "json", "-"];
            if let Some(drop_in) = case.input.get("dropin") {
                fs::write(folder.path().join("1.conf"), head(drop_in).to_string()).unwrap();
                args.extend(["--config-dir", folder.path().to_str().unwrap()]);
            }
            let output = run(&args, &head(base).to_string());
            let found: Value = serde_json::from_str(&stdout(&output)).unwrap();
            let found: BTreeSet<String> = found["thresholds"]
                .as_array()
                .unwrap_or_else(|| panic!("{}: {found}", case.id))
                .iter()
                .filter(|threshold| threshold["signal"] != "allocatableMemory.available")
                .map(|threshold| format!("{}={}", threshold["signal"], threshold["value"]))
                .collect();
            let expected: BTreeSet<String> = case
                .expect
                .as_object()
                .unwrap()
                .iter()
                .map(|(signal, value)| {
                    let one =
                        json!({"evictionHard": {signal: value}, "enforceNodeAllocatable": []});
                    let one = checked(&case.id, &one).unwrap();
                    format!("{}={}", one[0]["signal"], one[0]["value"])
                })
                .collect();
            assert_eq!(found, expected, "{} as {kind}", case.id);
        }
    }
}
