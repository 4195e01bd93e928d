//! Kills on the real kernel: everything in the group dies, forks included, and nobody else.
#![cfg(test)]

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use brink_host::cgroup::owned::OwnedCgroup;
use brink_host::cgroup::{CgroupDir, Controller, Layout, Version};
use brink_host::hog::{HogSpec, Load};
use brink_host::kill::pid_set::ProtectedPids;
use brink_host::kill::{KillOutcome, KillTarget, Killer, Means, ReleaseConfig, ReleasePool};
use brink_host::process::Identity;
use brink_host::process::identity::StartReader;
use brink_host::realtime::{self, FifoPriority};
use brink_tests::{Hog, Sandbox, lacks, skip, wait_until};

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(20);
const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

fn hog(group: &OwnedCgroup, load: Load, bytes: u64) -> Hog {
    let spec = HogSpec::new(load, bytes, PATIENCE);
    Hog::spawn(
        Path::new(env!("CARGO_BIN_EXE_brink-hog")),
        Some(group),
        &spec,
    )
    .expect("a hog")
}

fn full_hog(group: &OwnedCgroup) -> Hog {
    let mut hog = hog(group, Load::Anon, 8 * MIB);
    hog.wait_touched(8 * MIB, PATIENCE).expect("progress");
    hog
}

/// Kills as the guard does: under `SCHED_FIFO`, above the release pool, where that can be had.
fn kill(killer: &mut Killer, target: &KillTarget) -> KillOutcome {
    let as_guard = || {
        // Without the right it only takes longer.
        let _ = realtime::set_fifo(FifoPriority::GUARD);
        killer.kill(target)
    };
    thread::scope(|scope| scope.spawn(as_guard).join().expect("no panic"))
}

fn killer(layout: &Layout) -> Killer {
    let pool = ReleasePool::start(&ReleaseConfig::default(), layout).expect("threads");
    Killer::new(layout, Some(pool)).expect("hierarchies")
}

/// The group as a target in the memory hierarchy, and, on a machine with a v2 tree beside it, in that too: the two ways
/// of killing on one machine.
fn targets(sandbox: &Sandbox) -> Vec<KillTarget> {
    let memory = KillTarget::open(&sandbox.layout, sandbox.group.group()).expect("a target");
    let unified = sandbox
        .layout
        .unified()
        .filter(|_| memory.dir().version() == Version::V1);
    let unified = unified
        .map(|unified| KillTarget::open_in(unified, sandbox.group.group()).expect("a target"));
    [memory].into_iter().chain(unified).collect()
}

/// Sweeps until the target is empty.
fn emptied(killer: &mut Killer, target: &KillTarget) -> KillOutcome {
    let mut last = killer.sweep(target);
    let empty = wait_until(Duration::from_secs(5), || {
        last = killer.sweep(target);
        last.is_empty().then_some(last)
    });
    assert!(empty.is_some(), "not empty: {last:?}");
    last
}

fn signal_of(hog: &mut Hog) -> Option<i32> {
    hog.wait(PATIENCE).expect("it was signalled").signal()
}

fn microseconds(from: u64, to: Option<u64>) -> u64 {
    to.unwrap_or(from).saturating_sub(from) / 1000
}

fn report(what: &str, outcome: &KillOutcome) {
    let at = |time| microseconds(outcome.times.started, time);
    println!(
        "{what}: listed {} us, first signal {} us, first pass {} us, done {} us; {outcome:?}",
        at(outcome.times.listed),
        at(outcome.times.after_first_signal),
        at(outcome.times.first_pass),
        at(Some(outcome.times.finished)),
    );
}

