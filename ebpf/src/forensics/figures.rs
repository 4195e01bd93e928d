//! What is told of a process that is killed, and of the task that kills it.

use aya_ebpf::helpers::{
    bpf_get_current_comm, bpf_get_current_pid_tgid, bpf_get_current_task, bpf_get_current_uid_gid,
    generated::bpf_probe_read_kernel_str,
};
use brink_abi::COMM;
use brink_abi::forensics::{Actor, Figures};
use brink_abi::record::UNKNOWN;

use super::{Killed, at, number};
use crate::kernel::layout;
use crate::maps::{KILLED, SPACES};

/// Writes what is known of the process of `task`, and has its end told.
#[inline(always)]
pub fn describe(task: u64, figures: *mut Figures) {
    let leader = at(task, layout!(task_leader));
    let signal = at(task, layout!(task_signal));
    let mm = at(task, layout!(task_mm));
    let start_ns = number::<i64>(leader, layout!(task_start_time));
    let tgid = number::<i32>(task, layout!(task_tgid)) as u32;
    // SAFETY: the reserved memory of a record.
    unsafe {
        (*figures).start_ns = start_ns;
        (*figures).cgroup = memory_cgroup(task);
        (*figures).unified = unified_cgroup(task);
        (*figures).anon = pages(mm, layout!(mm_anon));
        (*figures).file = pages(mm, layout!(mm_file));
        (*figures).shmem = pages(mm, layout!(mm_shmem));
        (*figures).swap = pages(mm, layout!(mm_swap));
        (*figures).page_tables = number::<i64>(mm, layout!(mm_page_tables));
        (*figures).total_vm = pages(mm, layout!(mm_total));
        (*figures).peak = pages(mm, layout!(mm_peak));
        (*figures).tgid = tgid;
        (*figures).tid = number::<i32>(task, layout!(task_pid)) as u32;
        (*figures).uid = number::<i32>(at(task, layout!(task_cred)), layout!(cred_uid)) as u32;
        let score = number::<i16>(signal, layout!(signal_score));
        (*figures).oom_score_adj = if score == UNKNOWN {
            i32::MIN
        } else {
            score as i32
        };
        let name = &raw mut (*figures).comm;
        let from = task.wrapping_add(u64::from(layout!(task_comm)));
        // It writes to the end only what it found; a failure leaves a terminator.
        (*name) = [0; COMM];
        bpf_probe_read_kernel_str(name.cast(), COMM as u32, from as *const _);
    }
    remember(tgid, mm, start_ns);
}

/// Has the end of a process told.
#[inline(always)]
fn remember(tgid: u32, mm: u64, start_ns: u64) {
    let killed = Killed {
        start_ns,
        tgid: u64::from(tgid),
    };
    let _ = KILLED.insert(tgid, killed, 0);
    if mm != 0 {
        let _ = SPACES.insert(mm, killed, 0);
    }
}

/// Writes who runs now.
#[inline(always)]
pub fn describe_current(actor: *mut Actor) {
    let id = bpf_get_current_pid_tgid();
    // SAFETY: the reserved memory of a record; the helper takes no argument.
    unsafe {
        let task = bpf_get_current_task();
        (*actor).tgid = (id >> 32) as u32;
        (*actor).tid = id as u32;
        (*actor).uid = bpf_get_current_uid_gid() as u32;
        (*actor).reserved = 0;
        (*actor).cgroup = memory_cgroup(task);
        (*actor).unified = unified_cgroup(task);
        (*actor).comm = bpf_get_current_comm().unwrap_or([0; COMM]);
    }
}

/// A counter of pages, in bytes.
#[inline(always)]
fn pages(mm: u64, offset: u32) -> u64 {
    let found = number::<i64>(mm, offset);
    if found == UNKNOWN {
        return UNKNOWN;
    }
    found << layout!(page_shift)
}

#[inline(always)]
fn memory_cgroup(task: u64) -> u64 {
    let set = at(task, layout!(task_cgroups));
    id_of(at(at(set, layout!(css_set_memory)), layout!(css_cgroup)))
}

#[inline(always)]
fn unified_cgroup(task: u64) -> u64 {
    id_of(at(
        at(task, layout!(task_cgroups)),
        layout!(css_set_unified),
    ))
}

/// Id of a cgroup: the inode number of its directory.
#[inline(always)]
pub fn id_of(cgroup: u64) -> u64 {
    number::<i64>(at(cgroup, layout!(cgroup_kn)), layout!(kernfs_id))
}
