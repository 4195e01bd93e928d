//! The node's own counters, summed over its NUMA nodes and zones.

use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::bpf_get_current_task;
use aya_ebpf::helpers::generated::bpf_probe_read_kernel;
use brink_abi::command::{self, Mailbox};
use brink_abi::sample::{DEFERRED, NODE_KNOWN, Sample};
use brink_abi::{MAX_NODES, MAX_ZONES};

use crate::engine::{Engine, MAX_STATS, Zone};
use crate::kernel::{layout, node_data, read, root_memory};

/// Deferred memory under this many bytes is noise of the counters, not memory still to be initialised.
const DEFERRED_MIN: i64 = 64 << 20;

/// Finds the nodes' counters and takes the capacity: [`command::ARM_NODE`].
#[inline(never)]
pub fn arm(engine: *mut Engine, mailbox: *mut Mailbox) -> u32 {
    // SAFETY: both are map values.
    let (count, capacity, free) = unsafe {
        let given = &(*mailbox).command;
        (given.count, given.capacity, given.free)
    };
    if count == 0 || count > MAX_NODES as u64 || layout!(stat_bytes) as usize > 8 * MAX_STATS {
        return command::INVALID;
    }
    // SAFETY: the helper takes no argument.
    let Some(root) = root_memory(unsafe { bpf_get_current_task() }) else {
        return command::NOT_A_NODE;
    };
    for index in 0..MAX_NODES {
        if index as u64 >= count {
            break;
        }
        // SAFETY: `index` is below the length of both arrays.
        let (id, place) = unsafe {
            (
                (&raw const (*mailbox).command.nodes)
                    .cast::<u32>()
                    .add(index)
                    .read(),
                (&raw mut (*engine).nodes).cast::<u64>().add(index),
            )
        };
        let Some(data) = node_data(root, id) else {
            return command::NOT_A_NODE;
        };
        // SAFETY: as above.
        unsafe { place.write(data) };
    }
    // SAFETY: `engine` is a map value.
    unsafe {
        (*engine).node_count = count;
        (*engine).capacity = capacity;
    }
    let managed = read_reserves(engine);
    if sum_free(engine) == 0 {
        return command::NOT_A_NODE;
    }
    // SAFETY: as above.
    let owned = unsafe { (*engine).free };
    let deferred = (free >> layout!(page_shift)) - owned;
    let material = deferred << layout!(page_shift) > DEFERRED_MIN;
    // SAFETY: both are map values.
    unsafe {
        (*engine).managed = managed;
        (*engine).deferred = if material { deferred } else { 0 };
        (*mailbox).reply.nodes = count;
        (*mailbox).reply.zones = (*engine).zone_count;
        (*mailbox).reply.free = owned << layout!(page_shift);
        (*mailbox).reply.deferred = (*engine).deferred << layout!(page_shift);
    }
    command::OK
}

/// The zone table's entry for zone `zone` of node `node`.
#[inline(always)]
fn entry(engine: *mut Engine, node: usize, zone: usize) -> *mut Zone {
    // SAFETY: the callers' loops keep both below the table's dimensions.
    unsafe {
        (&raw mut (*engine).zones)
            .cast::<Zone>()
            .add(node * MAX_ZONES + zone)
    }
}

