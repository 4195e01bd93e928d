//! The OOM killer: what it decides, and each process it marks.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_get_current_task};
use aya_ebpf::macros::{btf_tracepoint, fentry};
use aya_ebpf::programs::{BtfTracePointContext, FEntryContext};
use brink_abi::forensics::{
    DECISION_ENTERED, DECISION_FOUND, DECISION_UNKNOWN, Decision, OOM, OomRecord,
};
use brink_abi::meter::OOM_KILLS;
use brink_abi::record::UNKNOWN;

use super::figures::{describe, describe_current, id_of};
use super::search::search;
use super::{Deciding, at, number, stacks};
use crate::emit::{Fate, Wake, count, kill};
use crate::kernel::layout;
use crate::maps::{DECISION, SIGNALLED};
use crate::timer::now;

/// The kernel takes up a decision. It does so under one lock, so the one slot is enough.
#[fentry(function = "out_of_memory")]
pub fn oom_entered(context: FEntryContext) -> u32 {
    if let Some(slot) = DECISION.get_ptr_mut(0) {
        // SAFETY: a map value.
        unsafe {
            (*slot).decider = bpf_get_current_pid_tgid();
            (*slot).control = context.arg::<*const c_void>(0) as u64;
            (*slot).at_ns = now();
            (*slot).chosen = 0;
            (*slot).entered = 1;
        }
    }
    0
}

#[btf_tracepoint(function = "mark_victim")]
pub fn oom_victim(context: BtfTracePointContext) -> i32 {
    let at_ns = now();
    count(OOM_KILLS, Fate::Seen);
    let current = bpf_get_current_pid_tgid();
    let signalled = signalled(current);
    let task = if layout!(victim_is_task) == 1 {
        context.arg::<*const c_void>(0) as u64
    } else {
        task_of(context.arg::<i32>(0) as u32, current, signalled)
    };
    if task == 0 {
        // Somebody who was dying already, and of whom this kernel tells no more than the id.
        count(OOM_KILLS, Fate::Filtered);
        return 0;
    }
    let (control, method, since) = decision_on(task, current, at_ns);
    kill(
        true,
        Wake::AtOnce,
        OOM_KILLS,
        OOM,
        at_ns,
        |record: *mut OomRecord| {
            // SAFETY: the reserved memory of the record; the head is written after.
            unsafe {
                describe(task, &raw mut (*record).victim);
                describe_current(&raw mut (*record).trigger);
                (*record).method = method;
                (*record).signalled = u32::from(signalled == task);
                decide(control, since, &raw mut (*record).decision);
                stacks::take(context.as_ptr(), &raw mut (*record).stacks);
            }
        },
    );
    0
}

/// The task that the kernel sent SIGKILL from this processor and context last. It holds the victim's lock between the
/// signal and the mark, so that nothing comes between.
#[inline(always)]
fn signalled(current: u64) -> u64 {
    SIGNALLED.get_ptr(0).map_or(0, |last| {
        // SAFETY: a map value.
        unsafe {
            if (*last).sender == current {
                (*last).task
            } else {
                0
            }
        }
    })
}

/// The task with the id that was marked: the one the signal went to, or the current one.
#[inline(always)]
fn task_of(pid: u32, current: u64, signalled: u64) -> u64 {
    // SAFETY: the helper takes no argument.
    let own = unsafe { bpf_get_current_task() };
    if pid == current as u32 {
        own
    } else if signalled != 0 && number::<i32>(signalled, layout!(task_pid)) as u32 == pid {
        signalled
    } else {
        0
    }
}

/// Address of the `oom_control` of the decision that marks `task`, how it was found, and when it was taken up.
#[inline(always)]
fn decision_on(task: u64, current: u64, now_ns: u64) -> (u64, u32, u64) {
    /// Longer than a group is being killed.
    const FRESH_NS: u64 = 1_000_000_000;
    let Some(slot) = DECISION.get_ptr_mut(0) else {
        return (0, DECISION_UNKNOWN, 0);
    };
    // SAFETY: a map value.
    let held: Deciding = unsafe { slot.read_volatile() };
    if held.decider == current && held.entered != 0 {
        return (held.control, DECISION_ENTERED, held.at_ns);
    }
    let leader = at(task, layout!(task_leader));
    let control = search(leader, task);
    if control != 0 {
        // SAFETY: a map value.
        unsafe {
            (*slot).decider = current;
            (*slot).control = control;
            (*slot).at_ns = now_ns;
            (*slot).chosen = at(control, layout!(oom_chosen));
            (*slot).entered = 0;
        }
        return (control, DECISION_FOUND, now_ns);
    }
    // The rest of a group: the same decision, which chose another.
    let is_same = held.decider == current
        && now_ns.wrapping_sub(held.at_ns) < FRESH_NS
        && held.chosen != 0
        && at(held.control, layout!(oom_chosen)) == held.chosen;
    if is_same {
        (held.control, DECISION_FOUND, held.at_ns)
    } else {
        (0, DECISION_UNKNOWN, 0)
    }
}

/// Writes what an `oom_control` says.
#[inline(always)]
fn decide(control: u64, since: u64, decision: *mut Decision) {
    let memcg = at(control, layout!(oom_memcg));
    let (mut cgroup, mut usage, mut max) = (0, UNKNOWN, UNKNOWN);
    if memcg != 0 {
        let state = memcg.wrapping_add(u64::from(layout!(memcg_css)));
        cgroup = id_of(at(state, layout!(css_cgroup)));
        usage = in_bytes(number::<i64>(memcg, layout!(memcg_usage)));
        max = in_bytes(number::<i64>(memcg, layout!(memcg_max)));
    }
    // SAFETY: the reserved memory of a record.
    unsafe {
        (*decision).at_ns = since;
        (*decision).cgroup = cgroup;
        (*decision).usage = usage;
        (*decision).max = max;
        (*decision).total = in_bytes(number::<i64>(control, layout!(oom_total)));
        (*decision).points = number::<i64>(control, layout!(oom_points)) as i64;
        (*decision).gfp = number::<i32>(control, layout!(oom_gfp)) as u32;
        (*decision).order = number::<i32>(control, layout!(oom_order)) as i32;
        (*decision).constraint = number::<i32>(control, layout!(oom_constraint)) as u32;
        (*decision).reserved = 0;
    }
}

#[inline(always)]
fn in_bytes(pages: u64) -> u64 {
    if pages == UNKNOWN {
        return UNKNOWN;
    }
    pages << layout!(page_shift)
}
