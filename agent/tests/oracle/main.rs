//! An oracle: the kubelet's loop written a second time, held against `brink simulate` over random scenarios.
//!
//! It is written from the specification alone, shares no code with the core and cares for nothing but
//! plainness. Where the two differ, one of them is wrong.
#![expect(
    clippy::unwrap_used,
    reason = "a test stops at what it does not expect"
)]

mod generate;
mod node;
mod pods;
mod quantity;
mod thresholds;

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use serde_json::{Value, json};

/// Scenarios a run; `ORACLE=FROM..TO` asks for others.
const SEEDS: std::ops::Range<u64> = 0..400;

/// By signal, then grace; the rest of the text where both agree.
fn order(threshold: &Value) -> (String, i64, String) {
    let signal = threshold["signal"].as_str().unwrap().to_string();
    (
        signal,
        threshold["grace_s"].as_i64().unwrap(),
        threshold.to_string(),
    )
}

fn seeds() -> std::ops::Range<u64> {
    let asked = std::env::var("ORACLE").ok();
    let asked = asked.as_deref().and_then(|text| text.split_once(".."));
    asked.map_or(SEEDS, |(from, to)| {
        from.parse().unwrap()..to.parse().unwrap()
    })
}

/// The lines of every file, thresholds that tie brought into one order.
fn simulate(files: &[String]) -> BTreeMap<String, Vec<Value>> {
    let output = Command::new(env!("CARGO_BIN_EXE_brink"))
        .arg("simulate")
        .args(files)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let mut found = BTreeMap::<String, Vec<Value>>::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let mut line: Value = serde_json::from_str(line).unwrap();
        for key in ["met", "ready"] {
            let list = line[key].as_array_mut().unwrap();
            let published = |t: &Value| (order(t).0, order(t).1);
            assert!(list.is_sorted_by_key(published), "{key}: {list:?}");
            list.sort_by_key(order);
        }
        let file = line.as_object_mut().unwrap().remove("file").unwrap();
        found
            .entry(file.as_str().unwrap().into())
            .or_default()
            .push(line);
    }
    found
}

#[test]
fn brink_agrees_with_the_specification_written_twice() {
    let folder = tempfile::tempdir().unwrap();
    let mut seen = BTreeMap::<String, usize>::new();
    let seeds: Vec<_> = seeds().collect();
    for part in seeds.chunks(100) {
        let write = |seed: &u64| {
            let path = folder.path().join(format!("{seed}.json"));
            let scenario = generate::scenario(*seed);
            fs::write(&path, scenario.to_string()).unwrap();
            (path.to_str().unwrap().to_string(), scenario)
        };
        let (files, scenarios): (Vec<_>, Vec<_>) = part.iter().map(write).unzip();
        let found = simulate(&files);
        for ((file, scenario), seed) in files.iter().zip(&scenarios).zip(part) {
            let expected = node::lines(scenario);
            let steps = pods::list(&scenario["steps"]);
            for ((line, expected), step) in found[file].iter().zip(&expected).zip(steps) {
                assert_eq!(line, expected, "seed {seed}: {scenario}");
                count(&mut seen, &step["signals"], expected);
            }
            assert_eq!(found[file].len(), expected.len(), "seed {seed}");
        }
    }
    // An oracle over scenarios in which nothing happens would prove nothing.
    let rare: Vec<_> = thresholds::SIGNALS
        .iter()
        .chain(&EVENTS)
        .filter(|event| seen.get(**event) < Some(&5))
        .collect();
    assert!(
        seeds.len() < 400 || rare.is_empty(),
        "{rare:?} of {seen:#?}"
    );
}

/// What must have happened beside evictions for each signal.
const EVENTS: [&str; 9] = [
    "emptydirfs.limit",
    "ephemeralpodfs.limit",
    "ephemeralcontainerfs.limit",
    "reclaim was enough",
    "nobody accepted",
    "grace of a soft one",
    "held by its reclaim",
    "stale",
    "condition alone",
];

/// What happened in a line, given the signals of its step.
fn count(seen: &mut BTreeMap<String, usize>, signals: &Value, line: &Value) {
    let mut note = |event: &str| *seen.entry(event.to_string()).or_default() += 1;
    let evictions = line["evict"].as_array().cloned();
    let one = (!line["evict"].is_null()).then(|| vec![line["evict"].clone()]);
    for eviction in evictions.or(one).into_iter().flatten() {
        note(eviction["signal"].as_str().unwrap());
        if eviction["gracePeriodSeconds"] != 1 {
            note("grace of a soft one");
        }
    }
    let empty = |key: &str| line[key] == json!([]);
    if !empty("reclaim") && empty("ranking") {
        note("reclaim was enough");
    }
    if !empty("ranking") && line["evict"].is_null() {
        note("nobody accepted");
    }
    if empty("met") && !empty("conditions") {
        note("condition alone");
    }
    let hard = |key: &str| {
        let list = line[key].as_array().unwrap().iter();
        list.filter(|threshold| threshold["grace_s"] == 0).count()
    };
    if hard("met") > hard("ready") {
        note("stale");
    }
    let is_held = |threshold: &Value| {
        let seen = &signals[threshold["signal"].as_str().unwrap()]["available"];
        let value = &threshold["value"]["bytes_or_count"];
        value
            .as_i64()
            .is_some_and(|value| seen.as_i64() >= Some(value))
    };
    if line["met"].as_array().unwrap().iter().any(is_held) {
        note("held by its reclaim");
    }
}