/// Reads which zones have pages and what each keeps back. Returns the pages all of them manage.
#[inline(never)]
pub fn read_reserves(engine: *mut Engine) -> i64 {
    let mut managed = 0;
    // SAFETY: `engine` is a map value.
    let count = unsafe {
        (*engine).zone_count = 0;
        (*engine).node_count
    };
    for node in 0..MAX_NODES {
        if node as u64 >= count {
            break;
        }
        // SAFETY: `node` is below the length of the array.
        let data = unsafe { (&raw const (*engine).nodes).cast::<u64>().add(node).read() };
        for zone in 0..MAX_ZONES {
            let place = entry(engine, node, zone);
            let address = data
                .wrapping_add(u64::from(layout!(pgdat_zones)))
                .wrapping_add(zone as u64 * u64::from(layout!(zone_size)));
            let pages = if (zone as u32) < layout!(zone_count) {
                read::<i64>(address, layout!(zone_managed)).unwrap_or(0)
            } else {
                0
            };
            // SAFETY: `place` is inside the table.
            unsafe {
                if pages > 0 {
                    (*place).reserve = reserve(address);
                    (*engine).zone_count += 1;
                }
                (*place).address = if pages > 0 { address } else { 0 };
            }
            managed += pages;
        }
    }
    managed
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

/// Sums the free pages the zones own, and those of them above each zone's reserve, into the engine.
/// Non-zero unless a counter could not be read.
#[inline(never)]
fn sum_free(engine: *mut Engine) -> u32 {
    let (mut free, mut spare) = (0, 0);
    // SAFETY: `engine` is a map value.
    let count = unsafe { (*engine).node_count };
    for node in 0..MAX_NODES {
        if node as u64 >= count {
            break;
        }
        for zone in 0..MAX_ZONES {
            let place = entry(engine, node, zone);
            // SAFETY: `place` is inside the table.
            let (address, reserve) = unsafe { ((*place).address, (*place).reserve) };
            if address != 0 {
                let Some(pages) = read::<i64>(address, layout!(zone_free)) else {
                    return 0;
                };
                free += pages.max(0);
                spare += (pages - reserve).max(0);
            }
        }
    }
    // SAFETY: as above.
    unsafe {
        (*engine).free = free;
        (*engine).spare = spare;
    }
    1
}

/// Pages still deferred: those found when armed, less what the zones have come to manage since.
#[inline(always)]
fn deferred(engine: *mut Engine) -> i64 {
    // SAFETY: `engine` is a map value.
    let (deferred, managed) = unsafe { ((*engine).deferred, (*engine).managed) };
    if deferred == 0 {
        return 0;
    }
    (deferred - (sum_managed(engine) - managed)).max(0)
}

/// Pages all populated zones manage now.
#[inline(never)]
fn sum_managed(engine: *mut Engine) -> i64 {
    let mut managed = 0;
    // SAFETY: `engine` is a map value.
    let count = unsafe { (*engine).node_count };
    for node in 0..MAX_NODES {
        if node as u64 >= count {
            break;
        }
        for zone in 0..MAX_ZONES {
            // SAFETY: the entry is inside the table.
            let address = unsafe { (*entry(engine, node, zone)).address };
            if address != 0 {
                managed += read::<i64>(address, layout!(zone_managed)).unwrap_or(0);
            }
        }
    }
    managed
}

/// Copies each node's counters into the scratch and adds them to the sample, in pages.
/// Non-zero unless a counter could not be read.
#[inline(never)]
fn sum_counters(engine: *mut Engine, sample: *mut Sample) -> u32 {
    // SAFETY: both are map values.
    let (count, scratch) = unsafe {
        (
            (*engine).node_count,
            (&raw mut (*engine).scratch).cast::<u8>(),
        )
    };
    for node in 0..MAX_NODES {
        if node as u64 >= count {
            break;
        }
        // SAFETY: `node` is below the length of the array; the scratch holds `stat_bytes`, as `arm` checked.
        let failed = unsafe {
            let data = (&raw const (*engine).nodes).cast::<u64>().add(node).read();
            let from = data.wrapping_add(u64::from(layout!(pgdat_vm_stat)));
            bpf_probe_read_kernel(scratch.cast(), layout!(stat_bytes), from as *const c_void)
        };
        if failed != 0 {
            return 0;
        }
        // SAFETY: `sample` is a map value, and every offset lies inside the scratch.
        unsafe {
            (*sample).anon += counter(scratch, layout!(stat_anon));
            (*sample).file += counter(scratch, layout!(stat_file));
            (*sample).inactive_file += counter(scratch, layout!(stat_inactive_file));
            (*sample).active_file += counter(scratch, layout!(stat_active_file));
            (*sample).dirty += counter(scratch, layout!(stat_dirty));
            (*sample).writeback += counter(scratch, layout!(stat_writeback));
            (*sample).reclaimable += counter(scratch, layout!(stat_slab));
            (*sample).reclaimable += counter(scratch, layout!(stat_misc));
        }
    }
    1
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

/// Fills the node's part of the sample.
#[inline(always)]
pub fn measure(engine: *mut Engine, sample: *mut Sample) {
    clear(sample);
    // SAFETY: both are map values.
    let armed = unsafe { (*engine).node_count } != 0;
    if !armed || sum_free(engine) == 0 || sum_counters(engine, sample) == 0 {
        clear(sample);
        return;
    }
    let deferred = deferred(engine);
    let shift = layout!(page_shift);
    // SAFETY: both are map values.
    unsafe {
        let sample = &mut *sample;
        let clean = sample.active_file + sample.inactive_file - sample.dirty - sample.writeback;
        sample.flags |= NODE_KNOWN | if deferred > 0 { DEFERRED } else { 0 };
        sample.spare = (*engine).spare << shift;
        sample.deferred = deferred << shift;
        sample.free = ((*engine).free + deferred) << shift;
        sample.headroom = ((*engine).spare + deferred + clean.max(0) + sample.reclaimable) << shift;
        sample.available =
            (*engine).capacity - ((sample.anon + sample.file - sample.inactive_file) << shift);
        sample.anon <<= shift;
        sample.file <<= shift;
        sample.inactive_file <<= shift;
        sample.active_file <<= shift;
        sample.dirty <<= shift;
        sample.writeback <<= shift;
        sample.reclaimable <<= shift;
    }
}

/// Takes the node's numbers out of the sample: unknown must not look like the tick before.
#[inline(always)]
fn clear(sample: *mut Sample) {
    // SAFETY: `sample` is a map value.
    unsafe {
        let sample = &mut *sample;
        sample.flags = 0;
        sample.available = 0;
        sample.headroom = 0;
        sample.anon = 0;
        sample.file = 0;
        sample.inactive_file = 0;
        sample.active_file = 0;
        sample.dirty = 0;
        sample.writeback = 0;
        sample.reclaimable = 0;
        sample.free = 0;
        sample.spare = 0;
        sample.deferred = 0;
    }
}