#[test]
fn every_process_of_the_subtree_dies_and_the_neighbour_lives() {
    for way in 0..2 {
        let sandbox = match Sandbox::new(&[Controller::Memory, Controller::Freezer], 256 * MIB) {
            Ok(sandbox) => sandbox,
            Err(error) => lacks!("{error}"),
        };
        let pod = sandbox.group.child("pod").expect("a child");
        let (one, other) = (
            pod.child("one").expect("a child"),
            pod.child("other").expect("a child"),
        );
        let neighbour = sandbox.group.child("neighbour").expect("a child");
        let mut victims = [full_hog(&one), full_hog(&one), full_hog(&other)];
        let mut survivor = full_hog(&neighbour);
        let inner = Sandbox {
            layout: sandbox.layout.clone(),
            group: pod,
        };
        let Some(target) = targets(&inner).into_iter().nth(way) else {
            break;
        };
        let mut killer = killer(&sandbox.layout);
        let outcome = kill(&mut killer, &target);
        report("subtree of three", &outcome);
        assert!(outcome.settled && outcome.failure.is_none(), "{outcome:?}");
        assert_eq!(
            (outcome.signalled, outcome.groups, outcome.spared),
            (3, 3, 0),
            "{outcome:?}"
        );
        let expected = if target.dir().version() == Version::V2 {
            Means::GroupKill
        } else {
            Means::Signals
        };
        assert_eq!(outcome.means, expected);
        assert_eq!(victims.each_mut().map(signal_of), [Some(SIGKILL); 3]);
        emptied(&mut killer, &target);
        assert!(
            survivor.wait(Duration::ZERO).is_err(),
            "the neighbour must live"
        );
    }
}

#[test]
fn who_is_held_dies_before_the_list_and_the_others_after_it() {
    for way in 0..2 {
        let sandbox = match Sandbox::new(&[Controller::Memory, Controller::Freezer], 256 * MIB) {
            Ok(sandbox) => sandbox,
            Err(error) => lacks!("{error}"),
        };
        let pod = sandbox.group.child("pod").expect("a child");
        let other = sandbox.group.child("other").expect("a child");
        let inner = Sandbox {
            layout: sandbox.layout.clone(),
            group: pod,
        };
        let Some(target) = targets(&inner).into_iter().nth(way) else {
            break;
        };
        let mut killer = Killer::new(&sandbox.layout, None).expect("hierarchies");
        let mut held = full_hog(&inner.group);
        killer.prepare(&target);
        let mut later = full_hog(&inner.group);
        let outcome = killer.kill_prepared(&target);
        report("held and later", &outcome);
        assert!(outcome.settled && outcome.signalled == 2, "{outcome:?}");
        assert!(outcome.times.after_first_signal < outcome.times.listed);
        assert_eq!(signal_of(&mut held), Some(SIGKILL));
        assert_eq!(signal_of(&mut later), Some(SIGKILL));
        emptied(&mut killer, &target);

        let mut neighbour = full_hog(&other);
        let beside = Sandbox {
            layout: sandbox.layout.clone(),
            group: other,
        };
        let neighbours = targets(&beside).swap_remove(way);
        killer.prepare(&neighbours);
        assert_eq!(killer.kill_prepared(&target).signalled, 0);
        assert!(
            neighbour.wait(Duration::ZERO).is_err(),
            "held, and not the target"
        );
        let other = beside.group;

        let mut moved = full_hog(&inner.group);
        killer.prepare(&target);
        let pid = u32::try_from(moved.pid()).expect("a pid");
        other.add_process(pid).expect("it moves");
        assert_eq!(killer.kill(&target).signalled, 0);
        assert!(moved.wait(Duration::ZERO).is_err(), "it lives elsewhere");
    }
}

/// Kills a storm while it still grows (there is room for ten times as many), and again until it is gone: in the memory hierarchy,
/// or in a tree of this version.
fn storm(controllers: &[Controller], version: Option<Version>) -> Option<KillOutcome> {
    let sandbox = match Sandbox::new(controllers, 1024 * MIB) {
        Ok(sandbox) => sandbox,
        Err(error) => {
            println!("{error}");
            return None;
        }
    };
    let is_wanted =
        |target: &KillTarget| version.is_none_or(|wanted| target.dir().version() == wanted);
    let target = targets(&sandbox).into_iter().find(is_wanted)?;
    sandbox
        .group
        .limit_tasks(&sandbox.layout, 1000)
        .expect("writable");
    let mut killer = killer(&sandbox.layout);
    let mut storm = hog(&sandbox.group, Load::ForkStorm, 0);
    let pids = sandbox.dir(Controller::Pids).expect("made for it");
    let tasks = || pids.tasks().ok().filter(|tasks| *tasks >= 100);
    assert!(wait_until(PATIENCE, tasks).is_some(), "no storm");
    let outcome = kill(&mut killer, &target);
    report("fork storm", &outcome);
    // Those that `cgroup.kill` reached, and were not signalled one by one, count too.
    assert!(outcome.settled && outcome.signalled >= 100, "{outcome:?}");
    let is_whole = outcome.means == Means::GroupKill;
    assert_eq!(
        is_whole,
        target.dir().version() == Version::V2,
        "{outcome:?}"
    );
    let last = emptied(&mut killer, &target);
    report("the last sweep", &last);
    assert_eq!(signal_of(&mut storm), Some(SIGKILL));
    Some(outcome)
}

