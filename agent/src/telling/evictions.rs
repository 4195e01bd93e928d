//! Our own evictions as incidents: what the record of a decision says, and what is known when it opens and when it is over.

use std::collections::VecDeque;

use brink_core::node::signal::Signal;
use brink_stream::model::event::{Subject, Time};
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::incident::{Cause, Course, Identity, Incident, NodeState, OtherKill};
use brink_stream::model::kind::Kind;
use serde_json::Value;

use super::Telling;
use crate::record::DecisionRecord;
use crate::record::text::{counted, end_words, hardness, means_words, mode_words};
use crate::record::wire::RankedWorkload;

/// Orders whose incidents may be open at a time: one is carried out, and a few are followed to their ends.
const OPEN: usize = 32;

/// The incidents of our own orders that are open, oldest first.
#[derive(Debug, Default)]
pub(super) struct OpenOrders {
    told: VecDeque<(u64, Incident)>,
    /// One that is told once the step that led to it has been.
    waiting: Option<(u64, Incident)>,
    /// What runs before this one have left open: an order that is taken up goes on in its incident.
    inherited: Vec<(u64, Incident)>,
    /// Whether those are being looked for still.
    is_searching: bool,
    /// The one that has been taken up.
    taken_up: Option<u64>,
    /// Orders that nobody knows and that were over before those were found, with the classes of their victims.
    early: Vec<(DecisionRecord, Option<String>)>,
}

impl OpenOrders {
    fn put(&mut self, order: u64, incident: Incident) {
        if self.told.len() == OPEN {
            self.told.pop_front();
        }
        self.told.push_back((order, incident));
    }

    fn take(&mut self, order: u64) -> Option<Incident> {
        let place = self.told.iter().position(|(known, _)| *known == order)?;
        self.told.remove(place).map(|(_, incident)| incident)
    }

    fn knows(&self, order: u64) -> bool {
        self.told.iter().any(|(known, _)| *known == order)
    }

    fn take_inherited(&mut self, order: u64) -> Option<Incident> {
        let mut inherited = self.inherited.iter();
        let place = inherited.position(|(known, _)| *known == order)?;
        Some(self.inherited.swap_remove(place).1)
    }

    /// Keeps an order that is over until it is known whether it was inherited; whether it is kept.
    fn keep_early(&mut self, record: &DecisionRecord, qos: Option<&str>) -> bool {
        let is_kept = self.is_searching && self.early.len() < OPEN;
        if is_kept {
            self.early.push((record.clone(), qos.map(str::to_owned)));
        }
        is_kept
    }
}

impl Telling {
    /// An order was given: opens its incident. `qos` is the class of the victim, if that is known.
    ///
    /// The guard tells of an order before it tells of the step that led to it. So it waits here for [`Self::step`], and no
    /// longer than until [`Self::tell_waiting`] is called.
    pub fn ordered(&self, record: &DecisionRecord, qos: Option<&str>) {
        self.tell_waiting();
        let Some(inner) = self.inner() else {
            return;
        };
        let mut orders = inner.orders();
        if !orders.knows(record.order) {
            orders.waiting = Some((record.order, opened(record, qos)));
        }
    }

    /// Whether an order waits to be told.
    pub fn has_waiting(&self) -> bool {
        self.inner()
            .is_some_and(|inner| inner.orders().waiting.is_some())
    }

    /// Tells the order that waits, if one does.
    pub fn tell_waiting(&self) {
        let Some(inner) = self.inner() else {
            return;
        };
        let mut orders = inner.orders();
        let Some((order, incident)) = orders.waiting.take() else {
            return;
        };
        if let Some(incident) = self.open(Kind::EvictionOrdered, incident) {
            orders.put(order, incident);
        }
    }

    /// What earlier runs have left open is looked for from now on, until [`Self::inherit`].
    pub(super) fn await_inheritance(&self) {
        if let Some(inner) = self.inner() {
            inner.orders().is_searching = true;
        }
    }

    /// An order of an earlier run has been taken up: its end will come.
    pub fn taken_up(&self, order: u64) {
        if let Some(inner) = self.inner() {
            inner.orders().taken_up = Some(order);
        }
    }

