//! Each watch against its limit: first seen below, first seen back, how far below.

use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::bpf_get_current_task;
use brink_abi::sample::{
    SOURCE_NODE_AVAILABLE, SOURCE_NODE_ESTIMATE, SOURCE_NODE_HEADROOM, SOURCE_NODE_SHARE,
    SOURCE_SLOT_AVAILABLE, SOURCE_SLOT_HEADROOM,
};
use brink_abi::truth::{Crossing, TruthOrder, TruthWatch};
use brink_abi::{MAX_WATCHES, Plain};

use crate::kernel::{layout, opened_cgroup, pointer, read};
use crate::pass::ends;
use crate::{CONTROLLERS, ORDER, SUMS};

pub extern "C" fn forget(
    _map: *mut c_void,
    _index: *const u32,
    seen: *mut Crossing,
    _: *const u64,
) -> i64 {
    // SAFETY: the helper's argument. A tick beside us may put one field back; the next order waits for ticks.
    unsafe { seen.write(Crossing::ZERO) };
    0
}

pub extern "C" fn find_controller(
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
            SOURCE_NODE_ESTIMATE | SOURCE_NODE_SHARE if (*sums).failed == 0 => {
                // Of cache and of what slab can give back, the kernel counts half as needed, or the low watermarks.
                let of = |pages: i64| {
                    let bytes = pages << shift;
                    bytes - (bytes / 2).min(watch.reclaimable)
                };
                let free = (*sums).free << shift;
                let estimate = free + of((*sums).file) + of((*sums).kernel) - watch.capacity;
                if watch.source == SOURCE_NODE_ESTIMATE {
                    return Some(estimate);
                }
                // In pages, so that the product of two amounts of memory has room; these programs divide unsigned alone.
                let user = (estimate.max(0) >> shift) + (*sums).anon;
                let all = ((*order).capacity >> shift).max(1);
                let share = (user * (watch.inactive_file >> shift)) as u64 / all as u64;
                Some(estimate - ((share as i64) << shift))
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

pub extern "C" fn judge(
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
            let is_first = (*seen).crossed_ns == 0;
            if is_first || (*seen).latest_back_ns != 0 {
                (*seen).latest_ns = (*sums).at_ns;
                (*seen).latest_back_ns = 0;
                (*seen).latest_before_ns = (*sums).before_ns;
            }
            if is_first {
                (*seen).crossed_ns = (*sums).at_ns;
                (*seen).before_ns = (*sums).before_ns;
            }
            (*seen).overshoot = (*seen).overshoot.max(limit - found);
        } else if (*seen).crossed_ns != 0 && (*seen).latest_back_ns == 0 {
            (*seen).latest_back_ns = (*sums).at_ns;
            if (*seen).back_ns == 0 {
                (*seen).back_ns = (*sums).at_ns;
            }
        }
        ends(index as u32, *count)
    }
}
