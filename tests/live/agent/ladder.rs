//! What the rungs stand on, taken away piece by piece: the agent and the doctor say so, and it protects on what is left.

use crate::support::{MIB, Node, gone_after};
use brink::control::protocol::Status;
use brink_host::cgroup::{Controller, Version};
use brink_host::hog::Load;
use brink_tests::{in_guest, lacks, skip};
use rustix::thread::CapabilitySet;
use serde_json::Value;

const HARD: &str = "evictionHard: {memory.available: 60Mi}";

/// What was said of a rung before somebody had to go.
pub(crate) struct Standing {
    status: Status,
    doctor: Value,
}

impl Standing {
    /// A leak on a node that lacks something: it goes, and its record names the rung that was told.
    pub(crate) fn of(node: &mut Node, extra: &str) -> Self {
        let leaker = node.workload("leaker", "containers: [{name: c}]");
        node.configure("enforce", &format!("{HARD}\n{extra}"));
        let doctor = node.doctor();
        let status = node.start(&[]);
        let leak = node.load(leaker, Load::Anon, 280 * MIB);
        gone_after(&leak);
        let record = node.finished(1);
        assert_eq!(record.victim_name(), "test/leaker");
        assert_eq!(Some(&record.rung), status.rung.as_ref());
        assert_eq!(doctor["rung"], record.rung, "{doctor:#}");
        Self { status, doctor }
    }

    pub(crate) fn rung(&self) -> &str {
        self.status.rung.as_deref().unwrap_or_default()
    }

    /// It polls, on the upper of the two rungs wherever the guard has real time.
    fn check_polls(&self) {
        let scheduling = self.status.scheduling.as_deref().unwrap_or_default();
        let has_real_time = scheduling.starts_with("SCHED_FIFO");
        assert!(
            has_real_time || !in_guest(),
            "every guest has real time: {}",
            self.reasons()
        );
        let rung = if has_real_time {
            "realtime-poll"
        } else {
            "poll"
        };
        assert_eq!(self.rung(), rung, "{scheduling}: {}", self.reasons());
    }

    pub(crate) fn reasons(&self) -> String {
        self.status.rung_reasons.join("; ")
    }

    /// A check of the doctor's: its state, and everything it says.
    pub(crate) fn check(&self, id: &str) -> (String, String) {
        check(&self.doctor, id)
    }
}

fn check(doctor: &Value, id: &str) -> (String, String) {
    let checks = doctor["checks"].as_array().unwrap();
    let found = checks.iter().find(|check| check["id"] == id);
    let found = found.unwrap_or_else(|| panic!("no {id} in {doctor:#}"));
    let state = found["state"].as_str().unwrap();
    (state.to_owned(), found.to_string())
}

/// The agent is refused with these words, and the doctor's check fails.
#[track_caller]
fn check_refused(node: &Node, words: &[&str], id: &str) {
    let output = node.said(&["run"]);
    let talk = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{talk}");
    for word in words.iter().chain(&["brink doctor"]) {
        assert!(talk.contains(word), "{word:?} in {talk}");
    }
    assert_eq!(node.said(&["doctor"]).status.code(), Some(3));
    let (state, said) = check(&node.doctor(), id);
    assert_eq!(state, "failed", "{said}");
}

#[test]
fn without_a_type_description_of_the_kernel_it_polls() {
    let mut node = Node::new(300);
    node.hide("mount -t tmpfs none /sys/kernel/btf");
    let standing = Standing::of(&mut node, "");
    standing.check_polls();
    let reasons = standing.reasons();
    assert!(reasons.contains("/sys/kernel/btf/vmlinux"), "{reasons}");
    assert_eq!(standing.check("kernel.btf").0, "warning");
}

#[test]
fn without_tracefs_it_is_blind_to_the_kernels_killer_alone() {
    let mut node = Node::new(300);
    // Either place may have it, and what is mounted twice is there once more.
    node.hide(
        "for at in /sys/kernel/tracing /sys/kernel/debug; do while umount -l $at 2>/dev/null; do :; done; done",
    );
    let standing = Standing::of(&mut node, "");
    let (of_oom, others): (Vec<_>, Vec<_>) = standing
        .status
        .programs
        .iter()
        .filter(|program| program.family != "forensics")
        .partition(|program| program.family == "oom");
    if others.is_empty() {
        lacks!("no kernel program runs here: {}", standing.reasons());
    }
    assert!(
        !of_oom.is_empty(),
        "each has a line, also what does not run"
    );
    assert!(others.iter().all(|program| program.running), "{others:?}");
    for program in of_oom {
        let why = program.why.as_deref().unwrap_or_default();
        assert!(why.contains("no tracefs is mounted"), "{program:?}");
    }
    assert_eq!(standing.rung(), "kernel-sampler");
    assert_eq!(standing.check("kernel.tracefs").0, "warning");
    let (state, said) = standing.check("programs.oom");
    assert_eq!(state, "warning", "{said}");
}

