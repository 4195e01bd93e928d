//! What the ledger under /run holds: the decisions of this boot, and what must survive a restart of the agent.

pub mod entry;

use brink_host::ledger::LedgerShape;
use serde::{Deserialize, Serialize};

pub use entry::{Author, Completion, Mark, Marks, Record};

/// Name of the ledger in the agent's folder under /run.
pub const FILE: &str = "ledger";
/// Bytes of a record: the victim and sixteen places with their names at full length, and the figures.
pub const RECORD_BYTES: usize = DECISIONS.record as usize;
/// Bytes of a completion.
pub const COMPLETION_BYTES: usize = DECISIONS.completion as usize;

/// The ledger of decisions.
pub const DECISIONS: LedgerShape = LedgerShape {
    slots: 64,
    record: 8192,
    completion: 512,
    format: 7,
};

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
