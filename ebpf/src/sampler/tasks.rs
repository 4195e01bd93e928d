//! The tasks of the cgroup that is the node, by the counter of the kernel's own pids controller.
//!
//! Threads count, and so do the dead that nobody has reaped; a cgroup counts all below it. A fork is charged before its hook
//! runs, so that the fork that crosses a limit is the one that tells.

use aya_ebpf::helpers::bpf_get_current_task;
use brink_abi::command::{self, Mailbox};
use brink_abi::layout::ABSENT;
use brink_abi::sample::{USAGE_EMPTY, USAGE_PENDING};

use super::slots::bind;
use crate::atomic::swap;
use crate::controller::{Controller, STATE_BYTES};
use crate::engine::Slot;
use crate::kernel::{layout, opened_cgroup, read};
use crate::maps::{NODE_TASKS, PROCESS};

/// Counts the tasks of the cgroup behind the command's descriptor from now on: [`command::COUNT_TASKS`].
#[inline(never)]
pub fn arm(mailbox: *mut Mailbox) -> u32 {
    let (Some(slot), Some(meter)) = (NODE_TASKS.get_ptr_mut(0), PROCESS.get_ptr_mut(0)) else {
        return command::INVALID;
    };
    // SAFETY: all are map values, and the engine is held by the caller.
    unsafe {
        let fd = (*mailbox).command.fd;
        swap(&raw mut (*slot).state, u64::from(USAGE_EMPTY));
        (*meter).over = 0;
        if fd < 0 {
            return command::OK;
        }
        if layout!(pids_counter) == ABSENT || layout!(css_bytes) as usize > STATE_BYTES {
            return command::UNSUPPORTED;
        }
        let Some(cgroup) = opened_cgroup(bpf_get_current_task(), fd) else {
            return command::NOT_A_CGROUP;
        };
        match read::<i32>(cgroup, layout!(cgroup_level)) {
            Some(0) => return command::ROOT_CGROUP,
            Some(_) => {}
            None => return command::NOT_A_CGROUP,
        }
        if !bind(slot, cgroup, layout!(cgroup_pids))
            || !Controller::is_valid(&raw const (*slot).controller)
        {
            return command::NO_PIDS_CONTROLLER;
        }
        swap(&raw mut (*slot).state, u64::from(USAGE_PENDING));
        (*mailbox).reply.cgroup = (*slot).id;
    }
    command::OK
}

/// Whether a cgroup is counted instead of the machine.
#[inline(always)]
pub fn is_counted() -> bool {
    // What follows is dead code where the kernel has no such counter, or no such check.
    if layout!(pids_counter) == ABSENT || layout!(css_bytes) as usize > STATE_BYTES {
        return false;
    }
    let Some(slot) = NODE_TASKS.get_ptr(0) else {
        return false;
    };
    // SAFETY: a map value.
    let state = unsafe { (&raw const (*slot).state).read_volatile() };
    state != u64::from(USAGE_EMPTY)
}

/// Its tasks, negative where they cannot be read. Only what [`is_sure`] vouches for may be told.
#[inline(always)]
pub fn tasks() -> i64 {
    let Some(slot) = NODE_TASKS.get_ptr(0) else {
        return -1;
    };
    // SAFETY: a map value.
    let css = unsafe { (*slot).controller.css };
    let pids = css.wrapping_sub(u64::from(layout!(pids_css)));
    read::<i64>(pids, layout!(pids_counter)).unwrap_or(-1)
}

/// Whether the counter that was read is still that of the cgroup.
#[inline(always)]
pub fn is_sure() -> bool {
    // SAFETY: a map value.
    let valid = |slot: *const Slot| Controller::is_valid(unsafe { &raw const (*slot).controller });
    NODE_TASKS.get_ptr(0).is_some_and(valid)
}