    /// Whether an order of an earlier run goes on in this one, or has come to its end here.
    pub(super) fn goes_on(&self, order: u64) -> bool {
        self.inner().is_some_and(|inner| {
            let orders = inner.orders();
            let mut early = orders.early.iter();
            orders.taken_up == Some(order) || early.any(|(record, _)| record.order == order)
        })
    }

    /// What earlier runs have left open, as far as it could be found.
    pub(super) fn inherit(&self, left: Vec<(u64, Incident)>) {
        let Some(inner) = self.inner() else {
            return;
        };
        let early = {
            let mut orders = inner.orders();
            orders.inherited.extend(left);
            orders.is_searching = false;
            std::mem::take(&mut orders.early)
        };
        for (record, qos) in early {
            self.completed(&record, qos.as_deref());
        }
    }

    /// An order is over: closes its incident. One whose opening found no room in a queue opens and closes at once.
    pub fn completed(&self, record: &DecisionRecord, qos: Option<&str>) {
        self.tell_waiting();
        let Some(inner) = self.inner() else {
            return;
        };
        let known = {
            let mut orders = inner.orders();
            let known = orders.take(record.order);
            let known = known.or_else(|| orders.take_inherited(record.order));
            if known.is_none() && orders.keep_early(record, qos) {
                return;
            }
            // What is found of it later has no end to wait for.
            orders.taken_up = orders.taken_up.filter(|order| *order != record.order);
            known
        };
        let is_known = known.is_some();
        let mut incident = known.unwrap_or_else(|| opened(record, qos));
        close(&mut incident, record);
        if is_known {
            incident.revision += 1;
            self.close(Kind::EvictionCompleted, &incident);
        } else {
            self.open(Kind::EvictionCompleted, incident);
        }
    }

    /// Lets somebody fill in what he knows of an open order's incident; it is told when that closes. False where no open
    /// one is meant.
    pub fn amend(
        &self,
        is_meant: impl Fn(&Incident) -> bool,
        fill: impl FnOnce(&mut Incident),
    ) -> bool {
        let Some(inner) = self.inner() else {
            return false;
        };
        let mut orders = inner.orders();
        let OpenOrders { told, waiting, .. } = &mut *orders;
        let mut open = told.iter_mut().chain(waiting).map(|(_, incident)| incident);
        match open.find(|incident| is_meant(incident)) {
            Some(incident) => {
                fill(incident);
                true
            }
            None => false,
        }
    }
}

/// The subject of events about an incident.
pub(super) fn subject(incident: &Incident) -> Subject {
    let identity = incident.workload.value();
    Subject {
        namespace: identity.map_or_else(String::new, |identity| identity.namespace.clone()),
        name: identity.map_or_else(String::new, |identity| identity.name.clone()),
        uid: identity.map_or_else(String::new, |identity| identity.uid.clone()),
        incident: Some(incident.id.clone()),
    }
}

/// What is known when an order has just been given; its id is given with its number.
fn opened(record: &DecisionRecord, qos: Option<&str>) -> Incident {
    let is_carried_out = is_carried_out(record);
    let later = if is_carried_out {
        Missing::Pending
    } else {
        Missing::NotApplicable
    };
    Incident {
        id: String::new(),
        cause: if is_carried_out {
            Cause::Eviction
        } else {
            Cause::WouldEvict
        },
        evidence: evidence(record),
        revision: 1,
        is_final: false,
        at: record.decided.clone(),
        victims: Vec::new(),
        more_victims: record.kill.as_ref().map_or(0, |kill| kill.signalled),
        other_kills: Vec::new(),
        more_other_kills: None,
        workload: Field::Value(identity(record, qos)),
        trigger: Field::Missing(Missing::NotApplicable),
        fork_root: Field::Missing(if is_for_ids(record) {
            Missing::Pending
        } else {
            Missing::NotApplicable
        }),
        limit: Field::Missing(Missing::NotApplicable),
        cgroups: Field::Missing(Missing::Pending),
        memory_stat: Field::Missing(Missing::Pending),
        top_of_cgroup: Field::Missing(Missing::Pending),
        top_of_node: Field::Missing(Missing::Pending),
        workloads: Field::Missing(Missing::NotApplicable),
        configuration: Field::Missing(Missing::Pending),
        node: Field::Value(node(record)),
        course: course(record, later),
        decision: decision(record),
        recording: Field::Missing(Missing::Pending),
    }
}

