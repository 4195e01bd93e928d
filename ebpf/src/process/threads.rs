//! How many threads the system or the node has, and how many processes each memory cgroup has: forks and what is freed.
//!
//! `task_newtask` stands for fork because `sched_process_fork` misses the threads that `io_uring` and vhost make; threads
//! are given back at `sched_process_free`, when their process id is, so that unreaped children still count.

use aya_ebpf::cty::c_void;
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use brink_abi::meter::{PROCESS_SIGNALS, ProcessMeter};
use brink_abi::record::{THREADS, ThreadsRecord};

use super::{member, table};
use crate::atomic::{add, add_signed};
use crate::emit::{Fate, count, signal};
use crate::kernel::{layout, memory_cgroup};
use crate::maps::PROCESS;
use crate::sampler::{is_counted, is_sure, tasks};
use crate::timer::now;

#[btf_tracepoint(function = "task_newtask")]
pub fn fork(context: BtfTracePointContext) -> i32 {
    let task: *const c_void = context.arg(0);
    let Some(meter) = PROCESS.get_ptr_mut(0) else {
        return 0;
    };
    // SAFETY: `meter` is a map value, `task` the tracepoint's first argument.
    let (threads, pid, tgid, start_ns): (i64, u32, u32, u64) = unsafe {
        (
            add_signed(&raw mut (*meter).threads, 1),
            member(task, layout!(task_pid)),
            member(task, layout!(task_tgid)),
            member(task, layout!(task_start_time)),
        )
    };
    compare(meter, threads);
    if pid == tgid {
        // SAFETY: a map value.
        add(unsafe { &raw mut (*meter).forks }, 1);
        if let Some(cgroup) = memory_cgroup(task as u64) {
            table::enter(meter, tgid, cgroup, start_ns);
        }
    }
    0
}

#[btf_tracepoint(function = "sched_process_free")]
pub fn free(context: BtfTracePointContext) -> i32 {
    let task: *const c_void = context.arg(0);
    let Some(meter) = PROCESS.get_ptr_mut(0) else {
        return 0;
    };
    // SAFETY: `meter` is a map value, `task` the tracepoint's first argument.
    let (threads, pid, tgid, start_ns): (i64, u32, u32, u64) = unsafe {
        (
            add_signed(&raw mut (*meter).threads, -1),
            member(task, layout!(task_pid)),
            member(task, layout!(task_tgid)),
            member(task, layout!(task_start_time)),
        )
    };
    compare(meter, threads);
    if pid == tgid {
        table::leave_late(meter, tgid, start_ns);
        if let Some(cgroup) = memory_cgroup(task as u64) {
            table::release(cgroup);
        }
    }
    0
}

/// Tells once when the threads pass the limit, and once when they are back a sixteenth under it. They are the machine's, unless
/// a cgroup is counted instead: then its own counter is asked.
#[inline(always)]
pub fn compare(meter: *mut ProcessMeter, threads: i64) {
    // SAFETY: a map value.
    let (limit, over) = unsafe { ((*meter).limit, (*meter).over) };
    if limit <= 0 {
        return;
    }
    let is_node = is_counted();
    let threads = if is_node { tasks() } else { threads };
    if threads < 0 {
        return;
    }
    let next = if over == 0 && threads > limit {
        1
    } else if over != 0 && threads < limit - (limit >> 4) {
        0
    } else {
        return;
    };
    // The address was read before it is known to be still that of the cgroup's counter.
    if is_node && !is_sure() || !table::flip(meter, over, next) {
        return;
    }
    count(PROCESS_SIGNALS, Fate::Seen);
    signal(
        PROCESS_SIGNALS,
        THREADS,
        now(),
        |record: *mut ThreadsRecord| {
            // SAFETY: the reserved memory of the record; the head is written after.
            unsafe {
                (*record).threads = threads;
                (*record).limit = limit;
                (*record).over = next;
            }
        },
    );
}
