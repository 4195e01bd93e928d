//! Who forked whom, kept for whoever asks where a fork bomb began: its processes are gone when that is asked.

use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::{bpf_get_current_comm, bpf_get_current_pid_tgid, bpf_get_current_task};
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use brink_abi::COMM;
use brink_abi::births::{Birth, PAGE_BIRTHS, PAGES};
use brink_abi::record::UNKNOWN;

use super::{at, number};
use crate::atomic::{add_signed, swap};
use crate::kernel::{layout, memory_cgroup};
use crate::maps::{BIRTHS, PROCESS};
use crate::process::member;
use crate::timer::now;

/// The masks need it.
const _: () = assert!(PAGE_BIRTHS.is_power_of_two() && PAGES.is_power_of_two());

#[btf_tracepoint(function = "task_newtask")]
pub fn birth(context: BtfTracePointContext) -> i32 {
    let task: *const c_void = context.arg(0);
    // SAFETY: the tracepoint's first argument.
    let (pid, tgid): (u32, u32) = unsafe {
        (
            member(task, layout!(task_pid)),
            member(task, layout!(task_tgid)),
        )
    };
    let (Some(meter), true) = (PROCESS.get_ptr_mut(0), pid == tgid) else {
        return 0;
    };
    // SAFETY: a map value.
    let count = unsafe { add_signed(&raw mut (*meter).births, 1) }.wrapping_sub(1) as u64;
    let index = (count / PAGE_BIRTHS as u64) as u32 & (PAGES - 1);
    let Some(page) = BIRTHS.get_ptr_mut(index) else {
        return 0;
    };
    let place = count as usize & (PAGE_BIRTHS - 1);
    // SAFETY: the helper takes no argument.
    let parent = unsafe { bpf_get_current_task() };
    let leader = at(parent, layout!(task_leader));
    // SAFETY: the place is below the length of the page, a map value; `task` as above. Whoever reads meanwhile sees that the
    // time is none.
    unsafe {
        let birth = (&raw mut (*page).births).cast::<Birth>().add(place);
        swap(&raw mut (*birth).at_ns, 0);
        (*birth).start_ns = member(task, layout!(task_start_time));
        (*birth).parent_start_ns = number::<i64>(leader, layout!(task_start_time));
        (*birth).cgroup = memory_cgroup(task as u64).unwrap_or(UNKNOWN);
        (*birth).tgid = tgid;
        (*birth).parent = (bpf_get_current_pid_tgid() >> 32) as u32;
        (*birth).parent_comm = bpf_get_current_comm().unwrap_or([0; COMM]);
        swap(&raw mut (*birth).at_ns, now());
    }
    0
}
