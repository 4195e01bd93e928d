//! An agent that is killed with -9 and started again: it acts at once, kills nobody twice, and nothing of it stays.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::support::{MIB, Node, PATIENCE, gone_after, lives};
use brink::control::protocol::{Answer, Question};
use brink_host::cgroup::Controller;
use brink_host::cgroup::usage::UsageReader;
use brink_host::hog::Load;
use brink_host::realtime::{self, FifoPriority};
use brink_tests::bpf_ids::{held, loaded};
use brink_tests::{Hog, in_guest, lacks, report_left_out, skip, slowed, wait_until};
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};

const HARD: &str = "evictionHard: {memory.available: 60Mi}";
/// From the start of the program to the first signal. `cargo xtask bench start` holds a release to it at the tail; here
/// others may have the processors, and the build is not optimised: the quickest start must do.
const AT_ONCE: Duration = Duration::from_millis(50);
const RESTARTS: u64 = 9;

fn monotonic_ns() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

#[test]
fn a_crossing_that_still_holds_is_acted_on_at_once_after_a_kill_of_the_agent() {
    let mut node = Node::new(300);
    let leaker = node.workload("leaker", "containers: [{name: c}]");
    let mut took = Vec::new();
    for round in 1..=RESTARTS {
        node.configure("observe", HARD);
        node.start(&[]);
        let leak = node.holding(leaker, 260);
        let observed = wait_until(PATIENCE, || {
            node.decisions()
                .pop()
                .filter(|record| record.order == 2 * round - 1)
        });
        assert!(observed.is_some(), "{}", node.log());
        node.stop(Signal::KILL);
        node.configure("enforce", HARD);
        let began = monotonic_ns();
        node.launch(&[]);
        gone_after(&leak);
        wait_until(PATIENCE, || node.status()).unwrap();
        let record = node.finished(2 * round);
        assert_eq!(record.mode, "enforcing");
        let mut stages = record.stages.iter();
        let signal = stages.find(|stage| stage.stage == "firstSignal").unwrap();
        let late = u64::try_from(signal.at.monotonic_ns - began).unwrap();
        took.push(Duration::from_nanos(late));
        node.stop(Signal::TERM);
    }
    took.sort_unstable();
    println!("{took:?}");
    assert!(took[0] < slowed(AT_ONCE), "{took:?}");
    assert!(took[took.len() - 1] < slowed(10 * AT_ONCE), "{took:?}");
}

/// Whether SIGKILL is on its way to a process, or has arrived.
fn is_dying(hog: &Hog) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", hog.pid())).unwrap_or_default();
    let pending = |line: &str| {
        let set = line
            .strip_prefix("ShdPnd:")
            .or(line.strip_prefix("SigPnd:"));
        let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
        set.is_some_and(|set| set & 1 << 8 != 0)
    };
    status.lines().any(pending) || !lives(hog)
}

/// Keeps the shared memory of hogs alive, and lets go of one after the other from a moment on.
struct Kept {
    memory: Vec<File>,
}

/// The engine believes in a death that gives something back every 200 ms.
const PACE: Duration = Duration::from_millis(60);
/// Where nothing comes back for so long, because others have the processors, nothing more is believed to.
const STALL: Duration = Duration::from_millis(150);
/// Times that a machine is given another chance, as long as a stall explains what was seen.
const ATTEMPTS: usize = 4;

impl Kept {
    fn of(hogs: &[Hog]) -> Self {
        let is_memory = |path: &PathBuf| {
            let target = fs::read_link(path).unwrap_or_default();
            target.to_string_lossy().starts_with("/memfd:brink-hog")
        };
        let of_one = |hog: &Hog| {
            let entries = fs::read_dir(format!("/proc/{}/fd", hog.pid())).unwrap();
            let mut paths = entries.flatten().map(|entry| entry.path());
            File::open(paths.find(is_memory).unwrap()).unwrap()
        };
        let memory = hogs.iter().map(of_one).collect();
        Self { memory }
    }

