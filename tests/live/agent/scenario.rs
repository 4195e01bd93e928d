//! A kill by the kernel as a scenario: what another threshold would have done about what really happened.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use brink_host::hog::{HogSpec, Load};
use brink_stream::model::incident::Cause;
use brink_tests::{guest_only, lacks, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::{MIB, Node, PATIENCE, gone_after};

/// `brink incident` with these arguments.
fn incident(node: &Node, arguments: &[&str]) -> Output {
    let socket = node.path("state/events.sock").display().to_string();
    node.said(&[&["incident", "--socket", &socket], arguments].concat())
}

#[track_caller]
fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The first incident of that cause that is over, whole.
fn closed(node: &Node, cause: Cause) -> Value {
    let found = wait_until(PATIENCE, || {
        let list: Value = serde_json::from_str(&text(&incident(node, &["-o", "json"]))).unwrap();
        let mut all = list["items"].as_array().unwrap().iter();
        all.find(|one| one["isFinal"] == true && one["cause"] == json!(cause))
            .cloned()
    });
    found.unwrap_or_else(|| panic!("no {cause:?}: {}", node.log()))
}

/// What `brink simulate` says of a scenario, without a word on stderr: each step's time in milliseconds, and who goes.
#[track_caller]
fn simulated(node: &Node, scenario: &Value, flags: &[&str]) -> Vec<(u64, Value)> {
    let path = node.path("scenario.json");
    fs::write(&path, scenario.to_string()).unwrap();
    let path = path.display().to_string();
    let output = node.said(&[&["simulate"], flags, &[&path]].concat());
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(talk, "", "{scenario:#}");
    let line = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let at = line["at"].as_str().unwrap().strip_suffix("ms").unwrap();
        (at.parse().unwrap(), line["evict"]["pod"].clone())
    };
    text(&output).lines().map(line).collect()
}

/// The scenario with this threshold of `memory.available` in the place of the one that was configured.
fn with_threshold(scenario: &Value, amount: &str) -> Value {
    let mut scenario = scenario.clone();
    scenario["config"]["evictionHard"] = json!({"memory.available": amount});
    scenario
}

/// The scenario of an incident, whose thresholds must be those that were configured.
#[track_caller]
fn scenario_of(node: &Node, told: &Value, configured: &str) -> Value {
    let made = incident(node, &[told["id"].as_str().unwrap(), "--scenario"]);
    let talk = String::from_utf8_lossy(&made.stderr).into_owned();
    assert!(talk.contains("those that were configured"), "{talk}");
    let scenario: Value = serde_json::from_str(&text(&made)).unwrap();
    let hard = json!({"memory.available": configured});
    assert_eq!(scenario["config"]["evictionHard"], hard, "{scenario:#}");
    scenario
}

/// Lets the manifest of a workload say who manages it.
fn owned_by_a_set(node: &Node, name: &str) {
    let path = node.path("manifests").join(format!("{name}.yaml"));
    let text = fs::read_to_string(&path).unwrap();
    let set = format!("{{kind: ReplicaSet, name: {name}-5d, controller: true}}");
    let owned = text.replace(
        "namespace: test,",
        &format!("namespace: test, ownerReferences: [{set}],"),
    );
    assert_ne!(owned, text);
    fs::write(path, owned).unwrap();
}

