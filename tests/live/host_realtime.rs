//! Real-time standing on the real kernel: given, refused with the right reason, and had after a move.
#![cfg(test)]

use std::fs;
use std::path::Path;
use std::thread;

use brink_host::capabilities::{Ability, Capabilities};
use brink_host::cgroup::membership::Membership;
use brink_host::cgroup::owned::OwnedCgroup;
use brink_host::cgroup::{Controller, Layout, Version};
use brink_host::realtime::oom_score::{OomScore, adjust};
use brink_host::realtime::{self, FifoPriority, FifoRefusal, Scheduling};
use brink_tests::{lacks, skip};

const ROOT: &str = "/";

fn layout() -> Layout {
    Layout::detect(Path::new(ROOT)).expect("a layout")
}

fn may(ability: Ability) -> bool {
    Capabilities::of_self(Path::new(ROOT))
        .expect("status")
        .missing(ability)
        .is_empty()
}

/// Runs something on a thread of its own, which alone is changed by it.
fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    thread::spawn(work)
        .join()
        .expect("the thread's own asserts")
}

#[test]
fn a_thread_goes_ahead_and_keeps_it_to_itself() {
    if !may(Ability::RealTime) {
        lacks!("CAP_SYS_NICE is missing");
    }
    on_a_thread(|| {
        let before = realtime::set_nice(-7).expect("with the capability");
        assert!(matches!(realtime::scheduling(), Ok(Scheduling::Nice(-7))));
        let child = thread::spawn(realtime::scheduling)
            .join()
            .expect("no panic");
        assert!(matches!(child, Ok(Scheduling::Nice(0))), "{child:?}");
        assert_eq!(realtime::set_nice(before), Ok(-7));
    });
}

#[test]
fn a_thread_gets_fifo_and_keeps_it_to_itself() {
    if !may(Ability::RealTime) {
        lacks!("CAP_SYS_NICE is missing");
    }
    on_a_thread(|| {
        let standing =
            realtime::raise_thread(Path::new(ROOT), &layout(), FifoPriority::GUARD, true);
        assert_eq!(
            standing.scheduling,
            Scheduling::Fifo(FifoPriority::GUARD),
            "{standing:?}"
        );
        assert_eq!(
            realtime::scheduling().expect("readable"),
            Scheduling::Fifo(FifoPriority::GUARD)
        );
        let child = thread::spawn(realtime::scheduling)
            .join()
            .expect("no panic")
            .expect("readable");
        assert!(matches!(child, Scheduling::Nice(_)), "{child}");
    });
    assert!(matches!(
        realtime::scheduling().expect("readable"),
        Scheduling::Nice(_)
    ));
}

/// A cpu group of our own that has no real-time run time, or why there is none.
fn group_without_run_time(layout: &Layout) -> Result<OwnedCgroup, String> {
    let cpu = layout
        .require(Controller::Cpu)
        .map_err(|error| error.to_string())?;
    if cpu.version == Version::V2 || !cpu.path.join("cpu.rt_runtime_us").exists() {
        return Err("the kernel has no RT_GROUP_SCHED, or the cpu controller is on v2".to_owned());
    }
    OwnedCgroup::create(layout, "test", &[Controller::Cpu]).map_err(|error| error.to_string())
}

fn enter(group: &OwnedCgroup, layout: &Layout) {
    let folder = group
        .dir(layout, Controller::Cpu)
        .expect("made for it")
        .path();
    let thread = rustix::thread::gettid().as_raw_pid().to_string();
    fs::write(folder.join("tasks"), thread).expect("writable");
}

#[test]
fn a_group_without_run_time_is_named_and_a_move_helps() {
    let layout = layout();
    if !may(Ability::RealTime) {
        lacks!("CAP_SYS_NICE is missing");
    }
    let group = match group_without_run_time(&layout) {
        Ok(group) => group,
        Err(reason) => skip!("{reason}"),
    };
    let folder = group
        .dir(&layout, Controller::Cpu)
        .expect("made for it")
        .path()
        .to_owned();
    let path = group.group().to_owned();
    let group = on_a_thread(move || {
        enter(&group, &layout);
        let stays = realtime::raise_thread(Path::new(ROOT), &layout, FifoPriority::GUARD, false);
        assert_eq!(
            stays.refused,
            Some(FifoRefusal::NoGroupRuntime { group: folder }),
            "{stays:?}"
        );
        assert_eq!(
            (stays.scheduling, stays.moved_from),
            (Scheduling::Nice(-20), None)
        );
        let moves = realtime::raise_thread(Path::new(ROOT), &layout, FifoPriority::GUARD, true);
        assert!(
            matches!(moves.refused, Some(FifoRefusal::NoGroupRuntime { .. })),
            "{moves:?}"
        );
        assert_eq!(
            moves.scheduling,
            Scheduling::Fifo(FifoPriority::GUARD),
            "{moves:?}"
        );
        assert_eq!(moves.moved_from, Some(path));
        let now =
            Membership::read(Path::new(ROOT), layout.home(), "thread-self").expect("readable");
        assert_eq!(now.of(&layout, Controller::Cpu), Some("/"));
        group
    });
    group.remove().expect("nobody is in it");
}

#[test]
fn only_the_thread_itself_is_moved() {
    let layout = layout();
    if !may(Ability::RealTime) {
        lacks!("CAP_SYS_NICE is missing");
    }
    let group = match group_without_run_time(&layout) {
        Ok(group) => group,
        Err(reason) => skip!("{reason}"),
    };
    let group = on_a_thread(move || {
        enter(&group, &layout);
        let (other_layout, path) = (layout.clone(), group.group().to_owned());
        // A new thread begins in its maker's group.
        let moved = thread::spawn(move || {
            realtime::raise_thread(Path::new(ROOT), &other_layout, FifoPriority::GUARD, true)
                .moved_from
        });
        assert_eq!(moved.join().expect("no panic"), Some(path.clone()));
        let own =
            Membership::read(Path::new(ROOT), layout.home(), "thread-self").expect("readable");
        assert_eq!(own.of(&layout, Controller::Cpu), Some(path.as_str()));
        group
    });
    group.remove().expect("nobody is in it");
}

#[test]
fn our_own_score_is_lowered_or_the_capability_named() {
    let root = Path::new(ROOT);
    match adjust(root, -500).expect("readable") {
        OomScore::Set(value) => {
            assert!(value == -500 && may(Ability::OomScore));
            let text = fs::read_to_string("/proc/self/oom_score_adj").expect("readable");
            assert_eq!(text.trim(), "-500");
        }
        OomScore::Kept { why, .. } => {
            assert!(
                !may(Ability::OomScore) && why.contains("CAP_SYS_RESOURCE"),
                "{why}"
            );
        }
    }
    assert_eq!(
        adjust(root, 100).expect("higher is always permitted"),
        OomScore::Set(100)
    );
}

#[test]
fn memory_is_locked_as_it_is_touched() {
    if !may(Ability::LockMemory) {
        lacks!("CAP_IPC_LOCK is missing");
    }
    let locked = || -> u64 {
        let status = fs::read_to_string("/proc/self/status").expect("readable");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmLck:"))
            .expect("VmLck");
        line.split_whitespace()
            .next()
            .and_then(|number| number.parse().ok())
            .expect("a number")
    };
    let before = locked();
    realtime::lock_memory().expect("permitted");
    assert!(locked() > before);
}
