//! From what was read to an incident: what killed, by what evidence, and for whose limit.

use brink_host::probe::GfpNames;
use brink_host::probe::forensics::{Kill, SignalCode};
use brink_host::probe::shortage::Shortage;
use brink_stream::model::event::Time;
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::incident::{
    Cause, CgroupState, Course, Incident, Limit, NodeState, ProcessLine, Trigger, Victim,
};

use super::choice::{Actor, Choice};
use super::stacks;

/// In whose context the kernel chose. `cgroup` is that task's, `names` those of allocation flags, if the kernel tells any.
pub(super) fn trigger(choice: &Choice, cgroup: Field<String>, names: Option<&GfpNames>) -> Trigger {
    let Actor { pid, tid, comm, .. } = &choice.trigger;
    let exact = choice.exact.as_ref();
    Trigger {
        pid: *pid,
        tid: *tid,
        comm: comm.clone(),
        cgroup,
        signal_code: Field::Missing(Missing::NotApplicable),
        gfp: Field::or(
            exact.map(|exact| format!("{:#x}", exact.gfp)),
            choice.undecided,
        ),
        gfp_flags: match (exact, names) {
            (None, _) => Field::Missing(choice.undecided),
            (Some(_), None) => Field::Missing(Missing::KernelLacksIt),
            (Some(exact), Some(names)) => Field::Value(names.names(exact.gfp)),
        },
        order: Field::or(exact.map(|exact| exact.order), choice.undecided),
        kernel_stack: stacks::unnamed(&choice.kernel_stack),
        user_stack: choice.user_stack.clone(),
    }
}

/// Who sent a signal, and the addresses of his kernel stack. `cgroup` is that task's.
pub(super) fn sender(kill: &Kill, cgroup: Field<String>) -> (Trigger, Vec<u64>) {
    let found = kill.stacks.as_ref();
    // Only of the first of many in a row, or while there is room.
    let lost = Missing::Lost;
    let kernel_stack = found.map_or(Field::Missing(lost), stacks::kernel);
    let trigger = Trigger {
        pid: kill.sender.tgid,
        tid: kill.sender.tid,
        comm: kill.sender.comm.clone(),
        cgroup,
        signal_code: Field::Value(kill.code.number()),
        gfp: Field::Missing(Missing::NotApplicable),
        gfp_flags: Field::Missing(Missing::NotApplicable),
        order: Field::Missing(Missing::NotApplicable),
        kernel_stack: stacks::unnamed(&kernel_stack),
        user_stack: found.map_or(Field::Missing(lost), stacks::user),
    };
    (trigger, kernel_stack.value().cloned().unwrap_or_default())
}

/// Whether we had ordered a workload to go that somebody else killed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// We had not.
    None,
    /// The incident of our order was over already.
    Over,
}

/// What tells that it was somebody else, in words.
pub(super) fn foreign(kill: &Kill, order: Order) -> Vec<String> {
    let code = match kill.code {
        SignalCode::User => "SI_USER",
        SignalCode::Thread => "SI_TKILL",
        SignalCode::Queue => "SI_QUEUE",
        SignalCode::Timer => "SI_TIMER",
        SignalCode::Kernel => "SI_KERNEL",
        SignalCode::Other(_) => "another code",
    };
    let sender = &kill.sender;
    vec![
        format!(
            "SIGKILL with {code} came from process {} ({})",
            sender.tgid, sender.comm
        ),
        match order {
            Order::None => {
                "the OOM killer had not marked it, and no order of ours was open for its workload"
            }
            Order::Over => {
                "the OOM killer had not marked it, and our order for its workload had just ended"
            }
        }
        .to_owned(),
    ]
}

/// What killed, by where memory was short and whether the kernel takes the group whole.
pub fn cause(shortage: Shortage, limit: Option<&Limit>, states: &[CgroupState]) -> Cause {
    match shortage {
        Shortage::Node => Cause::GlobalOom,
        Shortage::Cgroup if is_taken_whole(limit, states) => Cause::GroupOom,
        Shortage::Cgroup => Cause::MemcgOom,
        Shortage::Unknown => Cause::KernelOom,
    }
}

/// Whether a cgroup from the victim's to the one that was short is killed whole.
fn is_taken_whole(limit: Option<&Limit>, states: &[CgroupState]) -> bool {
    let Some(limit) = limit else {
        return false;
    };
    let short = states.iter().position(|state| state.path == limit.cgroup);
    let within = short.and_then(|short| states.get(..=short));
    within.is_some_and(|within| within.iter().any(|state| state.group == Field::Value(true)))
}

/// A victim as a line of a table of processes.
pub fn line(victim: &Victim) -> ProcessLine {
    let bytes = |field: &Field<u64>| field.value().copied().unwrap_or(0);
    let parts = [&victim.anon, &victim.file, &victim.shmem];
    ProcessLine {
        pid: victim.pid,
        comm: victim.comm.clone(),
        rss: parts.into_iter().map(bytes).fold(0, u64::saturating_add),
        swap: victim.swap.value().copied(),
        swap_missing: victim.swap.missing(),
        oom_score_adj: victim.oom_score_adj.value().copied(),
        oom_score_adj_missing: victim.oom_score_adj.missing(),
    }
}

/// Why nothing is known of a victim's cgroup, where nothing is: for what its path is missing for, or because it was gone by then.
pub(super) const fn unknown(victim: &Victim) -> Missing {
    match &victim.cgroup {
        Field::Value(_) => Missing::ProcessGone,
        Field::Missing(reason) => *reason,
    }
}

/// An incident of which nothing is known but its first victim, when it was killed, and the node.
pub fn blank(cause: Cause, at: &Time, victim: Victim, node: NodeState) -> Incident {
    let unknown = unknown(&victim);
    Incident {
        id: String::new(),
        cause,
        evidence: Vec::new(),
        revision: 1,
        is_final: false,
        at: at.clone(),
        victims: vec![victim],
        more_victims: 0,
        other_kills: Vec::new(),
        more_other_kills: None,
        // Whose cgroup it was in is not known, until it is.
        workload: Field::Missing(unknown),
        trigger: Field::Missing(Missing::NotApplicable),
        fork_root: Field::Missing(Missing::NotApplicable),
        limit: Field::Missing(Missing::NotApplicable),
        cgroups: Field::Missing(unknown),
        memory_stat: Field::Missing(unknown),
        top_of_cgroup: Field::Missing(unknown),
        top_of_node: Field::Missing(Missing::Pending),
        workloads: Field::Missing(Missing::Pending),
        configuration: Field::Missing(Missing::Pending),
        node: Field::Value(node),
        course: Course {
            killed: Field::Value(at.clone()),
            exited: Field::Missing(Missing::Pending),
            memory_back: Field::Missing(Missing::Pending),
            freed: Field::Missing(Missing::Pending),
            container_survived: Field::Missing(Missing::Pending),
            end: None,
        },
        decision: Field::Missing(Missing::NotApplicable),
        recording: Field::Missing(Missing::Pending),
    }
}
