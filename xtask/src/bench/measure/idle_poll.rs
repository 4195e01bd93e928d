//! What a poll costs when nothing happens: the rival of the agent's idle time, again the least that a poll can be.
//!
//! One thread with the guard's priority sleeps, reads /proc/meminfo, and works out what is available: no other file, no
//! workloads, no record.
use std::{path::Path, time::Duration};

use brink_host::{
    cgroup::Layout,
    clock::{monotonic_ns, thread_cpu},
    meminfo::MeminfoReader,
    probe::Wishes,
    realtime::{self, FifoPriority, Scheduling},
};
use rustix::{thread::ClockId, time::Timespec};

/// How a poll goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// By the sampler's own rule: as early as the sampler, wherever memory runs short.
    Sampler,
    /// Always the same.
    Every(Duration),
}

/// What one cost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spent {
    /// On a processor, in nanoseconds.
    pub(super) cpu: u64,
    /// From the first look to the last, in nanoseconds.
    pub(super) elapsed: u64,
    pub(super) looks: u64,
}

/// Polls for so long, in a thread of its own, with a limit of so many bytes that is never reached.
pub(super) fn run(
    layout: &Layout,
    rule: Rule,
    length: Duration,
    limit: u64,
) -> anyhow::Result<Spent> {
    let layout = layout.clone();
    let thread = std::thread::spawn(move || {
        let standing = realtime::raise_thread(Path::new("/"), &layout, FifoPriority::GUARD, true);
        let is_fifo = matches!(standing.scheduling, Scheduling::Fifo(_));
        anyhow::ensure!(is_fifo, "the poll got no real time: {standing:?}");
        poll(rule, u64::try_from(length.as_nanos())?, limit)
    });
    let spent = thread.join();
    spent.map_err(|_| anyhow::anyhow!("a poll panicked"))?
}

fn poll(rule: Rule, length: u64, limit: u64) -> anyhow::Result<Spent> {
    let file = MeminfoReader::open(Path::new("/"))?;
    let knobs = Wishes::default().knobs;
    let (began, before) = (monotonic_ns(), thread_cpu());
    let mut looks = 0;
    let mut next = began;
    while next < began + length {
        sleep_until(next)?;
        let info = file
            .read()
            .map_err(|error| anyhow::anyhow!("/proc/meminfo: {error}"))?;
        let inputs = info.memory_available_inputs();
        let used = inputs.anon + inputs.file.saturating_sub(inputs.inactive_file);
        let slack = inputs.capacity.saturating_sub(used).abs_diff(limit);
        let period = match rule {
            Rule::Sampler => knobs.period_ns(slack),
            Rule::Every(period) => u64::try_from(period.as_nanos())?,
        };
        looks += 1;
        next = (next + period).max(monotonic_ns());
    }
    let spent = thread_cpu().saturating_sub(before);
    Ok(Spent {
        cpu: u64::try_from(spent.as_nanos())?,
        elapsed: monotonic_ns() - began,
        looks,
    })
}

fn sleep_until(at: u64) -> anyhow::Result<()> {
    let at = Timespec {
        tv_sec: i64::try_from(at / 1_000_000_000)?,
        tv_nsec: i64::try_from(at % 1_000_000_000)?,
    };
    // An interrupted wait is an early look.
    let _interrupted = rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &at);
    Ok(())
}
