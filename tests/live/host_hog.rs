//! Hogs take what they are told to, of the kind they are told to, and stop when they must.
#![cfg(test)]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use brink_host::cgroup::Controller;
use brink_host::cgroup::stat::{MemoryStat, StatReader};
use brink_host::cgroup::usage::UsageReader;
use brink_host::hog::{HogSpec, Load, Progress};
use brink_host::meminfo::MeminfoReader;
use brink_tests::{Hog, Sandbox, lacks, skip, slowed, wait_until};

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(20);
const HOG: &str = env!("CARGO_BIN_EXE_brink-hog");

/// What a group of 256 MiB reads after a hog took 32 MiB.
fn after(load: Load) -> Option<(u64, MemoryStat)> {
    let sandbox = Sandbox::new(&[Controller::Memory], 256 * MIB).ok()?;
    let dir = sandbox.dir(Controller::Memory).expect("made for it");
    let (usage, stat) = (
        UsageReader::open(dir).expect("usage"),
        StatReader::open(dir).expect("stat"),
    );
    let spec = HogSpec::new(load, 32 * MIB, PATIENCE);
    let mut hog = Hog::spawn(Path::new(HOG), Some(&sandbox.group), &spec).expect("a hog");
    hog.wait_touched(32 * MIB, PATIENCE).expect("progress");
    Some((usage.read().expect("usage"), stat.read().expect("stat")))
}

#[test]
fn huge_pages_are_anonymous_memory() {
    let Some((usage, stat)) = after(Load::AnonHuge) else {
        lacks!("no memory controller for a group of our own")
    };
    assert!(
        usage >= 32 * MIB && stat.anon >= Some(32 * MIB),
        "{usage} {stat:?}"
    );
}

#[test]
fn locked_memory_is_unevictable() {
    let Some((_, stat)) = after(Load::Locked) else {
        lacks!("no memory controller for a group of our own")
    };
    // Each CPU keeps some pages back until it has enough of them to move.
    assert!(stat.unevictable >= Some(30 * MIB), "{stat:?}");
}

#[test]
fn written_files_are_page_cache() {
    let Some((_, stat)) = after(Load::CacheWrite) else {
        lacks!("no memory controller for a group of our own")
    };
    // Each CPU keeps some counts back until it has enough of them to add.
    assert!(
        stat.file >= Some(30 * MIB) && stat.shmem < Some(MIB),
        "{stat:?}"
    );
}

#[test]
fn a_file_read_again_and_again_becomes_active() {
    let generations = fs::read_to_string("/sys/kernel/mm/lru_gen/enabled").unwrap_or_default();
    if !matches!(generations.trim(), "" | "0x0000") {
        skip!("with generations of pages this kernel leaves it inactive until memory is reclaimed");
    }
    let Ok(sandbox) = Sandbox::new(&[Controller::Memory], 256 * MIB) else {
        lacks!("no memory controller for a group of our own")
    };
    let dir = sandbox.dir(Controller::Memory).expect("made for it");
    let stat = StatReader::open(dir).expect("stat");
    let spec = HogSpec::new(Load::CacheChurn, 32 * MIB, PATIENCE);
    let mut hog = Hog::spawn(Path::new(HOG), Some(&sandbox.group), &spec).expect("a hog");
    hog.wait_touched(128 * MIB, PATIENCE).expect("progress");
    let stat = stat.read().expect("stat");
    assert!(stat.active_file >= Some(30 * MIB), "{stat:?}");
}

#[test]
fn names_that_are_not_there_are_reclaimable_slab() {
    let meminfo = MeminfoReader::open(Path::new("/")).expect("meminfo");
    let before = meminfo.read().expect("readable");
    let Some((usage, _)) = after(Load::Dentries) else {
        lacks!("no memory controller for a group of our own")
    };
    if usage < 16 * MIB {
        skip!(
            "{} is on a file system that forgets such names",
            std::env::temp_dir().display()
        );
    }
    let left = meminfo
        .read()
        .expect("readable")
        .slab_reclaimable
        .saturating_sub(before.slab_reclaimable);
    assert!(
        left < 16 * MIB,
        "the names must go with their folder: {left} bytes left"
    );
}

