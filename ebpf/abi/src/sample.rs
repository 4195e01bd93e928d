//! What the sampler publishes: the node's numbers, the state of each watch, the usage of the armed cgroups.

use crate::plain::shared;
use crate::record::Head;
use crate::{MAX_SLOTS, MAX_WATCHES};

/// `Sample::flags`: the node's counters were readable in this tick.
pub const NODE_KNOWN: u64 = 1;
/// `Sample::flags`: reclaim or an OOM holds the sampler at its shortest period.
pub const BOOSTED: u64 = 1 << 1;
/// `Sample::flags`: memory whose page structures the kernel initialises later counts as free.
pub const DEFERRED: u64 = 1 << 2;
/// `Sample::flags`: the usage table was read as a whole in this tick, so it belongs to these numbers.
pub const USAGE_FRESH: u64 = 1 << 3;

/// `Watch::source`: no watch.
pub const SOURCE_NONE: u32 = 0;
/// `Watch::source`: `Sample::available`.
pub const SOURCE_NODE_AVAILABLE: u32 = 1;
/// `Watch::source`: `Sample::headroom`.
pub const SOURCE_NODE_HEADROOM: u32 = 2;
/// `Watch::source`: limit less working set of a slot's cgroup.
pub const SOURCE_SLOT_AVAILABLE: u32 = 3;
/// `Watch::source`: limit less usage plus reclaimable of a slot's cgroup.
pub const SOURCE_SLOT_HEADROOM: u32 = 4;
/// `TruthWatch::source` alone: the kernel's own estimate, `MemAvailable` of `/proc/meminfo`.
pub const SOURCE_NODE_ESTIMATE: u32 = 5;
/// `TruthWatch::source` alone: that estimate, less a share of what it and anonymous memory come to together.
pub const SOURCE_NODE_SHARE: u32 = 6;

/// `Usage::state`: nothing armed.
pub const USAGE_EMPTY: u32 = 0;
/// `Usage::state`: `bytes` was read while the cgroup's memory controller was online and the same as when armed.
pub const USAGE_KNOWN: u32 = 1;
/// `Usage::state`: the check of the armed controller failed; `bytes` is zero and means nothing.
pub const USAGE_UNKNOWN: u32 = 2;
/// `Usage::state`: the cgroup was removed; the kernel disarmed the slot.
pub const USAGE_GONE: u32 = 3;
/// `Usage::state`: armed, not read yet.
pub const USAGE_PENDING: u32 = 4;

shared! {
    /// One limit the sampler compares a value with: the watch is below while `value < limit`.
    pub struct Watch {
        /// `SOURCE_*`
        pub source: u32,
        /// slot of a `SOURCE_SLOT_*`
        pub slot: u32,
        /// bytes
        pub limit: i64,
    }
}

shared! {
    /// The node in one tick. Bytes, unless said otherwise.
    pub struct Sample {
        /// number of this tick since the timer was started
        pub tick: u64,
        /// `CLOCK_MONOTONIC` at the start of the tick
        pub at_ns: u64,
        /// the same of the tick before, 0 in the first: what `changed` tells of came about in between
        pub before_ns: u64,
        /// `NODE_KNOWN` and its neighbours
        pub flags: u64,
        /// time until the next tick
        pub period_ns: u64,
        /// `capacity − (anon + file − inactive_file)`; the kubelet's `memory.available`
        pub available: i64,
        /// what could still be allocated: free above the reserves + clean file pages + reclaimable kernel memory
        pub headroom: i64,
        pub anon: i64,
        pub file: i64,
        pub inactive_file: i64,
        pub active_file: i64,
        pub dirty: i64,
        pub writeback: i64,
        /// reclaimable slab and other reclaimable kernel memory
        pub reclaimable: i64,
        /// free in all zones, deferred memory included
        pub free: i64,
        /// free in all zones above each zone's minimum watermark and low-memory reserve
        pub spare: i64,
        /// deferred memory counted in `free` and `headroom`
        pub deferred: i64,
        /// bit per watch: `value < limit`
        pub below: u64,
        /// bit per watch: its source could not be read; neither below nor above
        pub unknown: u64,
        /// bit per watch: `below` or `unknown` differs from the tick before
        pub changed: u64,
        /// smallest `|value − limit|` over the known watches; `i64::MAX` without one
        pub slack: i64,
        /// value of each watch, 0 where unknown
        pub values: [i64; MAX_WATCHES],
    }
}

shared! {
    /// The sample as it goes over the ring, and as it lies in the map that shows the latest one.
    ///
    /// The writer counts `started`, fills the record, sets `finished` to the same number. A reader that copies the
    /// value from its start to its end and finds both equal has a whole record.
    pub struct Published {
        pub finished: u64,
        pub record: SampleRecord,
        pub started: u64,
    }
}

shared! {
    /// A [`crate::record::CROSSING`], `BAND`, `HEARTBEAT` or `UNKNOWN`.
    pub struct SampleRecord {
        pub head: Head,
        pub sample: Sample,
    }
}

shared! {
    /// Usage of one slot's cgroup.
    pub struct Usage {
        /// charged bytes (`memory.current`, `memory.usage_in_bytes`); exact to the kernel's per-CPU charge batches
        pub bytes: u64,
        /// the number user space gave when it armed the slot
        pub generation: u32,
        /// `USAGE_*`
        pub state: u32,
    }
}

shared! {
    /// Usage of every slot, guarded like [`Published`].
    pub struct UsageTable {
        pub finished: u64,
        /// `CLOCK_MONOTONIC` of the latest complete sweep
        pub swept_ns: u64,
        /// number of complete sweeps
        pub sweeps: u64,
        pub entries: [Usage; MAX_SLOTS],
        pub started: u64,
    }
}
