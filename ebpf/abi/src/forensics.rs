//! Records of the ring of kills: who died, by whom, for which limit, and when it was over.

use crate::COMM;
use crate::plain::shared;
use crate::record::Head;

/// `Head::kind`, ring of kills: [`OomRecord`].
pub const OOM: u32 = 64;
/// `Head::kind`, ring of kills: [`KillRecord`].
pub const KILL: u32 = 65;
/// `Head::kind`, ring of kills: [`EndRecord`].
pub const END: u32 = 66;
/// `Head::kind`, ring of kills: [`ReleasedRecord`].
pub const RELEASED: u32 = 67;
/// `Head::kind`, ring of kills: [`StackedKillRecord`].
pub const STACKED_KILL: u32 = 68;

/// Frames of a kernel stack that a record holds.
pub const KERNEL_FRAMES: usize = 48;
/// Frames of a user stack that a record holds.
pub const USER_FRAMES: usize = 32;

/// `OomRecord::method`: the decision was not found.
pub const DECISION_UNKNOWN: u32 = 0;
/// `OomRecord::method`: taken as the kernel entered `out_of_memory`.
pub const DECISION_ENTERED: u32 = 1;
/// `OomRecord::method`: found on the stack of the deciding task, and checked.
pub const DECISION_FOUND: u32 = 2;

/// `UserFrame::status`: the frame has a build id and an offset.
pub const FRAME_BUILD_ID: u32 = 1;
/// `UserFrame::status`: the frame has an address only.
pub const FRAME_ADDRESS: u32 = 2;

shared! {
    /// A process as it was when it was killed. [`crate::record::UNKNOWN`] (for `uid` all ones, for `oom_score_adj` the
    /// smallest) marks what could not be read.
    pub struct Figures {
        /// `task_struct.start_boottime` of its first thread, nanoseconds
        pub start_ns: u64,
        /// memory cgroup
        pub cgroup: u64,
        /// its cgroup in the hierarchy of cgroup v2
        pub unified: u64,
        /// bytes; the counters of kernels since 6.2 may be off by some pages a processor, and a little below zero
        pub anon: u64,
        pub file: u64,
        pub shmem: u64,
        pub swap: u64,
        pub page_tables: u64,
        pub total_vm: u64,
        /// most that was ever resident, as far as the kernel noted it
        pub peak: u64,
        pub tgid: u32,
        /// the thread that was marked or that the signal was sent to
        pub tid: u32,
        pub uid: u32,
        pub oom_score_adj: i32,
        pub comm: [u8; COMM],
    }
}

shared! {
    /// The task in whose context it happened.
    pub struct Actor {
        pub tgid: u32,
        pub tid: u32,
        pub uid: u32,
        pub reserved: u32,
        /// memory cgroup
        pub cgroup: u64,
        /// its cgroup in the hierarchy of cgroup v2
        pub unified: u64,
        pub comm: [u8; COMM],
    }
}

shared! {
    /// What the kernel decided, from its `oom_control`. Valid when `OomRecord::method` says so.
    pub struct Decision {
        /// when it was taken up (`CLOCK_MONOTONIC`): victims with the same number fell to one decision
        pub at_ns: u64,
        /// cgroup whose limit was hit, 0 for the node
        pub cgroup: u64,
        /// bytes that cgroup used and may use
        pub usage: u64,
        pub max: u64,
        /// bytes the choice was made over
        pub total: u64,
        /// badness of the chosen process
        pub points: i64,
        pub gfp: u32,
        pub order: i32,
        /// `enum oom_constraint`
        pub constraint: u32,
        pub reserved: u32,
    }
}

shared! {
    /// One frame of a user stack, the kernel's `bpf_stack_build_id`.
    pub struct UserFrame {
        /// `FRAME_*`
        pub status: u32,
        pub build_id: [u8; 20],
        /// in the file, or the address
        pub offset: u64,
    }
}

shared! {
    /// The stacks of the current task.
    pub struct Stacks {
        /// bytes of `kernel` and of `user` in use, or a negative error
        pub kernel_bytes: i32,
        pub user_bytes: i32,
        /// addresses, innermost first
        pub kernel: [u64; KERNEL_FRAMES],
        pub user: [UserFrame; USER_FRAMES],
    }
}

shared! {
    /// The OOM killer marked a process; its memory is still there.
    pub struct OomRecord {
        pub head: Head,
        pub victim: Figures,
        pub trigger: Actor,
        pub decision: Decision,
        /// `DECISION_*`
        pub method: u32,
        /// 1 when SIGKILL was sent for it; else it was dying already and was only given the reserves
        pub signalled: u32,
        /// of the trigger
        pub stacks: Stacks,
    }
}

shared! {
    /// SIGKILL was sent to a process and accepted.
    pub struct KillRecord {
        pub head: Head,
        pub target: Figures,
        pub sender: Actor,
        /// `si_code`: 0 from kill(2), -6 from `tgkill`, 128 from the kernel itself
        pub code: i32,
        /// 1 when it was sent to the whole process
        pub group: u32,
    }
}

shared! {
    /// The same with the stacks of the sender: of the first of those that one sends in a row.
    pub struct StackedKillRecord {
        pub kill: KillRecord,
        pub stacks: Stacks,
    }
}

shared! {
    /// A process that was told as killed has exited: its last thread passed `do_exit`.
    pub struct EndRecord {
        pub head: Head,
        /// `task_struct.start_boottime` of its first thread
        pub start_ns: u64,
        pub tgid: u32,
        /// as `wait(2)` shows it
        pub exit_code: u32,
    }
}

shared! {
    /// The memory of a process that was told as killed is gone: the last user of its address space let it go.
    pub struct ReleasedRecord {
        pub head: Head,
        /// `task_struct.start_boottime` of its first thread
        pub start_ns: u64,
        pub tgid: u32,
        pub reserved: u32,
    }
}
