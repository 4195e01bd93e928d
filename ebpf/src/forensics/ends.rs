//! The end of those who were told as killed: the last thread's exit, and the end of their memory.

use aya_ebpf::cty::c_void;
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use brink_abi::forensics::{END, EndRecord, RELEASED, ReleasedRecord};
use brink_abi::meter::KILL_ENDS;

use super::{at, number};
use crate::emit::{Fate, Wake, count, kill};
use crate::kernel::layout;
use crate::maps::{KILLED, SPACES};
use crate::process::{last_thread, member};
use crate::timer::now;

#[btf_tracepoint(function = "sched_process_exit")]
pub fn killed_exit(context: BtfTracePointContext) -> i32 {
    let task: *const c_void = context.arg(0);
    // SAFETY: `task` is the tracepoint's first argument.
    let tgid: u32 = unsafe { member(task, layout!(task_tgid)) };
    let Some(killed) = KILLED.get_ptr(tgid) else {
        return 0;
    };
    // SAFETY: a map value.
    let start_ns = unsafe { (*killed).start_ns };
    if !last_thread(&context, task) {
        return 0;
    }
    count(KILL_ENDS, Fate::Seen);
    let signal = at(task as u64, layout!(task_signal));
    let of_group = number::<i32>(signal, layout!(signal_exit_code)) as u32;
    // SAFETY: as above.
    let own: u32 = unsafe { member(task, layout!(task_exit_code)) };
    let _ = KILLED.remove(tgid);
    kill(
        false,
        Wake::AtOnce,
        KILL_ENDS,
        END,
        now(),
        |record: *mut EndRecord| {
            // SAFETY: the reserved memory of the record; the head is written after.
            unsafe {
                (*record).start_ns = start_ns;
                (*record).tgid = tgid;
                (*record).exit_code = if of_group == 0 || of_group == u32::MAX {
                    own
                } else {
                    of_group
                };
            }
        },
    );
    0
}

/// The last user of an address space has let it go, and its pages are free.
#[btf_tracepoint(function = "exit_mmap")]
pub fn killed_release(context: BtfTracePointContext) -> i32 {
    let mm = context.arg::<*const c_void>(0) as u64;
    let Some(killed) = SPACES.get_ptr(mm) else {
        return 0;
    };
    // SAFETY: a map value.
    let (start_ns, tgid) = unsafe { ((*killed).start_ns, (*killed).tgid as u32) };
    count(KILL_ENDS, Fate::Seen);
    let _ = SPACES.remove(mm);
    kill(
        false,
        Wake::AtOnce,
        KILL_ENDS,
        RELEASED,
        now(),
        |record: *mut ReleasedRecord| {
            // SAFETY: the reserved memory of the record; the head is written after.
            unsafe {
                (*record).start_ns = start_ns;
                (*record).tgid = tgid;
                (*record).reserved = 0;
            }
        },
    );
    0
}
