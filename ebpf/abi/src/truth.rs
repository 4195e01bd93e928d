//! The independent truth sampler of the benchmarks: its own program, its own maps.

use crate::plain::shared;
use crate::{MAX_NODES, MAX_WATCHES};

/// `TruthOrder::op`: take the order and start.
pub const TRUTH_START: u64 = 1;
/// `TruthOrder::op`: forget every crossing.
pub const TRUTH_RESET: u64 = 2;

shared! {
    /// What the truth sampler is told before it starts. Bytes.
    pub struct TruthOrder {
        pub op: u64,
        pub period_ns: u64,
        pub capacity: i64,
        /// free memory the zones do not own up to
        pub deferred: i64,
        pub count: u32,
        pub node_count: u32,
        pub nodes: [u32; MAX_NODES],
        pub watches: [TruthWatch; MAX_WATCHES],
    }
}

shared! {
    /// One limit, with the terms of its cgroup where it has one. Of `SOURCE_NODE_ESTIMATE` these are the kernel's own
    /// constants: `capacity` what it keeps back in all, `reclaimable` the sum of the zones' low watermarks. Of
    /// `SOURCE_NODE_SHARE` the same, and `inactive_file` is the share, in bytes of `TruthOrder::capacity`.
    pub struct TruthWatch {
        /// `SOURCE_*` of [`crate::sample`]
        pub source: u32,
        /// open directory of the cgroup, in the caller's table
        pub fd: i32,
        pub limit: i64,
        pub capacity: i64,
        pub inactive_file: i64,
        pub reclaimable: i64,
    }
}

shared! {
    /// What it saw of one watch since the last reset.
    pub struct Crossing {
        /// `CLOCK_MONOTONIC` of the first tick below the limit, 0 for none
        pub crossed_ns: u64,
        /// of the first tick at or above the limit after that, 0 for none
        pub back_ns: u64,
        /// of the tick before `crossed_ns`
        pub before_ns: u64,
        /// the same of the latest time below the limit, `back` 0 while it lasts
        pub latest_ns: u64,
        pub latest_back_ns: u64,
        pub latest_before_ns: u64,
        /// furthest below the limit
        pub overshoot: i64,
        /// latest value
        pub value: i64,
        /// ticks that could not read the source
        pub unknown: u64,
    }
}

shared! {
    /// The truth sampler's results.
    pub struct TruthResult {
        pub ticks: u64,
        pub cost_ns: u64,
        pub cost_max_ns: u64,
        /// longest distance between two ticks
        pub gap_max_ns: u64,
        /// time of the latest tick
        pub last_ns: u64,
    }
}