#[test]
fn without_pressure_information_nothing_is_lost_but_the_sight_of_it() {
    let mut node = Node::new(300);
    node.hide("mount -t tmpfs none /proc/pressure");
    let standing = Standing::of(&mut node, "");
    let (state, said) = standing.check("memory.pressure");
    assert_eq!(state, "note", "{said}");
    assert!(said.contains("psi=1"), "{said}");
    assert!(standing.rung() == "kernel-sampler" || !in_guest());
    assert!(!standing.reasons().contains("pressure"));
}

#[test]
fn without_the_right_to_load_programs_it_polls() {
    let mut node = Node::new(300);
    node.without = CapabilitySet::BPF | CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN;
    let standing = Standing::of(&mut node, "");
    standing.check_polls();
    let reasons = standing.reasons();
    assert!(reasons.contains("CAP_BPF is missing"), "{reasons}");
    let (state, said) = standing.check("programs.sampler");
    assert_eq!(state, "warning", "{said}");
    assert!(said.contains("CAP_BPF"), "{said}");
}

#[test]
fn without_the_right_to_real_time_the_sampler_still_serves() {
    let mut node = Node::new(300);
    node.without = CapabilitySet::SYS_NICE;
    let standing = Standing::of(&mut node, "");
    let reasons = standing.reasons();
    assert!(reasons.contains("CAP_SYS_NICE is missing"), "{reasons}");
    assert_eq!(standing.status.scheduling.as_deref(), Some("nice 0"));
    let (state, said) = standing.check("scheduling.fifo");
    assert_eq!(state, "warning", "{said}");
    if standing.status.sampler.is_none() {
        lacks!("the sampler cannot serve here: {reasons}");
    }
    assert_eq!(standing.rung(), "kernel-sampler");
}

#[test]
fn without_programs_and_real_time_it_stands_on_the_lowest_rung() {
    let mut node = Node::new(300);
    node.without = CapabilitySet::SYS_NICE;
    let standing = Standing::of(&mut node, "kernelPrograms: false");
    let reasons = standing.reasons();
    assert_eq!(standing.rung(), "poll");
    for why in ["switched off", "CAP_SYS_NICE is missing"] {
        assert!(reasons.contains(why), "{reasons}");
    }
}

#[test]
fn nobody_with_the_right_to_kill_protects_from_files() {
    let mut node = Node::new(300);
    node.become_nobody_with(CapabilitySet::KILL);
    let standing = Standing::of(&mut node, "");
    assert_eq!(standing.rung(), "poll");
    let reasons = standing.reasons();
    for missing in ["CAP_BPF is missing", "CAP_SYS_NICE is missing"] {
        assert!(reasons.contains(missing), "{reasons}");
    }
    let (state, said) = standing.check("rights.capabilities");
    assert_ne!(state, "failed", "{said}");
}

#[test]
fn without_the_memory_controller_it_does_not_pretend() {
    let mut node = Node::new(300);
    node.configure("enforce", HARD);
    let memory = node.sandbox.layout.require(Controller::Memory).unwrap();
    let (words, id) = match memory.version {
        Version::V1 => (["memory is on no mounted hierarchy"], "cgroups.memory"),
        Version::V2 => (["no control groups to watch over"], "cgroups.layout"),
    };
    node.hide(&format!("umount -l {}", memory.path.display()));
    check_refused(&node, &words, id);
}

/// On cgroup v2 a group has figures of memory only where the one above it hands the controller on.
#[test]
fn workloads_without_figures_of_memory_are_named() {
    let mut node = Node::new(300);
    let leaker = node.workload("leaker", "containers: [{name: c}]");
    let dir = node.sandbox.dir(Controller::Memory).unwrap();
    if dir.version() == Version::V1 {
        skip!("on cgroup v1 every group of the hierarchy has them");
    }
    let control = dir.path().join("cgroup.subtree_control");
    std::fs::write(control, "-memory").unwrap();
    node.configure("enforce", HARD);
    node.start(&[]);
    let log = node.log();
    let group = node.groups[leaker].group();
    assert!(
        log.contains(group) && log.contains("memory controller"),
        "{log}"
    );
    let doctor = node.doctor();
    for id in ["cgroups.node", "workloads.bound"] {
        let (state, said) = check(&doctor, id);
        assert_eq!(state, "warning", "{said}");
        assert!(said.contains("memory controller"), "{said}");
    }
}
