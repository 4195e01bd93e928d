//! The sampler's state, and the lock that keeps a tick and a command apart.

use brink_abi::MAX_ZONES;
use brink_abi::command::{Knobs, Terms};

use crate::atomic::{exchange, swap};
use crate::controller::Controller;

/// Longest `pglist_data.vm_stat` the scratch holds, in counters.
pub const MAX_STATS: usize = 64;

/// A zone of a node; `address` 0 when it has no pages.
#[repr(C)]
pub struct Zone {
    pub address: u64,
    /// pages that ordinary allocations leave alone: minimum watermark, largest low-memory reserve
    pub reserve: i64,
    /// the zone has many pages it does not manage yet, so what it manages is read at each tick
    pub growing: u64,
    /// pages it managed when its reserve was read
    pub managed: i64,
}

/// A NUMA node with memory.
#[repr(C)]
pub struct Node {
    /// address of its `pglist_data`
    pub data: u64,
    pub zones: [Zone; MAX_ZONES],
}

/// Sums over the nodes, in pages.
#[repr(C)]
pub struct Counters {
    pub free: i64,
    /// free above each zone's reserve
    pub spare: i64,
    pub managed: i64,
    pub anon: i64,
    pub file: i64,
    pub inactive_file: i64,
    pub active_file: i64,
    pub dirty: i64,
    pub writeback: i64,
    pub reclaimable: i64,
    /// a counter could not be read
    pub failed: u64,
}

impl Counters {
    /// Sets all to zero. As one value it would be written byte by byte.
    ///
    /// # Safety
    /// `this` is a field of a map value, and the caller its only writer.
    #[inline(always)]
    pub unsafe fn clear(this: *mut Self) {
        for word in 0..size_of::<Self>() / size_of::<u64>() {
            // SAFETY: the caller's promise; every field is a word.
            unsafe { this.cast::<u64>().add(word).write_volatile(0) };
        }
    }
}

/// One cgroup whose usage is followed.
#[repr(C)]
pub struct Slot {
    /// its memory controller, or its pids controller
    pub controller: Controller,
    /// the cgroup's id
    pub id: u64,
    pub terms: Terms,
    pub generation: u64,
    /// `USAGE_*`; `EMPTY` and `GONE` are not read. Only the removal's hook writes it beside the engine's holder.
    pub state: u64,
}

/// Everything a tick needs.
#[repr(C)]
pub struct Engine {
    pub lock: u64,
    /// the timer was started
    pub running: u64,
    /// when the timer fires next
    pub due_ns: u64,
    /// when a tick compares next, at the latest; 0 for the next one
    pub compare_ns: u64,
    pub boost_until_ns: u64,
    pub pulled_ns: u64,
    pub knobs: Knobs,
    pub capacity: i64,
    pub node_count: u64,
    pub nodes_found: u64,
    pub zone_count: u64,
    /// pages free but not yet owned by a zone when armed, and the pages the zones managed then
    pub deferred: i64,
    pub managed: i64,
    /// as last summed
    pub sums: Counters,
    pub reserves_read_ns: u64,
    pub told_ns: u64,
    pub band_told_ns: u64,
    /// slack of the latest band change; 0 for none yet
    pub told_slack: u64,
    pub below: u64,
    pub unknown: u64,
    /// smallest distance of a known watch from its limit
    pub slack: u64,
    pub watch_count: u64,
    /// one past the highest slot ever armed
    pub slot_end: u64,
    /// the latest task that was in the last retry before an OOM, when, and when one was told
    pub retry_tid: u64,
    pub retry_ns: u64,
    pub retry_told_ns: u64,
    pub scratch: [u64; MAX_STATS],
}

impl Engine {
    /// Takes the engine unless a tick or a command has it.
    #[inline(always)]
    pub fn try_lock(engine: *mut Self) -> bool {
        // SAFETY: a map value.
        exchange(unsafe { &raw mut (*engine).lock }, 0, 1)
    }

    /// Gives the engine back.
    #[inline(always)]
    pub fn unlock(engine: *mut Self) {
        // SAFETY: a map value.
        swap(unsafe { &raw mut (*engine).lock }, 0);
    }
}

/// Marks a shared value as being written; a reader that sees its two numbers differ reads again.
///
/// # Safety
/// `started` is a field of a map value that only the engine's holder writes.
#[inline(always)]
pub unsafe fn begin(started: *mut u64) -> u64 {
    // SAFETY: the caller's promise. The swap keeps the writes that follow behind it.
    let number = unsafe { started.read() } + 1;
    swap(started, number);
    number
}

/// Marks the value as whole again.
#[inline(always)]
pub fn finish(finished: *mut u64, number: u64) {
    swap(finished, number);
}
