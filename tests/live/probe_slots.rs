//! Usage of armed cgroups: the right number or none, whatever comes and goes.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed; only the functions marked as tests are known as such"
)]

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use brink_host::probe::abi::MAX_SLOTS;
use brink_host::probe::abi::command::Terms;
use brink_host::probe::abi::sample::{
    SOURCE_SLOT_AVAILABLE, USAGE_EMPTY, USAGE_GONE, USAGE_KNOWN, USAGE_UNKNOWN, Usage, Watch,
};
use brink_host::probe::{Family, Probe, ProbeError, Refusal, Signal, Wishes};
use brink_tests::{lacks, skip};
use probe_support::{Group, MIB, sampling, signal, until};

mod probe_support;

fn usages(probe: &Probe) -> Box<[Usage; MAX_SLOTS]> {
    let mut table = Box::new([Usage::default(); MAX_SLOTS]);
    until("a quiet table", || probe.usages(&mut table));
    table
}

fn swept(probe: &mut Probe) -> Box<[Usage; MAX_SLOTS]> {
    probe.sweep().unwrap();
    usages(probe)
}

/// The kernel keeps up to 64 pages a CPU charged in advance.
fn close(a: u64, b: u64) -> bool {
    a.abs_diff(b) <= 2 * MIB
}

#[test]
fn usage_is_that_of_the_file() {
    let (mut probe, group) = match (sampling(Wishes::default()), Group::new("usage")) {
        (Ok(probe), Ok(group)) => (probe, group),
        (Err(why), _) | (_, Err(why)) => lacks!("{why}"),
    };
    group.set_limit(128 * MIB);
    let inner = group.child("inner");
    probe
        .arm_slot(0, 1, group.open().as_fd(), Terms::default())
        .unwrap();
    probe
        .arm_slot(511, 2, inner.open().as_fd(), Terms::default())
        .unwrap();
    let shared = inner.charge(64 * MIB);
    let table = swept(&mut probe);
    for (slot, generation, group) in [(0, 1, &group), (511, 2, &inner)] {
        let found = table[slot];
        assert_eq!((found.state, found.generation), (USAGE_KNOWN, generation));
        assert!(
            close(found.bytes, group.usage()),
            "{} {}",
            found.bytes,
            group.usage()
        );
        assert!(found.bytes >= 63 * MIB);
    }
    assert_eq!(table[1].state, USAGE_EMPTY);
    drop(shared);
    assert!(swept(&mut probe)[0].bytes < 8 * MIB);
}

#[test]
fn only_a_living_cgroup_can_be_armed() {
    let (mut probe, group) = match (sampling(Wishes::default()), Group::new("refused")) {
        (Ok(probe), Ok(group)) => (probe, group),
        (Err(why), _) | (_, Err(why)) => lacks!("{why}"),
    };
    let mut arm =
        |slot, file: &fs::File| match probe.arm_slot(slot, 1, file.as_fd(), Terms::default()) {
            Ok(_) => None,
            Err(ProbeError::Refused { why, .. }) => Some(why),
            Err(other) => panic!("{other}"),
        };
    let root = fs::File::open(group.path().parent().unwrap()).unwrap();
    assert_eq!(arm(0, &root), Some(Refusal::RootCgroup));
    assert_eq!(
        arm(0, &fs::File::open("/tmp").unwrap()),
        Some(Refusal::NotACgroup)
    );
    assert_eq!(
        arm(0, &fs::File::open("/dev/null").unwrap()),
        Some(Refusal::NotACgroup)
    );
    assert_eq!(arm(512, &group.open()), Some(Refusal::Invalid));
    assert_eq!(arm(0, &group.open()), None);
    let held = group.open();
    group.remove();
    let why = arm(1, &held);
    assert!(
        matches!(why, Some(Refusal::NoMemoryController | Refusal::NotACgroup)),
        "{why:?}"
    );
}

