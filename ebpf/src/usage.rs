//! A pass over all slots, whenever a record is told: an event carries its numbers, and none is older than a second.

use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::generated::bpf_for_each_map_elem;

use crate::atomic::add;
use crate::emit::now;
use crate::engine::{Engine, Slot, begin, finish};
use crate::maps::{SAMPLER, SLOTS, USAGE};
use crate::slots::refresh;

/// Reads every slot. Returns 1 when there was one to read.
#[inline(never)]
pub fn sweep(engine: *mut Engine) -> u32 {
    let (Some(table), Some(meter)) = (USAGE.get_ptr_mut(0), SAMPLER.get_ptr_mut(0)) else {
        return 0;
    };
    // SAFETY: `engine` and `table` are map values.
    let (end, started, finished) = unsafe {
        (
            (*engine).slot_end,
            &raw mut (*table).started,
            &raw mut (*table).finished,
        )
    };
    if end == 0 {
        return 0;
    }
    let at = now();
    // SAFETY: as above, and the caller holds the engine.
    let number = unsafe { begin(started) };
    // SAFETY: the callback has the signature the kernel calls for an array, and its context lives on this stack.
    unsafe {
        let slots = (&raw const SLOTS).cast_mut().cast();
        let context = (&raw const end).cast_mut().cast();
        bpf_for_each_map_elem(slots, each as *mut c_void, context, 0);
    }
    // SAFETY: as above.
    unsafe {
        (*table).swept_ns = at;
        (*table).sweeps += 1;
    }
    finish(finished, number);
    // SAFETY: `meter` is a map value.
    unsafe {
        add(&raw mut (*meter).sweeps, 1);
        add(&raw mut (*meter).sweep_ns, now().wrapping_sub(at));
    }
    1
}

/// One slot of a sweep. A helper's loop rather than ours, because the verifier then looks at the body once, not 512
/// times. Non-zero ends the loop.
extern "C" fn each(_map: *mut c_void, key: *const u32, slot: *mut Slot, end: *const u64) -> i64 {
    // SAFETY: the helper passes a key and a value of the map, and `sweep`'s context.
    let (index, end) = unsafe { (*key, *end) };
    if u64::from(index) >= end {
        return 1;
    }
    if let Some(table) = USAGE.get_ptr_mut(0) {
        refresh(table, index, slot);
    }
    0
}
