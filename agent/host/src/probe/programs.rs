//! The kernel programs: where each attaches, what it needs to know, and what is lost without it.

use super::layout::Need;

/// What a program is part of; the loss of one is reported under its family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// node counters, usage, watches: without it signals come from files
    Sampler,
    /// stall times and the sampler's gear change
    Reclaim,
    /// victims of the kernel's OOM killer, and the last retry before it
    Oom,
    /// thread count, processes per cgroup, exits of victims
    Process,
    /// coming and going of cgroups
    Cgroup,
    /// who was killed, by whom, for which limit, and when it was over, and who forked whom; only when it is asked for
    Forensics,
    /// usage of the cgroups that the flight recorder looks at, in an object of its own; only when it is asked for. Without it their
    /// files are read
    Recorder,
}

impl Family {
    /// Its name in statuses and reports.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Sampler => "sampler",
            Self::Reclaim => "reclaim",
            Self::Oom => "oom",
            Self::Process => "process",
            Self::Cgroup => "cgroup",
            Self::Forensics => "forensics",
            Self::Recorder => "recorder",
        }
    }
}

/// How a program reaches the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// run by user space; it starts a timer
    TestRun,
    /// run by user space whenever it asks
    Call,
    /// tracepoint with typed arguments: its name, and the names expected of the arguments the program uses
    Typed(&'static str, &'static [&'static str]),
    /// tracepoint record: category and name
    Classic(&'static str, &'static str),
    /// iterator over tasks
    Tasks,
    /// entry of a kernel function
    Entry(&'static str),
}

/// One kernel program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// its name in the object
    pub name: &'static str,
    /// what it is part of
    pub family: Family,
    /// where it attaches
    pub hook: Hook,
    /// what its code reads
    pub needs: &'static [Need],
}

impl Program {
    /// Another way serves where it is absent: nothing is lost without it.
    pub fn is_spare(&self) -> bool {
        is_spare(self.name)
    }
}

const fn typed(
    name: &'static str,
    family: Family,
    tracepoint: &'static str,
    arguments: &'static [&'static str],
    needs: &'static [Need],
) -> Program {
    Program {
        name,
        family,
        hook: Hook::Typed(tracepoint, arguments),
        needs,
    }
}