#[test]
fn churn_counts_its_forks_and_ends() {
    for load in [Load::ForkChurn, Load::SpawnChurn] {
        let spec = HogSpec {
            hold: false,
            ..HogSpec::new(load, 200, PATIENCE)
        };
        let before = forks();
        let mut hog = Hog::spawn(Path::new(HOG), None, &spec).expect("a hog");
        assert!(hog.wait(PATIENCE).expect("it ends").success());
        let progress = hog.progress().expect("readable");
        assert_eq!(progress.touched, 200);
        assert!(
            progress.started_ns < progress.latest_ns && progress.latest_ns <= progress.finished_ns,
            "{progress:?}"
        );
        let made = forks() - before;
        assert!(made >= 200, "{load}: the kernel counts {made} forks");
    }
}

/// Processes and threads made on this machine since its boot.
fn forks() -> u64 {
    let stat = fs::read_to_string("/proc/stat").expect("readable");
    let line = stat
        .lines()
        .find_map(|line| line.strip_prefix("processes "));
    line.and_then(|count| count.parse().ok()).expect("a count")
}

#[test]
fn a_storm_without_a_bound_is_refused() {
    let spec = HogSpec::new(Load::ForkStorm, 0, PATIENCE);
    let mut hog = Hog::spawn(Path::new(HOG), None, &spec).expect("a hog");
    assert_eq!(hog.wait(PATIENCE).expect("it ends").code(), Some(1));
}

#[test]
fn the_pace_is_kept_and_the_start_awaited() {
    let spec = HogSpec {
        wait: true,
        hold: false,
        ..HogSpec::new(Load::Anon, 20 * MIB, PATIENCE)
    };
    let mut hog = Hog::spawn(Path::new(HOG), None, &spec.at_rate(100 * MIB)).expect("a hog");
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(
        hog.progress().expect("readable"),
        Progress::default(),
        "it must wait"
    );
    hog.start();
    assert!(hog.wait(PATIENCE).expect("it ends").success());
    let progress = hog.progress().expect("readable");
    let took = Duration::from_nanos(progress.finished_ns - progress.started_ns);
    let range = Duration::from_millis(180)..slowed(Duration::from_secs(1));
    assert!(range.contains(&took), "20 MiB at 100 MiB/s took {took:?}");
}

#[test]
fn deadline_and_floor_end_it() {
    let mut late = {
        let spec = HogSpec::new(Load::Anon, MIB, Duration::from_millis(200));
        Hog::spawn(Path::new(HOG), None, &spec).expect("a hog")
    };
    assert!(
        late.wait(Duration::from_secs(5))
            .expect("the deadline")
            .success()
    );
    let mut careful = {
        let spec = HogSpec {
            floor: u64::MAX,
            ..HogSpec::new(Load::Anon, 64 * MIB, PATIENCE)
        };
        Hog::spawn(Path::new(HOG), None, &spec).expect("a hog")
    };
    assert!(
        careful
            .wait(Duration::from_secs(5))
            .expect("the floor")
            .success()
    );
    assert!(careful.progress().expect("readable").touched < 64 * MIB);
}

#[test]
fn an_orphan_ends() {
    let progress = std::env::temp_dir().join(format!("brink-test-orphan-{}", std::process::id()));
    let spec = HogSpec {
        progress: Some(progress.clone()),
        ..HogSpec::new(Load::Anon, MIB, PATIENCE)
    };
    let words: Vec<String> = spec
        .to_args()
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    // The shell ends at once and leaves the hog behind.
    let script = format!(
        "{HOG} {} --parent $$ >/dev/null 2>&1 & echo $!",
        words.join(" ")
    );
    let output = Command::new("sh")
        .args(["-c", &script])
        .output()
        .expect("sh");
    let pid = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let stat = format!("/proc/{pid}/stat");
    let is_gone = || match fs::read_to_string(&stat) {
        Ok(stat) if !stat.contains(") Z ") => None,
        _ => Some(()),
    };
    let gone = wait_until(Duration::from_secs(5), is_gone);
    let _ = fs::remove_file(&progress);
    assert!(gone.is_some(), "process {pid} lives on without its parent");
}