#[test]
fn a_fork_storm_dies_whole_with_a_freezer() {
    let controllers = [Controller::Memory, Controller::Pids, Controller::Freezer];
    let Some(outcome) = storm(&controllers, None) else {
        lacks!("the controllers cannot be had")
    };
    // There is always a way to keep it from forking.
    assert_ne!(outcome.means, Means::Signals);
}

#[test]
fn a_fork_storm_dies_whole_without_a_freezer() {
    let Some(outcome) = storm(&[Controller::Memory, Controller::Pids], None) else {
        lacks!("the controllers cannot be had")
    };
    assert_ne!(outcome.means, Means::Freezer);
}

#[test]
fn a_fork_storm_dies_whole_by_group_kill() {
    let controllers = [Controller::Memory, Controller::Pids];
    let Some(outcome) = storm(&controllers, Some(Version::V2)) else {
        skip!("no v2 tree, or the controllers cannot be had")
    };
    assert_eq!((outcome.means, outcome.passes), (Means::GroupKill, 1));
}

/// Several times as many as are signalled before the rest is kept from forking.
const SIZE: usize = 150;

/// Processes that do nothing, and the shell that has entered by these commands and started them.
fn crowd(group: &OwnedCgroup, entering: &str, size: usize) -> Child {
    let script = "for one in $(seq $0); do sleep 60 & done; wait";
    let shell = Command::new("sh")
        .args(["-c", &format!("{entering}{script}")])
        .arg(size.to_string())
        .spawn()
        .expect("sh");
    let is_there = || {
        let processes = group.processes().ok()?;
        (processes.len() == size + 1).then_some(())
    };
    assert!(wait_until(PATIENCE, is_there).is_some(), "no crowd");
    shell
}

/// Nobody forks here, so that signals alone would do as well: the means is what is told.
#[test]
fn a_v1_group_that_is_in_the_v2_tree_too_goes_by_the_group_kill_there() {
    // Whoever exits between the lists of both groups is in one of them alone. Where that happens each time the killer compares
    // them, it goes on by signals, as it must.
    const TRIES: usize = 4;
    let mut told = Vec::new();
    while told.len() < TRIES {
        let sandbox = match Sandbox::new(&[Controller::Memory], 256 * MIB) {
            Ok(sandbox) => sandbox,
            Err(error) => lacks!("{error}"),
        };
        let target = KillTarget::open(&sandbox.layout, sandbox.group.group()).expect("a target");
        let unified = sandbox.group.unified_dir(&sandbox.layout);
        let Some(unified) = unified.filter(|_| target.dir().version() == Version::V1) else {
            skip!("needs a memory controller on v1 and a v2 tree beside it");
        };
        if !unified.path().join("cgroup.kill").exists() {
            skip!("needs a kernel with cgroup.kill");
        }
        let mut shell = crowd(&sandbox.group, &entering(&sandbox.group), SIZE);
        let mut killer = killer(&sandbox.layout);
        let outcome = kill(&mut killer, &target);
        report("a crowd", &outcome);
        assert!(outcome.settled && outcome.failure.is_none(), "{outcome:?}");
        assert_eq!(usize::try_from(outcome.signalled), Ok(SIZE + 1));
        emptied(&mut killer, &target);
        let ended = shell.wait().expect("ours");
        assert_eq!(ended.signal(), Some(SIGKILL));
        if outcome.means == Means::UnifiedGroupKill {
            assert!(outcome.times.group_killed.is_some(), "{outcome:?}");
            return;
        }
        told.push(outcome.means);
    }
    panic!("never by the group: {told:?}");
}

