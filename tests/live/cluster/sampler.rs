//! A crossing as it is seen from outside, whoever acts on it: when too little was available, and when the victim was gone.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use brink_host::cgroup::stat::StatReader;
use brink_host::cgroup::usage::UsageReader;
use brink_host::cgroup::{CgroupDir, Controller, Layout};
use brink_host::clock::monotonic_ns;
use brink_host::realtime::{FifoPriority, raise_thread};

use crate::kubelet::pods_limit;
use crate::support::PODS;

/// Between two looks, each of which takes some ten microseconds.
const PERIOD: Duration = Duration::from_micros(500);
/// Ahead of whoever takes memory, and far behind Brink.
const PRIORITY: FifoPriority = FifoPriority::new(1).unwrap();

/// What was seen. Times are nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    /// When less was available than the threshold, by the last look before and the first one after. Of a crossing that was over between
    /// two looks, that of the two at which less was available: no later than it was.
    pub(crate) crossed: u64,
    /// So far apart these two were.
    pub(crate) between: u64,
    /// The latest look at which less was available.
    pub(crate) short_until: u64,
    /// When nobody was left in the groups of who had to go.
    pub(crate) gone: Option<u64>,
    /// What was taken at the most, in bytes.
    pub(crate) held: u64,
}

impl Seen {
    /// In between, memory was taken evenly.
    fn between(before: Look, after: Look, threshold: u64) -> Self {
        let between = after.at - before.at;
        let room = before.available.saturating_sub(threshold);
        let taken = before.available.saturating_sub(after.available).max(1);
        let part = u128::from(between) * u128::from(room) / u128::from(taken);
        Self {
            crossed: before.at + u64::try_from(part).unwrap().min(between),
            between,
            short_until: after.at,
            gone: None,
            held: 0,
        }
    }
}

/// What is available in the group of all pods, by the kubelet's formula.
struct Memory {
    limit: u64,
    usage: UsageReader,
    stat: StatReader,
}

/// One look at it.
#[derive(Debug, Clone, Copy)]
struct Look {
    at: u64,
    available: u64,
}

impl Memory {
    fn of_pods(layout: &Layout) -> Self {
        let hierarchy = layout.require(Controller::Memory).unwrap();
        let group = CgroupDir::open(hierarchy, PODS).unwrap();
        Self {
            limit: pods_limit(),
            usage: UsageReader::open(&group).unwrap(),
            stat: StatReader::open(&group).unwrap(),
        }
    }

    fn look(&self) -> Look {
        let at = monotonic_ns();
        let usage = self.usage.read().unwrap();
        let working_set = self.stat.read().unwrap().working_set(usage).unwrap();
        Look {
            at,
            available: self.limit.saturating_sub(working_set),
        }
    }
}

/// Looks on, by a thread of its own, until nobody is left in these groups after a crossing, or for so long. Without a crossing
/// there is nothing to tell.
pub(crate) fn look_on(
    threshold: u64,
    groups: &[PathBuf],
    longest: Duration,
) -> JoinHandle<Option<Seen>> {
    let layout = Layout::detect(Path::new("/")).unwrap();
    let memory = Memory::of_pods(&layout);
    let available = memory.look().available;
    assert!(
        available >= threshold,
        "short before anybody takes anything: {available} of {threshold}"
    );
    let groups = groups.to_vec();
    thread::spawn(move || {
        raise_thread(Path::new("/"), &layout, PRIORITY, true);
        watch(&memory, threshold, &groups, longest)
    })
}

fn watch(memory: &Memory, threshold: u64, groups: &[PathBuf], longest: Duration) -> Option<Seen> {
    let end = Instant::now() + longest;
    let mut last = memory.look();
    let first = last.available;
    let (mut lowest, mut after) = (last, last.at);
    let mut seen: Option<Seen> = None;
    while Instant::now() < end {
        sleep(PERIOD);
        let now = memory.look();
        if last.available <= lowest.available {
            after = now.at;
        }
        if now.available < lowest.available {
            lowest = now;
        }
        if now.available < threshold {
            let seen = seen.get_or_insert_with(|| Seen::between(last, now, threshold));
            seen.short_until = now.at;
        }
        let is_gone = groups.iter().all(|group| is_empty(group));
        if is_gone {
            seen = seen.or(Some(Seen {
                crossed: lowest.at,
                between: after - lowest.at,
                short_until: lowest.at,
                gone: None,
                held: 0,
            }));
        }
        if let Some(seen) = &mut seen {
            seen.held = first.saturating_sub(lowest.available);
            if is_gone {
                seen.gone = Some(monotonic_ns());
                break;
            }
        }
        last = now;
    }
    seen
}

/// Whether nobody is in a group that is there, or was.
fn is_empty(group: &Path) -> bool {
    let members = fs::read_to_string(group.join("cgroup.procs"));
    members.unwrap_or_default().is_empty()
}
