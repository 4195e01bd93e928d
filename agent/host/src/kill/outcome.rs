//! What a kill did: counts, the first failure, and the time of each stage. `Copy`, so that it costs no allocation.

use std::time::Duration;

use rustix::io::Errno;

use crate::kill::pass::Found;

/// How the whole of the subtree was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// Signals to each process, pass after pass.
    Signals,
    /// Signals, then `cgroup.kill` of the group.
    GroupKill,
    /// Signals while the group was stopped in the freezer hierarchy.
    Freezer,
    /// Signals, then `cgroup.kill` of the same group in the v2 tree beside a v1 memory hierarchy.
    UnifiedGroupKill,
}

/// Where something failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Visiting the groups of the subtree.
    Walk,
    /// Reading a list of processes.
    List,
    /// Getting hold of a process.
    Hold,
    /// Sending the signal.
    Signal,
    /// Writing `cgroup.kill`.
    GroupKill,
    /// Stopping or resuming the group.
    Freeze,
}

/// The first thing that failed. The kill goes on after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// Where.
    pub stage: Stage,
    /// The process, where it is about one.
    pub pid: Option<i32>,
    /// The kernel's answer.
    pub errno: Errno,
}

/// When each stage was reached, nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KillTimes {
    /// The call began.
    pub started: u64,
    /// The first list was complete.
    pub listed: Option<u64>,
    /// Just before the first signal was sent.
    pub before_first_signal: Option<u64>,
    /// Just after the first signal was sent.
    pub after_first_signal: Option<u64>,
    /// What the calling thread had spent on a processor by then.
    pub cpu_at_first_signal: Option<Duration>,
    /// Every process of the first list was signalled, or the first batch of many.
    pub first_pass: Option<u64>,
    /// `cgroup.kill` returned.
    pub group_killed: Option<u64>,
    /// The call ended.
    pub finished: u64,
}

/// What a kill did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KillOutcome {
    /// How the whole of the subtree was reached.
    pub means: Means,
    /// How often the subtree was listed and signalled.
    pub passes: u32,
    /// Groups in the subtree, at the last pass.
    pub groups: u32,
    /// Processes signalled, one by one or, as far as they were listed, with their whole group.
    pub signalled: u32,
    /// Processes found in the last pass, the dying included, the spared not.
    pub live: u32,
    /// Processes that were gone between list and signal.
    pub gone: u32,
    /// Processes the kernel did not let us signal.
    pub refused: u32,
    /// Processes that must not be killed and were left alone: PID 1, ourselves, the protected.
    pub spared: u32,
    /// Processes of a pid namespace we cannot see into: only `cgroup.kill` reaches them.
    pub unseen: u32,
    /// Pidfds handed to the release pool.
    pub releasing: u32,
    /// Pidfds the release pool had no room for.
    pub not_releasing: u32,
    /// Whether every process of the subtree is known to be signalled, but for the spared.
    pub settled: bool,
    /// The first thing that failed.
    pub failure: Option<Failure>,
    /// When each stage was reached.
    pub times: KillTimes,
}

impl KillOutcome {
    pub(super) fn begin(now: u64) -> Self {
        Self {
            means: Means::Signals,
            passes: 0,
            groups: 0,
            signalled: 0,
            live: 0,
            gone: 0,
            refused: 0,
            spared: 0,
            unseen: 0,
            releasing: 0,
            not_releasing: 0,
            settled: false,
            failure: None,
            times: KillTimes {
                started: now,
                ..KillTimes::default()
            },
        }
    }

    pub(super) fn note(&mut self, stage: Stage, pid: Option<i32>, errno: Errno) {
        self.failure.get_or_insert(Failure { stage, pid, errno });
    }

    /// Settled is a pass that saw everything and found nobody who was not signalled.
    pub(super) fn settle(&mut self, last: Found) {
        self.settled = last.complete && !last.any_new && self.refused == 0 && self.unseen == 0;
    }

    /// Whether the subtree was empty at the last pass, but for the spared.
    pub fn is_empty(&self) -> bool {
        self.settled && self.live == 0 && self.unseen == 0
    }
}
