//! An incident that is open: what was told of it, and what is still to be found out.

use std::time::Instant;

use brink_host::cgroup::CgroupDir;
use brink_host::kill::KillTarget;
use brink_stream::model::event::Time;
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::incident::{Incident, Victim};
use brink_stream::model::kind::Kind;
use brink_stream::model::workloads::Workloads;

use super::compose;
use super::correlate::End;
use super::gather::top;

/// One open incident.
#[derive(Debug)]
pub(super) struct Open {
    /// As it is known so far.
    pub(super) incident: Incident,
    /// The workloads as it opened. They are told when it closes: they would make what opens large.
    pub(super) workloads: Field<Workloads>,
    /// By which event it is opened; none once it has been told.
    pub(super) opens: Option<Kind>,
    /// Whether anybody listens: one that was not told is not told as closed either.
    pub(super) is_told: bool,
    /// When it was first known, for the table of the node.
    pub(super) since: Instant,
    /// The cgroup of the first victim.
    pub(super) group: Option<CgroupDir>,
    /// The id that the kernel told of it: another one may have its path by now.
    pub(super) group_id: Option<u64>,
    /// The container that this one is or lies in, or else the workload.
    pub(super) container: Option<KillTarget>,
    /// Bytes that were in use in it, at the least, when the first victim was chosen.
    pub(super) before: u64,
    /// The smallest use seen since.
    pub(super) least: Option<u64>,
    /// How many memories are to come back: victims that share one have it between them.
    pub(super) memories: usize,
    /// How many of them are gone, as the kernel told.
    pub(super) released: usize,
    /// Addresses of the trigger's kernel stack.
    pub(super) kernel_stack: Vec<u64>,
    /// Bytes that are free for certain when all victims have exited: what was theirs alone.
    pub(super) owed: u64,
}

impl Open {
    /// Takes one more victim.
    pub(super) fn join(&mut self, victim: Victim) {
        self.owed = self.owed.saturating_add(own_memory(&victim));
        self.memories += 1;
        self.add(victim);
    }

    /// Takes somebody who shares the memory of the victim `with`: it is the same memory, and comes back once.
    pub(super) fn share(&mut self, victim: Victim, with: u32) {
        self.incident.evidence.push(format!(
            "process {} shares the memory of process {with}, and was killed with it",
            victim.pid
        ));
        self.add(victim);
    }

    /// What was seen of all victims so far is not so of all any more: a group is chosen one by one, and the last may be named when the
    /// first are long gone.
    fn add(&mut self, victim: Victim) {
        self.incident.victims.push(victim);
        let course = &mut self.incident.course;
        course.exited = Field::Missing(Missing::Pending);
        course.memory_back = Field::Missing(Missing::Pending);
    }

    /// Whether the table of the node is still to come.
    pub(super) fn waits_for_table(&self) -> bool {
        self.incident.top_of_node == Field::Missing(Missing::Pending)
    }

    /// A victim has exited at that time.
    pub(super) fn exited(&mut self, pid: u32, at: &Time) {
        self.incident.exited(pid, at);
    }

    /// All victims have exited.
    pub(super) fn ended(&mut self, at: &Time) {
        self.incident.course.exited = Field::Value(at.clone());
        // What was theirs alone is given back before a process counts as exited.
        self.came_back(at);
    }

    /// The kernel has told that the memory of a victim is gone.
    pub(super) fn release(&mut self, at: &Time) {
        self.released += 1;
        if self.released >= self.memories {
            self.came_back(at);
        }
    }

    /// The memory of all victims is back, unless that was seen before.
    fn came_back(&mut self, at: &Time) {
        let back = &mut self.incident.course.memory_back;
        if back.value().is_none() {
            *back = Field::Value(at.clone());
        }
    }

    /// Looks at what is in use.
    pub(super) fn look(&mut self, at: &Time) {
        let Some(usage) = self
            .group
            .as_ref()
            .and_then(|group| group.memory_usage().ok())
        else {
            return;
        };
        let least = self.least.map_or(usage, |least| least.min(usage));
        self.least = Some(least);
        if self.owed > 0 && least <= self.before.saturating_sub(self.owed) {
            self.came_back(at);
        }
    }

