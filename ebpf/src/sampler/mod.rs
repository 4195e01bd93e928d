//! The sampler's tick: measure, compare, tell what changed, choose the next period.

mod command;
mod counters;
mod flight;
mod node;
mod slots;
mod tasks;
mod timer;
mod usage;
mod watches;

use brink_abi::meter::SAMPLER_SIGNALS;
use brink_abi::record::{BAND, CROSSING, HEARTBEAT, Head};
use brink_abi::sample::{BOOSTED, NODE_KNOWN, Published, SampleRecord, USAGE_FRESH};

pub use slots::forget;
pub use tasks::{is_counted, is_sure, tasks};
pub use timer::pull;

use crate::emit::{FORCE_WAKEUP, Fate, count};
use crate::engine::{Engine, begin, finish};
use crate::maps::{LATEST, SAMPLER, SIGNALS};
use crate::timer::now;

/// `SampleRecord::head.kind` of a tick that has nothing to tell.
const QUIET: u32 = 0;

/// One tick of the timer. The caller holds the engine. Returns the time until the next one.
///
/// With the flight recorder a tick comes every 10 ms at the latest. One that comes only for that leaves a point, and nothing is
/// compared: growth that the pace was made for cannot have used the slack up.
#[inline(always)]
fn beat(engine: *mut Engine, at: u64) -> u64 {
    // SAFETY: a map value, held by the caller.
    unsafe {
        let every = (*engine).knobs.flight_ns;
        // As early as a point may be left.
        let early = at + every / 8;
        // A hook may bring it nearer at any time: it is read once.
        let next = (&raw const (*engine).compare_ns).read_volatile();
        let compares = early >= next || at < (*engine).boost_until_ns;
        let rest = if compares || !between(engine, at) {
            let period = tick(engine, at);
            (*engine).compare_ns = at + period;
            period
        } else {
            next - at
        };
        if every != 0 { rest.min(every) } else { rest }
    }
}

/// A tick that only leaves a point; false where the node cannot be read, which is told.
#[inline(never)]
fn between(engine: *mut Engine, at: u64) -> bool {
    counters::sum(engine);
    let Some(meter) = SAMPLER.get_ptr_mut(0) else {
        return false;
    };
    if !counters::known(engine) {
        return false;
    }
    // SAFETY: a map value, held by the caller.
    unsafe { (*meter).ticks += 1 };
    flight::note(engine, at, meter);
    true
}

/// One tick with all it compares. The caller holds the engine. Returns the time until the next one like it.
#[inline(never)]
fn tick(engine: *mut Engine, at: u64) -> u64 {
    let (Some(latest), Some(meter)) = (LATEST.get_ptr_mut(0), SAMPLER.get_ptr_mut(0)) else {
        return 1_000_000;
    };
    // SAFETY: all are map values, and nobody else writes the two records while the engine is held.
    unsafe {
        let number = begin(&raw mut (*latest).started);
        let sample = &raw mut (*latest).record.sample;
        if at.wrapping_sub((*engine).reserves_read_ns) > (*engine).knobs.reserves_ns {
            node::read_reserves(engine);
            (*engine).reserves_read_ns = at;
        }
        counters::measure(engine, sample);
        watches::evaluate(engine, sample);
        let period = watches::period(engine, (*sample).slack, at);
        let kind = classify(engine, (*sample).changed, (*sample).slack, at);
        if at < (*engine).boost_until_ns {
            (*sample).flags |= BOOSTED;
        }
        // A sign of life is of the node alone: whoever wants usages without anything to tell asks for them.
        if matches!(kind, CROSSING | BAND) && usage::sweep(engine) != 0 {
            (*sample).flags |= USAGE_FRESH;
        }
        (*meter).ticks += 1;
        (*meter).unknown_node += u64::from((*sample).flags & NODE_KNOWN == 0);
        (*sample).tick = (*meter).ticks;
        (*sample).before_ns = (*sample).at_ns;
        (*sample).at_ns = at;
        (*sample).period_ns = period;
        flight::note(engine, at, meter);
        let size = size_of::<SampleRecord>() as u32;
        (*latest).record.head = Head {
            kind,
            size,
            at_ns: at,
            submit_ns: at,
        };
        finish(&raw mut (*latest).finished, number);
        tell(latest, kind);
        period
    }
}

/// Which record this tick is worth.
#[inline(always)]
fn classify(engine: *mut Engine, changed: u64, slack: i64, at: u64) -> u32 {
    // SAFETY: a map value, held by the caller.
    unsafe {
        let knobs = &raw const (*engine).knobs;
        let slack = (slack as u64).max((*knobs).band_floor);
        let told = (*engine).told_slack;
        if told == 0 {
            (*engine).told_slack = slack;
        }
        let kind = if changed != 0 {
            CROSSING
        } else if told != 0
            && (slack < told / 2 || slack / 2 > told)
            && at.wrapping_sub((*engine).band_told_ns) >= (*knobs).band_gap_ns
        {
            BAND
        } else if at.wrapping_sub((*engine).told_ns) >= (*knobs).heartbeat_ns {
            HEARTBEAT
        } else {
            QUIET
        };
        if kind != QUIET {
            (*engine).told_ns = at;
        }
        if kind == CROSSING || kind == BAND {
            (*engine).told_slack = slack;
            (*engine).band_told_ns = at;
        }
        kind
    }
}

/// Hands the record to the ring, or counts the tick as filtered.
#[inline(always)]
fn tell(latest: *mut Published, kind: u32) {
    count(SAMPLER_SIGNALS, Fate::Seen);
    if kind == QUIET {
        count(SAMPLER_SIGNALS, Fate::Filtered);
        return;
    }
    // SAFETY: a map value, and the engine's holder is its only writer.
    let refused = unsafe {
        (*latest).record.head.submit_ns = now();
        SIGNALS.output::<SampleRecord>(&(*latest).record, FORCE_WAKEUP)
    };
    count(
        SAMPLER_SIGNALS,
        if refused.is_ok() {
            Fate::Sent
        } else {
            Fate::Dropped
        },
    );
}
