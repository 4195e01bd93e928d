//! Reclaim: who stalls in it, for how long, for which cgroup; and the sampler's gear change.

use aya_ebpf::helpers::{bpf_get_current_comm, bpf_get_current_pid_tgid, bpf_get_current_task};
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use brink_abi::meter::RECLAIM_EVIDENCE;
use brink_abi::record::{
    RECLAIM, RECLAIM_DIRECT, RECLAIM_KSWAPD, RECLAIM_MEMCG, ReclaimRecord, UNKNOWN,
};

use crate::atomic::add;
use crate::emit::{Fate, Wake, count, evidence};
use crate::kernel::{layout, memory_cgroup};
use crate::maps::{ENGINE, RECLAIMED, RECLAIMS, SAMPLER, cgroup_meter};
use crate::sampler::pull;
use crate::timer::now;

/// A reclaim under way.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Begun {
    pub at_ns: u64,
    /// `RECLAIM_*`
    pub gear: u64,
}

/// A reclaim that is over.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Ended {
    pub at_ns: u64,
    /// `RECLAIM_*`
    pub gear: u64,
}

#[btf_tracepoint(function = "mm_vmscan_direct_reclaim_begin")]
pub fn direct_begin(_context: BtfTracePointContext) -> i32 {
    if let Some(meter) = SAMPLER.get_ptr_mut(0) {
        // SAFETY: a map value.
        add(unsafe { &raw mut (*meter).reclaims }, 1);
    }
    begin(RECLAIM_DIRECT, true)
}

#[btf_tracepoint(function = "mm_vmscan_memcg_reclaim_begin")]
pub fn memcg_begin(_context: BtfTracePointContext) -> i32 {
    begin(RECLAIM_MEMCG, false)
}

#[btf_tracepoint(function = "mm_vmscan_kswapd_wake")]
pub fn kswapd_begin(_context: BtfTracePointContext) -> i32 {
    begin(RECLAIM_KSWAPD, true)
}

#[btf_tracepoint(function = "mm_vmscan_direct_reclaim_end")]
pub fn direct_end(context: BtfTracePointContext) -> i32 {
    end(RECLAIM_DIRECT, reclaimed(&context))
}

#[btf_tracepoint(function = "mm_vmscan_memcg_reclaim_end")]
pub fn memcg_end(context: BtfTracePointContext) -> i32 {
    end(RECLAIM_MEMCG, reclaimed(&context))
}

#[btf_tracepoint(function = "mm_vmscan_kswapd_sleep")]
pub fn kswapd_end(_context: BtfTracePointContext) -> i32 {
    end(RECLAIM_KSWAPD, UNKNOWN)
}

/// The tracepoint's `nr_reclaimed`, wherever the running kernel puts it.
#[inline(always)]
fn reclaimed(context: &BtfTracePointContext) -> u64 {
    if layout!(arg_nr_reclaimed) == 0 {
        context.arg(0)
    } else {
        UNKNOWN
    }
}

/// Notes when the current task entered reclaim. `whole` when the node is short, not only a cgroup.
#[inline(always)]
fn begin(gear: u32, whole: bool) -> i32 {
    let at = now();
    let tid = bpf_get_current_pid_tgid() as u32;
    let _ = RECLAIMS.insert(
        tid,
        Begun {
            at_ns: at,
            gear: u64::from(gear),
        },
        0,
    );
    pull(at, whole);
    0
}

/// Adds the stall to the task's cgroup, and records it when it was long.
#[inline(always)]
fn end(gear: u32, pages: u64) -> i32 {
    let id = bpf_get_current_pid_tgid();
    let tid = id as u32;
    let Some(begun) = RECLAIMS.get_ptr_mut(tid) else {
        return 0;
    };
    // SAFETY: a map value; this task alone writes it.
    let begun = unsafe { begun.read() };
    let _ = RECLAIMS.remove(tid);
    if begun.gear != u64::from(gear) {
        return 0;
    }
    count(RECLAIM_EVIDENCE, Fate::Seen);
    let at = now();
    let ended = Ended {
        at_ns: at,
        gear: u64::from(gear),
    };
    let _ = RECLAIMED.insert(tid, ended, 0);
    let stall = at.wrapping_sub(begun.at_ns);
    // SAFETY: the helper takes no argument.
    let cgroup = memory_cgroup(unsafe { bpf_get_current_task() }).unwrap_or(UNKNOWN);
    total(gear, cgroup, stall, pages);
    if stall < bound() {
        count(RECLAIM_EVIDENCE, Fate::Filtered);
        return 0;
    }
    evidence(
        Wake::WhenFilling,
        RECLAIM_EVIDENCE,
        RECLAIM,
        at,
        |record: *mut ReclaimRecord| {
            // SAFETY: the reserved memory of the record; the head is written after.
            unsafe {
                (*record).gear = gear;
                (*record).tid = tid;
                (*record).tgid = (id >> 32) as u32;
                (*record).reserved = 0;
                (*record).stall_ns = stall;
                (*record).reclaimed = pages;
                (*record).cgroup = cgroup;
                (*record).comm = bpf_get_current_comm().unwrap_or([0; 16]);
            }
        },
    );
    0
}

/// Shortest stall worth a record.
#[inline(always)]
fn bound() -> u64 {
    // SAFETY: a map value.
    ENGINE
        .get_ptr_mut(0)
        .map_or(0, |engine| unsafe { (*engine).knobs.stall_ns })
}

/// Adds one reclaim to the meters of its cgroup.
#[inline(always)]
fn total(gear: u32, cgroup: u64, stall: u64, pages: u64) {
    if gear == RECLAIM_KSWAPD || cgroup == UNKNOWN {
        return;
    }
    let Some(meter) = cgroup_meter(cgroup) else {
        return;
    };
    // SAFETY: a map value.
    unsafe {
        if gear == RECLAIM_DIRECT {
            add(&raw mut (*meter).direct, 1);
            add(&raw mut (*meter).direct_ns, stall);
        } else {
            add(&raw mut (*meter).memcg, 1);
            add(&raw mut (*meter).memcg_ns, stall);
        }
        if pages != UNKNOWN {
            add(&raw mut (*meter).reclaimed, pages);
        }
    }
}
