//! The node's own counters, summed over its NUMA nodes and zones.
//!
//! The passes over the nodes are a helper's loop: the verifier then looks at a body once instead of once a node.

use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::bpf_get_current_task;
use aya_ebpf::helpers::generated::{bpf_for_each_map_elem, bpf_probe_read_kernel};
use brink_abi::MAX_ZONES;
use brink_abi::command::{self, Mailbox};
use brink_abi::sample::{DEFERRED, NODE_KNOWN, Sample};

use crate::engine::{Counters, Engine, MAX_STATS, Node, Zone};
use crate::kernel::{layout, node_data, read, root_memory};
use crate::maps::{ENGINE, MAILBOX, NODES};

/// Deferred memory under this many bytes is noise of the counters, not memory still to be initialised.
const DEFERRED_MIN: i64 = 64 << 20;

/// Body of a pass over the nodes: non-zero ends it.
type Body = extern "C" fn(*mut c_void, *const u32, *mut Node, *const u64) -> i64;

/// Calls `body` for the first `count` nodes, and for one more that it must refuse by its index.
#[inline(always)]
fn pass(body: Body, context: &u64) {
    // SAFETY: `Body` is what the helper calls for an array; the context lies on the caller's stack.
    unsafe {
        let nodes = (&raw const NODES).cast_mut().cast();
        bpf_for_each_map_elem(
            nodes,
            body as *mut c_void,
            core::ptr::from_ref(context).cast_mut().cast(),
            0,
        );
    }
}

/// Finds the nodes' counters and takes the capacity: [`command::ARM_NODE`].
#[inline(never)]
pub fn arm(engine: *mut Engine, mailbox: *mut Mailbox) -> u32 {
    // SAFETY: both are map values.
    let (count, capacity, free) = unsafe {
        let given = &(*mailbox).command;
        (given.count, given.capacity, given.free)
    };
    if layout!(stat_bytes) as usize > 8 * MAX_STATS {
        return command::UNSUPPORTED;
    }
    // SAFETY: the helper takes no argument.
    let Some(root) = root_memory(unsafe { bpf_get_current_task() }) else {
        return command::NOT_A_NODE;
    };
    // SAFETY: both are map values.
    unsafe {
        (*engine).node_count = count;
        (*engine).nodes_found = 0;
        // Non-zero, so that what the zones manage is summed for the baseline.
        (*engine).deferred = 1;
        (*engine).capacity = capacity;
    }
    pass(find, &root);
    read_reserves(engine);
    measure_all(engine);
    // SAFETY: as above.
    unsafe {
        if count == 0 || (*engine).nodes_found != count || (*engine).sums.failed != 0 {
            (*engine).node_count = 0;
            return command::NOT_A_NODE;
        }
        let shift = layout!(page_shift);
        let owned = (*engine).sums.free;
        let deferred = (free >> shift) - owned;
        (*engine).managed = (*engine).sums.managed;
        (*engine).deferred = if deferred << shift > DEFERRED_MIN {
            deferred
        } else {
            0
        };
        (*mailbox).reply.nodes = count;
        (*mailbox).reply.zones = (*engine).zone_count;
        (*mailbox).reply.free = owned << shift;
        (*mailbox).reply.deferred = (*engine).deferred << shift;
    }
    command::OK
}

/// Looks one node of the mailbox's list up, from the root memory cgroup in the context.
extern "C" fn find(_map: *mut c_void, index: *const u32, node: *mut Node, root: *const u64) -> i64 {
    let (Some(engine), Some(mailbox)) = (ENGINE.get_ptr_mut(0), MAILBOX.get_ptr_mut(0)) else {
        return 1;
    };
    // SAFETY: the helper's arguments and map values; the index is that of a map as long as the list.
    unsafe {
        let index = *index as usize;
        if index as u64 >= (*engine).node_count || index >= brink_abi::MAX_NODES {
            return 1;
        }
        let id = (&raw const (*mailbox).command.nodes)
            .cast::<u32>()
            .add(index)
            .read();
        let Some(data) = node_data(*root, id) else {
            return 1;
        };
        (*node).data = data;
        (*engine).nodes_found += 1;
    }
    0
}

/// Reads which zones have pages and what each keeps back.
#[inline(always)]
pub fn read_reserves(engine: *mut Engine) {
    // SAFETY: `engine` is a map value.
    let count = unsafe {
        (*engine).zone_count = 0;
        (*engine).node_count
    };
    pass(reserves, &count);
}

extern "C" fn reserves(
    _map: *mut c_void,
    index: *const u32,
    node: *mut Node,
    count: *const u64,
) -> i64 {
    // SAFETY: the helper's arguments.
    let (index, count, data) = unsafe { (*index, *count, (*node).data) };
    let (Some(engine), true) = (ENGINE.get_ptr_mut(0), u64::from(index) < count) else {
        return 1;
    };
    for zone in 0..MAX_ZONES {
        let address = data
            .wrapping_add(u64::from(layout!(pgdat_zones)))
            .wrapping_add(zone as u64 * u64::from(layout!(zone_size)));
        let managed = if (zone as u32) < layout!(zone_count) {
            read::<i64>(address, layout!(zone_managed)).unwrap_or(0)
        } else {
            0
        };
        // SAFETY: `zone` is below the length of the array; `engine` is a map value.
        unsafe {
            let place = (&raw mut (*node).zones).cast::<Zone>().add(zone);
            (*place).address = 0;
            if managed > 0 {
                (*place).reserve = reserve(address);
                (*place).address = address;
                (*engine).zone_count += 1;
            }
        }
    }
    0
}

