//! The doctor on the real machine: what it tries leaves nothing behind, and what it says is what the agent would get.
#![cfg(test)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use brink::config::{Checked, Sources, load};
use brink::doctor::{Check, Report, State, examine};
use brink_host::capabilities::{Ability, Capabilities};
use brink_host::cgroup::owned::OwnedCgroup;
use brink_host::cgroup::{Controller, Layout, Version};
use brink_host::lock::{Enforcer, EnforcerLock};
use brink_host::probe::{Facts, Roots};
use brink_host::realtime;
use brink_tests::{agent_binary, lacks, skip};
use serde_json::Value;

/// A folder of our own, made anew.
struct Folder(PathBuf);

impl Folder {
    fn new(label: &str) -> Self {
        let path = std::env::temp_dir().join(brink_tests::cgroup_name(label));
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    /// A configuration whose agent lives in this folder.
    fn config(&self, more: &str) -> Checked {
        let path = self.0.join("config.yaml");
        let state = self.0.join("state");
        let head = "apiVersion: brink.dev/v1alpha2\nkind: AgentConfiguration\n";
        let paths = format!("paths: {{stateDir: {}}}\n", state.display());
        fs::write(&path, format!("{head}{paths}{more}\n")).expect("written");
        load(&Sources {
            config: Some(path),
            ..Sources::default()
        })
        .expect("a good configuration")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _best_effort = fs::remove_dir_all(&self.0);
    }
}

fn may(ability: Ability) -> bool {
    let own = Capabilities::of_self(Path::new("/")).expect("status");
    own.missing(ability).is_empty()
}

fn check<'a>(report: &'a Report, id: &str) -> &'a Check {
    let found = report.checks.iter().find(|check| check.id == id);
    found.unwrap_or_else(|| panic!("no {id} in {report:?}"))
}

/// Descriptors of this process that hold something of BPF: what is in no descriptor, and was pinned nowhere, is gone.
fn held() -> Vec<String> {
    let entries = fs::read_dir("/proc/self/fdinfo")
        .expect("readable")
        .flatten();
    let texts = entries.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    let of_bpf = |text: &String| {
        ["prog_id:", "map_id:", "link_id:"]
            .iter()
            .any(|key| text.contains(key))
    };
    texts.filter(of_bpf).collect()
}

#[test]
fn the_programs_are_tried_and_gone_again() {
    if !may(Ability::KernelPrograms) {
        lacks!("CAP_BPF or CAP_PERFMON is missing");
    }
    let facts = Facts::gather(&Roots::default());
    if let Err(error) = &facts.types {
        lacks!("needs the kernel's type description: {error}");
    }
    if let Err(error) = &facts.tracefs {
        lacks!("needs tracefs: {error}");
    }
    let folder = Folder::new("doctor-programs");
    let report = examine(&folder.config(""));
    assert_eq!(held(), Vec::<String>::new());
    for family in ["sampler", "reclaim", "oom", "process", "cgroup"] {
        let check = check(&report, &format!("programs.{family}"));
        assert_eq!(check.state, State::Ok, "{check:?}");
    }
    let agreement = check(&report, "programs.agreement");
    assert_eq!(agreement.state, State::Ok, "{agreement:?}");
    let memory = check(&report, "programs.memory");
    assert!(
        memory.state == State::Ok && !memory.found.starts_with("0B"),
        "{memory:?}"
    );
    assert_eq!(report.rung, "kernel-sampler");
}

#[test]
fn nothing_of_this_process_or_of_the_machine_is_changed() {
    let score = || fs::read_to_string("/proc/self/oom_score_adj").expect("readable");
    let folder = Folder::new("doctor-unchanged");
    let before = (
        score(),
        realtime::scheduling().expect("readable").to_string(),
    );
    let report = examine(&folder.config("mode: enforce"));
    assert_eq!(
        before,
        (
            score(),
            realtime::scheduling().expect("readable").to_string()
        )
    );
    assert!(!folder.0.join("state").exists(), "looking makes no folder");
    assert_ne!(check(&report, "state.folder").state, State::Failed);
    assert_eq!(check(&report, "state.enforcer").state, State::Ok);
    assert_eq!(report.mode, "enforcing");
}

#[test]
fn who_holds_the_lock_is_told_and_keeps_it() {
    let folder = Folder::new("doctor-lock");
    let path = folder.0.join("state/enforcer.lock");
    let Ok(Enforcer::We(lock)) = EnforcerLock::acquire(&path) else {
        panic!("nobody else has it")
    };
    let report = examine(&folder.config("mode: enforce"));
    let enforcer = check(&report, "state.enforcer");
    let own = std::process::id().to_string();
    assert!(
        enforcer.state == State::Note && enforcer.found.contains(&own),
        "{enforcer:?}"
    );
    assert_eq!(report.mode, "standby");
    assert!(
        matches!(EnforcerLock::acquire(&path), Ok(Enforcer::Other(_))),
        "still held"
    );
    drop(lock);
    assert_eq!(examine(&folder.config("mode: enforce")).mode, "enforcing");
}

