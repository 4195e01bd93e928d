//! What the ledger under /run holds: the decisions of this boot, and what must survive a restart of the agent.

pub mod entry;

use serde::{Deserialize, Serialize};

pub use entry::{Author, Completion, Record};

/// What carries the signals to the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rung {
    /// A timer in the kernel pushes changes.
    KernelSampler,
    /// The guard polls files under `SCHED_FIFO`.
    RealtimePoll,
    /// The guard polls files at nice −20.
    Poll,
}
