//! The tick: measure, compare, tell what changed, choose the next period. And the timer that drives it.

use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::generated::{bpf_timer_init, bpf_timer_set_callback, bpf_timer_start};
use brink_abi::command;
use brink_abi::meter::{SAMPLER_SIGNALS, SamplerMeter};
use brink_abi::record::{BAND, CROSSING, HEARTBEAT, Head};
use brink_abi::sample::{BOOSTED, NODE_KNOWN, Published, SampleRecord, USAGE_FRESH};

use crate::atomic::add;
use crate::emit::{FORCE_WAKEUP, Fate, count, now};
use crate::engine::{Engine, begin, finish};
use crate::maps::{ENGINE, LATEST, SAMPLER, SIGNALS, TIMERS, TimerSlot};
use crate::{node, usage, watches};

const CLOCK_MONOTONIC: u64 = 1;

/// `SampleRecord::head.kind` of a tick that has nothing to tell.
const QUIET: u32 = 0;

/// Starts the timer: [`command::START`].
#[inline(never)]
pub fn start(engine: *mut Engine) -> u32 {
    let Some(slot) = TIMERS.get_ptr_mut(0) else {
        return command::INVALID;
    };
    // SAFETY: the timer lies in the map that is passed with it, and `on_timer` has the signature the kernel calls.
    unsafe {
        let timer = &raw mut (*slot).timer;
        let map = (&raw const TIMERS).cast_mut().cast();
        // Refused as busy when it was initialised before, which is as good.
        bpf_timer_init(timer, map, CLOCK_MONOTONIC);
        if bpf_timer_set_callback(timer, on_timer as *mut c_void) != 0 {
            return command::TIMER_REFUSED;
        }
        (*engine).running = 1;
        (*engine).due_ns = now();
        if bpf_timer_start(timer, 0, 0) != 0 {
            return command::TIMER_REFUSED;
        }
    }
    command::OK
}

/// The timer's callback.
extern "C" fn on_timer(_map: *mut c_void, _key: *mut u32, slot: *mut TimerSlot) -> i64 {
    let at = now();
    let (Some(engine), Some(meter)) = (ENGINE.get_ptr_mut(0), SAMPLER.get_ptr_mut(0)) else {
        return 0;
    };
    // SAFETY: `engine` and `meter` are map values, `slot` is the one the timer lies in.
    unsafe {
        let late = at.saturating_sub((*engine).due_ns);
        let mut period = (*engine).knobs.min_period_ns;
        if Engine::try_lock(engine) {
            period = tick(engine, at);
            Engine::unlock(engine);
            note_lateness(meter, late);
        } else {
            add(&raw mut (*meter).busy, 1);
        }
        bpf_timer_start(&raw mut (*slot).timer, period, 0);
        let done = now();
        (*engine).due_ns = done + period;
        note_cost(meter, done.wrapping_sub(at));
    }
    0
}

/// Adds to the meter how late the callback came.
///
/// # Safety
/// `meter` is a map value.
#[inline(always)]
unsafe fn note_lateness(meter: *mut SamplerMeter, late: u64) {
    // SAFETY: the caller's promise; only the timer's callback writes these fields.
    unsafe {
        (*meter).late_ns += late;
        (*meter).late_max_ns = (*meter).late_max_ns.max(late);
    }
}

/// Adds to the meter what the callback cost.
///
/// # Safety
/// `meter` is a map value.
#[inline(always)]
unsafe fn note_cost(meter: *mut SamplerMeter, cost: u64) {
    // SAFETY: as above.
    unsafe {
        (*meter).cost_ns += cost;
        (*meter).cost_max_ns = (*meter).cost_max_ns.max(cost);
    }
}

/// One tick. The caller holds the engine. Returns the time until the next one.
#[inline(never)]
pub fn tick(engine: *mut Engine, at: u64) -> u64 {
    let (Some(latest), Some(meter)) = (LATEST.get_ptr_mut(0), SAMPLER.get_ptr_mut(0)) else {
        return 1_000_000;
    };
    // SAFETY: all are map values.
    unsafe {
        let number = begin(&raw mut (*latest).started);
        let sample = &raw mut (*latest).record.sample;
        if at.wrapping_sub((*engine).reserves_read_ns) > (*engine).knobs.reserves_ns {
            node::read_reserves(engine);
            (*engine).reserves_read_ns = at;
        }
        node::measure(engine, sample);
        (*meter).ticks += 1;
        (*meter).unknown_node += u64::from((*sample).flags & NODE_KNOWN == 0);
        watches::evaluate(engine, sample);
        let period = watches::period(engine, (*sample).slack, at);
        let kind = classify(engine, (*sample).changed, (*sample).slack, at);
        if at < (*engine).boost_until_ns {
            (*sample).flags |= BOOSTED;
        }
        if kind != QUIET && usage::sweep(engine) != 0 {
            (*sample).flags |= USAGE_FRESH;
        }
        (*sample).tick = (*meter).ticks;
        (*sample).at_ns = at;
        (*sample).period_ns = period;
        (*latest).record.head = Head {
            kind,
            size: size_of::<SampleRecord>() as u32,
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
    // SAFETY: `engine` is a map value.
    let engine = unsafe { &mut *engine };
    let slack = (slack as u64).max(engine.knobs.band_floor);
    let told = engine.told_slack;
    if told == 0 {
        engine.told_slack = slack;
    }
    let kind = if changed != 0 {
        CROSSING
    } else if told != 0
        && (slack < told / 2 || slack / 2 > told)
        && at.wrapping_sub(engine.band_told_ns) >= engine.knobs.band_gap_ns
    {
        BAND
    } else if at.wrapping_sub(engine.told_ns) >= engine.knobs.heartbeat_ns {
        HEARTBEAT
    } else {
        QUIET
    };
    if kind != QUIET {
        engine.told_ns = at;
    }
    if kind == CROSSING || kind == BAND {
        engine.told_slack = slack;
        engine.band_told_ns = at;
    }
    kind
}

/// Hands the record to the ring, or counts the tick as filtered.
#[inline(always)]
fn tell(latest: *mut Published, kind: u32) {
    count(SAMPLER_SIGNALS, Fate::Seen);
    if kind == QUIET {
        count(SAMPLER_SIGNALS, Fate::Filtered);
        return;
    }
    // SAFETY: `latest` is a map value, and the engine's lock keeps every other writer out.
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

/// Brings the next tick as near as the shortest period. With `hold`, the sampler stays at that period for a while;
/// without it, the pull is refused when one was made less than a millisecond ago.
#[inline(always)]
pub fn pull(at: u64, hold: bool) {
    let (Some(engine), Some(slot)) = (ENGINE.get_ptr_mut(0), TIMERS.get_ptr_mut(0)) else {
        return;
    };
    // SAFETY: both are map values.
    unsafe {
        if (*engine).running == 0 {
            return;
        }
        let least = (*engine).knobs.min_period_ns;
        if hold {
            (*engine).boost_until_ns = at + (*engine).knobs.boost_ns;
        } else if at.wrapping_sub((*engine).pulled_ns) < 1_000_000 {
            return;
        }
        if (*engine).due_ns > at + least {
            (*engine).due_ns = at + least;
            (*engine).pulled_ns = at;
            bpf_timer_start(&raw mut (*slot).timer, least, 0);
            if let Some(meter) = SAMPLER.get_ptr_mut(0) {
                add(&raw mut (*meter).pulls, 1);
            }
        }
    }
}