/// Everything about the order is known. What nobody has filled in meanwhile will never be.
fn close(incident: &mut Incident, record: &DecisionRecord) {
    incident.evidence = evidence(record);
    incident.evidence.extend(others(incident));
    incident.is_final = true;
    if incident.victims.is_empty() {
        incident.more_victims = record.kill.as_ref().map_or(0, |kill| kill.signalled);
    }
    let unseen = unseen(record);
    incident.course = course(record, unseen);
    incident.decision = decision(record);
    // Where nothing could be added to the incident while it was open, the decision has what was found.
    if let (Field::Missing(Missing::Pending), Some(root)) = (&incident.fork_root, &record.fork_root)
    {
        incident.fork_root = root.clone();
    }
    incident.fork_root.settle(Missing::Lost);
    incident.cgroups.settle(Missing::Lost);
    incident.memory_stat.settle(Missing::Lost);
    incident.top_of_cgroup.settle(Missing::Lost);
    incident.top_of_node.settle(Missing::Lost);
    incident.recording.settle(Missing::Lost);
    incident.configuration.settle(Missing::Lost);
    // Where there was but one, it was the last to go.
    if let ([only], 0, Field::Value(gone)) = (
        &mut incident.victims[..],
        incident.more_victims,
        &incident.course.exited,
    ) && only.exited == Field::Missing(Missing::Pending)
    {
        only.exited = Field::Value(gone.clone());
    }
    for victim in &mut incident.victims {
        victim.exited.settle(unseen);
    }
    if let Field::Value(identity) = &mut incident.workload {
        identity.settle(Missing::Lost);
    }
    if let Field::Value(node) = &mut incident.node {
        if let Some(cost) = reclaimed(record) {
            node.reclaim_ns = Field::Value(cost);
        }
        node.settle(Missing::Lost);
    }
}

/// What reclaim had cost the victim's tasks, as it was read for the kill.
fn reclaimed(record: &DecisionRecord) -> Option<u64> {
    let cost = record.reclaim.as_ref()?;
    Some(cost.node_ns.saturating_add(cost.cgroup_ns))
}

fn is_carried_out(record: &DecisionRecord) -> bool {
    record.mode == "enforcing"
}

/// Whether process ids were short.
fn is_for_ids(record: &DecisionRecord) -> bool {
    record.threshold.signal == Signal::PidAvailable.name()
}

fn has_stage(record: &DecisionRecord, name: &str) -> bool {
    record.stages.iter().any(|stage| stage.stage == name)
}

/// Whether somebody was killed. Of a kill by an agent before us no more is known than when it was over.
fn was_killed(record: &DecisionRecord) -> bool {
    let known = record.kill.as_ref().map(|kill| kill.signalled > 0);
    known.unwrap_or_else(|| has_stage(record, "lastSignal"))
}

/// Whether somebody was killed, or asked to end.
fn was_touched(record: &DecisionRecord) -> bool {
    is_carried_out(record) && (was_killed(record) || has_stage(record, "asked"))
}

/// Why nothing is told of an end: nobody had to come to one, or nobody has seen it.
fn unseen(record: &DecisionRecord) -> Missing {
    if was_touched(record) {
        Missing::Lost
    } else {
        Missing::NotApplicable
    }
}

/// What tells that it was us, in words.
fn evidence(record: &DecisionRecord) -> Vec<String> {
    let threshold = &record.threshold;
    let mut evidence = vec![match &record.limit {
        Some(limit) => {
            let text = limit.message.trim_end();
            format!("our order {} for a limit of its own: {text}", record.order)
        }
        None => format!(
            "our order {} for the {} threshold of {}",
            record.order,
            hardness(threshold.hard),
            threshold.signal
        ),
    }];
    if !is_carried_out(record) {
        evidence.push(format!("nobody was killed: {}", mode_words(&record.mode)));
    }
    if let Some(kill) = &record.kill {
        evidence.push(format!(
            "{} signalled with {}",
            counted(u64::from(kill.signalled), "process"),
            means_words(&kill.means)
        ));
    }
    evidence
}

