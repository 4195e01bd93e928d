//! An independent witness: the node's own files, read all the time for when memory was short, and in the end for the kernel's kills.

use std::fs;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, panicking, sleep};
use std::time::Duration;

use brink_host::cgroup::events::MemoryEvents;
use brink_host::cgroup::stat::StatReader;
use brink_host::cgroup::usage::UsageReader;
use brink_host::cgroup::{CgroupDir, Controller, Version};
use brink_host::clock;
use brink_host::hog::{HogSpec, Load};
use brink_tests::{Hog, Sandbox, lacks, slowed, wait_until};

use crate::support::PATIENCE;

/// Between two readings.
const PACE: Duration = Duration::from_millis(2);
/// A shortage that lasts so long must have been acted on, or the reason told. With as long a gap between two readings nobody
/// knows what was in between: so no gap alone makes such a shortage, and readings that are nearer to each other show it.
pub(super) const ANSWER: Duration = Duration::from_millis(100);

/// A time in which every reading was below the limit. `CLOCK_MONOTONIC`, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Short {
    /// When it was seen first and last: it lasted as long at the least.
    pub(super) since: i64,
    pub(super) until: i64,
    /// The reading before it and the one that ended it: it lasted no longer than from the one to the other.
    pub(super) before: i64,
    pub(super) after: i64,
}

impl Short {
    /// Whether nobody looked for too long at its begin or its end, so that it may have lasted long and not been seen to.
    pub(super) fn is_vague(&self) -> bool {
        let gaps = [self.since - self.before, self.after - self.until];
        gaps.into_iter().any(|gap| gap >= answer())
    }
}

/// What was seen so far.
#[derive(Debug, Default)]
struct Seen {
    open: Option<Short>,
    over: Vec<Short>,
    /// When the last reading began.
    looked: Option<i64>,
}

/// The running witness.
pub(super) struct Truth {
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<Seen>>,
    thread: Option<JoinHandle<()>>,
    /// The node's folder in the memory hierarchy, and the file there that counts the kernel's kills.
    node: PathBuf,
    counts: &'static str,
}

/// Now, on the clock of all records.
pub(super) fn now() -> i64 {
    i64::try_from(clock::monotonic_ns()).unwrap()
}

/// [`ANSWER`] as this machine takes it, in nanoseconds.
pub(super) fn answer() -> i64 {
    i64::try_from(slowed(ANSWER).as_nanos()).unwrap()
}

impl Truth {
    /// Watches what is left of `limit` bytes in the node, with everything reclaim could give back, against `quantity`.
    pub(super) fn watch(sandbox: &Sandbox, limit: u64, quantity: u64) -> Self {
        let dir = sandbox.dir(Controller::Memory).unwrap();
        let mut left = Left::open(dir, limit);
        let (stop, seen) = (Arc::default(), Arc::<Mutex<Seen>>::default());
        let (stopped, kept): (Arc<AtomicBool>, _) = (Arc::clone(&stop), Arc::clone(&seen));
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let begin = now();
                let is_short = left.read() < quantity;
                kept.lock().unwrap().note(is_short, (begin, now()));
                sleep(PACE);
            }
        });
        Self {
            stop,
            seen,
            thread: Some(thread),
            node: dir.path().to_path_buf(),
            counts: match dir.version() {
                Version::V1 => "memory.oom_control",
                Version::V2 => "memory.events",
            },
        }
    }

    /// The node's cgroups in which the kernel's own killer has killed, and how many.
    pub(super) fn kernel_kills(&self) -> Vec<(PathBuf, u64)> {
        kernel_kills(&self.node, self.counts)
    }

    /// When memory was first seen short, at that moment or later; of what was not taken yet.
    pub(super) fn first_since(&self, at: i64) -> Option<i64> {
        let seen = self.seen.lock().unwrap();
        let all = seen.over.iter().chain(&seen.open);
        all.map(|short| short.since).find(|since| *since >= at)
    }

    /// What was seen since this was asked last; of a shortage that lasts, the part until now.
    #[track_caller]
    pub(super) fn take(&self) -> Vec<Short> {
        assert_eq!(self.looks_again(), Ok(()));
        self.seen.lock().unwrap().take()
    }

    /// Waits for a reading that begins from now on: one that is dead has seen nothing, and says nothing of that itself.
    fn looks_again(&self) -> Result<(), &'static str> {
        let asked = now();
        let is_dead = || self.thread.as_ref().is_none_or(JoinHandle::is_finished);
        let has_looked = || self.seen.lock().unwrap().looked >= Some(asked);
        let looks = wait_until(PATIENCE, || (is_dead() || has_looked()).then_some(()));
        match looks {
            Some(()) if is_dead() => Err("the witness is dead"),
            Some(()) => Ok(()),
            None => Err("the witness has not looked again"),
        }
    }
}

impl Drop for Truth {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // It has seen less than the test believes; where that is failing already, one panic is enough.
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join)
            && !panicking()
        {
            resume_unwind(panic);
        }
    }
}

impl Seen {
    /// Notes a reading, with when it began and when it was over: it was so at some moment between the two.
    fn note(&mut self, is_short: bool, (begin, end): (i64, i64)) {
        let before = self.looked.replace(begin).unwrap_or(begin);
        if let Some(mut open) = self.open.take() {
            open.after = end;
            if is_short && end - open.until < answer() {
                open.until = begin;
                self.open = Some(open);
                return;
            }
            self.over.push(open);
        }
        self.open = is_short.then_some(Short {
            since: end,
            until: end,
            before,
            after: end,
        });
    }

    fn take(&mut self) -> Vec<Short> {
        let over = std::mem::take(&mut self.over).into_iter();
        over.chain(self.open.take()).collect()
    }
}