    /// The thread's result is since when they were dying, and when it had let go of each.
    fn let_go(self, dying: i64) -> JoinHandle<Vec<i64>> {
        thread::spawn(move || {
            let mut times = vec![dying];
            for memory in self.memory {
                thread::sleep(PACE);
                drop(memory);
                times.push(monotonic_ns());
            }
            times
        })
    }
}

/// How long nothing had come back when an order was decided, if that explains it. What comes back is seen a little later.
fn stall_before(decided: i64, released: &[i64]) -> Option<Duration> {
    let seen = i64::try_from(slowed(PACE).as_nanos()).unwrap();
    let pairs = released.windows(2).map(|pair| (pair[0], pair[1]));
    let around = pairs.filter(|(since, until)| (*since..until + seen).contains(&decided));
    let lengths = around.map(|(since, until)| u64::try_from(decided.min(until) - since).unwrap());
    let longest = lengths.max().map(Duration::from_nanos);
    longest.filter(|stall| *stall > STALL)
}

#[test]
fn only_a_stall_before_it_explains_a_second_order() {
    let ms = |ms: i64| ms * 1_000_000;
    // Three at the pace, a stall, and one at the pace again.
    let released = [0, 60, 120, 420, 480].map(ms);
    let check = |decided: i64, expected: Option<u64>| {
        let found = stall_before(ms(decided), &released);
        assert_eq!(found, expected.map(Duration::from_millis), "{decided}");
    };
    check(-1, None);
    check(100, None);
    check(200, None);
    check(300, Some(180));
    check(430, Some(300));
    check(100_000, None);
}

/// What those held who go first comes back slowly. Neither they nor the next in the ranking are killed again for what is on
/// its way back already.
#[test]
fn nobody_is_killed_twice_for_one_cause() {
    killed_once("evictionHard: {memory.available: 560Mi}");
}

/// The same where they were asked to end before, and did not listen.
#[test]
fn nobody_is_killed_twice_for_one_cause_after_a_soft_order() {
    killed_once(
        "evictionHard: {memory.available: 20Mi}\nevictionSoft: {memory.available: 560Mi}\nevictionSoftGracePeriod: {memory.available: 200ms}\nevictionMaxPodGracePeriod: 1",
    );
}

fn killed_once(settings: &'static str) {
    // Each on a thread of its own, which gets real time for the moment of the kill.
    let on_a_thread = thread::spawn(|| realtime::set_fifo(FifoPriority::GUARD));
    if let Err(error) = on_a_thread.join().unwrap() {
        lacks!("needs real time: {error}");
    }
    let mut stalls = Vec::new();
    for _ in 0..ATTEMPTS {
        match thread::spawn(|| attempt(settings)).join() {
            Ok(Ok(())) => {
                if !stalls.is_empty() {
                    report_left_out(&format!(
                        "ends of an agent after which memory stopped coming back, and a second order was given: {stalls:?}"
                    ));
                }
                return;
            }
            Err(panic) => resume_unwind(panic),
            Ok(Err(stall)) => stalls.push(stall),
        }
    }
    let shown = format!("each time memory stopped coming back before a second order: {stalls:?}");
    assert!(
        !in_guest(),
        "{shown}: a guest is alone, and nothing was shown"
    );
    skip!("{shown}: that explains it");
}

