//! Counters both sides agree on: loss per family and ring, the sampler's cost, processes per cgroup.

use crate::plain::shared;

/// Families of hooks that send records, and the ring each row counts.
pub const SAMPLER_SIGNALS: u32 = 0;
/// Row of the OOM hooks.
pub const OOM_SIGNALS: u32 = 1;
/// Row of the process hooks' signals: watched exits and the limit on threads.
pub const PROCESS_SIGNALS: u32 = 2;
/// Row of watched cgroups that became empty.
pub const CGROUP_SIGNALS: u32 = 3;
/// Row of reclaim ends.
pub const RECLAIM_EVIDENCE: u32 = 4;
/// Row of cgroup changes.
pub const CGROUP_EVIDENCE: u32 = 5;
/// Row of program starts.
pub const PROCESS_EVIDENCE: u32 = 6;
/// Row of the OOM killer's victims on the ring of kills.
pub const OOM_KILLS: u32 = 7;
/// Row of SIGKILL on the ring of kills.
pub const SIGNAL_KILLS: u32 = 8;
/// Row of the ends of those that were told as killed.
pub const KILL_ENDS: u32 = 9;
/// Rows in all.
pub const ROWS: usize = 10;

shared! {
    /// One row, per CPU. Over all CPUs, and with no hook in flight, `seen = sent + dropped + filtered`.
    pub struct Loss {
        /// occasions to send a record
        pub seen: u64,
        pub sent: u64,
        /// the ring was full
        pub dropped: u64,
        /// not worth a record by the rules of the hook
        pub filtered: u64,
    }
}

shared! {
    /// What the sampler does and costs.
    pub struct SamplerMeter {
        pub ticks: u64,
        /// ticks that found a command at work and left again
        pub busy: u64,
        /// time inside the callback, in all and at most
        pub cost_ns: u64,
        pub cost_max_ns: u64,
        /// ticks that read every slot, and their time (part of `cost_ns`)
        pub sweeps: u64,
        pub sweep_ns: u64,
        /// lateness of the callback behind its due time
        pub late_ns: u64,
        pub late_max_ns: u64,
        /// failed checks of a slot's controller
        pub unknown_slots: u64,
        /// slots the rmdir hook disarmed
        pub gone_slots: u64,
        /// times a hook pulled the next tick nearer
        pub pulls: u64,
        /// ticks in which the node's counters could not be read
        pub unknown_node: u64,
        /// `CLOCK_MONOTONIC` when the timer fired last, 0 if it never did; a tick that was asked for is none of its
        pub fired_ns: u64,
        /// points of the flight recorder ever left, and when the latest was
        pub flights: u64,
        pub flight_ns: u64,
        /// direct reclaims begun on the node
        pub reclaims: u64,
    }
}

shared! {
    /// Threads and processes of the whole system, kept by the process hooks.
    pub struct ProcessMeter {
        /// forked less freed, plus what user space added to calibrate
        pub threads: i64,
        /// limit on threads, 0 for none
        pub limit: i64,
        /// 1 while over the limit
        pub over: u64,
        /// processes in the table
        pub processes: i64,
        /// forks of processes and exits of the last thread
        pub forks: u64,
        pub exits: u64,
        pub execs: u64,
        /// processes that found the table full: the counts per cgroup are too low until they end
        pub untracked: u64,
        /// moves between cgroups
        pub moves: u64,
        /// tasks that came into another cgroup of any hierarchy, whether or not that moves a process
        pub attaches: u64,
        /// entries the victim set holds; with none the hooks skip the look-up
        pub victims: u64,
        /// threads and processes the iterator added or moved
        pub synced: u64,
        /// processes whose cgroup found the map of cgroups full: with any, no count per cgroup can be relied on
        pub unmetered: u64,
        /// births ever written to the ring of them
        pub births: i64,
    }
}

shared! {
    /// One memory cgroup, keyed by its id.
    pub struct CgroupMeter {
        pub processes: i64,
        /// processes that have exited here and still hold their id, the lower bound of those from before the hooks ran
        pub zombies: i64,
        /// 1 once it was removed; its meters go with the last of its zombies
        pub removed: u64,
        pub forks: u64,
        pub exits: u64,
        /// processes of this cgroup that found the process table full
        pub untracked: u64,
        /// reclaims of its tasks by gear (direct, memcg) and their stall
        pub direct: u64,
        pub direct_ns: u64,
        pub memcg: u64,
        pub memcg_ns: u64,
        /// pages these reclaims brought
        pub reclaimed: u64,
    }
}

shared! {
    /// What the process table keeps of a process, keyed by thread-group id.
    pub struct Process {
        /// memory cgroup
        pub cgroup: u64,
        /// when it began: tells it from a later one with its number
        pub start_ns: u64,
    }
}