#[test]
fn removal_disarms_in_the_kernel() {
    let (mut probe, group) = match (sampling(Wishes::default()), Group::new("gone")) {
        (Ok(probe), Ok(group)) => (probe, group),
        (Err(why), _) | (_, Err(why)) => lacks!("{why}"),
    };
    let meters = probe.take_meters().unwrap();
    let terms = Terms {
        limit: 1 << 30,
        ..Terms::default()
    };
    probe.arm_slot(9, 5, group.open().as_fd(), terms).unwrap();
    probe
        .set_watches(&[Watch {
            source: SOURCE_SLOT_AVAILABLE,
            slot: 9,
            limit: 1,
        }])
        .unwrap();
    assert_eq!(swept(&mut probe)[9].state, USAGE_KNOWN);
    group.remove();
    // No sweep here: the hook itself took the number back.
    let found = usages(&probe)[9];
    assert_eq!(
        (found.state, found.bytes, found.generation),
        (USAGE_GONE, 0, 5)
    );
    assert_eq!(meters.sampler().unwrap().gone_slots, 1);
    let sample = signal(
        &mut probe,
        "the watch to become unknown",
        |found| match found {
            Signal::Crossing(record) => Some(record.sample),
            _ => None,
        },
    );
    assert_eq!((sample.unknown, sample.below, sample.values[0]), (1, 0, 0));
}

#[test]
fn a_controller_that_is_taken_away_is_unknown() {
    let (mut probe, group) = match (sampling(Wishes::default()), Group::new("taken")) {
        (Ok(probe), Ok(group)) => (probe, group),
        (Err(why), _) | (_, Err(why)) => lacks!("{why}"),
    };
    let inner = group.child("inner");
    probe
        .arm_slot(7, 3, inner.open().as_fd(), Terms::default())
        .unwrap();
    assert_eq!(swept(&mut probe)[7].state, USAGE_KNOWN);
    if !group.take_controller() {
        skip!("needs cgroup v2, where a group can lose its memory controller and stay");
    }
    let found = swept(&mut probe)[7];
    assert_eq!((found.state, found.bytes), (USAGE_UNKNOWN, 0));
}

/// A process that enters a cgroup, allocates there, and comes back; see [`worker`].
struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Worker {
    fn new() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["worker", "--exact", "--nocapture"])
            .env("BRINK_TEST_WORKER", "1")
            // Every block is mapped anew and unmapped when freed: charged where it was allocated, and gone after.
            .env("MALLOC_MMAP_THRESHOLD_", "65536")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self {
            child,
            input,
            output: BufReader::new(output),
        }
    }

    /// Charges that many bytes to the cgroup and leaves it; they stay charged until the next call.
    fn charge(&mut self, group: &Path, bytes: u64) {
        writeln!(self.input, "{} {bytes}", group.display()).unwrap();
        let mut line = String::new();
        while !line.contains("charged") {
            line.clear();
            assert!(
                self.output.read_line(&mut line).unwrap() > 0,
                "the worker ended"
            );
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

/// Not a test: the body of [`Worker`], when it is asked for by its environment.
#[test]
fn worker() {
    if std::env::var_os("BRINK_TEST_WORKER").is_none() {
        return;
    }
    let mut held = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (path, bytes) = line.rsplit_once(' ').unwrap();
        let group = Path::new(path);
        drop(std::mem::take(&mut held));
        let pid = std::process::id().to_string();
        fs::write(group.join("cgroup.procs"), &pid).unwrap();
        held = vec![1u8; bytes.parse().unwrap()];
        std::hint::black_box(&held);
        // Not into its parent, which on cgroup v2 may hold no process.
        let hierarchy = group.parent().and_then(Path::parent).unwrap();
        fs::write(hierarchy.join("cgroup.procs"), &pid).unwrap();
        println!("charged");
    }
}

/// What a generation's usage must be, as long as its cgroup lives.
struct Expected {
    least: u64,
    most: u64,
    removed: bool,
}

/// Whether the removal's hook disarms slots, or only the check of each read stands between us and freed memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Guard {
    Hook,
    CheckAlone,
}

#[test]
fn a_thousand_cgroups_a_second_never_give_a_wrong_number() {
    let (probe, group) = match (sampling(Wishes::default()), Group::new("churn")) {
        (Ok(probe), Ok(group)) => (probe, group),
        (Err(why), _) | (_, Err(why)) => lacks!("{why}"),
    };
    churn(probe, &group, Guard::Hook);
}

#[test]
fn nor_do_they_without_the_hook_that_disarms() {
    let wishes = Wishes {
        without: vec![Family::Cgroup],
        ..Wishes::default()
    };
    let (probe, group) = match (sampling(wishes), Group::new("checks")) {
        (Ok(probe), Ok(group)) => (probe, group),
        (Err(why), _) | (_, Err(why)) => lacks!("{why}"),
    };
    churn(probe, &group, Guard::CheckAlone);
}

