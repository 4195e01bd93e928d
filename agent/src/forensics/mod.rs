//! Who was killed, by whom and why: incident records of the kernel's OOM killer and of kills by others.
//!
//! A thread of its own takes what happened from a bounded queue, reads what is quickest to vanish first, and tells each
//! incident twice: as it opens, with what is known then, and as it closes. [`correlate`] decides what belongs together, and
//! reads nothing; [`gather`] reads, and decides nothing.

pub mod collector;
pub mod compose;
pub mod correlate;
pub mod gather;
pub mod identity;
pub mod limit;
mod open;
mod scene;
#[cfg(test)]
mod tests;
mod watch;

use brink_stream::model::incident::Incident;
use brink_stream::model::kind::Kind;

pub use collector::{Collector, Plan};

/// Victims that one incident names; more are counted.
pub const MOST_VICTIMS: usize = 64;

/// Where incidents are told.
pub trait Outlet: Send {
    /// Tells an incident that opens, and gives it back with its id; none where nobody is told.
    fn open(&self, of: Kind, incident: Incident) -> Option<Incident>;
    /// Tells an incident that is over.
    fn close(&self, of: Kind, incident: &Incident);
    /// Tells how many kills found no room here, this time and in this run.
    fn lost(&self, count: u64, total: u64);
}