    /// Everything is known that ever will be.
    pub(super) fn close(&mut self, end: End) {
        let freed = self.freed();
        let survived = self.survived();
        let told = Field::Missing(Missing::Lost);
        let workloads = std::mem::replace(&mut self.workloads, told);
        let incident = &mut self.incident;
        incident.workloads = workloads;
        incident.revision += 1;
        incident.is_final = true;
        let living = incident
            .victims
            .iter()
            .filter(|victim| victim.exited.value().is_none());
        let living = living.count();
        let is_whole = incident.more_victims == 0;
        let course = &mut incident.course;
        course.end = Some(match end {
            End::Exited if is_whole => "every victim has exited".to_owned(),
            // Nobody watches those that are only counted.
            End::Exited => "every victim that is named has exited".to_owned(),
            End::TimedOut if is_whole => {
                format!("after 30 s, {living} of the victims had not exited")
            }
            End::TimedOut => {
                format!("after 30 s, {living} of the victims that are named had not exited")
            }
            End::AgentEnds => "the agent ends; what came after is not known".to_owned(),
        });
        let reason = match end {
            End::Exited => Missing::ProcessGone,
            // It has not come to pass.
            End::TimedOut => Missing::NotApplicable,
            End::AgentEnds => Missing::Lost,
        };
        course.exited.settle(reason);
        course.memory_back.settle(reason);
        course.freed = freed;
        course.container_survived = survived;
        incident.top_of_node.settle(Missing::Lost);
        if let Field::Value(lines) = &mut incident.top_of_node {
            *lines = top::with_victims(std::mem::take(lines), &incident.victims);
        }
        incident.workload.settle(Missing::Lost);
        incident.recording.settle(Missing::Lost);
        incident.configuration.settle(Missing::Lost);
        if let Field::Value(trigger) = &mut incident.trigger {
            trigger.kernel_stack.settle(Missing::Lost);
        }
        for victim in &mut incident.victims {
            victim.exited.settle(reason);
        }
    }

    /// What came back. Others in the cgroup may have taken some of it at once; nothing else than that is to be seen.
    fn freed(&self) -> Field<u64> {
        let has_ended = self.incident.course.exited.value().is_some();
        let seen = match (self.least, &self.group) {
            (Some(least), _) => Some(self.before.saturating_sub(least)),
            // What was still charged to it when it was removed is its parent's now; nobody has seen how much that was.
            (None, Some(group)) if !group.is_alive() => Some(self.owed),
            (None, _) => None,
        };
        let owed = has_ended.then_some(self.owed).filter(|owed| *owed > 0);
        Field::or(seen.max(owed), self.unknown())
    }

    /// Why nothing is known of the first victim's cgroup, where nothing is.
    fn unknown(&self) -> Missing {
        let first = self.incident.victims.first();
        first.map_or(Missing::ProcessGone, compose::unknown)
    }

    /// Whether the container still has processes, in its own cgroup or below.
    fn survived(&self) -> Field<bool> {
        if self.group.as_ref().is_some_and(CgroupDir::is_root) {
            return Field::Missing(Missing::NotApplicable);
        }
        let Some(container) = &self.container else {
            return Field::Missing(self.unknown());
        };
        if !container.dir().is_alive() {
            return Field::Value(false);
        }
        // A victim is told to have exited a moment before it leaves its cgroup.
        let gone = self.incident.victims.iter();
        let gone = gone.filter(|victim| victim.exited.value().is_some());
        let gone: Vec<u32> = gone.map(|victim| victim.pid).collect();
        let mut has_others = false;
        let is_whole =
            container.each_process(&mut |pid| has_others |= !gone.contains(&pid.unsigned_abs()));
        match (has_others, is_whole) {
            (true, _) => Field::Value(true),
            (false, true) => Field::Value(false),
            (false, false) => Field::Missing(Missing::ProcessGone),
        }
    }
}

/// What of a victim's memory nobody else can have mapped.
pub(super) fn own_memory(victim: &Victim) -> u64 {
    victim.anon.value().copied().unwrap_or(0)
}
