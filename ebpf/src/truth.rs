//! The truth sampler of the benchmarks: when did memory really cross?
//!
//! Its own program, maps and timer, and a plain reading of each counter, so that it shares no mistake with the sampler
//! it judges.
#![no_std]
#![no_main]
#![feature(core_intrinsics)]
#![expect(
    internal_features,
    reason = "the target has atomic operations that `core::sync` does not offer"
)]

#[expect(dead_code, reason = "the truth needs one operation of them")]
mod atomic;
#[expect(
    dead_code,
    reason = "the truth needs the way to the counters, not that to a task's cgroup"
)]
mod kernel;
mod pass;

use aya_ebpf::bindings::bpf_timer;
use aya_ebpf::btf_maps::Array as BtfArray;
use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::generated::{bpf_timer_init, bpf_timer_set_callback, bpf_timer_start};
use aya_ebpf::helpers::{bpf_get_current_task, bpf_ktime_get_ns};
use aya_ebpf::macros::{btf_map, map, socket_filter};
use aya_ebpf::maps::Array;
use aya_ebpf::programs::SkBuffContext;
use brink_abi::sample::{
    SOURCE_NODE_AVAILABLE, SOURCE_NODE_HEADROOM, SOURCE_SLOT_AVAILABLE, SOURCE_SLOT_HEADROOM,
};
use brink_abi::truth::{Crossing, TRUTH_RESET, TRUTH_START, TruthOrder, TruthResult, TruthWatch};
use brink_abi::{MAX_NODES, MAX_WATCHES, MAX_ZONES, Plain, command};

use crate::kernel::{layout, node_data, opened_cgroup, pointer, read, root_memory};
use crate::pass::{ends, pass};

/// The timer, found by the BTF name of its type.
#[repr(C)]
pub struct TimerSlot {
    timer: bpf_timer,
}

/// What one tick sums, in pages, and what it compares with.
#[repr(C)]
pub struct Sums {
    used: i64,
    /// could still be allocated
    headroom: i64,
    managed: i64,
    failed: u64,
    /// managed pages when started; 0 before
    baseline: i64,
    at_ns: u64,
    before_ns: u64,
}

#[btf_map]
static TRUTH_TIMERS: BtfArray<TimerSlot, 1, 0> = BtfArray::new();

#[map]
static ORDER: Array<TruthOrder> = Array::with_max_entries(1, 0);

#[map]
static RESULT: Array<TruthResult> = Array::with_max_entries(1, 0);

#[map]
static CROSSINGS: Array<Crossing> = Array::with_max_entries(MAX_WATCHES as u32, 0);

#[map]
static SUMS: Array<Sums> = Array::with_max_entries(1, 0);

/// Address of each node's `pglist_data`.
#[map]
static TRUTH_NODES: Array<u64> = Array::with_max_entries(MAX_NODES as u32, 0);

/// Address of the memory controller of each watch's cgroup, and its serial number.
#[map]
static CONTROLLERS: Array<[u64; 2]> = Array::with_max_entries(MAX_WATCHES as u32, 0);

const CLOCK_MONOTONIC: u64 = 1;

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
    // SAFETY: all are map values; the timer lies in the map that is passed with it.
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
        let timer = &raw mut (*slot).timer;
        bpf_timer_init(
            timer,
            (&raw const TRUTH_TIMERS).cast_mut().cast(),
            CLOCK_MONOTONIC,
        );
        if bpf_timer_set_callback(timer, on_truth as *mut c_void) != 0
            || bpf_timer_start(timer, 0, 0) != 0
        {
            return i64::from(command::TIMER_REFUSED);
        }
    }
    i64::from(command::OK)
}

extern "C" fn forget(
    _map: *mut c_void,
    _index: *const u32,
    seen: *mut Crossing,
    _: *const u64,
) -> i64 {
    // SAFETY: the helper's argument. A tick beside us may put one field back; the next order waits for ticks.
    unsafe { seen.write(Crossing::ZERO) };
    0
}

extern "C" fn find_node(
    _map: *mut c_void,
    index: *const u32,
    place: *mut u64,
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
        place.write(node_data(*root, id).unwrap_or(0));
    }
    0
}

extern "C" fn find_controller(
    _map: *mut c_void,
    index: *const u32,
    place: *mut [u64; 2],
    _: *const u64,
) -> i64 {
    let Some(order) = ORDER.get_ptr_mut(0) else {
        return 1;
    };
    // SAFETY: as above.
    unsafe {
        let index = *index as usize;
        if index >= MAX_WATCHES || index as u32 >= (*order).count {
            return 1;
        }
        let watch = (&raw const (*order).watches)
            .cast::<TruthWatch>()
            .add(index)
            .read();
        let css = opened_cgroup(bpf_get_current_task(), watch.fd)
            .and_then(|cgroup| pointer(cgroup, layout!(cgroup_memory)));
        let serial = css.and_then(|css| read::<u64>(css, layout!(css_serial)));
        place.write([css.unwrap_or(0), serial.unwrap_or(0)]);
    }
    0
}

/// One tick of the truth.
extern "C" fn on_truth(_map: *mut c_void, _key: *mut u32, slot: *mut TimerSlot) -> i64 {
    // SAFETY: the helper takes no argument.
    let at = unsafe { bpf_ktime_get_ns() };
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
        (*sums).headroom = 0;
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
        let cost = bpf_ktime_get_ns() - at;
        (*result).cost_ns += cost;
        (*result).cost_max_ns = (*result).cost_max_ns.max(cost);
    }
    0
}

/// One node counter, in pages.
#[inline(always)]
fn stat(data: u64, offset: u32) -> Option<i64> {
    let found: i64 = read(data.wrapping_add(u64::from(layout!(pgdat_vm_stat))), offset)?;
    Some(found.max(0))
}

