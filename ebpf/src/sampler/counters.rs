//! The node's counters, summed over its NUMA nodes and zones, and the two signals made of them.

use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::generated::bpf_probe_read_kernel;
use brink_abi::MAX_ZONES;
use brink_abi::sample::{DEFERRED, NODE_KNOWN, Sample};

use crate::engine::{Counters, Engine, Node, Zone};
use crate::kernel::{layout, read};
use crate::maps::{ENGINE, NODES};
use crate::pass::{ends, pass};

/// Sums every counter over the nodes, in pages.
#[inline(always)]
pub fn sum(engine: *mut Engine) {
    // SAFETY: a map value, held by the caller.
    let count = unsafe {
        Counters::clear(&raw mut (*engine).sums);
        (*engine).node_count
    };
    pass(&NODES, add_node, count);
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
    // SAFETY: a map value; its scratch holds `stat_bytes`, as arming checked, and every offset lies inside.
    unsafe {
        let sums = &raw mut (*engine).sums;
        let scratch = (&raw mut (*engine).scratch).cast::<i64>();
        let from = data.wrapping_add(u64::from(layout!(pgdat_vm_stat))) as *const c_void;
        let refused = bpf_probe_read_kernel(scratch.cast(), layout!(stat_bytes), from) != 0;
        if refused || !add_zones(node, sums) {
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
    ends(index, count)
}

/// One counter of the scratch; they dip below zero for moments, which means none.
///
/// # Safety
/// `offset + 8` lies inside the scratch.
#[inline(always)]
unsafe fn counter(scratch: *const i64, offset: u32) -> i64 {
    // SAFETY: the caller's promise; the kernel's counters are eight bytes apart.
    unsafe { scratch.byte_add(offset as usize).read_volatile() }.max(0)
}

/// Adds the free pages of a node's zones, and those they manage. False when one cannot be read.
///
/// # Safety
/// `node` and `sums` are map values.
#[inline(always)]
unsafe fn add_zones(node: *const Node, sums: *mut Counters) -> bool {
    for zone in 0..MAX_ZONES {
        // SAFETY: the caller's promise, and `zone` is below the length of the array.
        unsafe {
            let place = (&raw const (*node).zones).cast::<Zone>().add(zone);
            let address = (*place).address;
            if address == 0 {
                continue;
            }
            let Some(free) = read::<i64>(address, layout!(zone_free)) else {
                return false;
            };
            (*sums).free += free.max(0);
            (*sums).spare += (free - (*place).reserve).max(0);
            if (*place).growing == 0 {
                (*sums).managed += (*place).managed;
            } else if let Some(pages) = read::<i64>(address, layout!(zone_managed)) {
                (*sums).managed += pages;
            } else {
                return false;
            }
        }
    }
    true
}

/// Whether the sums are those of the node.
#[inline(always)]
pub fn known(engine: *const Engine) -> bool {
    // SAFETY: a map value, held by the caller.
    unsafe { (*engine).node_count != 0 && (*engine).sums.failed == 0 }
}

/// `Sample::available` by the sums, in bytes.
#[inline(always)]
pub fn available(engine: *const Engine) -> i64 {
    // SAFETY: a map value, held by the caller.
    let (sums, capacity) = unsafe { (&(*engine).sums, (*engine).capacity) };
    let used = sums.anon + sums.file - sums.inactive_file;
    capacity - (used << layout!(page_shift))
}

/// `Sample::headroom` by the sums and the deferred pages, in bytes.
#[inline(always)]
pub fn headroom(engine: *const Engine, deferred: i64) -> i64 {
    // SAFETY: a map value, held by the caller.
    let sums = unsafe { &(*engine).sums };
    let clean = (sums.active_file + sums.inactive_file - sums.dirty - sums.writeback).max(0);
    (sums.spare + deferred + clean + sums.reclaimable) << layout!(page_shift)
}

/// Pages that are free and not managed by a zone yet. They become free ones of a zone in the moment it comes to manage them.
#[inline(always)]
pub fn deferred(engine: *const Engine) -> i64 {
    // SAFETY: a map value, held by the caller.
    let (managed, deferred, before) = unsafe {
        let sums = &(*engine).sums;
        (sums.managed, (*engine).deferred, (*engine).managed)
    };
    if deferred == 0 {
        return 0;
    }
    (deferred - (managed - before).max(0)).max(0)
}

/// Fills the node's part of the sample; all zero, without [`NODE_KNOWN`], when it could not be read.
#[inline(always)]
pub fn measure(engine: *mut Engine, sample: *mut Sample) {
    sum(engine);
    let known = known(engine);
    let deferred = if known { deferred(engine) } else { 0 };
    // SAFETY: both are map values, held by the caller.
    unsafe {
        (*sample).flags =
            if known { NODE_KNOWN } else { 0 } | if deferred > 0 { DEFERRED } else { 0 };
        (*sample).available = if known { available(engine) } else { 0 };
        (*sample).headroom = if known { headroom(engine, deferred) } else { 0 };
        if !known {
            Counters::clear(&raw mut (*engine).sums);
            // They are no sums of anything, for whoever comes after.
            (*engine).sums.failed = 1;
        }
        let (sums, shift) = (&(*engine).sums, layout!(page_shift));
        (*sample).anon = sums.anon << shift;
        (*sample).file = sums.file << shift;
        (*sample).inactive_file = sums.inactive_file << shift;
        (*sample).active_file = sums.active_file << shift;
        (*sample).dirty = sums.dirty << shift;
        (*sample).writeback = sums.writeback << shift;
        (*sample).reclaimable = sums.reclaimable << shift;
        (*sample).free = (sums.free + deferred) << shift;
        (*sample).spare = sums.spare << shift;
        (*sample).deferred = deferred << shift;
    }
}
