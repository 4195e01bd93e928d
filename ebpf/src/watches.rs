//! Comparing each watched value with its limit, and the pace that follows from the smallest distance.

use brink_abi::command::{self, Mailbox};
use brink_abi::sample::{
    NODE_KNOWN, SOURCE_NODE_AVAILABLE, SOURCE_NODE_HEADROOM, SOURCE_SLOT_AVAILABLE,
    SOURCE_SLOT_HEADROOM, Sample, Watch,
};
use brink_abi::{MAX_SLOTS, MAX_WATCHES};

use crate::engine::Engine;
use crate::maps::SLOTS;
use crate::slots::charged;

/// Takes the command's watches: [`command::SET_WATCHES`]. The next tick tells each one that is below its limit.
#[inline(never)]
pub fn set(engine: *mut Engine, mailbox: *mut Mailbox) -> u32 {
    // SAFETY: `mailbox` is a map value.
    let count = unsafe { (*mailbox).command.count };
    if count > MAX_WATCHES as u64 {
        return command::INVALID;
    }
    for index in 0..MAX_WATCHES {
        // SAFETY: `index` is below the length of both arrays.
        unsafe {
            let given = (&raw const (*mailbox).command.watches)
                .cast::<Watch>()
                .add(index)
                .read();
            if given.source > SOURCE_SLOT_HEADROOM || given.slot as usize >= MAX_SLOTS {
                return command::INVALID;
            }
            (&raw mut (*engine).watches)
                .cast::<Watch>()
                .add(index)
                .write(given);
        }
    }
    // SAFETY: `engine` is a map value.
    unsafe {
        (*engine).watch_count = count;
        (*engine).below = 0;
        (*engine).unknown = 0;
        (*engine).told_slack = 0;
    }
    command::OK
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
    let (mut below, mut unknown) = (0u64, 0u64);
    let mut slack = i64::MAX as u64;
    // SAFETY: both are map values.
    let count = unsafe { (*engine).watch_count };
    for index in 0..MAX_WATCHES {
        if index as u64 >= count {
            break;
        }
        // SAFETY: `index` is below the length of both arrays.
        let (watch, place) = unsafe {
            (
                (&raw const (*engine).watches)
                    .cast::<Watch>()
                    .add(index)
                    .read(),
                (&raw mut (*sample).values).cast::<i64>().add(index),
            )
        };
        let found = value(watch, sample);
        // SAFETY: as above.
        unsafe { place.write(found.unwrap_or(0)) };
        match found {
            Some(value) => {
                if value < watch.limit {
                    below |= 1 << index;
                }
                slack = slack.min(value.wrapping_sub(watch.limit).unsigned_abs());
            }
            None => unknown |= 1 << index,
        }
    }
    // SAFETY: both are map values.
    unsafe {
        (*sample).changed = (below ^ (*engine).below) | (unknown ^ (*engine).unknown);
        (*engine).below = below;
        (*engine).unknown = unknown;
        (*sample).below = below;
        (*sample).unknown = unknown;
        (*sample).slack = slack as i64;
    }
    1
}

/// Time until the next tick: no growth the machine is capable of can use up the slack in less than eight of them.
#[inline(always)]
pub fn period(engine: *mut Engine, slack: i64, at: u64) -> u64 {
    // SAFETY: `engine` is a map value.
    let (knobs, boost) = unsafe { (&(*engine).knobs, (*engine).boost_until_ns) };
    let (least, most) = (knobs.min_period_ns, knobs.max_period_ns);
    if at < boost || knobs.slack_per_ns == 0 {
        return least;
    }
    // Not `clamp`, which may panic.
    (slack as u64 / knobs.slack_per_ns).min(most).max(least)
}
