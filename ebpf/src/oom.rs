//! The OOM killer: the victim it marked, and the last retry before it.
//!
//! Classic tracepoints, because the raw arguments of `mark_victim` changed from a number to a task within stable
//! series; where each field lies is read from the running kernel's `format` file at load.

use aya_ebpf::helpers::{
    bpf_get_current_comm, bpf_get_current_pid_tgid, bpf_get_current_task,
    bpf_probe_read_kernel_str_bytes,
};
use aya_ebpf::macros::tracepoint;
use aya_ebpf::programs::TracePointContext;
use aya_ebpf::{EbpfContext, Global};
use brink_abi::layout::{ABSENT, Formats};
use brink_abi::meter::OOM_SIGNALS;
use brink_abi::record::{RETRY, RetryRecord, UNKNOWN, VICTIM, VictimRecord};
use brink_abi::{COMM, Plain};

use crate::emit::{Fate, count, signal};
use crate::kernel::{memory_cgroup, read};
use crate::maps::{ENGINE, PROCESSES, RECLAIMED};
use crate::timer::now;

#[unsafe(no_mangle)]
pub static FORMATS: Global<Formats> = Global::new(Formats::UNKNOWN);

/// The `u32` at a byte offset of [`FORMATS`].
#[inline(always)]
fn constant(offset: usize) -> u32 {
    // SAFETY: `format_of!` passes offsets of `u32` fields only, and the global lives as long as the program.
    unsafe {
        (&raw const FORMATS)
            .byte_add(offset)
            .cast::<u32>()
            .read_volatile()
    }
}

/// One field of [`FORMATS`].
macro_rules! format_of {
    ($field:ident) => {
        constant(core::mem::offset_of!(Formats, $field))
    };
}

/// A retry of the same zone is told again only after this long; they come by the thousand before an OOM.
const RETRY_GAP_NS: u64 = 1_000_000;

/// The field at `offset` of the tracepoint's record, `absent` where the running kernel has none.
#[inline(always)]
fn field<T: Plain>(context: &TracePointContext, offset: u32, absent: T) -> T {
    if offset == ABSENT {
        return absent;
    }
    read(context.as_ptr() as u64, offset).unwrap_or(absent)
}

#[tracepoint(category = "oom", name = "mark_victim")]
pub fn mark_victim(context: TracePointContext) -> u32 {
    let at = now();
    count(OOM_SIGNALS, Fate::Seen);
    if let Some(engine) = ENGINE.get_ptr_mut(0) {
        // SAFETY: a map value. The next tick takes the shortest period; this program may not touch the timer.
        unsafe { (*engine).boost_until_ns = at + (*engine).knobs.boost_ns };
    }
    let pid: u32 = field(&context, format_of!(victim_pid), 0);
    let id = bpf_get_current_pid_tgid();
    signal(OOM_SIGNALS, VICTIM, at, |record: *mut VictimRecord| {
        // SAFETY: the reserved memory of the record; the head is written after.
        unsafe {
            (*record).pid = pid;
            (*record).trigger_tgid = (id >> 32) as u32;
            (*record).trigger_tid = id as u32;
            (*record).uid = field(&context, format_of!(victim_uid), u32::MAX);
            (*record).extended = u32::from(format_of!(victim_total_vm) != ABSENT);
            (*record).oom_score_adj =
                i32::from(field::<i16>(&context, format_of!(victim_oom_score_adj), 0));
            (*record).total_vm = field(&context, format_of!(victim_total_vm), UNKNOWN);
            (*record).anon_rss = field(&context, format_of!(victim_anon_rss), UNKNOWN);
            (*record).file_rss = field(&context, format_of!(victim_file_rss), UNKNOWN);
            (*record).shmem_rss = field(&context, format_of!(victim_shmem_rss), UNKNOWN);
            (*record).pgtables = field(&context, format_of!(victim_pgtables), UNKNOWN);
            (*record).cgroup = PROCESSES
                .get_ptr_mut(pid)
                .map_or(UNKNOWN, |found| (*found).cgroup);
            (*record).trigger_cgroup = memory_cgroup(bpf_get_current_task()).unwrap_or(UNKNOWN);
            ((*record).retry_age_ns, (*record).retry_own) = last_retry(id as u32, at);
            ((*record).reclaim_gear, (*record).reclaim_ns) = last_reclaim(id as u32);
            (*record).comm = comm(&context);
            (*record).trigger_comm = bpf_get_current_comm().unwrap_or([0; COMM]);
        }
    });
    0
}