/// Who else killed, in words: a line for each sender.
fn others(incident: &Incident) -> Vec<String> {
    let mut senders: Vec<(&OtherKill, u64)> = Vec::new();
    for kill in &incident.other_kills {
        let mut known = senders.iter_mut();
        match known.find(|(first, _)| first.sender_pid == kill.sender_pid) {
            Some((_, count)) => *count += 1,
            None => senders.push((kill, 1)),
        }
    }
    let line = |(first, count): (&OtherKill, u64)| {
        format!(
            "somebody else killed as well: process {} ({}) sent SIGKILL to {}, process {} ({}) first",
            first.sender_pid,
            first.sender_comm,
            counted(count, "process"),
            first.pid,
            first.comm
        )
    };
    let more = incident.more_other_kills.map(|more| {
        let more = if more == 1 {
            "1 more process".to_owned()
        } else {
            format!("{more} more processes")
        };
        format!("somebody else killed as well: {more}, which found no room here")
    });
    senders.into_iter().map(line).chain(more).collect()
}

fn identity(record: &DecisionRecord, qos: Option<&str>) -> Identity {
    let RankedWorkload {
        namespace,
        name,
        uid,
        priority,
        request,
        ..
    } = &record.victim;
    let counts_memory = record.threshold.signal.starts_with("memory.")
        || record.threshold.signal.starts_with("allocatableMemory.");
    Identity {
        namespace: namespace.clone(),
        name: name.clone(),
        uid: uid.clone(),
        // An order is for all of a workload.
        container: None,
        container_id: None,
        container_missing: Some(Missing::NotApplicable),
        qos: qos.map(str::to_owned),
        qos_missing: qos.is_none().then_some(Missing::Pending),
        priority: *priority,
        request: counts_memory.then_some(*request),
        request_missing: (!counts_memory).then_some(Missing::Pending),
        owner: None,
        owner_missing: Some(Missing::Pending),
    }
}

/// What the decision knew of the node; the rest is read by others. An order for a limit rests on nothing of it.
fn node(record: &DecisionRecord) -> NodeState {
    let mut signals = record.signals.iter();
    let available = signals.find(|seen| seen.signal == "memory.available");
    let swap = record.limit.is_none();
    let swap = swap.then_some(record.memory.usable_swap_bytes);
    NodeState {
        available: Field::or(available.map(|seen| seen.available), Missing::Pending),
        headroom: Field::or(record.memory.headroom_bytes, Missing::Pending),
        capacity: Field::or(available.map(|seen| seen.capacity), Missing::Pending),
        usable_swap: Field::or(swap, Missing::Pending),
        meminfo: Field::Missing(Missing::Pending),
        vmstat: Field::Missing(Missing::Pending),
        zones: Field::Missing(Missing::Pending),
        pressure: Field::Missing(Missing::Pending),
        reclaim_ns: Field::or(reclaimed(record), Missing::Pending),
    }
}

/// What became of it, from the stages; what is not known of it is missing for `reason`.
fn course(record: &DecisionRecord, reason: Missing) -> Course {
    let stage = |name: &str| -> Option<Time> {
        let mut stages = record.stages.iter();
        Some(stages.find(|stage| stage.stage == name)?.at.clone())
    };
    let gone = stage("gone");
    let memory_back = match record.end.as_deref() {
        Some("memory-back") => stage("ended"),
        _ => gone.clone(),
    };
    let is_over = is_carried_out(record) && record.end.is_some();
    // A victim is not followed for ever: that its end was not seen does not say that it lives.
    let survived = if gone.is_some() {
        Some(false)
    } else {
        (!was_touched(record)).then_some(true)
    };
    Course {
        killed: Field::or(
            stage("firstSignal"),
            if reason == Missing::Lost && !was_killed(record) {
                Missing::NotApplicable
            } else {
                reason
            },
        ),
        container_survived: Field::or(survived.filter(|_| is_over), reason),
        exited: Field::or(gone, reason),
        memory_back: Field::or(memory_back, reason),
        freed: Field::or(is_over.then_some(record.freed_bytes), reason),
        end: record.end.as_deref().map(|end| end_words(end).to_owned()),
    }
}

/// The decision as it is recorded, but for what its incident says itself.
fn decision(record: &DecisionRecord) -> Field<Value> {
    let record = DecisionRecord {
        fork_root: None,
        ..record.clone()
    };
    Field::or(serde_json::to_value(record).ok(), Missing::Malformed)
}
