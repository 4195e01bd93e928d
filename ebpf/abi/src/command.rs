//! How user space speaks to the sampler: it fills the mailbox, then runs the command program once.
//!
//! The program runs in the caller's context (that is how a file descriptor becomes a cgroup) and excludes the timer's
//! callback, so no tick ever sees half a change. What changes a watched value or the pace brings the next tick at once.

use crate::plain::shared;
use crate::sample::Watch;
use crate::{MAX_NODES, MAX_WATCHES};

/// `Command::op`: start the timer.
pub const START: u32 = 1;
/// `Command::op`: find the node's counters through the root memory cgroup; take `capacity`, `nodes`, `count`.
pub const ARM_NODE: u32 = 2;
/// `Command::op`: bind `slot` to the cgroup whose directory is open as `fd`, with the terms.
pub const ARM_SLOT: u32 = 3;
/// `Command::op`: free `slot`.
pub const DISARM_SLOT: u32 = 4;
/// `Command::op`: replace the terms of `slot`.
pub const SET_TERMS: u32 = 5;
/// `Command::op`: replace all watches by the first `count` of `watches`.
pub const SET_WATCHES: u32 = 6;
/// `Command::op`: replace the knobs.
pub const SET_KNOBS: u32 = 7;
/// `Command::op`: read the usage of every armed slot now.
pub const SWEEP: u32 = 8;
/// `Command::op`: add `delta` to the count of threads.
pub const ADD_THREADS: u32 = 9;
/// `Command::op`: set the limit on threads to `limit`; 0 for none.
pub const SET_THREAD_LIMIT: u32 = 10;
/// `Command::op`: `count` victims are watched.
pub const SET_VICTIMS: u32 = 12;
/// `Command::op`: count `free` bytes as free until the zones manage as much more than `managed` pages.
pub const SET_DEFERRED: u32 = 13;
/// `Command::op`: take one tick now, in the caller's context.
pub const TICK: u32 = 11;
/// `Command::op`: compare the limit on threads with the tasks of the cgroup whose directory is open as `fd`; below 0 with those
/// of the machine.
pub const COUNT_TASKS: u32 = 14;

/// Program result: done.
pub const OK: u32 = 0;
/// Program result: a tick or another command holds the engine; ask again.
pub const BUSY: u32 = 1;
/// Program result: the command's numbers are out of range.
pub const INVALID: u32 = 2;
/// Program result: the descriptor is not an open directory of a cgroup.
pub const NOT_A_CGROUP: u32 = 3;
/// Program result: the cgroup has no memory controller, or it is going away.
pub const NO_MEMORY_CONTROLLER: u32 = 4;
/// Program result: the address found for the node's counters did not name the node.
pub const NOT_A_NODE: u32 = 5;
/// Program result: the running kernel lacks a structure member this needs.
pub const UNSUPPORTED: u32 = 6;
/// Program result: the kernel refused the timer.
pub const TIMER_REFUSED: u32 = 7;
/// Program result: more nodes, zones or cgroups than the maps hold.
pub const TOO_MANY: u32 = 8;
/// Program result: the cgroup is the root, whose own usage the kernel does not count.
pub const ROOT_CGROUP: u32 = 9;
/// Program result: the cgroup has no pids controller, or it is going away.
pub const NO_PIDS_CONTROLLER: u32 = 10;

shared! {
    /// The sampler's pace.
    pub struct Knobs {
        pub min_period_ns: u64,
        pub max_period_ns: u64,
        /// bytes of slack that allow one nanosecond of period: fastest possible growth × 8, in bytes per nanosecond
        pub slack_per_ns: u64,
        /// how long global reclaim or an OOM holds the shortest period
        pub boost_ns: u64,
        pub heartbeat_ns: u64,
        /// no band change is told more often than this
        pub band_gap_ns: u64,
        /// slacks under this many bytes count as this many for band changes
        pub band_floor: u64,
        /// zone reserves are read again after this long
        pub reserves_ns: u64,
        /// a reclaim that stalls its task for less is only counted
        pub stall_ns: u64,
        /// a point of the flight recorder so often, and so no tick later than that; 0 for none
        pub flight_ns: u64,
    }
}

impl Knobs {
    /// Time until the next comparison with so many bytes left to the nearest limit: no growth that the pace was made for can use
    /// them up in less than eight of them, unless that calls for less than the shortest.
    #[inline]
    pub const fn period_ns(&self, slack: u64) -> u64 {
        // Not `clamp`, and no division by zero, which may panic.
        match slack.checked_div(self.slack_per_ns) {
            None => self.min_period_ns,
            Some(period) if period < self.min_period_ns => self.min_period_ns,
            Some(period) if period > self.max_period_ns => self.max_period_ns,
            Some(period) => period,
        }
    }
}

shared! {
    /// What user space knows of a slot's cgroup and the kernel does not read. Bytes.
    pub struct Terms {
        /// capacity of the cgroup
        pub limit: i64,
        pub inactive_file: i64,
        pub reclaimable: i64,
    }
}

shared! {
    /// One command.
    pub struct Command {
        pub op: u32,
        pub slot: u32,
        pub fd: i32,
        pub generation: u32,
        pub count: u64,
        pub capacity: i64,
        /// deferred free memory, in bytes
        pub free: i64,
        /// pages
        pub managed: i64,
        pub delta: i64,
        pub limit: i64,
        pub terms: Terms,
        pub knobs: Knobs,
        pub nodes: [u32; MAX_NODES],
        pub watches: [Watch; MAX_WATCHES],
    }
}

shared! {
    /// What the last command found.
    pub struct Reply {
        /// id of the cgroup a slot was bound to
        pub cgroup: u64,
        /// depth of that cgroup, the root being 0
        pub level: u64,
        /// NUMA nodes and populated zones found
        pub nodes: u64,
        pub zones: u64,
        /// free bytes the zones own up to, and the pages they manage
        pub free: i64,
        pub managed: i64,
    }
}

shared! {
    /// The mailbox between user space and the command program.
    pub struct Mailbox {
        pub command: Command,
        pub reply: Reply,
    }
}