/// The victim's name, where the tracepoint carries it.
#[inline(always)]
fn comm(context: &TracePointContext) -> [u8; COMM] {
    let mut name = [0; COMM];
    let place: u32 = field(context, format_of!(victim_comm), 0);
    if place != 0 {
        let text = (context.as_ptr() as u64).wrapping_add(u64::from(place & 0xffff));
        // SAFETY: the helper checks the address and keeps to the length of `name`.
        let _ = unsafe { bpf_probe_read_kernel_str_bytes(text as *const u8, &mut name) };
    }
    name
}

/// Nanoseconds since the latest last retry, [`UNKNOWN`] before the first, and whether it was this task's.
#[inline(always)]
fn last_retry(tid: u32, at: u64) -> (u64, u32) {
    ENGINE.get_ptr_mut(0).map_or((UNKNOWN, 0), |engine| {
        // SAFETY: a map value.
        let (task, since) = unsafe { ((*engine).retry_tid, (*engine).retry_ns) };
        let age = if since == 0 {
            UNKNOWN
        } else {
            at.wrapping_sub(since)
        };
        (age, u32::from(since != 0 && task == u64::from(tid)))
    })
}

/// Gear and end of the latest reclaim of a task, 0 and [`UNKNOWN`] if none is known.
#[inline(always)]
fn last_reclaim(tid: u32) -> (u32, u64) {
    RECLAIMED.get_ptr(tid).map_or((0, UNKNOWN), |ended| {
        // SAFETY: a map value.
        unsafe { ((*ended).gear as u32, (*ended).at_ns) }
    })
}

#[tracepoint(category = "oom", name = "reclaim_retry_zone")]
pub fn reclaim_retry(context: TracePointContext) -> u32 {
    let at = now();
    count(OOM_SIGNALS, Fate::Seen);
    let Some(engine) = ENGINE.get_ptr_mut(0) else {
        count(OOM_SIGNALS, Fate::Filtered);
        return 0;
    };
    let tid = bpf_get_current_pid_tgid() as u32;
    // SAFETY: a map value.
    let told = unsafe {
        (*engine).boost_until_ns = at + (*engine).knobs.boost_ns;
        (*engine).retry_tid = u64::from(tid);
        (*engine).retry_ns = at;
        (*engine).retry_told_ns
    };
    if at.wrapping_sub(told) < RETRY_GAP_NS {
        count(OOM_SIGNALS, Fate::Filtered);
        return 0;
    }
    // SAFETY: as above.
    unsafe { (*engine).retry_told_ns = at };
    signal(OOM_SIGNALS, RETRY, at, |record: *mut RetryRecord| {
        // SAFETY: the reserved memory of the record; the head is written after.
        unsafe {
            (*record).node = field(&context, format_of!(retry_node), -1);
            (*record).zone = field(&context, format_of!(retry_zone), -1);
            (*record).order = field(&context, format_of!(retry_order), -1);
            (*record).loops = field(&context, format_of!(retry_loops), -1);
            (*record).reclaimable = field(&context, format_of!(retry_reclaimable), UNKNOWN);
            (*record).available = field(&context, format_of!(retry_available), UNKNOWN);
            (*record).min_wmark = field(&context, format_of!(retry_min_wmark), UNKNOWN);
            (*record).tid = tid;
            (*record).check = u32::from(field::<u8>(&context, format_of!(retry_check), 0));
            (*record).cgroup = memory_cgroup(bpf_get_current_task()).unwrap_or(UNKNOWN);
        }
    });
    0
}
