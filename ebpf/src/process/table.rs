//! The table of processes and the counts per memory cgroup that follow from it.
//!
//! A process enters once and leaves once, whoever comes first: the insertion refuses a second entry and the deletion
//! succeeds once, so hooks and the iterator that fills the table at start cannot count anyone twice.

use brink_abi::meter::{CgroupMeter, Process, ProcessMeter};
use brink_abi::record::UNKNOWN;

use crate::atomic::{add, add_signed, exchange, swap};
use crate::maps::{CGROUPS, PROCESSES, cgroup_meter};

/// `BPF_NOEXIST`
const ONLY_NEW: u64 = 1;

/// Enters a process; false when it is there already or the table is full.
#[inline(always)]
pub fn enter(meter: *mut ProcessMeter, tgid: u32, cgroup: u64, start_ns: u64) -> bool {
    let process = Process { cgroup, start_ns };
    let entered = PROCESSES.insert(tgid, process, ONLY_NEW).is_ok();
    let counts = process_meter(meter, cgroup);
    // SAFETY: both are map values.
    unsafe {
        if entered {
            add_signed(&raw mut (*meter).processes, 1);
            if let Some(counts) = counts {
                add_signed(&raw mut (*counts).processes, 1);
                add(&raw mut (*counts).forks, 1);
            }
        } else if PROCESSES.get_ptr_mut(tgid).is_none() {
            add(&raw mut (*meter).untracked, 1);
            if let Some(counts) = counts {
                add(&raw mut (*counts).untracked, 1);
            }
        }
    }
    entered
}

/// Takes a process out. Returns its cgroup and the processes left there, [`UNKNOWN`] where it was not in the table.
#[inline(always)]
pub fn leave(meter: *mut ProcessMeter, tgid: u32) -> (u64, u64) {
    let Some(found) = PROCESSES.get_ptr_mut(tgid) else {
        return (UNKNOWN, UNKNOWN);
    };
    // SAFETY: a map value; entries are preallocated, so it stays readable.
    let cgroup = unsafe { (*found).cgroup };
    if PROCESSES.remove(tgid).is_err() {
        return (cgroup, UNKNOWN);
    }
    // SAFETY: both are map values.
    unsafe {
        add_signed(&raw mut (*meter).processes, -1);
        add(&raw mut (*meter).exits, 1);
        let Some(counts) = CGROUPS.get_ptr_mut(cgroup) else {
            return (cgroup, UNKNOWN);
        };
        add(&raw mut (*counts).exits, 1);
        add_signed(&raw mut (*counts).zombies, 1);
        let left = add_signed(&raw mut (*counts).processes, -1);
        (cgroup, left.max(0) as u64)
    }
}

/// The process that began then has given its id back. Where its end was not seen, since the kernel had left that program out, it is
/// still in the table, unless another one has its id and its place.
#[inline(always)]
pub fn leave_late(meter: *mut ProcessMeter, tgid: u32, start_ns: u64) {
    let Some(found) = PROCESSES.get_ptr_mut(tgid) else {
        return;
    };
    // SAFETY: a map value; entries are preallocated, so it stays readable.
    if unsafe { (*found).start_ns } == start_ns {
        leave(meter, tgid);
    }
}

/// A process of this cgroup gave its id back. One that had exited before the hooks ran was never counted, and takes
/// nobody else's place for longer than it takes the count to reach zero.
#[inline(always)]
pub fn release(cgroup: u64) {
    if let Some(counts) = CGROUPS.get_ptr_mut(cgroup) {
        // SAFETY: a map value; two at once may take it below zero, which the next exit makes good.
        unsafe {
            if (*counts).zombies > 0 && add_signed(&raw mut (*counts).zombies, -1) <= 0 {
                drop_if_done(counts, cgroup);
            }
        }
    }
}

/// A cgroup was removed, which the unreaped do not prevent: its meters stay until they are.
#[inline(always)]
pub fn bury(cgroup: u64) {
    if let Some(counts) = CGROUPS.get_ptr_mut(cgroup) {
        // SAFETY: a map value.
        unsafe {
            swap(&raw mut (*counts).removed, 1);
            drop_if_done(counts, cgroup);
        }
    }
}

/// Gives up the meters of a removed cgroup without zombies. Whoever changes one of the two, by an operation that nothing
/// moves across, looks at both afterwards, so that one of them sees that it is done.
///
/// # Safety
/// `counts` is the map value of `cgroup`.
#[inline(always)]
unsafe fn drop_if_done(counts: *mut CgroupMeter, cgroup: u64) {
    // SAFETY: the caller's.
    unsafe {
        let removed = (&raw const (*counts).removed).read_volatile() != 0;
        if removed && (&raw const (*counts).zombies).read_volatile() <= 0 {
            let _ = CGROUPS.remove(cgroup);
        }
    }
}

/// Moves a process to `cgroup`; enters it when it is not in the table. False when it was there already.
#[inline(always)]
pub fn settle(meter: *mut ProcessMeter, tgid: u32, cgroup: u64, start_ns: u64) -> bool {
    let Some(found) = PROCESSES.get_ptr_mut(tgid) else {
        return enter(meter, tgid, cgroup, start_ns);
    };
    // SAFETY: map values.
    unsafe {
        // The place may be that of an earlier process, whose end was not seen.
        (&raw mut (*found).start_ns).write_volatile(start_ns);
        let before = swap(&raw mut (*found).cgroup, cgroup);
        if before == cgroup {
            return false;
        }
        add(&raw mut (*meter).moves, 1);
        if let Some(counts) = CGROUPS.get_ptr_mut(before) {
            add_signed(&raw mut (*counts).processes, -1);
        }
        if let Some(counts) = process_meter(meter, cgroup) {
            add_signed(&raw mut (*counts).processes, 1);
        }
    }
    true
}

/// The meters of the cgroup a process comes into; where there is no room for them, that is counted.
#[inline(always)]
fn process_meter(meter: *mut ProcessMeter, cgroup: u64) -> Option<*mut CgroupMeter> {
    let counts = cgroup_meter(cgroup);
    if counts.is_none() {
        // SAFETY: a map value.
        add(unsafe { &raw mut (*meter).unmetered }, 1);
    }
    counts
}

/// Changes the over-limit mark; true for the one caller that did.
#[inline(always)]
pub fn flip(meter: *mut ProcessMeter, from: u64, to: u64) -> bool {
    // SAFETY: a map value.
    exchange(unsafe { &raw mut (*meter).over }, from, to)
}
