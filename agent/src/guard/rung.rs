//! On which rung the guard stands, and why not higher: told at start and at every change.

use std::fmt;

pub use crate::ledger::Rung;

/// The guard's standing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// What carries the signals.
    pub rung: Rung,
    /// How the guard thread is scheduled: `SCHED_FIFO 49`, `nice -20`.
    pub scheduling: String,
    /// Why it stands no higher, and what it does without on the rung it has, one sentence each; empty where nothing is wrong.
    pub reasons: Vec<String>,
}

/// Why the guard polls at first.
pub const LOADING: &str = "its programs are still being loaded";

impl Standing {
    /// Whether it may stand higher in a moment.
    pub fn is_passing(&self) -> bool {
        self.reasons.iter().any(|reason| reason == LOADING)
    }
}

impl Rung {
    /// The word for it in status, metrics and records.
    pub const fn word(self) -> &'static str {
        match self {
            Self::KernelSampler => "kernel-sampler",
            Self::RealtimePoll => "realtime-poll",
            Self::Poll => "poll",
        }
    }

    /// The rung for a source and a scheduling class.
    pub const fn of(sampler: bool, realtime: bool) -> Self {
        match (sampler, realtime) {
            (true, _) => Self::KernelSampler,
            (false, true) => Self::RealtimePoll,
            (false, false) => Self::Poll,
        }
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
