//! The cgroups that are followed: a timer reads them at its own pace into a ring, and wakes whoever reads that only when one moves.

use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::generated::bpf_timer_start;
use aya_ebpf::macros::{btf_map, map, socket_filter};
use aya_ebpf::maps::{Array, RingBuf};
use aya_ebpf::programs::SkBuffContext;
use brink_abi::command;
use brink_abi::flight::UNIT_SHIFT;
use brink_abi::survey::{
    Follower, LANES, MAX_SURVEYED, PAGE_TRACES, TRACE_PAGES, Trace, TracePage, UNKNOWN, UNTRACED,
    movement,
};

use crate::SEATS;
use crate::atomic::swap;
use crate::controller::Controller;
use crate::pass::{ends, pass};
use crate::timer::{TimerMap, TimerSlot, now, timer};

#[btf_map]
static PACER: TimerMap = TimerMap::new();

/// From one trace to the next, in nanoseconds.
#[map]
static PACE: Array<u64> = Array::with_max_entries(1, 0);

/// Somebody has moved: wakes whoever reads the traces.
#[map]
static MOVED: RingBuf = RingBuf::with_byte_size(4096, 0);

#[map]
static FOLLOWED: Array<Lane> = Array::with_max_entries(LANES as u32, 0);

#[map]
static TRACES: Array<TracePage> = Array::with_max_entries(TRACE_PAGES, 0);

#[map]
static FOLLOWER: Array<Follower> = Array::with_max_entries(1, 0);

/// One that is followed. Who assigns it writes while the timer reads: each field is a word of its own, and a mixture is read as one
/// of the two cgroups.
#[repr(C)]
struct Lane {
    /// one more than its place, 0 for nobody
    place: u64,
    /// every movement counts
    close: u64,
    /// its usage when somebody was woken for it last, in bytes
    told: u64,
}

/// The masks need it.
const _: () = assert!(PAGE_TRACES.is_power_of_two() && TRACE_PAGES.is_power_of_two());
const _: () = assert!(LANES.is_power_of_two());

/// Ring flag: wake the reader whether or not it has caught up.
const FORCE_WAKEUP: u64 = 2;

/// Starts the timer, or has it keep its pace as it is now.
#[socket_filter]
pub fn follow(_context: SkBuffContext) -> i64 {
    let Some(slot) = PACER.get_ptr_mut(0) else {
        return i64::from(command::INVALID);
    };
    // SAFETY: a map value.
    let started = unsafe {
        timer(&PACER, slot, on_timer).is_some_and(|timer| bpf_timer_start(timer, 0, 0) == 0)
    };
    i64::from(if started {
        command::OK
    } else {
        command::TIMER_REFUSED
    })
}

/// Has the cgroup at this place followed in this lane; nobody, where there is no such place.
#[inline(always)]
pub fn assign(lane: u32, place: u64, close: bool) -> u32 {
    let Some(lane) = FOLLOWED.get_ptr_mut(lane) else {
        return command::INVALID;
    };
    let place = if place < MAX_SURVEYED as u64 {
        place + 1
    } else {
        0
    };
    // SAFETY: a map value.
    unsafe {
        (*lane).close = u64::from(close);
        if (*lane).place != place {
            (*lane).told = UNKNOWN;
            (&raw mut (*lane).place).write_volatile(place);
        }
    }
    command::OK
}

/// Leaves one trace. It never runs twice at a time.
extern "C" fn on_timer(_map: *mut c_void, _key: *mut u32, slot: *mut TimerSlot) -> i64 {
    let at = now();
    let (Some(follower), Some(pace)) = (FOLLOWER.get_ptr_mut(0), PACE.get_ptr(0)) else {
        return 0;
    };
    // SAFETY: map values; `slot` is the one the timer lies in, and nobody else writes what is counted.
    unsafe {
        if let Some(trace) = next(follower) {
            (*trace).at_ns = at;
        }
        let number = (*follower).traces;
        let before = (*follower).told;
        pass(&FOLLOWED, look, LANES as u64);
        let has_moved = (*follower).told != before;
        (*follower).told = before + u64::from(has_moved);
        swap(&raw mut (*follower).traces, number + 1);
        if has_moved {
            // Who has not read the ones before is awake already.
            let _full = MOVED.output::<u64>(&at, FORCE_WAKEUP);
        }
        bpf_timer_start(&raw mut (*slot).timer, pace.read(), 0);
        let cost = now().wrapping_sub(at);
        (*follower).cost_ns += cost;
        (*follower).cost_max_ns = (*follower).cost_max_ns.max(cost);
    }
    0
}

/// Where the trace that is being left stands.
///
/// # Safety
/// `follower` is a map value.
#[inline(always)]
unsafe fn next(follower: *const Follower) -> Option<*mut Trace> {
    // SAFETY: the caller's promise; the masks keep both indices below the lengths.
    unsafe {
        let number = (*follower).traces;
        let page = TRACES.get_ptr_mut((number / PAGE_TRACES as u64) as u32 & (TRACE_PAGES - 1))?;
        let place = number as usize & (PAGE_TRACES - 1);
        Some((&raw mut (*page).traces).cast::<Trace>().add(place))
    }
}

/// Reads the cgroup of one lane into the trace, and counts if it has moved.
extern "C" fn look(
    _map: *mut c_void,
    index: *const u32,
    lane: *mut Lane,
    count: *const u64,
) -> i64 {
    let Some(follower) = FOLLOWER.get_ptr_mut(0) else {
        return 1;
    };
    // SAFETY: the helper's arguments and map values; the mask keeps the index below the length.
    unsafe {
        let (index, count) = (*index, *count);
        let Some(trace) = next(follower) else {
            return 1;
        };
        let found = usage(lane);
        let units = match found {
            UNKNOWN => UNTRACED,
            bytes => (bytes >> UNIT_SHIFT).min(u64::from(UNTRACED) - 1) as u32,
        };
        (&raw mut (*trace).units)
            .cast::<u32>()
            .add(index as usize & (LANES - 1))
            .write(units);
        if moves((*lane).told, found, (*lane).close != 0) {
            (*lane).told = found;
            (*follower).told += 1;
        }
        ends(index, count)
    }
}

/// What the cgroup of a lane uses, in bytes.
///
/// # Safety
/// `lane` is a map value.
#[inline(always)]
unsafe fn usage(lane: *const Lane) -> u64 {
    // SAFETY: the caller's promise.
    let place = unsafe { (&raw const (*lane).place).read_volatile() };
    if place == 0 {
        return UNKNOWN;
    }
    let Some(seat) = SEATS.get_ptr(place as u32 - 1) else {
        return UNKNOWN;
    };
    Controller::charged(seat).map_or(UNKNOWN, |bytes| bytes as u64)
}

/// Whether somebody is to be woken for it.
#[inline(always)]
fn moves(told: u64, found: u64, close: bool) -> bool {
    if told == UNKNOWN || found == UNKNOWN {
        return told != found;
    }
    let least = if close { 1 } else { movement(found) };
    found.abs_diff(told) >= least
}
