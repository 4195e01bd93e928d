//! The truth sampler of the benchmarks: when did memory really cross?
//!
//! Its own program, maps and timer, and a plain reading of each counter, so that it shares no mistake with the sampler
//! it judges.
#![no_std]
#![no_main]

#[expect(
    dead_code,
    reason = "the truth needs the way to the counters, not that to a task's cgroup"
)]
mod kernel;
mod object;
mod pass;
mod timer;

#[path = "truth/judge.rs"]
mod judge;
#[path = "truth/nodes.rs"]
mod nodes;

use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::bpf_get_current_task;
use aya_ebpf::helpers::generated::bpf_timer_start;
use aya_ebpf::macros::{btf_map, map, socket_filter};
use aya_ebpf::maps::Array;
use aya_ebpf::programs::SkBuffContext;
use brink_abi::truth::{Crossing, TRUTH_RESET, TRUTH_START, TruthOrder, TruthResult};
use brink_abi::{MAX_NODES, MAX_WATCHES, MAX_ZONES, command};

use crate::judge::{find_controller, forget, judge};
use crate::kernel::root_memory;
use crate::nodes::{add_node, find_node};
use crate::pass::pass;
use crate::timer::{TimerMap, TimerSlot, now, timer};

/// A zone's address, 0 when it has no pages, and the pages it kept back when the truth was started.
#[repr(C)]
pub struct Zone {
    pub address: u64,
    pub reserve: i64,
}

/// A NUMA node: address of its `pglist_data`, and its zones.
#[repr(C)]
pub struct Node {
    pub data: u64,
    pub zones: [Zone; MAX_ZONES],
}

/// What one tick sums, in pages, and what it compares with.
#[repr(C)]
pub struct Sums {
    pub used: i64,
    /// anonymous memory
    pub anon: i64,
    /// could still be allocated
    pub headroom: i64,
    /// free in all zones, whatever they keep back
    pub free: i64,
    /// file pages on the lists of reclaim
    pub file: i64,
    /// reclaimable kernel memory
    pub kernel: i64,
    pub managed: i64,
    pub failed: u64,
    /// managed pages when started; 0 before
    pub baseline: i64,
    pub at_ns: u64,
    pub before_ns: u64,
}

#[btf_map]
static TRUTH_TIMERS: TimerMap = TimerMap::new();

#[map]
static ORDER: Array<TruthOrder> = Array::with_max_entries(1, 0);

#[map]
static RESULT: Array<TruthResult> = Array::with_max_entries(1, 0);

#[map]
static CROSSINGS: Array<Crossing> = Array::with_max_entries(MAX_WATCHES as u32, 0);

#[map]
static SUMS: Array<Sums> = Array::with_max_entries(1, 0);

#[map]
static TRUTH_NODES: Array<Node> = Array::with_max_entries(MAX_NODES as u32, 0);

/// Address of the memory controller of each watch's cgroup, and its serial number.
#[map]
static CONTROLLERS: Array<[u64; 2]> = Array::with_max_entries(MAX_WATCHES as u32, 0);

/// Starts the truth as ordered, or forgets what it saw.
#[socket_filter]
pub fn truth(_context: SkBuffContext) -> i64 {
    let (Some(order), Some(sums), Some(slot)) = (
        ORDER.get_ptr_mut(0),
        SUMS.get_ptr_mut(0),
        TRUTH_TIMERS.get_ptr_mut(0),
    ) else {
        return i64::from(command::INVALID);
    };
    // SAFETY: all are map values.
    unsafe {
        if (*order).op == TRUTH_RESET {
            pass(&CROSSINGS, forget, 0);
            return i64::from(command::OK);
        }
        let Some(root) = root_memory(bpf_get_current_task()) else {
            return i64::from(command::NOT_A_NODE);
        };
        if (*order).op != TRUTH_START || pass(&TRUTH_NODES, find_node, root) == 0 {
            return i64::from(command::NOT_A_NODE);
        }
        pass(&CONTROLLERS, find_controller, 0);
        (*sums).baseline = 0;
        if timer(&TRUTH_TIMERS, slot, on_truth)
            .is_none_or(|timer| bpf_timer_start(timer, 0, 0) != 0)
        {
            return i64::from(command::TIMER_REFUSED);
        }
    }
    i64::from(command::OK)
}

/// One tick of the truth.
extern "C" fn on_truth(_map: *mut c_void, _key: *mut u32, slot: *mut TimerSlot) -> i64 {
    let at = now();
    let (Some(order), Some(sums), Some(result)) = (
        ORDER.get_ptr_mut(0),
        SUMS.get_ptr_mut(0),
        RESULT.get_ptr_mut(0),
    ) else {
        return 0;
    };
    // SAFETY: all are map values, and the callback never runs twice at a time.
    unsafe {
        (*sums).used = 0;
        (*sums).anon = 0;
        (*sums).headroom = 0;
        (*sums).free = 0;
        (*sums).file = 0;
        (*sums).kernel = 0;
        (*sums).managed = 0;
        (*sums).failed = 0;
        (*sums).before_ns = (*result).last_ns;
        (*sums).at_ns = at;
        pass(&TRUTH_NODES, add_node, u64::from((*order).node_count));
        if (*sums).baseline == 0 {
            (*sums).baseline = (*sums).managed;
        }
        pass(&CROSSINGS, judge, u64::from((*order).count));
        if (*result).last_ns != 0 {
            (*result).gap_max_ns = (*result).gap_max_ns.max(at - (*result).last_ns);
        }
        (*result).last_ns = at;
        (*result).ticks += 1;
        bpf_timer_start(&raw mut (*slot).timer, (*order).period_ns, 0);
        let cost = now() - at;
        (*result).cost_ns += cost;
        (*result).cost_max_ns = (*result).cost_max_ns.max(cost);
    }
    0
}
