//! Keeping the table of processes true: those that were there before us, and those that move.

use aya_ebpf::cty::c_void;
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;

use super::table::{leave, settle};
use super::threads::compare;
use super::{lives, member};
use crate::atomic::add;
use crate::kernel::{layout, memory_cgroup};
use crate::maps::PROCESS;

/// Arguments of the task iterator.
#[repr(C)]
pub struct TaskIteration {
    meta: *const c_void,
    task: *const c_void,
}

/// Enters or moves every process that lives now; user space runs it at start and at each housekeeping pass.
///
/// # Safety
/// Called by the kernel with the iterator's arguments.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
pub unsafe extern "C" fn sync_processes(context: *const TaskIteration) -> i32 {
    // SAFETY: the kernel's arguments; the task is null once, at the end.
    let task = unsafe { (*context).task };
    let Some(meter) = PROCESS.get_ptr_mut(0) else {
        return 0;
    };
    if task.is_null() {
        return 0;
    }
    // SAFETY: the iterator's task, checked above.
    let (pid, tgid, start_ns): (u32, u32, u64) = unsafe {
        (
            member(task, layout!(task_pid)),
            member(task, layout!(task_tgid)),
            member(task, layout!(task_start_time)),
        )
    };
    if pid != tgid || !lives(task) {
        return 0;
    }
    let Some(cgroup) = memory_cgroup(task as u64) else {
        return 0;
    };
    if settle(meter, tgid, cgroup, start_ns) {
        // SAFETY: a map value.
        add(unsafe { &raw mut (*meter).synced }, 1);
    }
    // The process may have exited after it was seen alive and before it was entered; its hook found nothing then.
    if !lives(task) {
        leave(meter, tgid);
    }
    0
}

/// A process came from another cgroup. Every hierarchy reports here; only the memory controller's answer matters.
#[btf_tracepoint(function = "cgroup_attach_task")]
pub fn attach(context: BtfTracePointContext) -> i32 {
    let task: *const c_void = context.arg(2);
    let Some(meter) = PROCESS.get_ptr_mut(0) else {
        return 0;
    };
    // SAFETY: a map value.
    let threads = unsafe {
        add(&raw mut (*meter).attaches, 1);
        (&raw const (*meter).threads).read_volatile()
    };
    // Who is moved into the cgroup that is counted has forked elsewhere.
    compare(meter, threads);
    // SAFETY: the tracepoint's third argument.
    let (pid, tgid, start_ns): (u32, u32, u64) = unsafe {
        (
            member(task, layout!(task_pid)),
            member(task, layout!(task_tgid)),
            member(task, layout!(task_start_time)),
        )
    };
    if pid == tgid
        && let Some(cgroup) = memory_cgroup(task as u64)
    {
        settle(meter, tgid, cgroup, start_ns);
    }
    0
}