extern "C" fn add_node(
    _map: *mut c_void,
    index: *const u32,
    place: *mut u64,
    count: *const u64,
) -> i64 {
    // SAFETY: the helper's arguments.
    let (index, count, data) = unsafe { (*index, *count, *place) };
    let (Some(sums), true) = (SUMS.get_ptr_mut(0), u64::from(index) < count) else {
        return 1;
    };
    let found = node_sums(data);
    // SAFETY: a map value.
    unsafe {
        let Some((used, reclaimable)) = found else {
            (*sums).failed = 1;
            return 1;
        };
        (*sums).used += used;
        (*sums).headroom += reclaimable;
    }
    for zone in 0..MAX_ZONES {
        if zone as u32 >= layout!(zone_count) {
            break;
        }
        let address = data
            .wrapping_add(u64::from(layout!(pgdat_zones)))
            .wrapping_add(zone as u64 * u64::from(layout!(zone_size)));
        let found = zone_sums(address);
        // SAFETY: a map value.
        unsafe {
            let Some((managed, spare)) = found else {
                (*sums).failed = 1;
                return 1;
            };
            (*sums).managed += managed;
            (*sums).headroom += spare;
        }
    }
    ends(index, count)
}

/// The node's working set by the kubelet's formula, and what reclaim could give back.
#[inline(always)]
fn node_sums(data: u64) -> Option<(i64, i64)> {
    let inactive = stat(data, layout!(stat_inactive_file))?;
    let used = stat(data, layout!(stat_anon))? + stat(data, layout!(stat_file))? - inactive;
    let held = stat(data, layout!(stat_dirty))? + stat(data, layout!(stat_writeback))?;
    let clean = (stat(data, layout!(stat_active_file))? + inactive - held).max(0);
    Some((
        used,
        clean + stat(data, layout!(stat_slab))? + stat(data, layout!(stat_misc))?,
    ))
}

/// Pages the zone manages, and its free ones above its reserve.
#[inline(always)]
fn zone_sums(zone: u64) -> Option<(i64, i64)> {
    let managed: i64 = read(zone, layout!(zone_managed))?;
    if managed <= 0 {
        return Some((0, 0));
    }
    let mut reserve = 0i64;
    for index in 0..MAX_ZONES as u32 {
        if index < layout!(zone_count) {
            reserve = reserve.max(read(zone, layout!(zone_reserve).wrapping_add(8 * index))?);
        }
    }
    reserve += read::<i64>(zone, layout!(zone_min))? + read::<i64>(zone, layout!(zone_boost))?;
    let free: i64 = read(zone, layout!(zone_free))?;
    Some((managed, (free - reserve).max(0)))
}

/// The value of one watch, in bytes.
#[inline(always)]
fn value(order: *const TruthOrder, index: usize) -> Option<i64> {
    let sums = SUMS.get_ptr_mut(0)?;
    let controller = CONTROLLERS.get_ptr_mut(index as u32)?;
    let shift = layout!(page_shift);
    // SAFETY: all are map values; the caller compared the index with the length of the list.
    unsafe {
        let watch = (&raw const (*order).watches)
            .cast::<TruthWatch>()
            .add(index)
            .read();
        match watch.source {
            SOURCE_NODE_AVAILABLE if (*sums).failed == 0 => {
                Some((*order).capacity - ((*sums).used << shift))
            }
            SOURCE_NODE_HEADROOM if (*sums).failed == 0 => {
                let grown = ((*sums).managed - (*sums).baseline).max(0) << shift;
                Some(((*sums).headroom << shift) + ((*order).deferred - grown).max(0))
            }
            SOURCE_SLOT_AVAILABLE | SOURCE_SLOT_HEADROOM => {
                let [css, serial] = *controller;
                let flags: u32 = read(css, layout!(css_flags))?;
                let online = flags & (layout!(css_online) | layout!(css_dying));
                if read::<u64>(css, layout!(css_serial))? != serial || online != layout!(css_online)
                {
                    return None;
                }
                let memcg = css.wrapping_sub(u64::from(layout!(memcg_css)));
                let usage = read::<i64>(memcg, layout!(memcg_usage))? << shift;
                Some(if watch.source == SOURCE_SLOT_AVAILABLE {
                    watch.capacity - (usage - watch.inactive_file).max(0)
                } else {
                    watch.capacity - usage + watch.reclaimable
                })
            }
            _ => None,
        }
    }
}

extern "C" fn judge(
    _map: *mut c_void,
    index: *const u32,
    seen: *mut Crossing,
    count: *const u64,
) -> i64 {
    let (Some(order), Some(sums)) = (ORDER.get_ptr_mut(0), SUMS.get_ptr_mut(0)) else {
        return 1;
    };
    // SAFETY: the helper's arguments and map values; the index is compared with the length of the list.
    unsafe {
        let index = *index as usize;
        if index >= MAX_WATCHES || index as u64 >= *count {
            return 1;
        }
        let limit = (*(&raw const (*order).watches)
            .cast::<TruthWatch>()
            .add(index))
        .limit;
        let Some(found) = value(order, index) else {
            (*seen).unknown += 1;
            return 0;
        };
        (*seen).value = found;
        if found < limit {
            if (*seen).crossed_ns == 0 {
                (*seen).crossed_ns = (*sums).at_ns;
                (*seen).before_ns = (*sums).before_ns;
            }
            (*seen).overshoot = (*seen).overshoot.max(limit - found);
        } else if (*seen).crossed_ns != 0 && (*seen).back_ns == 0 {
            (*seen).back_ns = (*sums).at_ns;
        }
        ends(index as u32, *count)
    }
}

#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    loop {}
}

/// Helpers that read kernel memory are open to GPL-compatible programs only.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
