//! Processes: the end of each, the start of another program, and who is watched for it.

mod follow;
mod table;
mod threads;

pub use table::bury;

use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::{bpf_get_current_comm, bpf_get_current_task};
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use brink_abi::COMM;
use brink_abi::layout::ABSENT;
use brink_abi::meter::{PROCESS_EVIDENCE, PROCESS_SIGNALS};
use brink_abi::record::{EXEC, EXIT, ExecRecord, ExitRecord, UNKNOWN};

use crate::atomic::add;
use crate::emit::{Fate, Wake, count, evidence, signal, unhurried_signal};
use crate::kernel::{layout, memory_cgroup, pointer, read};
use crate::maps::{CGROUP_KEY, NAMES, PROCESS, VICTIMS};
use crate::timer::now;

/// A member of a task the tracepoint passed, loaded without a helper: the verifier knows the pointer's type.
///
/// # Safety
/// `task` is a tracepoint's argument, and `offset` that of a member of type `T`.
#[inline(always)]
pub unsafe fn member<T: Copy>(task: *const c_void, offset: u32) -> T {
    // SAFETY: the caller's promise.
    unsafe { task.byte_add(offset as usize).cast::<T>().read_volatile() }
}

#[btf_tracepoint(function = "sched_process_exit")]
pub fn exit(context: BtfTracePointContext) -> i32 {
    let task: *const c_void = context.arg(0);
    let (Some(meter), true) = (PROCESS.get_ptr_mut(0), last_thread(&context, task)) else {
        return 0;
    };
    // SAFETY: `task` is the tracepoint's first argument.
    let tgid: u32 = unsafe { member(task, layout!(task_tgid)) };
    let (cgroup, left) = table::leave(meter, tgid);
    count(PROCESS_SIGNALS, Fate::Seen);
    // SAFETY: a map value.
    let watched = unsafe { (*meter).victims } != 0 && is_victim(tgid, cgroup);
    if !watched {
        count(PROCESS_SIGNALS, Fate::Filtered);
        return 0;
    }
    let fill = |record: *mut ExitRecord| {
        // SAFETY: the reserved memory of the record, the head is written after; `task` as above.
        unsafe {
            (*record).tgid = tgid;
            (*record).exit_code = member(task, layout!(task_exit_code));
            (*record).cgroup = cgroup;
            (*record).left = left;
            (*record).start_ns = member(task, layout!(task_start_time));
            (*record).comm = bpf_get_current_comm().unwrap_or([0; 16]);
        }
    };
    // A wake-up costs several times what the exit does, and two thousand of them hold up each other: the last one hurries.
    if left == 0 || left == UNKNOWN {
        signal(PROCESS_SIGNALS, EXIT, now(), fill);
    } else {
        unhurried_signal(PROCESS_SIGNALS, EXIT, now(), fill);
    }
    0
}

/// Whether the exiting task is the last of its process.
#[inline(always)]
pub fn last_thread(context: &BtfTracePointContext, task: *const c_void) -> bool {
    if layout!(arg_group_dead) != ABSENT {
        return context.arg::<u8>(1) != 0;
    }
    // Two threads that exit together may both be last by this reading: the table counts one of them, a victim may be
    // told twice.
    !lives(task)
}

/// Whether a thread of the task's process has not exited yet.
#[inline(always)]
fn lives(task: *const c_void) -> bool {
    pointer(task as u64, layout!(task_signal))
        .and_then(|signal| read::<i32>(signal, layout!(signal_live)))
        .is_some_and(|live| live > 0)
}

/// Whether the process, or the cgroup it was in, is watched.
#[inline(always)]
fn is_victim(tgid: u32, cgroup: u64) -> bool {
    is_set(VICTIMS.get_ptr(u64::from(tgid)))
        || (cgroup != UNKNOWN && is_set(VICTIMS.get_ptr(cgroup | CGROUP_KEY)))
}

/// Whether there is a value. It is read, and not only looked for: questions about pointers that follow each other are
/// joined to arithmetic on them by the compiler, which the verifier refuses before 6.3.
#[inline(always)]
fn is_set<T>(value: Option<*const T>) -> bool {
    value.is_some_and(|value| {
        // SAFETY: a value of a map of at least four bytes, which never goes while a program runs.
        unsafe { value.cast::<u32>().read_volatile() };
        true
    })
}

#[btf_tracepoint(function = "sched_process_exec")]
pub fn exec(context: BtfTracePointContext) -> i32 {
    let task: *const c_void = context.arg(0);
    let Some(meter) = PROCESS.get_ptr_mut(0) else {
        return 0;
    };
    count(PROCESS_EVIDENCE, Fate::Seen);
    // SAFETY: `meter` is a map value, `task` the tracepoint's first argument.
    let (tgid, victims): (u32, u64) = unsafe {
        add(&raw mut (*meter).execs, 1);
        (member(task, layout!(task_tgid)), (*meter).victims)
    };
    let comm = bpf_get_current_comm().unwrap_or([0; COMM]);
    let is_named = is_set(NAMES.get_ptr(comm));
    // A number and no Option: before 6.3 the verifier refuses to have what is in a None read, even for nothing.
    let cgroup = if is_named || victims != 0 {
        // SAFETY: the helper takes no argument.
        memory_cgroup(unsafe { bpf_get_current_task() }).unwrap_or(UNKNOWN)
    } else {
        UNKNOWN
    };
    let is_watched = victims != 0 && cgroup != UNKNOWN && is_victim(tgid, cgroup);
    if !is_named && !is_watched {
        count(PROCESS_EVIDENCE, Fate::Filtered);
        return 0;
    }
    evidence(
        Wake::AtOnce,
        PROCESS_EVIDENCE,
        EXEC,
        now(),
        |record: *mut ExecRecord| {
            // SAFETY: the reserved memory of the record; the head is written after.
            unsafe {
                (*record).tgid = tgid;
                (*record).reserved = 0;
                (*record).cgroup = cgroup;
                (*record).comm = comm;
            }
        },
    );
    0
}
