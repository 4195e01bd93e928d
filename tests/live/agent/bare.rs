//! Kernels that were booted without pressure information and without the memory controller, as `cargo xtask vm` does.

use std::fs;
use std::process::{Command, Output};

use brink_tests::{agent_binary, booted_with, lacks};
use serde_json::Value;

/// What such a kernel is booted with.
const WORDS: [&str; 2] = ["psi=0", "cgroup_disable=memory"];

/// What a command of `brink` says on such a kernel, or why this is none.
fn said(arguments: &[&str]) -> Result<Output, String> {
    if let Some(missing) = WORDS.iter().find(|word| !booted_with(word)) {
        return Err(format!("only on a kernel booted with {missing}"));
    }
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.yaml");
    let state = folder.path().join("state").display().to_string();
    let text = format!(
        "apiVersion: brink.dev/v1alpha2\nkind: AgentConfiguration\nmode: enforce\nevictionHard: {{memory.available: 60Mi}}\npaths: {{stateDir: \"{state}\"}}\n"
    );
    fs::write(&config, text).unwrap();
    let mut command = Command::new(agent_binary().unwrap());
    command.args(arguments).env("BRINK_CONFIG", &config);
    Ok(command.output().unwrap())
}

#[test]
fn without_the_memory_controller_no_agent_pretends_to_protect() {
    let output = match said(&["run"]) {
        Ok(output) => output,
        Err(why) => lacks!("{why}"),
    };
    let talk = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{talk}");
    for word in ["memory", "brink doctor"] {
        assert!(talk.contains(word), "{word:?} in {talk}");
    }
}

#[test]
fn the_doctor_names_what_the_kernel_was_booted_without() {
    let output = match said(&["doctor", "-o", "json"]) {
        Ok(output) => output,
        Err(why) => lacks!("{why}"),
    };
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap();
    for (id, state, word) in [
        ("cgroups.memory", "failed", "cgroup_disable=memory"),
        ("memory.pressure", "note", "psi=1"),
        ("programs.sampler", "warning", "memory controller"),
    ] {
        let check = checks.iter().find(|check| check["id"] == id).unwrap();
        assert_eq!(check["state"], state, "{check:#}");
        assert!(check.to_string().contains(word), "{check:#}");
    }
    assert_ne!(report["rung"], "kernel-sampler");
}
