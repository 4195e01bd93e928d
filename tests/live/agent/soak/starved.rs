//! A guard whose processor is taken by a real-time task of higher priority, again and again and never for long.

use std::fs;
use std::ops::Range;
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use brink_host::hog::{HogSpec, Load};
use brink_host::realtime::{FifoPriority, set_fifo};
use brink_tests::{in_guest, lacks, slowed};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::scene::Scene;
use super::truth::now;
use crate::support::{MIB, gone_after};

/// Above the guard's 49, and the kernel's own interrupt threads.
const ABOVE: u8 = 60;
/// How long the processor is taken, where processors are emulated longer. The kernel itself gives ordinary tasks 50 ms of each
/// second.
const BURST: [Duration; 2] = [Duration::from_millis(150), Duration::from_millis(700)];
/// From the end of a burst to the victim's end: far from a second look at anything. How fast it is, benchmarks say.
const AT_ONCE: Duration = Duration::from_secs(1);
/// So many crossings have to come while the guard cannot run, in so many bursts.
const WANTED: u32 = 2;
const ATTEMPTS: usize = 12;
/// Just above the hard threshold, and what takes the node below it, in MiB.
const BASE: u64 = 370;
const REST: u64 = 60;

/// The guard bound to one processor, until this is dropped.
pub(super) struct Bound {
    thread: Pid,
    before: CpuSet,
    processor: usize,
}

impl Bound {
    /// Binds the guard of an agent to the last processor that it may use.
    pub(super) fn guard_of(pid: u32) -> Self {
        let is_guard = |tid: &String| {
            let name = fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm"));
            name.is_ok_and(|name| name.trim() == "brink-guard")
        };
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let tasks = tasks.map(|task| task.unwrap().file_name().into_string().unwrap());
        let thread = tasks.into_iter().find(is_guard).expect("a guard");
        let thread = Pid::from_raw(thread.parse().unwrap()).unwrap();
        let before = sched_getaffinity(Some(thread)).unwrap();
        let processor = (0..CpuSet::MAX_CPU)
            .rfind(|&cpu| before.is_set(cpu))
            .unwrap();
        bind(Some(thread), processor);
        Self {
            thread,
            before,
            processor,
        }
    }

    /// Takes its processor for a while, or says why that cannot be done here.
    /// The thread's result is when it had the processor.
    pub(super) fn starve(&self, burst: Duration) -> Result<JoinHandle<Range<i64>>, String> {
        let processor = self.processor;
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            bind(None, processor);
            let raised = set_fifo(FifoPriority::new(ABOVE).unwrap());
            let is_raised = raised.is_ok();
            let (began, until) = (now(), Instant::now() + burst);
            ready.send(raised).unwrap();
            while is_raised && Instant::now() < until {
                std::hint::spin_loop();
            }
            began..now()
        });
        match is_ready.recv().unwrap() {
            Ok(()) => Ok(thread),
            Err(errno) => Err(format!("SCHED_FIFO {ABOVE} is refused: {errno}")),
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // The agent may have ended.
        let _ = sched_setaffinity(Some(self.thread), &self.before);
    }
}

fn bind(thread: Option<Pid>, processor: usize) {
    let mut only = CpuSet::new();
    only.set(processor);
    sched_setaffinity(thread, &only).unwrap();
}

/// A crossing while the guard cannot run is acted on as soon as it can, or why there can be none here. Whether the crossing came
/// in time for that: by the witness's own look at the files.
pub(super) fn leak_beside_a_burst(scene: &mut Scene, guard: &Bound) -> Result<bool, String> {
    let base = scene.node.holding(scene.leaker, BASE);
    let mut spec = HogSpec::new(Load::Anon, REST * MIB, Duration::from_mins(1));
    spec.wait = true;
    let mut rest = scene.node.hog(scene.leaker, &spec);
    let since = now();
    let burst = guard.starve(BURST[usize::from(in_guest())])?;
    rest.start();
    let burst = burst.join().expect("it only spins");
    scene.excuse(since, now());
    let took = gone_after(&base);
    assert!(took < slowed(AT_ONCE), "{took:?} after the burst");
    gone_after(&rest);
    let record = scene.next_record();
    assert!(record.threshold.hard, "{record:#?}");
    let crossed = scene.truth.first_since(burst.start);
    let decided = record.decided.monotonic_ns;
    println!("burst {burst:?}, crossed {crossed:?}, decided {decided}");
    // Its processor was somebody else's all the time, or the burst has shown nothing.
    assert!(!burst.contains(&decided), "it was not starved: {record:#?}");
    scene.audit(&["test/leaker"]);
    Ok(crossed.is_some_and(|at| burst.contains(&at)))
}

#[test]
fn a_guard_that_was_starved_acts_as_soon_as_it_runs() {
    let mut scene = Scene::begin_with_rare_passes();
    let guard = Bound::guard_of(scene.pid);
    let mut in_time = 0;
    for _ in 0..ATTEMPTS {
        match leak_beside_a_burst(&mut scene, &guard) {
            Ok(is_in_time) => in_time += u32::from(is_in_time),
            Err(why) => lacks!("{why}"),
        }
        if in_time == WANTED {
            break;
        }
        sleep(Duration::from_millis(200));
    }
    assert_eq!(in_time, WANTED, "crossings while the guard could not run");
    drop(guard);
    scene.close();
}
