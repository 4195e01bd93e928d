//! The flight recorder's points of the node: left behind by ticks, read by user space when an incident asks for them.

use brink_abi::flight::{FlightPage, FlightPoint, PAGE_POINTS, PAGES};
use brink_abi::meter::SamplerMeter;
use brink_abi::sample::{NODE_KNOWN, Sample};

use crate::atomic::swap;
use crate::engine::Engine;
use crate::maps::{FLIGHT, PROCESS};

/// The masks need it.
const _: () = assert!(PAGE_POINTS.is_power_of_two() && PAGES.is_power_of_two());

/// Leaves a point if it is time for one.
#[inline(never)]
pub fn note(engine: *mut Engine, sample: *const Sample, meter: *mut SamplerMeter) -> u32 {
    // SAFETY: all are map values, and the engine is held by the caller.
    unsafe {
        let every = (*engine).knobs.flight_ns;
        let at = (*sample).at_ns;
        // A tick comes a little early as often as late.
        let due = (*meter).flight_ns + every - every / 8;
        if every == 0 || at < due || (*sample).flags & NODE_KNOWN == 0 {
            return 0;
        }
        (*meter).flight_ns = at;
        let number = (*meter).flights;
        let index = (number / PAGE_POINTS as u64) as u32 & (PAGES - 1);
        let Some(page) = FLIGHT.get_ptr_mut(index) else {
            return 0;
        };
        write(page, number, sample, (*meter).reclaims);
        swap(&raw mut (*meter).flights, number + 1);
    }
    1
}

/// # Safety
/// `page` and `sample` are map values.
#[inline(always)]
unsafe fn write(page: *mut FlightPage, number: u64, sample: *const Sample, reclaims: u64) {
    let place = number as usize & (PAGE_POINTS - 1);
    // SAFETY: the caller's promise; the place is below the length of the points.
    unsafe {
        let forks = PROCESS.get_ptr_mut(0).map_or(0, |process| (*process).forks);
        let point = (&raw mut (*page).points).cast::<FlightPoint>().add(place);
        (*point).at_ns = (*sample).at_ns;
        (*point).available = FlightPoint::amount((*sample).available);
        (*point).headroom = FlightPoint::amount((*sample).headroom);
        (*point).anon = FlightPoint::amount((*sample).anon) as u32;
        (*point).file = FlightPoint::amount((*sample).file) as u32;
        (*point).reclaims = reclaims as u32;
        (*point).forks = forks as u32;
    }
}
