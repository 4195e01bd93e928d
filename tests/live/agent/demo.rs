//! The demonstration as a stranger runs it: whole, and interrupted at any moment.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use brink_host::cgroup::{Controller, Layout};
use brink_tests::agent_binary;
use brink_tests::schema::assert_keeps_to;
use rustix::process::{Pid, Signal, kill_process};

fn demo(arguments: &[&str]) -> Command {
    let mut command = Command::new(agent_binary().unwrap());
    command.arg("demo").args(arguments).stdin(Stdio::null());
    command
}

/// Every cgroup of ours that is there, in all hierarchies.
fn groups() -> BTreeSet<PathBuf> {
    let layout = Layout::detect(std::path::Path::new("/")).unwrap();
    let memory = layout.require(Controller::Memory).unwrap();
    let roots = [
        Some(memory),
        layout.hierarchy(Controller::Pids),
        layout.unified(),
    ];
    let entries = roots
        .into_iter()
        .flatten()
        .flat_map(|root| fs::read_dir(&root.path).unwrap());
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| {
            path.file_name()
                .unwrap()
                .to_string_lossy()
                .contains("brink-demo")
        })
        .collect()
}

/// Folders of ours among the temporary files.
fn folders() -> usize {
    let entries = fs::read_dir(std::env::temp_dir()).unwrap();
    entries
        .filter(|entry| {
            entry
                .as_ref()
                .unwrap()
                .file_name()
                .to_string_lossy()
                .starts_with("brink-demo-")
        })
        .count()
}

#[test]
fn the_leaker_goes_the_others_live_and_nothing_is_left() {
    let before = (groups(), folders());
    let output = demo(&[]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for line in [
        "evicted demo/leaker",
        "guaranteed lives",
        "burstable lives",
        "nothing is left behind",
        "first SIGKILL sent",
        "alone, in ",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert_eq!((groups(), folders()), before);
}

#[test]
fn as_json_it_is_one_object() {
    let output = demo(&["-o", "json", "--size", "128Mi"]).output().unwrap();
    let outcome: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_keeps_to("demo", &String::from_utf8_lossy(&output.stdout));
    assert_eq!(outcome["decision"]["victim"]["name"], "leaker");
    assert_eq!(outcome["leftBehind"].as_array().unwrap().len(), 0);
    assert!(
        outcome["survivors"]
            .as_array()
            .unwrap()
            .iter()
            .all(|one| one["alive"] == true)
    );
}

#[test]
fn interrupted_at_any_moment_nothing_is_left() {
    let before = (groups(), folders());
    for (signal, millis) in [
        (Signal::INT, 5),
        (Signal::TERM, 50),
        (Signal::INT, 200),
        (Signal::HUP, 400),
        (Signal::INT, 800),
        (Signal::INT, 1200),
    ] {
        let mut child = demo(&[])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(millis));
        // Already gone is as good.
        let _gone = kill_process(Pid::from_child(&child), signal);
        let status = child.wait().unwrap();
        assert_eq!((groups(), folders()), before, "after {millis} ms: {status}");
    }
}

#[test]
fn a_size_that_harms_or_does_nothing_is_refused() {
    for size in ["1Mi", "1Ti", "many", "-5Gi"] {
        let output = demo(&[&format!("--size={size}")]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{size}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("from 96Mi to 4Gi"));
    }
}
