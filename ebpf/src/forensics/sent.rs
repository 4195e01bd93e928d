//! SIGKILL, as it is sent: to whom, by whom, from where.

use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use aya_ebpf::{EbpfContext as _, Global};
use brink_abi::forensics::{KILL, STACKED_KILL, StackedKillRecord};
use brink_abi::meter::SIGNAL_KILLS;

use super::figures::{describe, describe_current};
use super::{number, stacks};
use crate::emit::{Fate, Wake, count, has_room, is_quiet, kill};
use crate::kernel::layout;
use crate::maps::{SENT, SIGNALLED, STACKED};
use crate::timer::now;

const SIGKILL: i32 = 9;
/// `SI_USER`, which a sender without further information stands for (`SEND_SIG_NOINFO`, 0).
const USER: i32 = 0;
/// `SI_KERNEL`, which the kernel itself stands for (`SEND_SIG_PRIV`, 1).
const KERNEL: i32 = 0x80;
/// `TRACE_SIGNAL_IGNORED`: the process is dying already, or may not be killed from there.
const IGNORED: i32 = 1;
/// `TRACE_SIGNAL_ALREADY_PENDING`
const PENDING: i32 = 2;

/// Of those that one sends in a row without such a pause, the first has his stacks.
const PAUSE_NS: u64 = 100_000_000;

/// The process that reads the ring, as it knows itself; the loader overrides it.
#[unsafe(no_mangle)]
pub static READER: Global<u32> = Global::new(0);

#[btf_tracepoint(function = "signal_generate")]
pub fn sigkill_sent(context: BtfTracePointContext) -> i32 {
    if context.arg::<i32>(0) != SIGKILL {
        return 0;
    }
    let info = context.arg::<*const c_void>(1) as u64;
    let task = context.arg::<*const c_void>(2) as u64;
    let (group, result) = (context.arg::<i32>(3), context.arg::<i32>(4));
    let code = match info {
        0 => USER,
        1 => KERNEL,
        _ => number::<i32>(info, layout!(siginfo_code)) as i32,
    };
    if code == KERNEL
        && let Some(last) = SIGNALLED.get_ptr_mut(0)
    {
        // SAFETY: a map value.
        unsafe {
            (*last).sender = bpf_get_current_pid_tgid();
            (*last).task = task;
        }
    }
    count(SIGNAL_KILLS, Fate::Seen);
    if result == IGNORED || result == PENDING {
        count(SIGNAL_KILLS, Fate::Filtered);
        return 0;
    }
    // The reader's own: it is told of them another way once the last is sent, and is not kept from sending the next. To wake
    // somebody takes longer than all the rest.
    let sender = bpf_get_current_pid_tgid();
    let is_own = (sender >> 32) as u32 == READER.load();
    let wake = if is_own {
        Wake::WhenFilling
    } else {
        Wake::AtOnce
    };
    if !has_room() {
        count(SIGNAL_KILLS, Fate::Dropped);
        return 0;
    }
    let Some(sent) = SENT.get_ptr_mut(0) else {
        count(SIGNAL_KILLS, Fate::Dropped);
        return 0;
    };
    let at = now();
    // SAFETY: a map value of this processor's, on which the signal's lock keeps everybody else from this program.
    unsafe {
        describe(task, &raw mut (*sent).target);
        describe_current(&raw mut (*sent).sender);
        (*sent).code = code;
        (*sent).group = u32::from(group != 0);
    }
    // Why the kernel itself sends one its code says, and who is current has no part in it. Nobody is kept out who has room now.
    if is_own || code == KERNEL || !is_first(sender, at) {
        kill(true, wake, SIGNAL_KILLS, KILL, at, |record| {
            // SAFETY: the map value, and the reserved memory of the record; the head is written after.
            unsafe { *record = *sent };
        });
    } else {
        kill(
            true,
            wake,
            SIGNAL_KILLS,
            STACKED_KILL,
            at,
            |record: *mut StackedKillRecord| {
                // SAFETY: as above.
                unsafe {
                    (*record).kill = *sent;
                    stacks::take(context.as_ptr(), &raw mut (*record).stacks);
                }
            },
        );
    }
    0
}

/// Whether stacks are taken of who sends one now: they make a record nine times as long, and whoever kills a thousand in a row
/// does it from one place.
#[inline(always)]
fn is_first(sender: u64, at: u64) -> bool {
    let Some(last) = STACKED.get_ptr_mut(0) else {
        return false;
    };
    // SAFETY: a map value of this processor's.
    unsafe {
        let is_first = (*last).sender != sender || at.wrapping_sub((*last).at_ns) >= PAUSE_NS;
        (*last).sender = sender;
        (*last).at_ns = at;
        is_first && is_quiet()
    }
}
