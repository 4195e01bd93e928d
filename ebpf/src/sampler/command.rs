//! The program user space runs to change or ask something; it runs in the caller's context and holds the engine.

use aya_ebpf::macros::socket_filter;
use aya_ebpf::programs::SkBuffContext;
use brink_abi::command as abi;
use brink_abi::command::{Command, Mailbox};

use super::{node as nodes, slots, tasks, tick, timer, usage, watches};
use crate::atomic::add_signed;
use crate::engine::Engine;
use crate::maps::{ENGINE, MAILBOX, PROCESS};
use crate::timer::now;

/// Carries out the command in the mailbox once. Returns one of the results in [`brink_abi::command`].
#[socket_filter]
pub fn command(context: SkBuffContext) -> i64 {
    let (Some(engine), Some(mailbox)) = (ENGINE.get_ptr_mut(0), MAILBOX.get_ptr_mut(0)) else {
        return i64::from(abi::INVALID);
    };
    if !Engine::try_lock(engine) {
        return i64::from(abi::BUSY);
    }
    let before = node(engine);
    let result = obey(engine, mailbox);
    // SAFETY: a map value.
    let op = unsafe { (*mailbox).command.op };
    let changes = match op {
        abi::SET_WATCHES | abi::SET_TERMS | abi::SET_KNOBS | abi::SET_DEFERRED => true,
        abi::ARM_SLOT => result == abi::OK,
        // Each pass of user space arms the node, and seldom finds another one.
        abi::ARM_NODE => before != node(engine),
        _ => false,
    };
    if changes {
        timer::hurry(engine);
    }
    Engine::unlock(engine);
    say(&context, mailbox, result);
    i64::from(result)
}

/// What of the node a watched value depends on and only a command changes.
#[inline(always)]
fn node(engine: *mut Engine) -> (i64, u64) {
    // SAFETY: a map value, held by the caller.
    unsafe { ((*engine).capacity, (*engine).node_count) }
}

/// Tells the developer what was asked and answered; nothing in the checked-in object.
#[inline(always)]
#[cfg_attr(
    not(feature = "debug-log"),
    expect(unused_variables, reason = "only text needs them")
)]
fn say(context: &SkBuffContext, mailbox: *const Mailbox, result: u32) {
    #[cfg(feature = "debug-log")]
    {
        // SAFETY: a map value.
        let op = unsafe { (*mailbox).command.op };
        aya_log_ebpf::debug!(context, "command {} answers {}", op, result);
    }
}

/// One command, with the engine held.
#[inline(always)]
fn obey(engine: *mut Engine, mailbox: *mut Mailbox) -> u32 {
    // SAFETY: both are map values.
    unsafe {
        let given = &(*mailbox).command;
        match given.op {
            abi::SET_DEFERRED => nodes::set_deferred(engine, given),
            abi::START => timer::start(engine),
            abi::ARM_NODE => nodes::arm(engine, mailbox),
            abi::ARM_SLOT => slots::arm(engine, mailbox),
            abi::DISARM_SLOT => slots::disarm(given.slot),
            abi::SET_TERMS => slots::set_terms(given.slot, given.terms),
            abi::SET_WATCHES => watches::set(engine, mailbox),
            abi::SET_KNOBS => {
                (*engine).knobs = given.knobs;
                abi::OK
            }
            abi::SWEEP => {
                usage::sweep(engine);
                abi::OK
            }
            abi::TICK => {
                let at = now();
                tick(engine, at);
                // Whoever asks needs no sign of life for a while.
                (*engine).told_ns = at;
                abi::OK
            }
            abi::COUNT_TASKS => tasks::arm(mailbox),
            abi::ADD_THREADS | abi::SET_THREAD_LIMIT | abi::SET_VICTIMS => set_process(given),
            _ => abi::INVALID,
        }
    }
}

/// The commands that concern the process hooks.
#[inline(always)]
fn set_process(given: &Command) -> u32 {
    let Some(meter) = PROCESS.get_ptr_mut(0) else {
        return abi::INVALID;
    };
    // SAFETY: a map value.
    unsafe {
        match given.op {
            abi::ADD_THREADS => {
                add_signed(&raw mut (*meter).threads, given.delta);
            }
            abi::SET_THREAD_LIMIT => {
                (*meter).over = 0;
                (*meter).limit = given.limit;
            }
            _ => (*meter).victims = given.count,
        }
    }
    abi::OK
}
