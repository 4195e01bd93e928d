//! Finding the node's NUMA nodes and zones, and what each zone keeps back.

use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::bpf_get_current_task;
use brink_abi::command::{self, Command, Mailbox};
use brink_abi::{MAX_NODES, MAX_ZONES};

use super::counters::sum;
use crate::engine::{Engine, MAX_STATS, Node, Zone};
use crate::kernel::{layout, node_data, read, root_memory};
use crate::maps::{ENGINE, MAILBOX, NODES};
use crate::pass::{ends, pass};

/// Pages a zone must have above those it manages to count as one that grows; reserved pages are fewer.
const GROWING: i64 = 1 << 14;

/// Finds the nodes' counters and takes the capacity: [`command::ARM_NODE`].
#[inline(never)]
pub fn arm(engine: *mut Engine, mailbox: *mut Mailbox) -> u32 {
    if layout!(stat_bytes) as usize > 8 * MAX_STATS {
        return command::UNSUPPORTED;
    }
    // SAFETY: the helper takes no argument.
    let Some(root) = root_memory(unsafe { bpf_get_current_task() }) else {
        return command::NOT_A_NODE;
    };
    // SAFETY: both are map values, held by the caller.
    unsafe {
        let given = &(*mailbox).command;
        (*engine).node_count = given.count;
        (*engine).nodes_found = 0;
        (*engine).capacity = given.capacity;
        pass(&NODES, find, root);
        if given.count == 0 || (*engine).nodes_found != given.count {
            (*engine).node_count = 0;
            return command::NOT_A_NODE;
        }
        read_reserves(engine);
        sum(engine);
        if (*engine).node_count == 0 || (*engine).sums.failed != 0 {
            return command::NOT_A_NODE;
        }
        (*mailbox).reply.nodes = (*engine).node_count;
        (*mailbox).reply.zones = (*engine).zone_count;
        (*mailbox).reply.free = (*engine).sums.free << layout!(page_shift);
        (*mailbox).reply.managed = (*engine).sums.managed;
    }
    command::OK
}

/// Takes what is free and not managed by a zone yet: [`command::SET_DEFERRED`].
#[inline(always)]
pub fn set_deferred(engine: *mut Engine, given: &Command) -> u32 {
    // SAFETY: a map value, held by the caller.
    unsafe {
        (*engine).deferred = given.free >> layout!(page_shift);
        (*engine).managed = given.managed;
    }
    command::OK
}

/// Looks one node of the mailbox's list up, from the root memory cgroup in the context.
extern "C" fn find(_map: *mut c_void, index: *const u32, node: *mut Node, root: *const u64) -> i64 {
    let (Some(engine), Some(mailbox)) = (ENGINE.get_ptr_mut(0), MAILBOX.get_ptr_mut(0)) else {
        return 1;
    };
    // SAFETY: the helper's arguments and map values; the index is compared with the length of the list.
    unsafe {
        let index = *index as usize;
        if index as u64 >= (*engine).node_count || index >= MAX_NODES {
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

/// Reads which zones have pages and what each keeps back. When one cannot be read, the node is unknown until it is
/// armed again.
#[inline(always)]
pub fn read_reserves(engine: *mut Engine) {
    // SAFETY: a map value, held by the caller.
    let count = unsafe {
        (*engine).zone_count = 0;
        (*engine).node_count
    };
    pass(&NODES, reserves, count);
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
    let first = data.wrapping_add(u64::from(layout!(pgdat_zones)));
    for zone in 0..MAX_ZONES {
        if zone as u32 >= layout!(zone_count) {
            break;
        }
        let address = first.wrapping_add(zone as u64 * u64::from(layout!(zone_size)));
        let found = read::<i64>(address, layout!(zone_managed))
            .zip(reserve(address))
            .zip(read::<i64>(address, layout!(zone_present)));
        // SAFETY: `zone` is below the length of the array; `engine` is a map value.
        unsafe {
            let Some(((managed, reserve), present)) = found else {
                (*engine).node_count = 0;
                return 1;
            };
            let place = (&raw mut (*node).zones).cast::<Zone>().add(zone);
            (*place).reserve = reserve;
            (*place).managed = managed;
            (*place).growing = u64::from(present - managed > GROWING);
            (*place).address = if managed > 0 { address } else { 0 };
            (*engine).zone_count += u64::from(managed > 0);
        }
    }
    ends(index, count)
}

/// Pages of the zone that ordinary allocations leave alone. No boost of the watermark: kswapd takes it back.
#[inline(always)]
fn reserve(zone: u64) -> Option<i64> {
    let minimum: i64 = read(zone, layout!(zone_min))?;
    let kept: [i64; MAX_ZONES] = read(zone, layout!(zone_reserve))?;
    let mut largest = 0;
    for (index, pages) in kept.iter().enumerate() {
        if (index as u32) < layout!(zone_count) && *pages > largest {
            largest = *pages;
        }
    }
    Some(minimum + largest)
}