/// Nor here; in the v2 tree they are where the test is.
#[test]
fn a_v1_group_that_is_not_in_the_v2_tree_is_stopped_before_the_rest_is_signalled() {
    let sandbox = match Sandbox::new(&[Controller::Memory, Controller::Freezer], 256 * MIB) {
        Ok(sandbox) => sandbox,
        Err(error) => lacks!("{error}"),
    };
    let target = KillTarget::open(&sandbox.layout, sandbox.group.group()).expect("a target");
    let freezer = sandbox.dir(Controller::Freezer).expect("made for it");
    let is_v1 = |dir: &CgroupDir| dir.version() == Version::V1;
    if !is_v1(target.dir()) || !is_v1(freezer) {
        skip!("needs the controllers of memory and freezer on v1");
    }
    let entrances = [target.dir(), freezer].map(|dir| dir.path().join("cgroup.procs"));
    let mut shell = crowd(&sandbox.group, &entering_by(&entrances), SIZE);
    let mut killer = killer(&sandbox.layout);
    let outcome = kill(&mut killer, &target);
    report("a crowd", &outcome);
    assert!(outcome.settled && outcome.failure.is_none(), "{outcome:?}");
    assert_eq!(usize::try_from(outcome.signalled), Ok(SIZE + 1));
    // The first batch, all the others, and that there is nobody else.
    assert_eq!((outcome.means, outcome.passes), (Means::Freezer, 3));
    // It is resumed, or nobody would be gone.
    emptied(&mut killer, &target);
    assert_eq!(shell.wait().expect("ours").signal(), Some(SIGKILL));
}

#[test]
fn the_protected_are_spared_whatever_group_they_are_in() {
    for way in 0..2 {
        let sandbox = match Sandbox::new(&[Controller::Memory], 256 * MIB) {
            Ok(sandbox) => sandbox,
            Err(error) => lacks!("{error}"),
        };
        let Some(target) = targets(&sandbox).into_iter().nth(way) else {
            break;
        };
        let (mut victim, mut spared) = (full_hog(&sandbox.group), full_hog(&sandbox.group));
        let mut killer = killer(&sandbox.layout);
        let named = [identity(&spared)];
        killer.protect(&mut ProtectedPids::new(Path::new("/"), named));
        let outcome = kill(&mut killer, &target);
        assert_eq!(
            (outcome.signalled, outcome.spared, outcome.means),
            (1, 1, Means::Signals),
            "{outcome:?}"
        );
        assert_eq!(signal_of(&mut victim), Some(SIGKILL));
        assert!(emptied(&mut killer, &target).is_empty());
        assert!(
            spared.wait(Duration::ZERO).is_err(),
            "the protected must live"
        );
    }
}

/// Which process a hog is.
fn identity(hog: &Hog) -> Identity {
    let starts = StartReader::open(Path::new("/")).expect("proc");
    let start = starts.start_ticks(hog.pid()).expect("readable");
    Identity {
        pid: hog.pid(),
        start_ticks: start.expect("it runs"),
    }
}

#[test]
fn who_has_the_id_of_a_protected_process_that_ended_dies_with_its_group() {
    let sandbox = match Sandbox::new(&[Controller::Memory], 256 * MIB) {
        Ok(sandbox) => sandbox,
        Err(error) => lacks!("{error}"),
    };
    let target = KillTarget::open(&sandbox.layout, sandbox.group.group()).expect("a target");
    let mut hogs = [(); 2].map(|()| full_hog(&sandbox.group));
    let mut killer = killer(&sandbox.layout);
    let mut ended = identity(&hogs[0]);
    ended.start_ticks -= 1;
    killer.protect(&mut ProtectedPids::new(Path::new("/"), [ended]));
    let outcome = kill(&mut killer, &target);
    assert_eq!((outcome.signalled, outcome.spared), (2, 0), "{outcome:?}");
    for hog in &mut hogs {
        assert_eq!(signal_of(hog), Some(SIGKILL));
    }
}