/// Every program of the object, in the order they are loaded: who disarms slots comes before who arms them.
pub const PROGRAMS: &[Program] = &[
    typed(
        "cgroup_mkdir",
        Family::Cgroup,
        "cgroup_mkdir",
        &["cgrp", "path"],
        IN_HIERARCHY,
    ),
    typed(
        "cgroup_rmdir",
        Family::Cgroup,
        "cgroup_rmdir",
        &["cgrp", "path"],
        IN_HIERARCHY,
    ),
    typed(
        "cgroup_attach",
        Family::Cgroup,
        "cgroup_attach_task",
        &["dst_cgrp", "path", "task"],
        &[Need::TaskCgroup, Need::Cgroup, Need::Process],
    ),
    typed(
        "cgroup_populated",
        Family::Cgroup,
        "cgroup_notify_populated",
        &["cgrp", "path", "val"],
        IN_HIERARCHY,
    ),
    Program {
        name: "command",
        family: Family::Sampler,
        hook: Hook::TestRun,
        needs: &[Need::TaskCgroup, Need::Cgroup, Need::Slot, Need::Node],
    },
    typed("fork", Family::Process, "task_newtask", &["task"], OF_TASK),
    typed(
        "free",
        Family::Process,
        "sched_process_free",
        &["p"],
        OF_TASK,
    ),
    typed(
        "exit",
        Family::Process,
        "sched_process_exit",
        &["p"],
        OF_TASK,
    ),
    typed(
        "exec",
        Family::Process,
        "sched_process_exec",
        &["p"],
        OF_TASK,
    ),
    typed(
        "attach",
        Family::Process,
        "cgroup_attach_task",
        &["dst_cgrp", "path", "task"],
        OF_TASK,
    ),
    Program {
        name: "sync_processes",
        family: Family::Process,
        hook: Hook::Tasks,
        needs: OF_TASK,
    },
    typed(
        "direct_begin",
        Family::Reclaim,
        "mm_vmscan_direct_reclaim_begin",
        &[],
        STALLED,
    ),
    typed(
        "direct_end",
        Family::Reclaim,
        "mm_vmscan_direct_reclaim_end",
        &[],
        STALLED,
    ),
    typed(
        "memcg_begin",
        Family::Reclaim,
        "mm_vmscan_memcg_reclaim_begin",
        &[],
        STALLED,
    ),
    typed(
        "memcg_end",
        Family::Reclaim,
        "mm_vmscan_memcg_reclaim_end",
        &[],
        STALLED,
    ),
    typed(
        "kswapd_begin",
        Family::Reclaim,
        "mm_vmscan_kswapd_wake",
        &[],
        STALLED,
    ),
    typed(
        "kswapd_end",
        Family::Reclaim,
        "mm_vmscan_kswapd_sleep",
        &[],
        STALLED,
    ),
    Program {
        name: "mark_victim",
        family: Family::Oom,
        hook: Hook::Classic("oom", "mark_victim"),
        needs: STALLED,
    },
    Program {
        name: "reclaim_retry",
        family: Family::Oom,
        hook: Hook::Classic("oom", "reclaim_retry_zone"),
        needs: STALLED,
    },
    Program {
        name: OOM_ENTERED,
        family: Family::Forensics,
        hook: Hook::Entry("out_of_memory"),
        needs: &[Need::Decision],
    },
    typed(
        "sigkill_sent",
        Family::Forensics,
        "signal_generate",
        &["sig", "info", "task", "group", "result"],
        OF_KILL,
    ),
    typed(
        "oom_victim",
        Family::Forensics,
        "mark_victim",
        &[],
        &[Need::TaskCgroup, Need::Process, Need::Killed, Need::Victim],
    ),
    typed(
        "birth",
        Family::Forensics,
        "task_newtask",
        &["task"],
        OF_KILL,
    ),
    typed(
        "killed_exit",
        Family::Forensics,
        "sched_process_exit",
        &["p"],
        OF_KILL,
    ),
    typed(
        "killed_release",
        Family::Forensics,
        "exit_mmap",
        &["mm"],
        &[],
    ),
    Program {
        name: SURVEY,
        family: Family::Recorder,
        hook: Hook::Call,
        needs: OF_CGROUPS,
    },
    Program {
        name: FOLLOW,
        family: Family::Recorder,
        hook: Hook::TestRun,
        needs: OF_CGROUPS,
    },
];

/// Whether another way serves where the program of this name is absent.
pub fn is_spare(name: &str) -> bool {
    [OOM_ENTERED, SURVEY, FOLLOW].contains(&name)
}

/// The program that is told of each decision of the OOM killer. Where the kernel cannot be hooked at functions,
/// `oom_victim` finds the decision by itself.
pub const OOM_ENTERED: &str = "oom_entered";

/// The program that tells what many cgroups use. Where it is absent their files tell.
pub const SURVEY: &str = "survey";

/// The program that starts the survey's timer. Where it is absent, the survey is asked as often as the timer would look.
pub const FOLLOW: &str = "follow";

const IN_HIERARCHY: &[Need] = &[Need::TaskCgroup, Need::Cgroup];
const OF_CGROUPS: &[Need] = &[Need::TaskCgroup, Need::Cgroup, Need::Slot];
const OF_TASK: &[Need] = &[Need::TaskCgroup, Need::Process];
const OF_KILL: &[Need] = &[Need::TaskCgroup, Need::Process, Need::Killed];
const STALLED: &[Need] = &[Need::TaskCgroup];