/// The cgroups from here down with a count of kills. All of them: on v1 each has its own alone. One that goes meanwhile takes its
/// count along.
fn kernel_kills(group: &Path, counts: &str) -> Vec<(PathBuf, u64)> {
    let events = fs::read(group.join(counts)).unwrap_or_default();
    let killed = MemoryEvents::parse(&events).unwrap().oom_kill;
    let own = killed.filter(|killed| *killed > 0);
    let own = own.map(|killed| (group.to_path_buf(), killed));
    let below = fs::read_dir(group).into_iter().flatten().flatten();
    let below = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let below = below.flat_map(|entry| kernel_kills(&entry.path(), counts));
    own.into_iter().chain(below).collect()
}

/// What could still be had without anybody's death, by the files alone.
struct Left {
    limit: u64,
    usage: UsageReader,
    stat: StatReader,
}

impl Left {
    fn open(dir: &CgroupDir, limit: u64) -> Self {
        Self {
            limit,
            usage: UsageReader::open(dir).unwrap(),
            stat: StatReader::open(dir).unwrap(),
        }
    }

    fn read(&mut self) -> u64 {
        let (usage, stat) = (self.usage.read().unwrap(), self.stat.read().unwrap());
        let parts = [stat.active_file, stat.inactive_file, stat.slab_reclaimable];
        let reclaimable: u64 = parts.into_iter().flatten().sum();
        self.limit.saturating_sub(usage).saturating_add(reclaimable)
    }
}

#[test]
fn readings_become_times() {
    let mut seen = Seen::default();
    let ms = |at: i64| at * 1_000_000;
    let far = 10 + i64::try_from(slowed(2 * ANSWER).as_millis()).unwrap();
    for (at, is_short) in [
        (0, false),
        (2, true),
        (4, true),
        (6, false),
        (8, false),
        (10, true),
        // After a gap in which nobody looked, however slow the machine.
        (far, true),
    ] {
        seen.note(is_short, (ms(at), ms(at)));
    }
    let short = |[before, since, until, after]: [i64; 4]| Short {
        since: ms(since),
        until: ms(until),
        before: ms(before),
        after: ms(after),
    };
    let expected = [[0, 2, 4, 6], [8, 10, 10, far], [10, far, far, far]].map(short);
    assert_eq!(seen.looked, Some(ms(far)));
    let taken = seen.take();
    assert_eq!(taken, expected);
    let vague: Vec<bool> = taken.iter().map(Short::is_vague).collect();
    assert_eq!(vague, [false, true, true], "beside the gap");
    assert!(seen.take().is_empty());
}

/// A witness that looks seldom sees less of a shortage than there was, and never more.
#[test]
fn a_shortage_that_holds_is_seen_to_by_readings_that_are_far_apart() {
    let apart = answer() * 9 / 10;
    let mut seen = Seen::default();
    for (look, is_short) in (1_i64..).zip([false, true, true, true, false]) {
        let begin = look * apart;
        seen.note(is_short, (begin, begin + apart / 10));
    }
    let [short]: [Short; 1] = seen.take().try_into().unwrap();
    assert_eq!(short.since, 2 * apart + apart / 10, "the end of a reading");
    assert_eq!(short.until, 4 * apart, "the begin of one");
    assert!(short.until - short.since > answer(), "{short:?}");
    assert!(!short.is_vague(), "{short:?}");
}

#[test]
fn a_witness_that_is_dead_is_found_out() {
    let truth = Truth {
        stop: Arc::default(),
        seen: Arc::default(),
        thread: Some(std::thread::spawn(|| {})),
        node: PathBuf::new(),
        counts: "",
    };
    assert_eq!(truth.looks_again(), Err("the witness is dead"));
}

#[test]
fn kills_by_the_kernel_are_counted_in_every_group_of_the_node() {
    let folder = tempfile::tempdir().unwrap();
    let node = folder.path();
    let pod = node.join("pod");
    let inner = pod.join("c");
    for (group, counts) in [
        (node, "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n"),
        (
            pod.as_path(),
            "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
        ),
        (inner.as_path(), "oom_kill 1\n"),
    ] {
        fs::create_dir_all(group).unwrap();
        fs::write(group.join("memory.oom_control"), counts).unwrap();
    }
    let found = kernel_kills(node, "memory.oom_control");
    assert_eq!(found, [(pod, 2), (inner, 1)]);
    assert!(kernel_kills(node, "memory.events").is_empty());
}

/// By the real files: the witness sees what no agent tells it.
#[test]
fn a_kill_by_the_kernel_in_a_workload_does_not_escape_the_witness() {
    let sandbox = match Sandbox::new(&[Controller::Memory], 256 << 20) {
        Ok(sandbox) => sandbox,
        Err(error) => lacks!("{error}"),
    };
    let truth = Truth::watch(&sandbox, 256 << 20, 0);
    let pod = sandbox.group.child("pod").unwrap();
    pod.limit_memory(&sandbox.layout, 24 << 20).unwrap();
    assert!(truth.kernel_kills().is_empty());
    let spec = HogSpec::new(Load::Anon, 48 << 20, PATIENCE);
    let program = Path::new(env!("CARGO_BIN_EXE_brink-hog"));
    let mut hog = Hog::spawn(program, Some(&pod), &spec).unwrap();
    assert!(!hog.wait(PATIENCE).unwrap().success(), "the limit ends it");
    let dir = pod.dir(&sandbox.layout, Controller::Memory).unwrap();
    let own = (dir.path().to_path_buf(), 1);
    let found = truth.kernel_kills();
    assert!(found.contains(&own), "{found:?}");
}