#[test]
fn a_soft_kill_asks_and_a_hard_one_then_does_not() {
    let sandbox = match Sandbox::new(&[Controller::Memory], 256 * MIB) {
        Ok(sandbox) => sandbox,
        Err(error) => lacks!("{error}"),
    };
    let target = KillTarget::open(&sandbox.layout, sandbox.group.group()).expect("a target");
    let mut killer = killer(&sandbox.layout);
    let mut polite = full_hog(&sandbox.group);
    let outcome = killer.terminate(&target);
    assert_eq!(
        (outcome.signalled, outcome.releasing, outcome.settled),
        (1, 0, true),
        "{outcome:?}"
    );
    assert_eq!(signal_of(&mut polite), Some(SIGTERM));
    let mut deaf = deaf_process(&sandbox.group);
    assert_eq!(killer.terminate(&target).signalled, 1);
    thread::sleep(Duration::from_millis(50));
    assert_eq!(deaf.try_wait().expect("ours"), None, "it does not listen");
    assert_eq!(kill(&mut killer, &target).signalled, 1);
    assert_eq!(deaf.wait().expect("ours").signal(), Some(SIGKILL));
}

/// What a shell runs first to be in the group.
fn entering(group: &OwnedCgroup) -> String {
    entering_by(&group.entrances())
}

/// The same by these files.
fn entering_by(entrances: &[PathBuf]) -> String {
    let enter = |entrance: &PathBuf| format!("echo 0 > {} && ", entrance.display());
    entrances.iter().map(enter).collect()
}

/// A process in the group that ignores SIGTERM.
fn deaf_process(group: &OwnedCgroup) -> Child {
    let script = format!("trap '' TERM; {} exec sleep 20", entering(group));
    let child = Command::new("sh")
        .args(["-c", &script])
        .spawn()
        .expect("sh");
    let name = format!("/proc/{}/comm", child.id());
    let is_ready = || {
        fs::read_to_string(&name)
            .ok()
            .filter(|name| name == "sleep\n")
    };
    assert!(
        wait_until(PATIENCE, is_ready).is_some(),
        "it does not come up"
    );
    child
}

#[test]
fn a_frozen_group_dies_too() {
    let sandbox = match Sandbox::new(&[Controller::Memory, Controller::Freezer], 256 * MIB) {
        Ok(sandbox) => sandbox,
        Err(error) => lacks!("{error}"),
    };
    let freezer = sandbox.dir(Controller::Freezer).expect("made for it");
    let (file, value) = match freezer.version() {
        Version::V1 => ("freezer.state", "FROZEN"),
        Version::V2 => ("cgroup.freeze", "1"),
    };
    let mut hog = full_hog(&sandbox.group);
    fs::write(freezer.path().join(file), value).expect("writable");
    let target = KillTarget::open(&sandbox.layout, sandbox.group.group()).expect("a target");
    let mut killer = killer(&sandbox.layout);
    let outcome = kill(&mut killer, &target);
    assert_eq!(
        (outcome.signalled, outcome.settled),
        (1, true),
        "{outcome:?}"
    );
    emptied(&mut killer, &target);
    assert_eq!(signal_of(&mut hog), Some(SIGKILL));
}

#[test]
fn the_root_and_what_is_outside_are_no_targets() {
    let layout = Layout::detect(Path::new("/")).expect("a layout");
    for group in ["/", "", "//.", "/../..", "/nonexistent"] {
        assert!(KillTarget::open(&layout, group).is_err(), "{group:?}");
    }
}

#[test]
fn an_empty_group_is_settled_at_once() {
    let sandbox = match Sandbox::new(&[Controller::Memory], 256 * MIB) {
        Ok(sandbox) => sandbox,
        Err(error) => lacks!("{error}"),
    };
    for target in targets(&sandbox) {
        let mut killer = Killer::new(&sandbox.layout, None).expect("hierarchies");
        let outcome = kill(&mut killer, &target);
        report("empty group", &outcome);
        assert!(
            outcome.is_empty() && outcome.signalled == 0 && outcome.failure.is_none(),
            "{outcome:?}"
        );
    }
}
