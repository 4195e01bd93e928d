//! `brink doctor` as a process: its exit codes, its JSON, and that a reader who leaves is no error.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::machine::Machine;

fn doctor(machine: &Machine, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_brink"))
        .arg("doctor")
        .arg("--config")
        .arg(machine.config_file())
        .args(arguments)
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .expect("the doctor ends")
}

#[test]
fn a_failed_check_is_code_three() {
    let output = doctor(&Machine::empty(), &[]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("FAILED config.root") && text.contains("verdict: "),
        "{text}"
    );
    assert!(!text.contains('\x1b'), "no colours in a pipe");
}

#[test]
fn a_bad_configuration_is_code_two_and_all_its_faults() {
    let machine =
        Machine::whole().configured("mode: fight\nevictionHard: {memory.available: lots}");
    let output = doctor(&machine, &[]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let talk = String::from_utf8(output.stderr).unwrap();
    assert!(
        talk.contains("mode") && talk.contains("evictionHard.memory.available"),
        "{talk}"
    );
    assert!(output.stdout.is_empty());
}

#[test]
fn the_json_is_versioned_and_whole() {
    let output = doctor(&Machine::empty(), &["-o", "json"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["apiVersion"], "brink.dev/v1alpha1");
    assert_eq!(report["kind"], "Doctor");
    let keys: Vec<&str> = report
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let mut expected = [
        "apiVersion",
        "kind",
        "version",
        "now",
        "machine",
        "rung",
        "scheduling",
        "rungReasons",
        "mode",
        "configuredMode",
        "counts",
        "checks",
    ];
    expected.sort_unstable();
    let mut sorted = keys;
    sorted.sort_unstable();
    assert_eq!(sorted, expected);
    let checks = report["checks"].as_array().unwrap();
    let failed = checks
        .iter()
        .filter(|check| check["state"] == "failed")
        .count();
    assert_eq!(report["counts"]["failed"], failed);
    for check in checks {
        let keys: Vec<&str> = check
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(
            keys,
            ["follows", "found", "id", "next", "state", "title"],
            "{check}"
        );
    }
    assert!(report["now"]["wall"].as_str().unwrap().ends_with('Z'));
    assert!(report["now"]["monotonicNs"].as_i64().unwrap() > 0);
}

#[test]
fn a_machine_with_nothing_failed_is_code_zero() {
    // Of a fake tree nothing can be bound or tried that this process is not allowed, and none of that is a failure.
    let machine = Machine::whole().configured("realtime: {priority: 0, lockMemory: false}");
    let output = doctor(&machine, &["-o", "json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["counts"]["failed"], 0, "{report:#}");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_reader_who_leaves_is_no_error() {
    let machine = Machine::empty();
    let mut child = Command::new(env!("CARGO_BIN_EXE_brink"))
        .args(["doctor", "--config"])
        .arg(machine.config_file())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("ended");
    assert!(matches!(output.status.code(), Some(0 | 3)), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}