#[test]
fn a_cpu_group_without_run_time_is_named_and_the_move_was_tried() {
    if !may(Ability::RealTime) {
        lacks!("CAP_SYS_NICE is missing");
    }
    let layout = Layout::detect(Path::new("/")).expect("a layout");
    let cpu = layout.require(Controller::Cpu);
    let has_run_time = |path: &Path| path.join("cpu.rt_runtime_us").exists();
    if !cpu.is_ok_and(|cpu| cpu.version == Version::V1 && has_run_time(&cpu.path)) {
        skip!("the kernel has no RT_GROUP_SCHED, or the cpu controller is not on v1");
    }
    let group = OwnedCgroup::create(&layout, "test", &[Controller::Cpu]).expect("a group");
    let folder = Folder::new("doctor-cpu");
    let dir = group
        .dir(&layout, Controller::Cpu)
        .expect("made for it")
        .path()
        .to_owned();
    let (stays, moves) = std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            let thread = rustix::thread::gettid().as_raw_pid().to_string();
            fs::write(dir.join("tasks"), thread).expect("writable");
            let stays = examine(&folder.config(""));
            let moves = examine(&folder.config("realtime: {moveGuardToRootCpuGroup: true}"));
            (stays, moves)
        });
        inside.join().expect("no panic")
    });
    group.remove().expect("nobody is in it");
    let fifo = check(&stays, "scheduling.fifo");
    let said = format!("{fifo:?}");
    assert_eq!(fifo.state, State::Warning, "{said}");
    assert!(said.contains(&dir.display().to_string()), "{said}");
    assert!(
        said.contains("--move-guard-to-root-cpu-group true"),
        "{said}"
    );
    assert_eq!(stays.scheduling.as_deref(), Some("nice -20"));
    assert_eq!(check(&moves, "scheduling.fifo").state, State::Ok);
    assert_eq!(moves.scheduling.as_deref(), Some("SCHED_FIFO 49"));
}

#[test]
fn without_root_every_missing_right_is_named() {
    if rustix::process::geteuid().as_raw() != 0 {
        lacks!("needs root, to become somebody else");
    }
    let binary = match agent_binary() {
        Ok(binary) => binary,
        Err(error) => lacks!("{error}"),
    };
    let folder = Folder::new("doctor-nobody");
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o755)).expect("ours");
    let copy = folder.0.join("brink");
    fs::copy(binary, &copy).expect("copied");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).expect("ours");
    let output = Command::new(&copy)
        .args([
            "doctor",
            "-o",
            "json",
            "--state-dir",
            "/run/brink-of-nobody",
        ])
        .env_clear()
        .uid(65534)
        .gid(65534)
        .output()
        .expect("the doctor ends");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let all = report["checks"].as_array().expect("checks");
    let one = |id: &str| {
        all.iter()
            .find(|check| check["id"] == id)
            .expect("the check")
    };
    let rights = one("rights.capabilities").to_string();
    for name in [
        "CAP_BPF",
        "CAP_PERFMON",
        "CAP_KILL",
        "CAP_SYS_NICE",
        "CAP_IPC_LOCK",
        "CAP_SYS_RESOURCE",
    ] {
        assert!(rights.contains(name), "{name} is not in {rights}");
    }
    for (id, name) in [
        ("programs.sampler", "CAP_BPF"),
        ("scheduling.fifo", "CAP_SYS_NICE"),
        ("scheduling.nice", "CAP_SYS_NICE"),
        ("scheduling.oom-score", "CAP_SYS_RESOURCE"),
    ] {
        let said = one(id).to_string();
        assert!(said.contains(name), "{name} is not in {said}");
    }
    assert_eq!(one("state.folder")["state"], "failed");
    assert_eq!(report["rung"], "poll");
}

/// As a container with a cgroup namespace of its own, with the machine's control groups mounted.
#[test]
fn in_a_cgroup_namespace_it_sees_out_on_version_two_and_else_says_how_to_be_started() {
    if rustix::process::geteuid().as_raw() != 0 {
        lacks!("needs root, to make a namespace");
    }
    let binary = match agent_binary() {
        Ok(binary) => binary,
        Err(error) => lacks!("{error}"),
    };
    let layout = Layout::detect(Path::new("/")).expect("a layout");
    let group = match OwnedCgroup::create(&layout, "test", &[Controller::Memory]) {
        Ok(group) => group,
        Err(error) => lacks!("{error}"),
    };
    let dir = group.dir(&layout, Controller::Memory).expect("made for it");
    let folder = Folder::new("doctor-namespace");
    let (version, path) = (dir.version(), group.group().to_owned());
    let output = Command::new(env!("CARGO_BIN_EXE_brink-hog"))
        .arg("in-namespace")
        .arg(dir.path().join("cgroup.procs"))
        .arg(binary)
        .args(["doctor", "-o", "json", "--state-dir"])
        .arg(folder.0.join("state"))
        .output()
        .expect("the doctor ends");
    group.remove().expect("nobody is in it");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let all = report["checks"].as_array().expect("checks");
    let expected = match version {
        Version::V1 => [
            ("cgroups.layout", "failed", "privileged"),
            ("rights.namespaces", "warning", "privileged"),
        ],
        Version::V2 => [
            ("cgroups.layout", "ok", path.as_str()),
            ("rights.namespaces", "ok", "those outside are seen"),
        ],
    };
    for (id, state, words) in expected {
        let check = all.iter().find(|check| check["id"] == id);
        let check = check.expect("the check");
        assert_eq!(check["state"], state, "{check:#}");
        assert!(check.to_string().contains(words), "{check:#}");
    }
    if version == Version::V1 {
        assert_eq!(output.status.code(), Some(3), "{output:?}");
    }
}
