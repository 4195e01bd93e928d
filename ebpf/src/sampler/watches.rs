//! Comparing each watched value with its limit, and the pace that follows from the smallest distance.

use aya_ebpf::cty::c_void;
use brink_abi::command::{self, Mailbox};
use brink_abi::sample::{
    NODE_KNOWN, SOURCE_NODE_AVAILABLE, SOURCE_NODE_HEADROOM, SOURCE_SLOT_AVAILABLE,
    SOURCE_SLOT_HEADROOM, Sample, Watch,
};
use brink_abi::{MAX_SLOTS, MAX_WATCHES};

use super::usage::charged;
use crate::engine::Engine;
use crate::maps::{ENGINE, LATEST, MAILBOX, SLOTS, WATCHES};
use crate::pass::{ends, pass};

/// Takes the command's watches: [`command::SET_WATCHES`]. The next tick tells each one that is below its limit.
#[inline(never)]
pub fn set(engine: *mut Engine, mailbox: *mut Mailbox) -> u32 {
    // SAFETY: both are map values, held by the caller.
    unsafe {
        let count = (*mailbox).command.count;
        // None, rather than half old and half new, if one of them is refused.
        (*engine).watch_count = 0;
        if count > MAX_WATCHES as u64 || pass(&WATCHES, take, count) != MAX_WATCHES as u64 {
            return command::INVALID;
        }
        (*engine).watch_count = count;
        (*engine).below = 0;
        (*engine).unknown = 0;
        (*engine).told_slack = 0;
    }
    command::OK
}

/// Takes one watch of the mailbox.
extern "C" fn take(
    _map: *mut c_void,
    index: *const u32,
    watch: *mut Watch,
    count: *const u64,
) -> i64 {
    let Some(mailbox) = MAILBOX.get_ptr_mut(0) else {
        return 1;
    };
    // SAFETY: the helper's arguments and a map value; the index is that of a map as long as the list.
    unsafe {
        let index = *index as usize;
        if index >= MAX_WATCHES {
            return 1;
        }
        let given = (&raw const (*mailbox).command.watches)
            .cast::<Watch>()
            .add(index)
            .read();
        let used = (index as u64) < *count;
        if used && (given.source > SOURCE_SLOT_HEADROOM || given.slot as usize >= MAX_SLOTS) {
            return 1;
        }
        watch.write(given);
    }
    0
}

/// The value a watch compares, `None` when its source cannot be read.
#[inline(always)]
fn value(watch: Watch, sample: *const Sample) -> Option<i64> {
    // SAFETY: `sample` is a map value.
    let (flags, available, headroom) =
        unsafe { ((*sample).flags, (*sample).available, (*sample).headroom) };
    match watch.source {
        SOURCE_NODE_AVAILABLE if flags & NODE_KNOWN != 0 => Some(available),
        SOURCE_NODE_HEADROOM if flags & NODE_KNOWN != 0 => Some(headroom),
        SOURCE_SLOT_AVAILABLE | SOURCE_SLOT_HEADROOM => {
            let slot = SLOTS.get_ptr_mut(watch.slot)?;
            let usage = charged(slot)?;
            // SAFETY: a map value.
            let terms = unsafe { (*slot).terms };
            Some(if watch.source == SOURCE_SLOT_AVAILABLE {
                terms.limit - (usage - terms.inactive_file).max(0)
            } else {
                terms.limit - usage + terms.reclaimable
            })
        }
        _ => None,
    }
}

/// Fills the watches' part of the sample.
#[inline(never)]
pub fn evaluate(engine: *mut Engine, sample: *mut Sample) -> u32 {
    // SAFETY: both are map values.
    unsafe {
        let (below, unknown) = ((*engine).below, (*engine).unknown);
        // As one value the two would be written byte by byte.
        (&raw mut (*engine).below).write_volatile(0);
        (&raw mut (*engine).unknown).write_volatile(0);
        (*engine).slack = i64::MAX as u64;
        let count = (*engine).watch_count;
        if count != 0 {
            pass(&WATCHES, compare, count);
        }
        (*sample).changed = (below ^ (*engine).below) | (unknown ^ (*engine).unknown);
        (*sample).below = (*engine).below;
        (*sample).unknown = (*engine).unknown;
        (*sample).slack = (*engine).slack as i64;
    }
    1
}

/// Compares one watch with its limit.
extern "C" fn compare(
    _map: *mut c_void,
    index: *const u32,
    watch: *mut Watch,
    count: *const u64,
) -> i64 {
    let (Some(engine), Some(latest)) = (ENGINE.get_ptr_mut(0), LATEST.get_ptr_mut(0)) else {
        return 1;
    };
    // SAFETY: the helper's arguments and map values; the index is compared with the length of the values.
    unsafe {
        let (index, watch) = (*index as usize, watch.read());
        if index as u64 >= *count || index >= MAX_WATCHES {
            return 1;
        }
        let sample = &raw mut (*latest).record.sample;
        let found = value(watch, sample);
        (&raw mut (*sample).values)
            .cast::<i64>()
            .add(index)
            .write(found.unwrap_or(0));
        let bit = 1u64 << index;
        match found {
            Some(value) => {
                if value < watch.limit {
                    (*engine).below |= bit;
                }
                let slack = value.wrapping_sub(watch.limit).unsigned_abs();
                if slack < (*engine).slack {
                    (*engine).slack = slack;
                }
            }
            None => (*engine).unknown |= bit,
        }
        ends(index as u32, *count)
    }
}

/// Time until the next tick.
#[inline(always)]
pub fn period(engine: *mut Engine, slack: i64, at: u64) -> u64 {
    // SAFETY: `engine` is a map value.
    let (knobs, boost) = unsafe { (&(*engine).knobs, (*engine).boost_until_ns) };
    if at < boost {
        knobs.min_period_ns
    } else {
        knobs.period_ns(slack as u64)
    }
}
