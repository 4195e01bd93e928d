//! The flight recorder's points of the node: left behind by ticks, read by user space when an incident asks for them.

use brink_abi::flight::{FlightPage, FlightPoint, PAGE_POINTS, PAGES};
use brink_abi::meter::SamplerMeter;

use super::counters::{available, deferred, headroom, known};
use crate::atomic::swap;
use crate::engine::Engine;
use crate::kernel::layout;
use crate::maps::{FLIGHT, PROCESS};

/// The masks need it.
const _: () = assert!(PAGE_POINTS.is_power_of_two() && PAGES.is_power_of_two());

/// Leaves a point, by the sums of now, if it is time for one.
#[inline(never)]
pub fn note(engine: *mut Engine, at: u64, meter: *mut SamplerMeter) -> u32 {
    // SAFETY: both are map values, and the engine is held by the caller.
    unsafe {
        let every = (*engine).knobs.flight_ns;
        // A tick comes a little early as often as late.
        let due = (*meter).flight_ns + every - every / 8;
        if every == 0 || at < due || !known(engine) {
            return 0;
        }
        (*meter).flight_ns = at;
        let number = (*meter).flights;
        let index = (number / PAGE_POINTS as u64) as u32 & (PAGES - 1);
        let Some(page) = FLIGHT.get_ptr_mut(index) else {
            return 0;
        };
        write(page, engine, meter);
        swap(&raw mut (*meter).flights, number + 1);
    }
    1
}

/// # Safety
/// All are map values.
#[inline(always)]
unsafe fn write(page: *mut FlightPage, engine: *const Engine, meter: *const SamplerMeter) {
    let amount = |pages: i64| FlightPoint::amount(pages << layout!(page_shift)) as u32;
    // SAFETY: the caller's promise; the place is below the length of the points.
    unsafe {
        let counted = PROCESS.get_ptr_mut(0);
        let forks = counted.map_or(0, |process| (*process).forks);
        let place = (*meter).flights as usize & (PAGE_POINTS - 1);
        let point = (&raw mut (*page).points).cast::<FlightPoint>().add(place);
        (*point).at_ns = (*meter).flight_ns;
        (*point).available = FlightPoint::amount(available(engine));
        (*point).headroom = FlightPoint::amount(headroom(engine, deferred(engine)));
        (*point).anon = amount((*engine).sums.anon);
        (*point).file = amount((*engine).sums.file);
        (*point).reclaims = (*meter).reclaims as u32;
        (*point).forks = forks as u32;
    }
}
