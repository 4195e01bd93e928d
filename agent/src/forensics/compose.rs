//! From what was read to an incident: what killed, by what evidence, and for whose limit.

use std::borrow::Cow;

use brink_host::probe::abi::record::{UNKNOWN, VictimRecord};
use brink_host::probe::decode::name;
use brink_host::probe::shortage::Shortage;
use brink_stream::model::event::Time;
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::incident::{
    Cause, CgroupState, Course, Incident, Limit, NodeState, ProcessLine, Trigger, Victim,
};

use super::gather::victim::Told;

/// What the kernel told of a victim as it chose it.
pub fn told(record: &VictimRecord) -> Told {
    let known = |kibibytes: u64| (record.extended != 0).then(|| kibibytes.saturating_mul(1024));
    Told {
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
    }
}

/// In whose context the kernel chose. `cgroup` is that task's.
pub fn trigger(record: &VictimRecord, cgroup: Field<String>) -> Trigger {
    Trigger {
        pid: record.trigger_tgid,
        tid: record.trigger_tid,
        comm: name(&record.trigger_comm).into_owned(),
        cgroup,
        signal_code: Field::Missing(Missing::NotApplicable),
        gfp: Field::Missing(Missing::ProgramNotLoaded),
        order: Field::Missing(Missing::ProgramNotLoaded),
        kernel_stack: Field::Missing(Missing::ProgramNotLoaded),
        user_stack: Field::Missing(Missing::ProgramNotLoaded),
    }
}

/// The decision that a victim fell to, if the kernel's programs know what its trigger had reclaimed.
pub fn decision(record: &VictimRecord) -> Option<(u32, u64)> {
    (record.reclaim_ns != UNKNOWN).then_some((record.trigger_tid, record.reclaim_ns))
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

/// What tells that it was the kernel's killer, in words.
pub fn evidence(record: &VictimRecord, shortage: Shortage) -> Vec<String> {
    let reclaimed = match shortage {
        Shortage::Node => {
            Cow::Borrowed("the task that ran out of memory had just reclaimed for the node")
        }
        Shortage::Cgroup => {
            Cow::Borrowed("the task that ran out of memory had just reclaimed inside a cgroup")
        }
        Shortage::Unknown => Cow::Borrowed(
            "the task that ran out of memory was not seen to reclaim: it is not known where memory was short",
        ),
    };
    let marked = format!(
        "the kernel's OOM killer marked process {} as its victim",
        record.pid
    );
    vec![marked, reclaimed.into_owned()]
}

/// A victim as a line of a table of processes.
pub fn line(victim: &Victim) -> ProcessLine {
    let bytes = |field: &Field<u64>| field.value().copied().unwrap_or(0);
    let parts = [&victim.anon, &victim.file, &victim.shmem];
    ProcessLine {
        pid: victim.pid,
        comm: victim.comm.clone(),
        rss: parts.into_iter().map(bytes).fold(0, u64::saturating_add),
        swap: bytes(&victim.swap),
        oom_score_adj: victim.oom_score_adj.value().copied().unwrap_or(0),
    }
}

/// An incident of which nothing is known but its first victim, when it was killed, and the node.
pub fn blank(cause: Cause, at: &Time, victim: Victim, node: NodeState) -> Incident {
    Incident {
        id: String::new(),
        cause,
        evidence: Vec::new(),
        revision: 1,
        is_final: false,
        at: at.clone(),
        victims: vec![victim],
        more_victims: 0,
        workload: Field::Missing(Missing::NotApplicable),
        trigger: Field::Missing(Missing::NotApplicable),
        limit: Field::Missing(Missing::NotApplicable),
        cgroups: Field::Missing(Missing::ProcessGone),
        memory_stat: Field::Missing(Missing::ProcessGone),
        top_of_cgroup: Field::Missing(Missing::ProcessGone),
        top_of_node: Field::Missing(Missing::Pending),
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
