//! One choice of the kernel's OOM killer, whoever told it: the program beside the sampler, or the one on kills.

use brink_host::probe::abi::record::{UNKNOWN, VictimRecord};
use brink_host::probe::decode::name;
use brink_host::probe::forensics::{Decision, Limit, Method, Oom, Process};
use brink_host::probe::shortage::Shortage;
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::incident::UserFrame;

use super::correlate::Who;
use super::gather::victim::Told;
use super::stacks;

/// Who was chosen, in whose context, and for whose limit as far as that was told.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub(super) at: u64,
    /// The thread that was marked.
    pub(super) tid: u32,
    pub(super) victim: Told,
    /// Id of the victim's memory cgroup.
    pub(super) cgroup: Option<u64>,
    pub(super) trigger: Actor,
    pub(super) shortage: Shortage,
    /// The decision it fell to: the trigger's thread, and a moment that only it has.
    pub(super) decision: Option<(u32, u64)>,
    /// The kernel's own decision.
    pub(super) exact: Option<Decision>,
    /// Why there is none, where there is none.
    pub(super) undecided: Missing,
    /// Addresses of the trigger's kernel stack.
    pub(super) kernel_stack: Field<Vec<u64>>,
    pub(super) user_stack: Field<Vec<UserFrame>>,
}

/// Who ran out of memory, or sent a signal.
#[derive(Clone, Debug)]
pub(super) struct Actor {
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) comm: String,
    pub(super) cgroup: Option<u64>,
}

impl Choice {
    /// What the program beside the sampler tells. What only the other one knows is missing for `absent`.
    pub(super) fn marked(record: &VictimRecord, absent: Missing) -> Self {
        let known = |kibibytes: u64| (record.extended != 0).then(|| kibibytes.saturating_mul(1024));
        Self {
            at: record.head.at_ns,
            tid: record.pid,
            victim: Told {
                pid: record.pid,
                comm: name(&record.comm).into_owned(),
                uid: (record.extended != 0).then_some(record.uid),
                oom_score_adj: (record.extended != 0).then_some(record.oom_score_adj),
                anon: known(record.anon_rss),
                file: known(record.file_rss),
                shmem: known(record.shmem_rss),
                swap: None,
                page_tables: known(record.pgtables),
                start_ns: None,
            },
            cgroup: id(record.cgroup),
            trigger: Actor {
                pid: record.trigger_tgid,
                tid: record.trigger_tid,
                comm: name(&record.trigger_comm).into_owned(),
                cgroup: id(record.trigger_cgroup),
            },
            shortage: Shortage::of(record),
            decision: id(record.reclaim_ns).map(|reclaimed| (record.trigger_tid, reclaimed)),
            exact: None,
            undecided: absent,
            kernel_stack: Field::Missing(absent),
            user_stack: Field::Missing(absent),
        }
    }

    /// What the program on kills tells.
    pub(super) fn told(oom: &Oom) -> Self {
        let decision = oom.decision.as_ref();
        Self {
            at: oom.at_ns,
            tid: oom.victim.tid,
            victim: told(&oom.victim),
            cgroup: oom.victim.cgroup,
            trigger: Actor {
                pid: oom.trigger.tgid,
                tid: oom.trigger.tid,
                comm: oom.trigger.comm.clone(),
                cgroup: oom.trigger.cgroup,
            },
            shortage: match decision.map(|decision| decision.limit) {
                Some(Limit::Node) => Shortage::Node,
                Some(Limit::Cgroup { .. }) => Shortage::Cgroup,
                None => Shortage::Unknown,
            },
            decision: decision.map(|decision| (oom.trigger.tid, decision.at_ns)),
            exact: decision.cloned(),
            // It was looked for, and is not where the kernels that are known have it.
            undecided: Missing::KernelLacksIt,
            kernel_stack: stacks::kernel(&oom.stacks),
            user_stack: stacks::user(&oom.stacks),
        }
    }

    /// Takes over what the other program knows of the same choice, where this one knows less.
    pub(super) fn complete(&mut self, other: &Self) {
        if self.shortage == Shortage::Unknown {
            self.shortage = other.shortage;
        }
        self.decision = self.decision.or(other.decision);
        self.cgroup = self.cgroup.or(other.cgroup);
    }

    /// The process that was chosen.
    pub(super) const fn who(&self) -> Who {
        Who {
            pid: self.victim.pid,
            start: self.victim.start_ns,
        }
    }

    /// The thread that was marked.
    pub(super) const fn thread(&self) -> Who {
        Who {
            pid: self.tid,
            start: self.victim.start_ns,
        }
    }

    /// Whether both are about the same process.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.victim.pid == other.victim.pid || self.tid == other.tid
    }

    /// What tells that it was the kernel's killer, in words.
    pub(super) fn evidence(&self) -> Vec<String> {
        let mut evidence = vec![format!(
            "the kernel's OOM killer marked process {} as its victim",
            self.victim.pid
        )];
        let Some(exact) = &self.exact else {
            evidence.push(reclaimed(self.shortage).to_owned());
            return evidence;
        };
        let how = match exact.method {
            Method::Entered => "as it began to look for a victim",
            Method::Found => "on the stack of the task that ran out of memory",
        };
        let whose = match exact.limit {
            Limit::Node => "the node's",
            Limit::Cgroup { .. } => "a cgroup's",
        };
        evidence.push(format!(
            "its oom_control, read {how}, says that memory was {whose}"
        ));
        if exact.order < 0 {
            evidence.push("somebody asked for a kill (sysrq)".to_owned());
        }
        match exact.constraint {
            1 => evidence.push("the allocation was bound to a cpuset".to_owned()),
            2 => evidence.push("the allocation was bound by a memory policy".to_owned()),
            _ => {}
        }
        evidence
    }
}

/// A process as it is told apart from others.
pub(super) const fn who(process: &Process) -> Who {
    Who {
        pid: process.tgid,
        start: process.start_ns,
    }
}

/// Figures of a process as the kernel had them when it was killed.
pub(super) fn told(process: &Process) -> Told {
    Told {
        pid: process.tgid,
        comm: process.comm.clone(),
        uid: process.uid,
        oom_score_adj: process.oom_score_adj,
        anon: process.anon,
        file: process.file,
        shmem: process.shmem,
        swap: process.swap,
        page_tables: process.page_tables,
        start_ns: process.start_ns,
    }
}

fn id(number: u64) -> Option<u64> {
    (number != UNKNOWN).then_some(number)
}

const fn reclaimed(shortage: Shortage) -> &'static str {
    match shortage {
        Shortage::Node => "the task that ran out of memory had just reclaimed for the node",
        Shortage::Cgroup => "the task that ran out of memory had just reclaimed inside a cgroup",
        Shortage::Unknown => {
            "nobody saw the task that ran out of memory reclaim: where memory was short is not known"
        }
    }
}
