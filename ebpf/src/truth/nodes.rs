//! The node's counters: found once, summed at each tick.

use aya_ebpf::cty::c_void;
use brink_abi::{MAX_NODES, MAX_ZONES};

use crate::kernel::{layout, node_data, read};
use crate::pass::ends;
use crate::{Node, ORDER, SUMS, Zone};

pub extern "C" fn find_node(
    _map: *mut c_void,
    index: *const u32,
    node: *mut Node,
    root: *const u64,
) -> i64 {
    let Some(order) = ORDER.get_ptr_mut(0) else {
        return 1;
    };
    // SAFETY: the helper's arguments and a map value; the index is compared with the length of the list.
    unsafe {
        let index = *index as usize;
        if index >= MAX_NODES || index as u32 >= (*order).node_count {
            return 1;
        }
        let id = (&raw const (*order).nodes).cast::<u32>().add(index).read();
        let data = node_data(*root, id).unwrap_or(0);
        (*node).data = data;
        let first = data.wrapping_add(u64::from(layout!(pgdat_zones)));
        for zone in 0..MAX_ZONES {
            if zone as u32 >= layout!(zone_count) {
                break;
            }
            let address = first.wrapping_add(zone as u64 * u64::from(layout!(zone_size)));
            let reserve = reserve(address);
            let place = (&raw mut (*node).zones).cast::<Zone>().add(zone);
            (*place).address = if reserve.is_some() { address } else { 0 };
            (*place).reserve = reserve.unwrap_or(0);
        }
    }
    0
}

/// Pages a populated zone keeps back: minimum watermark without any boost, and the low-memory reserve against the highest
/// zone, which is the largest.
#[inline(always)]
fn reserve(zone: u64) -> Option<i64> {
    let managed: i64 = read(zone, layout!(zone_managed))?;
    let last = layout!(zone_reserve).wrapping_add(8 * (layout!(zone_count) - 1));
    let kept: i64 = read(zone, last)?;
    let reserve = kept + read::<i64>(zone, layout!(zone_min))?;
    (managed > 0).then_some(reserve)
}

/// One node counter, in pages.
#[inline(always)]
fn stat(data: u64, offset: u32) -> Option<i64> {
    let found: i64 = read(data.wrapping_add(u64::from(layout!(pgdat_vm_stat))), offset)?;
    Some(found.max(0))
}

pub extern "C" fn add_node(
    _map: *mut c_void,
    index: *const u32,
    node: *mut Node,
    count: *const u64,
) -> i64 {
    // SAFETY: the helper's arguments.
    let (index, count, data) = unsafe { (*index, *count, (*node).data) };
    let (Some(sums), true) = (SUMS.get_ptr_mut(0), u64::from(index) < count) else {
        return 1;
    };
    // SAFETY: map values, and the zone is below the length of the array.
    unsafe {
        let Some(found) = node_sums(data) else {
            (*sums).failed = 1;
            return 1;
        };
        (*sums).used += found.used;
        (*sums).anon += found.anon;
        (*sums).headroom += found.clean + found.kernel;
        (*sums).file += found.file;
        (*sums).kernel += found.kernel;
        for zone in 0..MAX_ZONES {
            let place = (&raw const (*node).zones).cast::<Zone>().add(zone);
            let address = (*place).address;
            if address == 0 {
                continue;
            }
            let free = read::<i64>(address, layout!(zone_free));
            let managed = read::<i64>(address, layout!(zone_managed));
            let (Some(free), Some(managed)) = (free, managed) else {
                (*sums).failed = 1;
                return 1;
            };
            (*sums).managed += managed;
            (*sums).free += free;
            (*sums).headroom += (free - (*place).reserve).max(0);
        }
    }
    ends(index, count)
}

/// One node's counters, in pages.
struct NodeSums {
    /// the working set by the kubelet's formula
    used: i64,
    anon: i64,
    /// file pages on the lists of reclaim, and those of them that need not be written first
    file: i64,
    clean: i64,
    /// kernel memory that reclaim could give back
    kernel: i64,
}

#[inline(always)]
fn node_sums(data: u64) -> Option<NodeSums> {
    let inactive = stat(data, layout!(stat_inactive_file))?;
    let held = stat(data, layout!(stat_dirty))? + stat(data, layout!(stat_writeback))?;
    let file = stat(data, layout!(stat_active_file))? + inactive;
    let anon = stat(data, layout!(stat_anon))?;
    Some(NodeSums {
        used: anon + stat(data, layout!(stat_file))? - inactive,
        anon,
        file,
        clean: (file - held).max(0),
        kernel: stat(data, layout!(stat_slab))? + stat(data, layout!(stat_misc))?,
    })
}
