//! Decisions as data: scenario files through the kubelet's loop, line by line against what is expected.
//!
//! Each `NAME.json` is a scenario as `brink simulate` reads it, and `NAME.jsonl` what it prints:
//! one line a step. The files hold for the command line too.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops at what it does not expect"
)]

mod journal;
mod read;
mod run;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use read::Scenario;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios")
}

/// Names of all scenarios, in order.
fn names() -> BTreeSet<String> {
    let entries = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let scenarios = entries.filter(|path| path.extension().is_some_and(|end| end == "json"));
    scenarios
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_string())
        .collect()
}

fn scenario(name: &str) -> Scenario {
    let text = fs::read_to_string(folder().join(format!("{name}.json"))).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
    Scenario::read(&value)
}

#[test]
fn every_scenario_gives_what_is_expected() {
    // BRINK_BLESS=1 writes what is found instead, to be read before it is committed.
    let bless = std::env::var_os("BRINK_BLESS").is_some();
    for name in names() {
        let lines: Vec<Value> = run::run(&scenario(&name))
            .iter()
            .map(|step| step.line.clone())
            .collect();
        let path = folder().join(format!("{name}.jsonl"));
        if bless {
            let text: Vec<String> = lines.iter().map(ToString::to_string).collect();
            fs::write(&path, text.join("\n") + "\n").unwrap();
        }
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{name}: {e}"));
        let expected: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines.len(), expected.len(), "{name}: one line a step");
        for (found, expected) in lines.iter().zip(&expected) {
            assert_eq!(found, expected, "{name} at {}", found["at"]);
        }
    }
}

/// The end-to-end cases of the reference set are prose; each of them is a scenario here.
#[test]
fn every_end_to_end_case_has_a_scenario() {
    let text = fs::read_to_string(folder().join("../conformance/kubelet-eviction.json")).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    let cases = file["cases"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|case| case["area"] == "e2e");
    let ids: BTreeSet<String> = cases
        .map(|case| case["id"].as_str().unwrap().to_string())
        .collect();
    let missing: Vec<_> = ids.difference(&names()).cloned().collect();
    assert!(
        ids.len() > 1 && missing.is_empty(),
        "no scenario for {missing:?}"
    );
}

/// `verifyEvictionEvents`: one event, which names the one container and a usage above its request.
#[test]
fn the_event_of_a_memory_eviction_names_the_container() {
    let steps = run::run(&scenario("e2e-event-memory"));
    let evictions: Vec<_> = steps
        .iter()
        .filter_map(|step| step.cycle.evict.as_ref())
        .collect();
    assert_eq!(evictions.len(), 1);
    let annotations = evictions[0].annotations.as_ref().unwrap();
    let expected = [
        ("starved_resource", "memory"),
        ("offending_containers", "memory-hog-container"),
        ("offending_containers_usage", "1200Mi"),
    ];
    assert_eq!(annotations.iter().collect::<Vec<_>>(), expected);
}
