//! Following what was ordered and told: tables, outcomes, time, and the life of the open order.

use alloc::sync::Arc;

use super::super::action::{Action, Actions};
use super::super::condition::Condition;
use super::super::credit::{Dying, NOBODY};
use super::super::gate::{Verdict, evaluate};
use super::super::input::{Delivery, Reconfiguration, Sample};
use super::super::observe::Observations;
use super::super::order::{End, OpenOrder, Phase, Remains, Stake};
use super::super::recent::Recent;
use super::super::safety::Mode;
use super::super::signal::Signal;
use super::super::threshold::ThresholdSet;
use super::super::workload::{PodUsage, WorkloadTable};
use super::Engine;
use super::reclaiming::Reclaiming;
use crate::base::{Moment, Reason};

impl Engine {
    pub(super) fn replace_table(
        &mut self,
        now: Moment,
        table: Arc<WorkloadTable>,
        actions: &mut Actions,
    ) {
        let old = core::mem::replace(&mut self.table, table);
        let new = &self.table;
        let place = |index: usize| {
            let before = old.workloads().get(index)?;
            new.workloads().iter().position(|now| now.uid == before.uid)
        };
        self.credit.remap(now, place);
        self.recent.remap(place);
        self.limited.remap(place);
        if let Some(order) = &mut self.open {
            order.workload = order.workload.and_then(place);
        }
        self.order.clear();
        self.order.reserve(self.table.len());
        self.let_go_of_the_asked(actions);
    }

    /// Whoever was asked to end and is protected by now is not killed for staying. Whoever is in the table no more can
    /// be neither killed nor seen to end: nothing else would ever close that order, and every later one would wait for it.
    fn let_go_of_the_asked(&mut self, actions: &mut Actions) {
        let Some(order) = self.open.as_ref().filter(|order| order.is_soft()) else {
            return;
        };
        let is_over = order
            .workload
            .is_none_or(|workload| self.protection_of(workload).is_some());
        // Whoever has ended meanwhile was evicted, whatever is said of it now.
        if is_over && !order.is_gone() {
            self.close(End::Stopped, actions);
        }
    }

    /// Takes another configuration over: what both know of a threshold is kept, an open order goes
    /// on, and so do a pause and the guards' memory of kills.
    pub(super) fn reconfigure(&mut self, now: Moment, new: &Reconfiguration) {
        self.gate = self.gate.carried(&self.policy, &new.policy);
        let place = |index: usize| {
            let before = self.policy.thresholds().get(index)?;
            new.policy
                .thresholds()
                .iter()
                .position(|now| now.is_same_as(before))
        };
        let is_other = self.memory != new.live.memory;
        let confirmed = self.confirmed.iter().filter(|_| !is_other);
        self.confirmed = confirmed.filter_map(place).collect();
        self.told.met = self.told.met.iter().filter_map(place).collect();
        self.told.held = [None; ThresholdSet::CAPACITY];
        if let Some(order) = &mut self.open {
            order.threshold = place(order.threshold).unwrap_or(ThresholdSet::CAPACITY);
        }
        if !self.has_the_disks_of(&new.policy) {
            self.reclaim = Reclaiming::default();
            self.debts.clear();
        }
        self.policy = new.policy.clone();
        self.memory = new.live.memory;
        self.disks = new.live.disks;
        self.safety
            .reconfigure(new.live.enforce, new.live.limits, now);
    }

    pub(super) fn outcome(
        &mut self,
        now: Moment,
        id: u64,
        delivered: Delivery,
        actions: &mut Actions,
    ) {
        let Some(order) = self.open.as_mut().filter(|order| order.id == id) else {
            return;
        };
        match delivered {
            Delivery::Done { processes } => {
                order.mark_sent(now);
                // Of no other victim anybody looks whether its ids came back.
                if order.is_for_processes() {
                    self.reaping.add(now, processes);
                }
            }
            Delivery::Empty => {
                // Whoever was asked first and is gone by now was evicted all the same.
                if order.phase == (Phase::Killed { at: order.opened }) {
                    self.safety.refund();
                    if order.waits_for_disk() {
                        // What nobody was killed for does not come back by that.
                        self.debts.revoke(id);
                        self.recent.revoke(id);
                    }
                }
                // Whoever leaves as the kill comes may still hold its memory.
                if order.is_for_memory() {
                    order.mark_sent(now);
                } else {
                    self.close(End::Gone, actions);
                }
            }
            Delivery::Failed => self.close(End::Failed, actions),
        }
    }

