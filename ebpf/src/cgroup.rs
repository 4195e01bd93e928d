//! The cgroups of the memory controller's hierarchy: made, removed, entered, emptied.

use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::bpf_probe_read_kernel_str_bytes;
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use brink_abi::meter::{CGROUP_EVIDENCE, CGROUP_SIGNALS};
use brink_abi::record::{
    CGROUP, CGROUP_ATTACH, CGROUP_MKDIR, CGROUP_POPULATED, CGROUP_RMDIR, CgroupRecord, EMPTY,
    EmptyRecord,
};

use crate::emit::{Fate, Wake, count, evidence, signal};
use crate::kernel::{cgroup_id, layout, pointer, read};
use crate::maps::{CGROUP_KEY, VICTIMS};
use crate::process::{bury, member};
use crate::sampler::forget;
use crate::timer::now;

#[btf_tracepoint(function = "cgroup_mkdir")]
pub fn cgroup_mkdir(context: BtfTracePointContext) -> i32 {
    record(CGROUP_MKDIR, context.arg(0), context.arg(1), 0)
}

#[btf_tracepoint(function = "cgroup_rmdir")]
pub fn cgroup_rmdir(context: BtfTracePointContext) -> i32 {
    let cgroup: u64 = context.arg(0);
    if let Some(id) = cgroup_id(cgroup)
        && in_hierarchy(cgroup)
    {
        forget(id);
        bury(id);
    }
    record(CGROUP_RMDIR, cgroup, context.arg(1), 0)
}

#[btf_tracepoint(function = "cgroup_attach_task")]
pub fn cgroup_attach(context: BtfTracePointContext) -> i32 {
    let task: *const c_void = context.arg(2);
    // SAFETY: the tracepoint's third argument.
    let tgid: u32 = unsafe { member(task, layout!(task_tgid)) };
    record(CGROUP_ATTACH, context.arg(0), context.arg(1), tgid)
}

#[btf_tracepoint(function = "cgroup_notify_populated")]
pub fn cgroup_populated(context: BtfTracePointContext) -> i32 {
    let cgroup: u64 = context.arg(0);
    let value: u32 = context.arg(2);
    if value == 0 {
        emptied(cgroup);
    }
    record(CGROUP_POPULATED, cgroup, context.arg(1), value)
}

/// Tells on the small ring that a watched cgroup has no process left.
#[inline(always)]
fn emptied(cgroup: u64) {
    count(CGROUP_SIGNALS, Fate::Seen);
    let watched = cgroup_id(cgroup)
        .filter(|id| in_hierarchy(cgroup) && VICTIMS.get_ptr_mut(*id | CGROUP_KEY).is_some());
    let Some(id) = watched else {
        count(CGROUP_SIGNALS, Fate::Filtered);
        return;
    };
    signal(CGROUP_SIGNALS, EMPTY, now(), |record: *mut EmptyRecord| {
        // SAFETY: the reserved memory of the record; the head is written after.
        unsafe { (*record).cgroup = id };
    });
}

/// Whether the cgroup belongs to the hierarchy the memory controller is on.
#[inline(always)]
fn in_hierarchy(cgroup: u64) -> bool {
    pointer(cgroup, layout!(cgroup_root))
        .and_then(|root| read::<i32>(root, layout!(root_hierarchy)))
        .is_some_and(|found| found as u32 == layout!(memory_hierarchy))
}

/// Sends one change as evidence.
#[inline(always)]
fn record(change: u32, cgroup: u64, path: *const u8, value: u32) -> i32 {
    count(CGROUP_EVIDENCE, Fate::Seen);
    let (Some(id), true) = (cgroup_id(cgroup), in_hierarchy(cgroup)) else {
        count(CGROUP_EVIDENCE, Fate::Filtered);
        return 0;
    };
    let level = read::<i32>(cgroup, layout!(cgroup_level)).unwrap_or(0);
    evidence(
        Wake::AtOnce,
        CGROUP_EVIDENCE,
        CGROUP,
        now(),
        |record: *mut CgroupRecord| {
            // SAFETY: the reserved memory of the record, the head is written after; the helper checks the address and
            // keeps to the length of the path.
            unsafe {
                (*record).change = change;
                (*record).level = level as u32;
                (*record).id = id;
                (*record).value = value;
                let read = bpf_probe_read_kernel_str_bytes(path, &mut (*record).path);
                (*record).length = read.map_or(0, |text| text.len() as u32);
            }
        },
    );
    0
}