#[test]
fn an_oom_is_a_scenario_in_which_a_threshold_acts_before_the_kernel() {
    let mut node = Node::new(300);
    let calm = "priority: 5, containers: [{name: c, resources: {requests: {memory: 64Mi}}}]";
    let calm = node.workload("calm", calm);
    let leaker = node.workload("leaker", "containers: [{name: c}]");
    owned_by_a_set(&node, "leaker");
    node.groups[leaker]
        .limit_memory(&node.sandbox.layout, 128 * MIB)
        .unwrap();
    let hard = "evictionHard: {memory.available: 8Mi}\nevents: {enabled: true}";
    node.configure("enforce", hard);
    let status = node.start(&[]);
    for name in ["oom_victim", "sigkill_sent"] {
        let mut programs = status.programs.iter();
        if !programs.any(|program| program.name == name && program.running) {
            lacks!("{name} does not run: {:?}", status.rung_reasons);
        }
    }
    let idle = node.holding(calm, 20);
    let mut spec = HogSpec::new(Load::Anon, 200 * MIB, Duration::from_mins(1));
    spec.rate = Some(64 * MIB);
    gone_after(&node.hog(leaker, &spec));
    let told = closed(&node, Cause::MemcgOom);
    assert!(node.decisions().is_empty(), "the node was never short");

    // Who stood where is in the record, and the page shows it.
    let table = &told["workloads"]["value"];
    let lines = table["lines"]
        .as_array()
        .unwrap_or_else(|| panic!("{told:#}"));
    let names: Vec<&str> = lines
        .iter()
        .filter_map(|line| line["name"].as_str())
        .collect();
    assert_eq!(names, ["leaker", "calm"], "{table:#}");
    let used = lines[0]["usage"]["value"].as_u64().unwrap();
    assert!((100 * MIB..=128 * MIB).contains(&used), "{table:#}");
    assert_eq!(
        (&lines[0]["usageAgeMs"], &lines[0]["qos"]),
        (&json!(0), &json!("BestEffort"))
    );
    assert_eq!(
        (&lines[1]["request"], &lines[1]["priority"]),
        (&json!(64 * MIB), &json!(5))
    );
    assert_eq!(told["node"]["value"]["capacity"]["value"], 300 * MIB);
    let owner = &told["workload"]["value"]["owner"];
    assert_eq!(owner, "ReplicaSet/leaker-5d", "{told:#}");
    let id = told["id"].as_str().unwrap();
    let page = text(&incident(&node, &[id]));
    assert!(page.contains("The node's workloads"), "{page}");

    let scenario = scenario_of(&node, &told, "8Mi");
    for flags in [&[][..], &["--live"]] {
        let calmly = simulated(&node, &scenario, flags);
        assert!(
            calmly.len() > 3 && calmly.iter().all(|(_, pod)| pod.is_null()),
            "{calmly:?}"
        );
        // 20 MiB are held before, and 128 at the kill: this lies between.
        let steps = simulated(&node, &with_threshold(&scenario, "220Mi"), flags);
        let (last, _) = steps.last().unwrap();
        let first = steps.iter().find(|(_, pod)| !pod.is_null());
        let (at, pod) = first.unwrap_or_else(|| panic!("nobody goes: {steps:?}\n{scenario:#}"));
        assert_eq!(pod, "test/leaker");
        assert!(at + 200 <= *last, "only {at} ms of {last}: {steps:?}");
    }

    // Of a kill by somebody else, this process, there is one too.
    kill_process(Pid::from_raw(idle.pid()).unwrap(), Signal::KILL).unwrap();
    let told = closed(&node, Cause::ForeignKill);
    let scenario = scenario_of(&node, &told, "8Mi");
    let pods = scenario["pods"].as_array().unwrap().iter();
    let names: BTreeSet<&str> = pods
        .filter_map(|pod| pod["metadata"]["name"].as_str())
        .collect();
    assert_eq!(names, BTreeSet::from(["calm", "leaker"]));
    let steps = simulated(&node, &with_threshold(&scenario, "299Mi"), &[]);
    assert!(steps.iter().any(|(_, pod)| !pod.is_null()), "{steps:?}");
}

#[test]
fn an_oom_of_the_node_is_a_scenario_in_which_a_threshold_acts_before_the_kernel() {
    guest_only!("the kernel's OOM killer is let loose on the machine");
    // More than any guest has: the limit is the machine's.
    let mut node = Node::new(64 << 10);
    let leaker = node.workload("leaker", "containers: [{name: c}]");
    let hard = "evictionHard: {memory.available: 1Mi}\nevents: {enabled: true}";
    node.configure_machine("observe", hard);
    let status = node.start(&[]);
    let mut programs = status.programs.iter();
    if !programs.any(|program| program.name == "oom_victim" && program.running) {
        lacks!("oom_victim does not run: {:?}", status.rung_reasons);
    }
    let mut spec = HogSpec::new(Load::Anon, 64 << 30, Duration::from_mins(5));
    (spec.floor, spec.wait, spec.rate) = (0, true, Some(256 * MIB));
    let mut hog = node.hog(leaker, &spec);
    let program = Path::new(env!("CARGO_BIN_EXE_brink-hog"));
    hog.goes_before_anybody(program).unwrap();
    hog.wait_in(&node.groups[leaker], PATIENCE).unwrap();
    hog.start();
    assert!(!hog.wait(PATIENCE).unwrap().success());
    let told = closed(&node, Cause::GlobalOom);
    let scenario = scenario_of(&node, &told, "1Mi");
    // Halfway between what the node had in the first step and in the last.
    let available = |step: Option<&Value>| {
        let text = &step.unwrap()["signals"]["memory.available"]["available"];
        text.as_str().unwrap().parse::<u64>().unwrap()
    };
    let steps = scenario["steps"].as_array().unwrap();
    let half = u64::midpoint(available(steps.first()), available(steps.last())).to_string();
    for flags in [&[][..], &["--live"]] {
        let calmly = simulated(&node, &scenario, flags);
        assert_eq!(calmly.len(), steps.len());
        let earlier = simulated(&node, &with_threshold(&scenario, &half), flags);
        let first = earlier.iter().position(|(_, pod)| !pod.is_null());
        let first = first.unwrap_or_else(|| panic!("nobody goes at {half}: {scenario:#}"));
        assert!(first > 0, "{earlier:?}");
        assert_eq!(earlier[first].1, "test/leaker");
    }
}