    /// What time alone changes: a grace that is over, a pause that ends.
    pub(super) fn pass_time(&mut self, now: Moment, actions: &mut Actions) {
        self.tell_mode(self.safety.mode(now), actions);
        if self.open.as_ref().is_some_and(|order| order.is_due(now)) {
            self.harden(now, actions);
        }
    }

    /// Tells a change of mode. Enforcing ends a dry run, so that a crossing that still holds is
    /// acted on; observing ends an order whose victim was only asked so far.
    pub(super) fn tell_mode(&mut self, mode: Mode, actions: &mut Actions) {
        if mode == self.told.mode {
            return;
        }
        self.told.mode = mode;
        actions.push(Action::Mode(mode));
        if mode == Mode::Enforcing {
            // Whoever was only told of is told of anew, and goes.
            self.limited = Recent::default();
        }
        let end = match (&self.open, mode) {
            (Some(order), Mode::Enforcing) if order.dry_run => End::DryRun,
            (Some(order), Mode::Observing(_)) if order.is_soft() && !order.dry_run => End::Stopped,
            _ => return,
        };
        self.close(end, actions);
    }

    /// Turns the open soft order hard.
    pub(super) fn harden(&mut self, now: Moment, actions: &mut Actions) {
        if let Some(order) = &mut self.open
            && order.is_soft()
            && let Some(workload) = order.workload
        {
            order.harden(now);
            if !order.dry_run {
                self.recent.renew(now, order.id);
                actions.push(Action::Kill {
                    order: order.id,
                    workload,
                });
            }
        }
    }

    pub(super) fn sample(&mut self, now: Moment, sample: &Sample<'_>, actions: &mut Actions) {
        let node = used_of(&sample.observations);
        let memory = |index: usize| match index {
            NOBODY => node,
            index => usage_at(sample.usage, index).and_then(|used| used.memory),
        };
        self.credit.observe(now, memory);
        if let Some(seen) = sample.observations[Signal::PidAvailable] {
            let unreaped = sample.confirmation.unreaped;
            self.reaping.observe(now, seen.available, unreaped);
        }
        self.debts
            .observe(self.policy.layout(), &sample.observations);
        let mut verdict = evaluate(&self.policy, &mut self.gate, now, &sample.observations);
        self.keep_unknown(&mut verdict, &sample.observations);
        self.tell(&verdict, sample, actions);
        self.advance_order(now, sample, &verdict, actions);
        let mut held = [None; ThresholdSet::CAPACITY];
        self.decide(now, sample, &verdict, &mut held, actions);
        self.tell_held(held, actions);
    }
}

impl Engine {
    /// Thresholds on filesystems that were met when those were last known, and of which nothing is known now: a filesystem
    /// that does not answer has not got better by that.
    fn unknown(&self, seen: &Observations) -> ThresholdSet {
        let is_unknown = |&index: &usize| {
            let threshold = self.policy.thresholds().get(index);
            threshold.is_some_and(|threshold| {
                Stake::of(threshold.signal) == Stake::Disk && seen[threshold.signal].is_none()
            })
        };
        self.told.met.iter().filter(is_unknown).collect()
    }

    /// The conditions of these hold on.
    fn keep_unknown(&self, verdict: &mut Verdict, seen: &Observations) {
        if !self.unknown(seen).is_empty() {
            verdict.conditions.insert(Condition::DiskPressure);
        }
    }

    fn tell(&mut self, verdict: &Verdict, sample: &Sample<'_>, actions: &mut Actions) {
        for threshold in verdict.met.difference(self.told.met).iter() {
            actions.push(Action::Crossed { threshold });
        }
        let kept = self.unknown(&sample.observations);
        for threshold in self
            .told
            .met
            .difference(verdict.met)
            .difference(kept)
            .iter()
        {
            actions.push(Action::Cleared { threshold });
        }
        self.told.met = verdict.met.union(kept);
        if verdict.conditions != self.told.conditions {
            self.told.conditions = verdict.conditions;
            actions.push(Action::Conditions(verdict.conditions));
        }
    }

