//! SIGKILL to every process of a group and below it at once, and its memory back early.
//!
//! A kill has these stages; none of them allocates or waits, apart from locks inside the kernel:
//!
//! 1. **List** the processes of the whole subtree (`cgroup.procs`, opened anew each time: v1 keeps the list it made at
//!    the first read of an open file).
//! 2. **Hold** each by a pidfd, then list again: only processes that are still in the subtree are signalled. A pid that
//!    was given to somebody else between list and pidfd can so never be hit.
//! 3. **Signal** through the pidfd. On v2 this comes before `cgroup.kill`, because writing that file waits for the
//!    kernel's one cgroup mutex, which anybody who makes or removes groups may be holding.
//! 4. **Release**: the pidfds go to a pool of threads that call `process_mrelease`, while the victims are still dying.
//!    They are not sorted by size: reading a size takes a reference to the victim's memory, and whoever drops the last
//!    one frees it all, which the guard must not be made to do.
//! 5. **Catch** what was forked meanwhile. v2: `cgroup.kill`, after which no fork of the subtree can survive. v1: what is more
//!    than a batch is kept from forking before it is listed again, by `cgroup.kill` of the same group in the v2 tree, if there is one
//!    and it holds no process but these, or else by the freezer, while each gets its signal. Then list again until a pass finds
//!    nothing new; what was all in the first batch is kept from forking likewise if the second pass still finds somebody. Neither is
//!    done with somebody in it who is to live.
//!
//! A process with a pending SIGKILL cannot fork, so a pass that finds nothing new ends the hunt. One gap is left on v1:
//! a child whose parent was stopped between the child's creation and its entry in the group's list shows up only later.
//! [`Killer::sweep`], called while the caller waits for memory to come back, catches it.

pub mod mrelease;
pub mod outcome;
pub mod pid_set;
pub mod release;
pub mod target;

mod escalate;
mod killer;
mod pass;
mod roster;

pub use killer::Killer;
pub use outcome::{Failure, KillOutcome, KillTimes, Means, Stage};
pub use release::{ReleaseConfig, ReleasePool};
pub use target::KillTarget;