/// Makes and removes cgroups, a quarter of them armed when they are removed, and checks every number shown.
fn churn(mut probe: Probe, group: &Group, guard: Guard) {
    const CGROUPS: u32 = 4_000;
    let tainted = fs::read_to_string("/proc/sys/kernel/tainted").unwrap();
    let meters = probe.take_meters().unwrap();
    // Made so that what is made in it has a memory controller of its own.
    drop(group.child("first"));
    let mut armed = Armed {
        guard,
        expected: HashMap::new(),
        alive: HashMap::new(),
    };
    let mut worker = Worker::new();
    let began = Instant::now();
    let (mut known, mut gone) = (0, 0);
    for number in 1..=CGROUPS {
        let path = group.path().join(number.to_string());
        fs::create_dir(&path).unwrap();
        if number % 4 != 0 {
            fs::remove_dir(&path).unwrap();
            continue;
        }
        // One in sixteen holds memory, so that a stale address would find a wrong number and not only zero.
        let bytes = if number % 16 == 0 {
            u64::from(number % 7 + 2) * MIB
        } else {
            0
        };
        if bytes > 0 {
            worker.charge(&path, bytes);
        }
        gone += u32::from(armed.replace(&mut probe, number, path, bytes));
        // The first too: before a look at all nothing is known.
        if number % 32 == 4 || guard == Guard::CheckAlone {
            probe.sweep().unwrap();
        }
        known += armed.check(&probe, number);
    }
    let rate = f64::from(CGROUPS) / began.elapsed().as_secs_f64();
    for (_, path) in armed.alive.values() {
        fs::remove_dir(path).unwrap();
    }
    println!("{rate:.0} cgroups a second; {known} numbers checked, {gone} removals seen");
    assert!(known > 1_000 && gone == CGROUPS / 4 - 60, "{known} {gone}");
    let disarmed = if guard == Guard::Hook {
        u64::from(CGROUPS / 4)
    } else {
        0
    };
    assert_eq!(meters.sampler().unwrap().gone_slots, disarmed);
    assert_eq!(
        fs::read_to_string("/proc/sys/kernel/tainted").unwrap(),
        tainted
    );
}

/// What is armed, and what each number may be.
struct Armed {
    guard: Guard,
    /// by generation
    expected: HashMap<u32, Expected>,
    /// generation and folder, by slot
    alive: HashMap<u32, (u32, PathBuf)>,
}

impl Armed {
    /// Arms a cgroup, in place of the one that had the slot, which is removed first. True if that one showed no number
    /// any more.
    fn replace(&mut self, probe: &mut Probe, generation: u32, path: PathBuf, bytes: u64) -> bool {
        let slot = generation / 4 % 60;
        let mut gone = false;
        if let Some((former, path)) = self.alive.remove(&slot) {
            fs::remove_dir(path).unwrap();
            self.expected.get_mut(&former).unwrap().removed = true;
            gone = told_gone(probe, slot, self.guard);
        }
        let handle = fs::File::open(&path).unwrap();
        probe
            .arm_slot(slot, generation, handle.as_fd(), Terms::default())
            .unwrap();
        let (least, most) = if bytes == 0 {
            (0, MIB)
        } else {
            (bytes - MIB, bytes + 2 * MIB)
        };
        self.expected.insert(
            generation,
            Expected {
                least,
                most,
                removed: false,
            },
        );
        self.alive.insert(slot, (generation, path));
        gone
    }

    /// Checks every number of the table, and says how many there were.
    fn check(&self, probe: &Probe, latest: u32) -> u32 {
        let mut known = 0;
        for usage in usages(probe)
            .iter()
            .filter(|usage| usage.state == USAGE_KNOWN)
        {
            let bounds = &self.expected[&usage.generation];
            assert!(!bounds.removed, "a number of a removed cgroup: {usage:?}");
            // What the worker held in an earlier group was freed when it charged this one.
            let least = if usage.generation == latest {
                bounds.least
            } else {
                0
            };
            assert!((least..=bounds.most).contains(&usage.bytes), "{usage:?}");
            known += 1;
        }
        known
    }
}

/// Whether the slot of a cgroup just removed shows no number: at once by the hook, at the next read by the check.
fn told_gone(probe: &mut Probe, slot: u32, guard: Guard) -> bool {
    let state = match guard {
        Guard::Hook => USAGE_GONE,
        Guard::CheckAlone => {
            probe.sweep().unwrap();
            USAGE_UNKNOWN
        }
    };
    let found = usages(probe)[slot as usize];
    (found.state, found.bytes) == (state, 0)
}