/// Pages of the zone that ordinary allocations leave alone.
#[inline(always)]
fn reserve(zone: u64) -> i64 {
    let minimum = read::<i64>(zone, layout!(zone_min)).unwrap_or(0);
    let boost = read::<i64>(zone, layout!(zone_boost)).unwrap_or(0);
    let mut largest = 0;
    if let Some(kept) = read::<[i64; MAX_ZONES]>(zone, layout!(zone_reserve)) {
        for (index, pages) in kept.iter().enumerate() {
            if (index as u32) < layout!(zone_count) && *pages > largest {
                largest = *pages;
            }
        }
    }
    minimum + boost + largest
}

/// Sums every counter over the nodes, in pages.
#[inline(always)]
fn measure_all(engine: *mut Engine) {
    // SAFETY: `engine` is a map value.
    let count = unsafe {
        (*engine).sums = Counters::NONE;
        (*engine).node_count
    };
    pass(add_node, &count);
}

extern "C" fn add_node(
    _map: *mut c_void,
    index: *const u32,
    node: *mut Node,
    count: *const u64,
) -> i64 {
    // SAFETY: the helper's arguments.
    let (index, count, data) = unsafe { (*index, *count, (*node).data) };
    let (Some(engine), true) = (ENGINE.get_ptr_mut(0), u64::from(index) < count) else {
        return 1;
    };
    // SAFETY: `engine` is a map value, its scratch holds `stat_bytes`, as `arm` checked, and every offset lies inside.
    unsafe {
        let sums = &raw mut (*engine).sums;
        let scratch = (&raw mut (*engine).scratch).cast::<u8>();
        let from = data.wrapping_add(u64::from(layout!(pgdat_vm_stat)));
        let failed =
            bpf_probe_read_kernel(scratch.cast(), layout!(stat_bytes), from as *const c_void);
        if failed != 0 || !add_zones(node, sums, (*engine).deferred != 0) {
            (*sums).failed = 1;
            return 1;
        }
        (*sums).anon += counter(scratch, layout!(stat_anon));
        (*sums).file += counter(scratch, layout!(stat_file));
        (*sums).inactive_file += counter(scratch, layout!(stat_inactive_file));
        (*sums).active_file += counter(scratch, layout!(stat_active_file));
        (*sums).dirty += counter(scratch, layout!(stat_dirty));
        (*sums).writeback += counter(scratch, layout!(stat_writeback));
        (*sums).reclaimable += counter(scratch, layout!(stat_slab));
        (*sums).reclaimable += counter(scratch, layout!(stat_misc));
    }
    0
}

/// Adds the free pages of a node's zones, and with `managed` the pages they manage. False when one cannot be read.
#[inline(always)]
fn add_zones(node: *mut Node, sums: *mut Counters, managed: bool) -> bool {
    for zone in 0..MAX_ZONES {
        // SAFETY: `zone` is below the length of the array; `node` and `sums` are map values.
        unsafe {
            let place = (&raw const (*node).zones).cast::<Zone>().add(zone);
            let (address, reserve) = ((*place).address, (*place).reserve);
            if address == 0 {
                continue;
            }
            let Some(free) = read::<i64>(address, layout!(zone_free)) else {
                return false;
            };
            (*sums).free += free.max(0);
            (*sums).spare += (free - reserve).max(0);
            if managed {
                let Some(pages) = read::<i64>(address, layout!(zone_managed)) else {
                    return false;
                };
                (*sums).managed += pages;
            }
        }
    }
    true
}

/// One counter of the scratch; they dip below zero for moments, which means none.
///
/// # Safety
/// `offset + 8` lies inside the scratch.
#[inline(always)]
unsafe fn counter(scratch: *const u8, offset: u32) -> i64 {
    // SAFETY: the caller's promise; the kernel's counters are eight bytes apart.
    unsafe { scratch.add(offset as usize).cast::<i64>().read_volatile() }.max(0)
}

/// Fills the node's part of the sample; all zero, without [`NODE_KNOWN`], when it could not be read.
#[inline(always)]
pub fn measure(engine: *mut Engine, sample: *mut Sample) {
    measure_all(engine);
    // SAFETY: both are map values.
    unsafe {
        let engine = &mut *engine;
        if engine.node_count == 0 || engine.sums.failed != 0 {
            engine.sums = Counters::NONE;
        }
        let known = engine.node_count != 0 && engine.sums.failed == 0;
        let (sums, shift) = (&engine.sums, layout!(page_shift));
        // Deferred pages become free ones of a zone at the moment the zone comes to manage them.
        let deferred = if engine.deferred == 0 || !known {
            0
        } else {
            (engine.deferred - (sums.managed - engine.managed)).max(0)
        };
        let clean = (sums.active_file + sums.inactive_file - sums.dirty - sums.writeback).max(0);
        let used = sums.anon + sums.file - sums.inactive_file;
        let sample = &mut *sample;
        sample.flags = if known { NODE_KNOWN } else { 0 } | if deferred > 0 { DEFERRED } else { 0 };
        sample.available = if known {
            engine.capacity - (used << shift)
        } else {
            0
        };
        sample.headroom = (sums.spare + deferred + clean + sums.reclaimable) << shift;
        sample.anon = sums.anon << shift;
        sample.file = sums.file << shift;
        sample.inactive_file = sums.inactive_file << shift;
        sample.active_file = sums.active_file << shift;
        sample.dirty = sums.dirty << shift;
        sample.writeback = sums.writeback << shift;
        sample.reclaimable = sums.reclaimable << shift;
        sample.free = (sums.free + deferred) << shift;
        sample.spare = sums.spare << shift;
        sample.deferred = deferred << shift;
    }
}
