//! The timer that drives the ticks, and the hooks' way to hurry it.

use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::generated::bpf_timer_start;
use brink_abi::command;

use super::beat;
use crate::atomic::add;
use crate::engine::Engine;
use crate::maps::{ENGINE, SAMPLER, TIMERS};
use crate::timer::{TimerSlot, now, timer};

/// A pull that does not hold the pace comes no sooner than this after the one before.
const PULL_GAP_NS: u64 = 1_000_000;

/// Starts the timer: [`command::START`].
#[inline(never)]
pub fn start(engine: *mut Engine) -> u32 {
    let Some(slot) = TIMERS.get_ptr_mut(0) else {
        return command::INVALID;
    };
    // SAFETY: both are map values.
    unsafe {
        let Some(timer) = timer(&TIMERS, slot, on_timer) else {
            return command::TIMER_REFUSED;
        };
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
    // SAFETY: `engine` and `meter` are map values, `slot` is the one the timer lies in. The callback never runs twice at
    // a time, and nobody else writes the fields of cost and lateness.
    unsafe {
        (*meter).fired_ns = at;
        let late = at.saturating_sub((*engine).due_ns);
        let mut period = (*engine).knobs.min_period_ns;
        let locked = Engine::try_lock(engine);
        if locked {
            period = beat(engine, at);
            (*meter).late_ns += late;
            (*meter).late_max_ns = (*meter).late_max_ns.max(late);
        } else {
            add(&raw mut (*meter).busy, 1);
        }
        bpf_timer_start(&raw mut (*slot).timer, period, 0);
        let done = now();
        (*engine).due_ns = done + period;
        // Not before: a command that hurries the timer would be undone.
        if locked {
            Engine::unlock(engine);
        }
        let cost = done.wrapping_sub(at);
        (*meter).cost_ns += cost;
        (*meter).cost_max_ns = (*meter).cost_max_ns.max(cost);
    }
    0
}

/// Brings the next tick at once: what was waited for has changed. Without it a tick that was set when nothing was near
/// would come as late as then seemed early enough.
#[inline(always)]
pub fn hurry(engine: *mut Engine) {
    let Some(slot) = TIMERS.get_ptr_mut(0) else {
        return;
    };
    // SAFETY: both are map values, the engine is held by the caller.
    unsafe {
        (*engine).compare_ns = 0;
        if (*engine).running != 0 {
            (*engine).due_ns = now();
            bpf_timer_start(&raw mut (*slot).timer, 0, 0);
        }
    }
}

/// Brings the next tick as near as the shortest period. With `hold`, the sampler stays at that period for a while;
/// without it, pulls in quick succession count as one.
#[inline(always)]
pub fn pull(at: u64, hold: bool) {
    let (Some(engine), Some(slot)) = (ENGINE.get_ptr_mut(0), TIMERS.get_ptr_mut(0)) else {
        return;
    };
    // SAFETY: both are map values; the fields written here are single words that a tick only reads.
    unsafe {
        if (*engine).running == 0 {
            return;
        }
        if hold {
            (*engine).boost_until_ns = at + (*engine).knobs.boost_ns;
        } else if at.wrapping_sub((*engine).pulled_ns) < PULL_GAP_NS {
            return;
        }
        (*engine).compare_ns = 0;
        let least = (*engine).knobs.min_period_ns;
        if (*engine).due_ns > at + least {
            (*engine).due_ns = at + least;
            (*engine).pulled_ns = at;
            // A tick that was under way may have set it meanwhile.
            (*engine).compare_ns = 0;
            bpf_timer_start(&raw mut (*slot).timer, least, 0);
            if let Some(meter) = SAMPLER.get_ptr_mut(0) {
                add(&raw mut (*meter).pulls, 1);
            }
        }
    }
}