    fn tell_held(&mut self, held: [Option<Reason>; ThresholdSet::CAPACITY], actions: &mut Actions) {
        for (threshold, (now, before)) in held.into_iter().zip(self.told.held).enumerate() {
            if let Some(reason) = now.filter(|_| now != before) {
                actions.push(Action::Held { threshold, reason });
            }
        }
        self.told.held = held;
    }
}

impl Engine {
    pub(super) fn open_on(&mut self, workload: usize) -> Option<&mut OpenOrder> {
        self.open
            .as_mut()
            .filter(|order| order.workload == Some(workload))
    }

    fn advance_order(
        &mut self,
        now: Moment,
        sample: &Sample<'_>,
        verdict: &Verdict,
        actions: &mut Actions,
    ) {
        let Some(mut order) = self.open.take() else {
            return;
        };
        self.show(&mut order, now, sample);
        let crossed = is_crossed(&order, verdict.met);
        let end = order.end(now, crossed, self.is_under_reserve(sample));
        // What the gone have kept is known, and owed by itself.
        let owed = if order.is_gone() { 0 } else { order.owed() };
        let (id, workload, given_up) = (order.id, order.workload, order.given_up());
        self.open = Some(order);
        let Some(end) = end else {
            return;
        };
        // What a victim that could not be waited for still owes counts again as soon as there is time to wait.
        if matches!(end, End::MemoryBack | End::UnderReserve) && owed > 0 {
            match workload {
                Some(workload) => {
                    let death = Dying::new(workload, owed, Some(owed), now);
                    self.credit.replace(death);
                }
                None => self.credit.add_nobodys(owed, now),
            }
        }
        // Whoever gives nothing back is not ordered again at once: then it is for others to go.
        if end == End::Stalled {
            self.recent.renew(given_up, id);
        }
        self.close(end, actions);
    }

    /// Shows an order what a sample says of its victim and its signal.
    pub(super) fn show(&self, order: &mut OpenOrder, now: Moment, sample: &Sample<'_>) {
        let remains = order
            .workload
            .map_or_else(Remains::default, |w| remains_of(sample.usage, w));
        let threshold = self.policy.thresholds().get(order.threshold);
        let seen = threshold.and_then(|threshold| sample.observations[threshold.signal]);
        order.observe(now, remains, seen.map(|seen| seen.available));
    }

    pub(super) fn close(&mut self, end: End, actions: &mut Actions) {
        if let Some(order) = self.open.take() {
            if matches!(end, End::Failed | End::Stopped) {
                self.debts.revoke(order.id);
                self.recent.revoke(order.id);
            }
            actions.push(Action::Ended {
                order: order.id,
                end,
            });
        }
    }
}

/// Whether what an order waits for is still short. One for a limit of the victim's own is for no threshold: its memory is
/// waited for where any is met.
pub(super) fn is_crossed(order: &OpenOrder, met: ThresholdSet) -> bool {
    let waits_for_any = order.is_for_memory() && !order.dry_run;
    if order.threshold < ThresholdSet::CAPACITY {
        met.contains(order.threshold)
    } else {
        waits_for_any && !met.is_empty()
    }
}

/// Bytes of memory that the node uses.
fn used_of(seen: &Observations) -> Option<u64> {
    let memory = seen[Signal::MemoryAvailable].or(seen[Signal::MemoryHeadroom])?;
    u64::try_from(memory.capacity.saturating_sub(memory.available)).ok()
}

pub(super) fn usage_at(usage: &[Option<PodUsage>], index: usize) -> Option<&PodUsage> {
    usage.get(index).and_then(Option::as_ref)
}

pub(super) fn remains_of(usage: &[Option<PodUsage>], index: usize) -> Remains {
    usage_at(usage, index).map_or_else(Remains::default, |used| Remains {
        memory: used.memory,
        processes: used.processes,
    })
}
