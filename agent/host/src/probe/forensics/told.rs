//! What the programs tell of a kill, in terms of this side.

/// One record of the ring of kills.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// the OOM killer marked a process
    Oom(Box<Oom>),
    /// SIGKILL was accepted for a process
    Kill(Box<Kill>),
    /// a process that was told as killed has exited
    End(End),
    /// the memory of a process that was told as killed is gone
    Released(Released),
}

/// A process as it was when it was killed. None is what could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// thread-group id
    pub tgid: u32,
    /// the thread that was marked, or that the signal was sent to
    pub tid: u32,
    /// name of that thread
    pub comm: String,
    /// when its first thread was started, nanoseconds of `CLOCK_BOOTTIME`
    pub start_ns: Option<u64>,
    /// real user id
    pub uid: Option<u32>,
    /// `oom_score_adj`
    pub oom_score_adj: Option<i32>,
    /// anonymous memory, bytes; the counters of kernels since 6.2 may be off by some pages a processor
    pub anon: Option<u64>,
    /// mapped files
    pub file: Option<u64>,
    /// shared memory
    pub shmem: Option<u64>,
    /// in swap
    pub swap: Option<u64>,
    /// page tables
    pub page_tables: Option<u64>,
    /// mapped in all
    pub total_vm: Option<u64>,
    /// most that was ever resident, as far as the kernel noted it
    pub peak: Option<u64>,
    /// id of its memory cgroup
    pub cgroup: Option<u64>,
    /// id of its cgroup in the hierarchy of cgroup v2
    pub unified: Option<u64>,
}

/// The task in whose context it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// thread-group id; 0 for an idle processor
    pub tgid: u32,
    /// thread id
    pub tid: u32,
    /// name of the thread
    pub comm: String,
    /// real user id
    pub uid: u32,
    /// id of its memory cgroup
    pub cgroup: Option<u64>,
    /// id of its cgroup in the hierarchy of cgroup v2
    pub unified: Option<u64>,
}

/// The OOM killer marked a process; its memory is still there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oom {
    /// when
    pub at_ns: u64,
    /// who
    pub victim: Process,
    /// SIGKILL was sent for it; else it was dying already and was only given the reserves
    pub is_signalled: bool,
    /// who ran out of memory
    pub trigger: Actor,
    /// what the kernel decided; none where its decision was not found
    pub decision: Option<Decision>,
    /// of the trigger
    pub stacks: Stacks,
}

/// What the kernel decided, as its `oom_control` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// how it was found
    pub method: Method,
    /// when it was taken up: victims with the same number fell to one decision
    pub at_ns: u64,
    /// whose limit was hit
    pub limit: Limit,
    /// `gfp_mask` of the allocation
    pub gfp: u32,
    /// order of the allocation; −1 when somebody asked for a kill (sysrq)
    pub order: i32,
    /// bytes the choice was made over; 0 where not known
    pub total: u64,
    /// badness of the chosen process
    pub points: i64,
    /// `enum oom_constraint`; 0 none, 1 cpuset, 2 memory policy, 3 memory cgroup
    pub constraint: u32,
}

/// How a decision was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// told as the kernel entered `out_of_memory`
    Entered,
    /// found on the deciding task's stack, and checked
    Found,
}

/// Whose limit was hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// the node had no memory
    Node,
    /// a cgroup was at its limit
    Cgroup {
        /// id of the cgroup
        id: u64,
        /// bytes in use
        usage: Option<u64>,
        /// bytes it may use
        max: Option<u64>,
    },
}

/// The stacks of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stacks {
    /// in the kernel: addresses, innermost first
    pub kernel: Stack<u64>,
    /// in its own program, by frame pointers, innermost first
    pub user: Stack<Frame>,
}

/// A stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stack<T> {
    /// innermost first; cut at as many frames as a record holds
    Frames(Vec<T>),
    /// the kernel could not follow it: its error number
    Failed(i32),
}

/// One frame of a user stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// in a file with a build id
    File {
        /// build id, shorter ones followed by zeros
        build_id: [u8; 20],
        /// bytes from the start of the file
        offset: u64,
    },
    /// an address, where the file or its build id was not at hand
    Address(u64),
}

/// SIGKILL was accepted for a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kill {
    /// when
    pub at_ns: u64,
    /// to whom
    pub target: Process,
    /// by whom
    pub sender: Actor,
    /// from where
    pub code: SignalCode,
    /// to the process, and not to one thread of it (which ends the process too)
    pub is_group: bool,
    /// of the sender; none of the kernel's own signals, nor of those after the first that one sends in a row
    pub stacks: Option<Stacks>,
}

/// `si_code`: from where a signal came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalCode {
    /// kill(2), a pidfd, or `cgroup.kill` (`SI_USER`)
    User,
    /// `tgkill` (`SI_TKILL`)
    Thread,
    /// sigqueue(3) (`SI_QUEUE`)
    Queue,
    /// a timer (`SI_TIMER`)
    Timer,
    /// the kernel itself: OOM killer, a limit on CPU time, the end of a pid namespace (`SI_KERNEL`)
    Kernel,
    /// another code
    Other(i32),
}

impl SignalCode {
    /// The number.
    pub fn number(self) -> i32 {
        match self {
            Self::User => 0,
            Self::Thread => -6,
            Self::Queue => -1,
            Self::Timer => -2,
            Self::Kernel => 0x80,
            Self::Other(code) => code,
        }
    }
}

impl From<i32> for SignalCode {
    fn from(code: i32) -> Self {
        match code {
            0 => Self::User,
            -6 => Self::Thread,
            -1 => Self::Queue,
            -2 => Self::Timer,
            0x80 => Self::Kernel,
            other => Self::Other(other),
        }
    }
}

/// A process that was told as killed has exited: its last thread passed `do_exit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// when
    pub at_ns: u64,
    /// thread-group id
    pub tgid: u32,
    /// when it was started, as [`Process::start_ns`]
    pub start_ns: Option<u64>,
    /// as `wait(2)` shows it: signal in the low seven bits, code in the next byte
    pub exit_code: u32,
}

/// The memory of a process that was told as killed is gone: the last user of its address space let it go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released {
    /// when
    pub at_ns: u64,
    /// thread-group id
    pub tgid: u32,
    /// when it was started, as [`Process::start_ns`]
    pub start_ns: Option<u64>,
}
