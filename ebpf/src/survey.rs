//! The survey of the flight recorder: what many cgroups use, asked in one call.
//!
//! Reading as many files takes several times as long. The program runs in the caller's context, and only one thread at a time calls it. A few
//! cgroups are followed by a timer beside it.
#![no_std]
#![no_main]
#![feature(core_intrinsics)]
#![expect(
    internal_features,
    reason = "the target has atomic operations that `core::sync` does not offer"
)]

#[expect(dead_code, reason = "only one of the operations is needed")]
mod atomic;
mod controller;
#[expect(
    dead_code,
    reason = "the survey needs the way to a descriptor's cgroup, not that to the node's counters"
)]
mod kernel;
mod object;
mod pass;
mod timer;

#[path = "survey/follow.rs"]
mod follow;

use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::bpf_get_current_task;
use aya_ebpf::macros::map;
use aya_ebpf::maps::Array;
use brink_abi::command;
use brink_abi::layout::ABSENT;
use brink_abi::survey::{
    FOLLOW, LEAVE, LIMITS, LOOK, MAX_SURVEYED, SEAT, Surveyed, UNKNOWN, UNLIMITED, WORDS,
};

use crate::controller::{Controller, STATE_BYTES};
use crate::kernel::{layout, opened_cgroup, read};
use crate::pass::{ends, pass};

/// What a look works with.
#[repr(C)]
pub struct Round {
    /// who is wanted
    wanted: [u64; WORDS],
    /// how many used another amount than before
    moved: u64,
    /// one past the last place that was ever taken
    end: u64,
}

#[map]
pub static SEATS: Array<Controller> = Array::with_max_entries(MAX_SURVEYED as u32, 0);

#[map]
static SURVEYED: Array<Surveyed> = Array::with_max_entries(1, 0);

#[map]
static LIMITED: Array<Surveyed> = Array::with_max_entries(1, 0);

#[map]
static ROUND: Array<Round> = Array::with_max_entries(1, 0);

/// The masks need it.
const _: () = assert!(MAX_SURVEYED.is_power_of_two() && WORDS.is_power_of_two());

/// Does what its first argument says; see [`brink_abi::survey`]. User space runs it, it is attached nowhere. Written out, since the
/// macro for such programs drops their result.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp")]
extern "C" fn survey(arguments: *const u64) -> u32 {
    // SAFETY: the kernel hands over as many arguments as the program reads, or refuses the call.
    let [what, first, second, third] = [0, 1, 2, 3].map(|n| unsafe { arguments.add(n).read() });
    match what {
        LOOK => {
            let Some(round) = ROUND.get_ptr_mut(0) else {
                return 0;
            };
            // SAFETY: a map value; the arguments as above, and the index is below the length of the set.
            unsafe {
                let wanted = (&raw mut (*round).wanted).cast::<u64>();
                for word in 0..WORDS {
                    wanted.add(word).write(arguments.add(1 + word).read());
                }
                (*round).moved = 0;
                pass(&SEATS, look, (*round).end);
                (*round).moved as u32
            }
        }
        LIMITS => limits(),
        SEAT => seat(first as u32, second as i32),
        LEAVE => leave(first as u32),
        FOLLOW => follow::assign(first as u32, second, third != 0),
        _ => command::INVALID,
    }
}

/// Reads one cgroup, if it is wanted.
extern "C" fn look(
    _map: *mut c_void,
    index: *const u32,
    controller: *mut Controller,
    end: *const u64,
) -> i64 {
    let (Some(round), Some(table)) = (ROUND.get_ptr_mut(0), SURVEYED.get_ptr_mut(0)) else {
        return 1;
    };
    // SAFETY: the helper's arguments and map values; the masks keep both indices below the lengths.
    unsafe {
        let (index, end) = (*index, *end);
        let word = (index as usize >> 6) & (WORDS - 1);
        let wanted = (&raw const (*round).wanted).cast::<u64>().add(word).read();
        if (wanted >> (index & 63)) & 1 == 0 {
            return ends(index, end);
        }
        let found = Controller::charged(controller).map_or(UNKNOWN, |bytes| bytes as u64);
        let place = entry(table, index);
        (*round).moved += u64::from(place.read() != found);
        place.write(found);
        ends(index, end)
    }
}

/// Reads the limits of all.
#[inline(always)]
fn limits() -> u32 {
    // What follows is dead code where the kernel has no such counter.
    if layout!(memcg_max) == ABSENT {
        return command::UNSUPPORTED;
    }
    let Some(round) = ROUND.get_ptr_mut(0) else {
        return command::INVALID;
    };
    // SAFETY: a map value.
    pass(&SEATS, limit, unsafe { (*round).end });
    command::OK
}

/// Reads one limit.
extern "C" fn limit(
    _map: *mut c_void,
    index: *const u32,
    controller: *mut Controller,
    end: *const u64,
) -> i64 {
    let Some(table) = LIMITED.get_ptr_mut(0) else {
        return 1;
    };
    // SAFETY: the helper's arguments and a map value.
    unsafe {
        let (index, end) = (*index, *end);
        let found = if Controller::is_valid(controller) {
            let memcg = (*controller)
                .css
                .wrapping_sub(u64::from(layout!(memcg_css)));
            read::<u64>(memcg, layout!(memcg_max))
        } else {
            None
        };
        let most = (i64::MAX as u64) >> layout!(page_shift);
        entry(table, index).write(match found {
            None => UNKNOWN,
            Some(pages) if pages >= most => UNLIMITED,
            Some(pages) => pages << layout!(page_shift),
        });
        ends(index, end)
    }
}

/// Puts the cgroup behind the descriptor at this place. Where it cannot, the place is empty.
#[inline(always)]
fn seat(place: u32, fd: i32) -> u32 {
    // What follows is dead code where the check of a controller has no room.
    if layout!(css_bytes) as usize > STATE_BYTES {
        return command::UNSUPPORTED;
    }
    let (command::OK, Some(seat), Some(round)) =
        (leave(place), SEATS.get_ptr_mut(place), ROUND.get_ptr_mut(0))
    else {
        return command::INVALID;
    };
    // SAFETY: the helper takes no argument.
    let task = unsafe { bpf_get_current_task() };
    let Some(cgroup) = opened_cgroup(task, fd) else {
        return command::NOT_A_CGROUP;
    };
    let Some(found) = Controller::find(cgroup, layout!(cgroup_memory)) else {
        return command::NO_MEMORY_CONTROLLER;
    };
    // SAFETY: map values.
    unsafe {
        *seat = found;
        (*round).end = (*round).end.max(u64::from(place) + 1);
    }
    command::OK
}

/// Empties a place.
#[inline(always)]
fn leave(place: u32) -> u32 {
    let Some(seat) = SEATS.get_ptr_mut(place) else {
        return command::INVALID;
    };
    // SAFETY: a map value. No controller lies at address 0, so it is not valid.
    unsafe { (*seat).css = 0 };
    if let Some(table) = SURVEYED.get_ptr_mut(0) {
        // SAFETY: a map value.
        unsafe { entry(table, place).write(UNKNOWN) };
    }
    command::OK
}

/// Where the number of this place stands.
///
/// # Safety
/// `table` is a map value.
#[inline(always)]
unsafe fn entry(table: *mut Surveyed, place: u32) -> *mut u64 {
    let place = place as usize & (MAX_SURVEYED - 1);
    // SAFETY: the caller's promise; the mask keeps the place below the length.
    unsafe { (&raw mut (*table).bytes).cast::<u64>().add(place) }
}
