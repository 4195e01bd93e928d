//! The configuration itself: what is in force, what is doubtful, and thresholds that nobody measures.

use std::path::Path;

use brink_core::node::signal::Signal;
use brink_core::node::threshold::Threshold;

use crate::doctor::advice::check_command;
use crate::doctor::check::{Check, Subject};
use crate::doctor::facts::Facts;

/// Findings that are told; the rest is counted.
const MOST: usize = 5;

pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    let mut checks = Vec::from([thresholds(facts)]);
    checks.extend(unmeasured(facts));
    checks
}

/// Only said where another root is configured.
pub(super) fn root(facts: &Facts) -> Option<Check> {
    const SUBJECT: Subject = Subject("config.root", "where the machine is mounted");
    let root = &facts.config.paths.root;
    if root == Path::new("/") {
        return None;
    }
    let found = format!("paths.root is {}", root.display());
    Some(if facts.kernel.has_proc {
        SUBJECT.ok(found)
    } else {
        SUBJECT
            .failed(format!("{found}, and no /proc of this process is below it"))
            .follows("nothing about the machine can be read")
            .next("mount the machine's whole root there, /proc and /sys included")
    })
}

fn thresholds(facts: &Facts) -> Check {
    const SUBJECT: Subject = Subject("config.thresholds", "thresholds in force");
    let all = facts.config.policy.thresholds().iter();
    let memory: Vec<String> = all
        .filter(|threshold| is_measured(facts, threshold))
        .map(ToString::to_string)
        .collect();
    if !facts.doubts.is_empty() {
        return SUBJECT
            .warning_of(&facts.doubts, MOST)
            .follows("the kubelet would accept this without a word, and it is hardly meant")
            .run("see all of them", check_command(&facts.sources));
    }
    if memory.is_empty() {
        return SUBJECT
            .failed("none on anything that is measured")
            .follows("nothing is ever evicted")
            .next("evictionHard: {memory.available: 100Mi}");
    }
    SUBJECT.ok(memory.join(", "))
}

/// Thresholds on signals that the guard has no numbers for: they are never met.
fn unmeasured(facts: &Facts) -> Option<Check> {
    const SUBJECT: Subject = Subject("config.unmeasured", "thresholds on what is not measured");
    let all = facts.config.policy.thresholds().iter();
    let idle: Vec<&Threshold> = all
        .filter(|threshold| !is_measured(facts, threshold))
        .collect();
    if idle.is_empty() {
        return None;
    }
    let names: Vec<String> = idle.iter().map(ToString::to_string).collect();
    let check = SUBJECT.note(names.join(", ")).follows(
        "these are never met by brink run; the kubelet, if there is one, still acts on them",
    );
    let of_pods = idle
        .iter()
        .any(|threshold| threshold.signal == Signal::AllocatableMemoryAvailable);
    Some(match (of_pods, facts.cgroups.pods_are_sought) {
        (false, _) => check,
        (true, false) => check.next("for allocatableMemory.available name the group all pods live in: podsCgroup: /kubepods.slice"),
        (true, true) => check.next(
            "for allocatableMemory.available: a kubelet's group of all pods is taken as soon as it is there (/kubepods.slice, /kubepods); \
             below another --cgroup-root name it: podsCgroup: /that/kubepods",
        ),
    })
}

fn is_measured(facts: &Facts, threshold: &Threshold) -> bool {
    match threshold.signal {
        Signal::AllocatableMemoryAvailable => facts.cgroups.pods.is_some(),
        // What each filesystem is measured by stands in the status of an agent that runs.
        _ => true,
    }
}
