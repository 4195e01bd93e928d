//! The command line as its users meet it: the binary as a process, its output, its exit codes.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops at what it does not expect"
)]

mod config;
mod conformance;
mod events;
mod exits;
mod gates;
mod golden;
mod incidents;
mod kubectl;
mod pages;
mod progress;
mod rankings;
mod replay;
mod schemas;
mod simulate;
mod timelines;
mod top;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

/// The binary, with an environment that says nothing to it.
fn brink() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_brink"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("BRINK_") {
            command.env_remove(name);
        }
    }
    command
}

/// Runs it with arguments and standard input.
fn run(args: &[&str], input: &str) -> Output {
    let mut child = brink()
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_string();
    let writer = std::thread::spawn(move || {
        // A process that ends early does not read it all.
        let _ = stdin.write_all(input.as_bytes());
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The lines of a scenario that must be good.
#[track_caller]
fn simulate(scenario: &Value) -> Vec<Value> {
    let output = run(&["simulate", "-"], &scenario.to_string());
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}\n{scenario:#}",
        stderr(&output)
    );
    let lines = stdout(&output);
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// A scenario around a configuration, pods and steps; `null` for nothing.
fn scenario(config: &Value, filesystems: &str, pods: &Value, steps: &Value) -> Value {
    json!({
        "apiVersion": "brink.dev/v1alpha1", "kind": "Scenario", "config": config,
        "filesystems": filesystems, "pods": pods, "steps": steps,
    })
}

/// A folder of the workspace's tests.
fn tests_folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests")
        .join(name)
}
