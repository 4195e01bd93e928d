//! The polls that Brink is compared with: the least a user-space poll can be, which favours it.
//!
//! A poll reads the same files by the same formula, knows its victim beforehand, and does nothing but SIGKILL it: no
//! ranking, no record, no other thresholds.
use std::{
    os::fd::OwnedFd,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use anyhow::Context as _;
use brink::guard::{self, files::NodeFiles};
use brink_host::{
    cgroup::Layout,
    clock::monotonic_ns,
    realtime::{self, FifoPriority, Scheduling},
};
use rustix::{
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
    thread::ClockId,
    time::Timespec,
};

/// How a poll is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pace {
    /// From one look to the next.
    pub(super) period: Duration,
    /// From the start to the first look: drawn below the period, so that a run may begin at any phase of it.
    pub(super) offset: Duration,
    /// Whether its thread is scheduled in real time, as the guard's.
    pub(super) fifo: bool,
}

/// What is looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Aim {
    /// Whether the pods' cgroup counts instead of the node.
    pub(super) pods: bool,
    /// Whether headroom has to be below the limit too.
    pub(super) confirmed: bool,
    /// Bytes.
    pub(super) limit: i64,
}

/// A poll that is under way.
pub(super) struct Poller {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<Option<u64>>>,
}

impl Poller {
    /// Starts a poll that kills this process when the limit is crossed.
    pub(super) fn start(
        files: NodeFiles,
        layout: &Layout,
        (pace, aim): (Pace, Aim),
        victim: i32,
    ) -> anyhow::Result<Self> {
        let victim = Pid::from_raw(victim).context("no process to kill")?;
        let victim = pidfd_open(victim, PidfdFlags::empty())?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let layout = layout.clone();
        let thread = std::thread::spawn(move || {
            if pace.fifo {
                let standing =
                    realtime::raise_thread(Path::new("/"), &layout, FifoPriority::GUARD, true);
                let is_fifo = matches!(standing.scheduling, Scheduling::Fifo(_));
                anyhow::ensure!(is_fifo, "the poll got no real time: {standing:?}");
            }
            poll(&files, &victim, (pace, aim), &stopped)
        });
        Ok(Self { stop, thread })
    }

    /// Ends it, and tells when it had sent its signal, if it did.
    pub(super) fn finish(self) -> anyhow::Result<Option<u64>> {
        self.stop.store(true, Ordering::Relaxed);
        let found = self.thread.join();
        found.map_err(|_| anyhow::anyhow!("a poll panicked"))?
    }
}

fn poll(
    files: &NodeFiles,
    victim: &OwnedFd,
    (pace, aim): (Pace, Aim),
    stop: &AtomicBool,
) -> anyhow::Result<Option<u64>> {
    let period = u64::try_from(pace.period.as_nanos())?;
    let mut next = monotonic_ns() + u64::try_from(pace.offset.as_nanos())?;
    while wait(next, stop)? {
        if is_short(files, aim)? {
            pidfd_send_signal(victim, Signal::KILL)?;
            return Ok(Some(monotonic_ns()));
        }
        next = (next + period).max(monotonic_ns());
    }
    Ok(None)
}

/// Sleeps until a time; false if the poll is to end. A long sleep is made in parts, so that it can end.
fn wait(until: u64, stop: &AtomicBool) -> anyhow::Result<bool> {
    const PART: u64 = 200_000_000;
    loop {
        if stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let now = monotonic_ns();
        let next = until.min(now + PART);
        let at = Timespec {
            tv_sec: i64::try_from(next / 1_000_000_000)?,
            tv_nsec: i64::try_from(next % 1_000_000_000)?,
        };
        // An interrupted wait is looked at again.
        let _interrupted = rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &at);
        if monotonic_ns() >= until {
            return Ok(true);
        }
    }
}

fn is_short(files: &NodeFiles, aim: Aim) -> anyhow::Result<bool> {
    let figures = files
        .read(guard::now())
        .map_err(|error| anyhow::anyhow!("the node cannot be read: {error}"))?;
    let (available, headroom) = if aim.pods {
        (figures.pods, figures.pods_headroom)
    } else {
        (figures.memory, figures.headroom)
    };
    let below = |amount: Option<i64>| amount.is_some_and(|amount| amount < aim.limit);
    Ok(below(available.map(|seen| seen.available)) && (!aim.confirmed || below(headroom)))
}