/// One such end of an agent. An error is the stall that explains a second order, and whom that named; one without fails.
fn attempt(settings: &str) -> Result<(), (Duration, Vec<String>)> {
    let mut node = Node::new(700);
    let leaker = node.workload("leaker", "containers: [{name: c}]");
    let next = node.workload("next", "containers: [{name: c}]");
    node.configure("enforce", settings);
    let next = node.holding(next, 60);
    node.start(&[]);
    assert!(matches!(
        node.ask(&Question::Pause { seconds: None }),
        Ok(Answer::Mode(_))
    ));
    let leaks: Vec<Hog> = (0..25)
        .map(|_| node.deaf(leaker, Load::Shmem, 20))
        .collect();
    let kept = Kept::of(&leaks);
    // Or this thread would come too late to end the agent.
    realtime::set_fifo(FifoPriority::GUARD).unwrap();
    node.resumed();
    let dying = wait_until(PATIENCE, || leaks.iter().all(is_dying).then_some(()));
    let since = monotonic_ns();
    node.stop(Signal::KILL);
    let released = kept.let_go(since);
    assert!(dying.is_some(), "{}", node.log());
    let began = monotonic_ns();
    node.launch(&[]);
    wait_until(PATIENCE, || node.status()).unwrap();
    let group = node.groups[leaker].dir(&node.sandbox.layout, Controller::Memory);
    let left = UsageReader::open(group.unwrap()).unwrap().read().unwrap();
    assert!(left > 100 * MIB, "{left} bytes are left: no cause any more");
    for leak in &leaks {
        gone_after(leak);
    }
    let released = released.join().unwrap();
    thread::sleep(Duration::from_millis(300));
    let records = node.decisions();
    let orders: Vec<_> = records
        .iter()
        .filter(|record| record.mode == "enforcing")
        .collect();
    let told: Vec<_> = orders
        .iter()
        .map(|record| {
            (
                record.victim_name(),
                (record.decided.monotonic_ns - began) / 1_000_000,
                record.threshold.available >> 20,
                record.freed_bytes >> 20,
                &record.end,
            )
        })
        .collect();
    println!("{left} bytes were left: {told:?}");
    if lives(&next) && told.len() == 1 {
        return Ok(());
    }
    let more = orders.iter().skip(1);
    let stalls: Vec<_> = more
        .map(|record| stall_before(record.decided.monotonic_ns, &released))
        .collect();
    match stalls.first() {
        Some(Some(stall)) if stalls.iter().all(Option::is_some) => {
            let more = orders.iter().skip(1);
            let names = more.map(|record| record.victim_name());
            Err((*stall, names.collect()))
        }
        _ => panic!("{told:?}, explained by stalls: {stalls:?}\n{}", node.log()),
    }
}

/// Groups at the roots of the hierarchies and in the node.
fn groups(node: &Node) -> BTreeSet<PathBuf> {
    let entrances = node.sandbox.group.entrances();
    let folders = entrances.iter().filter_map(|entrance| entrance.parent());
    let folders = folders.flat_map(|folder| [Some(folder), folder.parent()]);
    let entries = folders
        .flatten()
        .flat_map(|folder| fs::read_dir(folder).unwrap().flatten());
    let groups = entries.filter(|entry| entry.file_type().unwrap().is_dir());
    groups.map(|entry| entry.path()).collect()
}

#[test]
fn nothing_stays_of_an_agent_that_was_killed() {
    let mut node = Node::new(300);
    let leaker = node.workload("leaker", "containers: [{name: c}]");
    node.configure("enforce", HARD);
    let before = groups(&node);
    for round in 1..=2 {
        let status = node.start(&[]);
        let held = held(status.pid).unwrap();
        if held.is_empty() {
            lacks!("no kernel program runs here: {:?}", status.rung_reasons);
        }
        let count = |wanted: &str| held.iter().filter(|(kind, _)| *kind == wanted).count();
        for kind in ["program", "map", "link"] {
            assert!(count(kind) > 10, "{kind}: {held:?}");
        }
        let is_loaded_whole = loaded().is_superset(&held);
        gone_after(&node.load(leaker, Load::Anon, 280 * MIB));
        node.finished(round);
        node.stop(Signal::KILL);
        // Or an empty answer below would say nothing.
        assert!(is_loaded_whole, "{held:?}");
        // They go a grace period after their last descriptor.
        let gone = wait_until(PATIENCE, || loaded().is_disjoint(&held).then_some(()));
        let left: Vec<_> = loaded().intersection(&held).copied().collect();
        assert!(gone.is_some(), "{left:?}");
        assert_eq!(groups(&node), before);
    }
}
