//! Records of the two rings. The first bytes of each are a [`Head`], whose `kind` says which structure follows.

use crate::plain::shared;
use crate::{COMM, MAX_PATH};

/// `Head::kind`, small ring: a watch went below its limit or came back ([`crate::sample::SampleRecord`]).
pub const CROSSING: u32 = 1;
/// `Head::kind`, small ring: the slack halved or doubled ([`crate::sample::SampleRecord`]).
pub const BAND: u32 = 2;
/// `Head::kind`, small ring: sign of life ([`crate::sample::SampleRecord`]).
pub const HEARTBEAT: u32 = 3;
/// `Head::kind`, small ring: [`VictimRecord`].
pub const VICTIM: u32 = 4;
/// `Head::kind`, small ring: [`RetryRecord`].
pub const RETRY: u32 = 5;
/// `Head::kind`, small ring: [`ExitRecord`] of a watched process or of a process of a watched cgroup.
pub const EXIT: u32 = 6;
/// `Head::kind`, small ring: [`EmptyRecord`] of a watched cgroup.
pub const EMPTY: u32 = 7;
/// `Head::kind`, small ring: [`ThreadsRecord`].
pub const THREADS: u32 = 8;
/// `Head::kind`, large ring: [`ReclaimRecord`].
pub const RECLAIM: u32 = 32;
/// `Head::kind`, large ring: [`CgroupRecord`].
pub const CGROUP: u32 = 33;
/// `Head::kind`, large ring: [`ExecRecord`].
pub const EXEC: u32 = 34;

/// `ReclaimRecord::gear`: an allocation reclaims for the node.
pub const RECLAIM_DIRECT: u32 = 1;
/// `ReclaimRecord::gear`: a charge or a write to a cgroup file reclaims inside a cgroup.
pub const RECLAIM_MEMCG: u32 = 2;
/// `ReclaimRecord::gear`: kswapd.
pub const RECLAIM_KSWAPD: u32 = 3;

/// `CgroupRecord::change`
pub const CGROUP_MKDIR: u32 = 1;
/// `CgroupRecord::change`
pub const CGROUP_RMDIR: u32 = 2;
/// `CgroupRecord::change`: a process came from another cgroup.
pub const CGROUP_ATTACH: u32 = 3;
/// `CgroupRecord::change`: `value` 1 when the first process came, 0 when the last one went.
pub const CGROUP_POPULATED: u32 = 4;

/// A number the kernel could not tell.
pub const UNKNOWN: u64 = u64::MAX;

shared! {
    /// First bytes of every record.
    pub struct Head {
        pub kind: u32,
        /// bytes of the whole record
        pub size: u32,
        /// `CLOCK_MONOTONIC` when the hook ran (for a sample: when the tick began)
        pub at_ns: u64,
        /// `CLOCK_MONOTONIC` just before the record was handed to the ring
        pub submit_ns: u64,
    }
}

shared! {
    /// The OOM killer chose a process. SIGKILL is already pending; its memory is still there.
    pub struct VictimRecord {
        pub head: Head,
        /// thread id of the victim's task that owns the memory
        pub pid: u32,
        /// thread-group id of the task in whose context the kernel ran out
        pub trigger_tgid: u32,
        pub trigger_tid: u32,
        pub uid: u32,
        /// the remaining figures are known (kernels before the extended tracepoint tell the pid only)
        pub extended: u32,
        pub oom_score_adj: i32,
        /// KiB
        pub total_vm: u64,
        pub anon_rss: u64,
        pub file_rss: u64,
        pub shmem_rss: u64,
        pub pgtables: u64,
        /// memory cgroup of the victim's process, [`UNKNOWN`] when it is not in the process table
        pub cgroup: u64,
        /// memory cgroup of the trigger
        pub trigger_cgroup: u64,
        /// nanoseconds since any task was in the last retry before an OOM of the node, [`UNKNOWN`] before the first.
        /// An OOM of a cgroup has no such retry: a long age means that a cgroup's limit was hit.
        pub retry_age_ns: u64,
        /// 1 when that retry was the trigger's own
        pub retry_own: u32,
        /// `RECLAIM_*` of the trigger's last reclaim, 0 when none is known. Nobody runs out of memory without having
        /// reclaimed where it was short: this says where, if it was just before. It may be of long ago, or of another task
        /// that had the same id.
        pub reclaim_gear: u32,
        /// when that reclaim ended, `CLOCK_MONOTONIC`, [`UNKNOWN`] when none is known. Victims with the same trigger and
        /// the same reclaim fell to one decision: a group was taken whole.
        pub reclaim_ns: u64,
        pub comm: [u8; COMM],
        pub trigger_comm: [u8; COMM],
    }
}

shared! {
    /// An allocation decides whether reclaim is still worth a retry: the last station before an OOM of the node.
    pub struct RetryRecord {
        pub head: Head,
        pub node: i32,
        pub zone: i32,
        pub order: i32,
        pub loops: i32,
        /// pages
        pub reclaimable: u64,
        pub available: u64,
        pub min_wmark: u64,
        pub tid: u32,
        /// 1 when the watermark would hold
        pub check: u32,
        pub cgroup: u64,
    }
}

shared! {
    /// A whole process has exited: its last thread passed `do_exit`.
    pub struct ExitRecord {
        pub head: Head,
        pub tgid: u32,
        /// as `wait(2)` shows it: signal in the low bits, code in the next byte
        pub exit_code: u32,
        pub cgroup: u64,
        /// processes left in that cgroup, [`UNKNOWN`] without a count
        pub left: u64,
        /// `task_struct.start_boottime` of the last thread
        pub start_ns: u64,
        pub comm: [u8; COMM],
    }
}

shared! {
    /// The last process of a watched cgroup is gone.
    pub struct EmptyRecord {
        pub head: Head,
        pub cgroup: u64,
    }
}

shared! {
    /// The number of threads crossed its limit, up or down: those of the system, or of the cgroup that is counted instead.
    pub struct ThreadsRecord {
        pub head: Head,
        pub threads: i64,
        pub limit: i64,
        /// 1 over the limit, 0 back under it
        pub over: u64,
    }
}

shared! {
    /// One reclaim that stalled its task for longer than the set bound.
    pub struct ReclaimRecord {
        pub head: Head,
        /// `RECLAIM_*`
        pub gear: u32,
        pub tid: u32,
        pub tgid: u32,
        pub reserved: u32,
        pub stall_ns: u64,
        /// pages, [`UNKNOWN`] where the kernel does not tell
        pub reclaimed: u64,
        /// memory cgroup of the stalled task
        pub cgroup: u64,
        pub comm: [u8; COMM],
    }
}

shared! {
    /// A cgroup of the memory controller's hierarchy came, went, or changed its population.
    pub struct CgroupRecord {
        pub head: Head,
        /// `CGROUP_*`
        pub change: u32,
        pub level: u32,
        /// the cgroup's id: the inode number of its directory
        pub id: u64,
        /// `CGROUP_ATTACH`: thread-group id of what came; `CGROUP_POPULATED`: 0 or 1
        pub value: u32,
        /// bytes of `path` in use; [`MAX_PATH`] means it was cut
        pub length: u32,
        /// path from the root of the hierarchy, not terminated
        pub path: [u8; MAX_PATH],
    }
}

shared! {
    /// A process of a watched cgroup started another program, or any process one of a name that is told.
    pub struct ExecRecord {
        pub head: Head,
        pub tgid: u32,
        pub reserved: u32,
        /// memory cgroup, [`UNKNOWN`] when it cannot be read
        pub cgroup: u64,
        pub comm: [u8; COMM],
    }
}
