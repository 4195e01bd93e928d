//! Who was killed, by whom and why: incident records of the kernel's OOM killer and of kills by others.
//!
//! A thread of its own takes what happened from a bounded queue, reads what is quickest to vanish first, and tells each
//! incident twice: as it opens, with what is known then, and as it closes. [`correlate`] decides what belongs together, and
//! reads nothing; [`gather`] reads, and decides nothing.

mod choice;
pub mod collector;
pub mod compose;
pub mod correlate;
mod eviction;
pub mod gather;
pub mod identity;
pub mod limit;
mod open;
mod records;
pub mod roll;
mod root;
mod scene;
mod sharers;
mod stacks;
mod symbols;
#[cfg(test)]
mod tests;
mod told;
mod watch;
mod worker;

use brink_stream::model::field::Field;
use brink_stream::model::incident::{ForkRoot, Incident};
use brink_stream::model::kind::Kind;

pub use collector::{Collector, Over, Plan};
pub use records::Records;

/// Victims that one incident names; more are counted.
pub const MOST_VICTIMS: usize = 64;

/// Where incidents are told.
pub trait Outlet: Send {
    /// Tells an incident that opens, and gives it back with its id; none where nobody is told. `group` is the id of the first victim's
    /// memory cgroup, where the kernel told it.
    fn open(&self, of: Kind, incident: Incident, group: Option<u64>) -> Option<Incident>;
    /// Tells an incident that is over.
    fn close(&self, of: Kind, incident: &Incident);
    /// Lets `fill` add what it knows to the incident of an open order of ours for the workload with that uid; it is told as
    /// the order ends. False where no such order is open.
    fn amend(&self, uid: &str, fill: &mut dyn FnMut(&mut Incident)) -> bool;
    /// Tells where the processes of a workload came from that was ordered to go for them, by the order's number and its uid.
    fn fork_root(&self, order: u64, uid: &str, root: &Field<ForkRoot>);
    /// Tells that an order of ours is over.
    fn completed(&self, over: &Over);
    /// Tells how many kills found no room here, this time and in this run.
    fn lost(&self, count: u64, total: u64);
}
