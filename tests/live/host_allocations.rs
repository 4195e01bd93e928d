//! The guard's readers and the kill itself allocate nothing, counted by the allocator.
#![cfg(test)]

use std::path::Path;
use std::time::Duration;

use brink_host::cgroup::Controller;
use brink_host::cgroup::stat::StatReader;
use brink_host::cgroup::usage::UsageReader;
use brink_host::clock::{BootId, monotonic_ns};
use brink_host::cpu_lists::CpuListsReader;
use brink_host::hog::{HogSpec, Load};
use brink_host::kill::{KillTarget, Killer, ReleaseConfig, ReleasePool};
use brink_host::ledger::{Ledger, LedgerShape};
use brink_host::loadavg::TaskCountReader;
use brink_host::meminfo::MeminfoReader;
use brink_host::process::identity::StartReader;
use brink_host::psi::PressureReader;
use brink_tests::counting_allocator::{CountingAllocator, during};
use brink_tests::{Hog, Sandbox, lacks, wait_until};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs something that must succeed without allocating, and gives its mean time in nanoseconds.
fn measured<T, E: std::fmt::Debug>(what: &str, work: impl Fn() -> Result<T, E>) {
    const ROUNDS: u64 = 1000;
    let ((), count) = during(|| {
        for _ in 0..10 {
            work().expect("readable");
        }
    });
    assert_eq!(count, 0, "{what} allocates");
    let begin = monotonic_ns();
    for _ in 0..ROUNDS {
        work().expect("readable");
    }
    println!("{what}: {} ns", (monotonic_ns() - begin) / ROUNDS);
}

#[test]
fn the_counter_counts() {
    let (text, count) = during(|| String::from("on the heap"));
    let ((), freed) = during(|| drop(text));
    assert_eq!((count, freed), (1, 1));
}

#[test]
fn the_nodes_counters_are_read_without_allocation() {
    let root = Path::new("/");
    let meminfo = MeminfoReader::open(root).expect("meminfo");
    let tasks = TaskCountReader::open(root).expect("loadavg");
    let lists = CpuListsReader::open(root).expect("zoneinfo");
    measured("meminfo", || meminfo.read());
    measured("lists of CPUs", || lists.pages());
    measured("loadavg", || tasks.read());
    let starts = StartReader::open(root).expect("proc");
    let own = i32::try_from(std::process::id()).expect("a pid");
    measured("start of a process", || starts.start_ticks(own));
    measured("monotonic clock", || Ok::<_, ()>(monotonic_ns()));
    match PressureReader::node(root, "memory") {
        Ok(pressure) => measured("memory pressure", || pressure.read()),
        Err(error) => println!("{error}"),
    }
}

#[test]
fn a_decision_is_recorded_without_allocation() {
    let path = std::env::temp_dir().join(format!("brink-test-ledger-{}", std::process::id()));
    let shape = LedgerShape {
        slots: 8,
        record: 4096,
        completion: 512,
        format: 1,
    };
    let boot = BootId::read(Path::new("/")).expect("this boot");
    let (mut ledger, _) = Ledger::open(&path, shape, boot).expect("open");
    let ((), count) = during(|| {
        let slot = ledger.record(|record| record.fill(1));
        assert!(ledger.complete(slot, |completion| completion.fill(2)));
    });
    std::fs::remove_file(&path).expect("removable");
    assert_eq!(count, 0);
}

#[test]
fn a_group_is_read_and_killed_without_allocation() {
    let sandbox = match Sandbox::new(
        &[Controller::Memory, Controller::Pids, Controller::Freezer],
        256 * MIB,
    ) {
        Ok(sandbox) => sandbox,
        Err(error) => lacks!("{error}"),
    };
    let dir = sandbox.dir(Controller::Memory).expect("made for it");
    let (usage, stat) = (
        UsageReader::open(dir).expect("usage"),
        StatReader::open(dir).expect("stat"),
    );
    let mut killer = {
        let pool = ReleasePool::start(&ReleaseConfig::default(), &sandbox.layout).expect("threads");
        Killer::new(&sandbox.layout, Some(pool)).expect("hierarchies")
    };
    let inner = sandbox.group.child("inner").expect("a child");
    let program = Path::new(env!("CARGO_BIN_EXE_brink-hog"));
    let spec = HogSpec::new(Load::Anon, 8 * MIB, PATIENCE);
    let mut hog = Hog::spawn(program, Some(&inner), &spec).expect("a hog");
    hog.wait_touched(8 * MIB, PATIENCE).expect("progress");
    measured("usage", || usage.read());
    measured("stat", || stat.read());
    let memory = KillTarget::open(&sandbox.layout, sandbox.group.group()).expect("a target");
    let unified = sandbox
        .layout
        .unified()
        .map(|unified| KillTarget::open_in(unified, sandbox.group.group()));
    let unified = unified.transpose().expect("a target");
    let (outcome, count) = during(|| killer.kill(&memory));
    assert_eq!(
        (count, outcome.signalled, outcome.releasing),
        (0, 1, 1),
        "{outcome:?}"
    );
    let (_, count) = during(|| killer.sweep(&memory));
    assert_eq!(count, 0, "a sweep allocates");
    let (_, count) = during(|| killer.terminate(&memory));
    assert_eq!(count, 0, "a soft kill allocates");
    let (_, count) = during(|| unified.as_ref().map(|unified| killer.kill(unified)));
    assert_eq!(count, 0, "a group kill allocates");
    assert!(wait_until(PATIENCE, || killer.sweep(&memory).is_empty().then_some(())).is_some());
}

#[test]
fn a_storm_is_killed_without_allocation() {
    let sandbox = match Sandbox::new(
        &[Controller::Memory, Controller::Pids, Controller::Freezer],
        256 * MIB,
    ) {
        Ok(sandbox) => sandbox,
        Err(error) => lacks!("{error}"),
    };
    sandbox
        .group
        .limit_tasks(&sandbox.layout, 400)
        .expect("writable");
    let mut killer = Killer::new(&sandbox.layout, None).expect("hierarchies");
    let target = KillTarget::open(&sandbox.layout, sandbox.group.group()).expect("a target");
    let program = Path::new(env!("CARGO_BIN_EXE_brink-hog"));
    let _hog = Hog::spawn(
        program,
        Some(&sandbox.group),
        &HogSpec::new(Load::ForkStorm, 0, PATIENCE),
    )
    .expect("a hog");
    let tasks = || {
        sandbox
            .dir(Controller::Pids)
            .expect("made for it")
            .tasks()
            .ok()
            .filter(|tasks| *tasks >= 390)
    };
    assert!(wait_until(PATIENCE, tasks).is_some(), "no storm");
    let (outcome, count) = during(|| killer.kill(&target));
    assert_eq!(count, 0, "{outcome:?}");
    assert!(wait_until(PATIENCE, || killer.sweep(&target).is_empty().then_some(())).is_some());
}
