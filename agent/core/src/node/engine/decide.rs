//! Deciding: which ready threshold is acted on, who goes, and whether the order is carried out.
//!
//! Unlike the kubelet, which acts on one threshold a cycle: where that brings nobody, the next one has its turn. Memory and
//! process ids come before filesystems, which can wait.

use super::super::action::{Action, Actions};
use super::super::choose::choose;
use super::super::decision::{Decision, PLACES, Places, Ranked};
use super::super::gate::Verdict;
use super::super::grace;
use super::super::input::Sample;
use super::super::observe::Observation;
use super::super::order::{OpenOrder, Phase, Stake};
use super::super::rank::{self, Preferences, Ranking};
use super::super::safety::Mode;
use super::super::signal::Signal;
use super::super::threshold::ThresholdSet;
use super::super::workload::PodUsage;
use super::Engine;
use super::follow::remains_of;
use super::reclaiming::Reclaiming;
use crate::base::{Moment, Reason, Span};

/// Places that are put in order at first; the victim is nearly always among them.
const FIRST_HEAD: usize = 64;
/// So many times more when all of those refuse.
const MORE: usize = 8;

impl Engine {
    pub(super) fn decide(
        &mut self,
        now: Moment,
        sample: &Sample<'_>,
        verdict: &Verdict,
        held: &mut [Option<Reason>; ThresholdSet::CAPACITY],
        actions: &mut Actions,
    ) {
        let credit = self.credit.bytes(now, self.is_under_reserve(sample));
        if !verdict.met.iter().any(|index| self.can_reclaim(index)) {
            self.reclaim = Reclaiming::default();
        }
        self.confirmed = self.confirmed_by(verdict.ready, sample);
        let mut ready = verdict.fresh;
        for index in verdict.fresh.iter() {
            held[index] = self.held_back(now, index, sample, credit);
            if held[index].is_some() {
                ready.remove(index);
            }
        }
        self.overtake(ready, actions);
        if self.open.is_some() {
            self.takeover(now, ready, sample, actions);
            for index in ready.iter() {
                held[index] = Some(Reason::Waiting);
            }
            return;
        }
        let disks = self.disks_in(ready);
        for mut left in [ready.difference(disks), disks] {
            while let Some(chosen) = choose(&self.policy, left) {
                left.remove(chosen);
                let credit = self.on_its_way(chosen, sample, credit);
                held[chosen] = self.order(now, chosen, sample, credit, actions).err();
                if held[chosen].is_none() {
                    return;
                }
            }
        }
    }

    /// A hard crossing takes over an open soft order; one on a filesystem only an order for the same, and after what the node
    /// can give back: whoever was asked to end for anything else may hold nothing of it.
    fn takeover(
        &mut self,
        now: Moment,
        ready: ThresholdSet,
        sample: &Sample<'_>,
        actions: &mut Actions,
    ) {
        let Some(asked) = self.open.as_ref().filter(|order| order.is_soft()) else {
            return;
        };
        let asked = asked.threshold;
        let disks = self.disks_in(ready);
        let takes = |&index: &usize| {
            self.policy.thresholds()[index].is_hard()
                && (!disks.contains(index) || self.is_of_the_same_disk(asked, index))
        };
        let taking: ThresholdSet = ready.iter().filter(takes).collect();
        for index in taking.iter() {
            if self.reclaim_first(now, index, sample, actions).is_ok() {
                self.harden(now, actions);
                return;
            }
        }
    }

    /// Ranks everybody and gives the order; the error says why nobody was ordered.
    fn order(
        &mut self,
        now: Moment,
        chosen: usize,
        sample: &Sample<'_>,
        credit: u64,
        actions: &mut Actions,
    ) -> Result<(), Reason> {
        let signal = self.policy.thresholds()[chosen].signal;
        let seen = sample.observations[signal].ok_or(Reason::Unknown)?;
        self.reclaim_first(now, chosen, sample, actions)?;
        if let Some(reason) = self.too_early_for(signal) {
            return Err(reason);
        }
        let mut decision = self
            .draft(now, chosen, seen, sample, credit)
            .ok_or(Reason::Nobody)?;
        decision.mode = self.permit(now, actions);
        self.last_order = decision.order;
        self.decision = Some(decision);
        let victim = decision.victim.workload as usize;
        self.open(now, chosen, victim, sample.usage, actions);
        Ok(())
    }

    /// What an order on memory would rest on if it were given now, without giving it: nothing that a later step depends on
    /// changes. None without a threshold on memory, its figures, or somebody who would go.
    pub fn rehearse(&mut self, now: Moment, sample: &Sample<'_>) -> Option<Decision> {
        let thresholds = self.policy.thresholds();
        let (chosen, seen) = thresholds
            .iter()
            .enumerate()
            .find_map(|(index, threshold)| {
                let seen =
                    sample.observations[threshold.signal].filter(|_| threshold.signal.is_memory());
                Some((index, seen?))
            })?;
        self.draft(now, chosen, seen, sample, 0)
    }

    /// The decision on a threshold as it would be carried out; none when nobody would go.
    fn draft(
        &mut self,
        now: Moment,
        chosen: usize,
        seen: Observation,
        sample: &Sample<'_>,
        credit: u64,
    ) -> Option<Decision> {
        let threshold = self.policy.thresholds()[chosen];
        let ranking = self.ranking(threshold.signal);
        let (victim, ranking) = self.find_victim(now, ranking, sample.usage);
        Some(Decision {
            // A ledger or journal can recall any number: beyond the last there is none.
            order: self.last_order.saturating_add(1),
            at: now,
            reason: if threshold.is_hard() {
                Reason::Hard
            } else {
                Reason::Soft
            },
            mode: Mode::Enforcing,
            threshold: chosen,
            crossed: threshold,
            quantity: threshold.quantity(seen.capacity),
            observation: seen,
            observations: sample.observations,
            limit: None,
            confirmation: sample.confirmation,
            credit,
            generation: self.table.generation(),
            victim: victim?,
            candidates: u32::try_from(self.order.len()).unwrap_or(u32::MAX),
            ranking,
        })
    }

    /// Whether the next order is carried out; a refusal by the guards shows at once.
    pub(super) fn permit(&mut self, now: Moment, actions: &mut Actions) -> Mode {
        let mut mode = self.safety.mode(now);
        if mode == Mode::Enforcing
            && let Err(reason) = self.safety.spend(now)
        {
            mode = Mode::Observing(reason);
        }
        self.tell_mode(mode, actions);
        mode
    }

    /// Ranks as many as it takes to find one that accepts.
    fn find_victim(
        &mut self,
        now: Moment,
        ranking: Ranking,
        usage: &[Option<PodUsage>],
    ) -> (Option<Ranked>, Places) {
        let mut head = FIRST_HEAD;
        loop {
            rank::rank_head(ranking, &self.table, usage, &mut self.order, head);
            let (victim, places) = self.first_that_accepts(now, ranking, usage, head);
            if victim.is_some() || head >= self.order.len() {
                return (victim, places);
            }
            head *= MORE;
        }
    }

    fn first_that_accepts(
        &self,
        now: Moment,
        ranking: Ranking,
        usage: &[Option<PodUsage>],
        head: usize,
    ) -> (Option<Ranked>, Places) {
        let mut places = Places::default();
        let mut victim = None;
        for (place, &index) in self.order.iter().take(head).enumerate() {
            if victim.is_some() && place >= PLACES {
                break;
            }
            let Some(standing) = rank::place(ranking, &self.table, usage, index) else {
                continue;
            };
            let ranked = Ranked {
                workload: index,
                standing: standing.into(),
                refusal: self.refusal(now, ranking.signal, usage, index as usize),
            };
            if ranked.refusal.is_none() && victim.is_none() {
                victim = Some(ranked);
            }
            places.push(ranked);
        }
        (victim, places)
    }

    /// How workloads are ranked for a signal.
    pub const fn ranking(&self, signal: Signal) -> Ranking {
        Ranking {
            signal,
            layout: self.policy.layout(),
            preferences: Preferences::Respect,
        }
    }

    /// Why a workload would not go for a signal now, if so.
    pub fn refusal(
        &self,
        now: Moment,
        signal: Signal,
        usage: &[Option<PodUsage>],
        index: usize,
    ) -> Option<Reason> {
        let holds_nothing =
            Stake::of(signal) == Stake::Disk && self.held(signal, usage, index) == 0;
        let rules = [
            (self.recent.holds(now, index), Reason::Waiting),
            (self.evicted_by(now, index).is_some(), Reason::Evicted),
            (remains_of(usage, index).processes == Some(0), Reason::Empty),
            (holds_nothing, Reason::Unused),
        ];
        let passing = rules
            .into_iter()
            .find_map(|(holds, reason)| holds.then_some(reason));
        let workload = self.table.workloads().get(index);
        let lasting = workload.and_then(|workload| workload.spared_from(signal));
        lasting.or(passing)
    }

    /// Why a workload is never evicted, if so.
    pub(super) fn protection_of(&self, index: usize) -> Option<Reason> {
        self.table.workloads().get(index)?.spared()
    }

    /// The grace of a soft order, as the kubelet and its pod worker grant it.
    fn grace(&self, workload: usize) -> Span {
        let pod = self
            .table
            .workloads()
            .get(workload)
            .and_then(|w| w.termination_grace);
        let asked = grace::override_seconds(false, self.policy.settings.max_pod_grace, pod);
        let pod = pod.or(Some(grace::DEFAULT_POD_GRACE));
        Span::from_secs(grace::effective_seconds(0, None, Some(asked), pod))
    }

    fn open(
        &mut self,
        now: Moment,
        threshold: usize,
        workload: usize,
        usage: &[Option<PodUsage>],
        actions: &mut Actions,
    ) {
        let Some(decision) = &self.decision else {
            return;
        };
        let (id, dry_run) = (decision.order, decision.mode != Mode::Enforcing);
        let phase = if decision.reason == Reason::Soft {
            Phase::Asked {
                until: now + self.grace(workload),
            }
        } else {
            Phase::Killed { at: now }
        };
        let victim = (workload, remains_of(usage, workload));
        let stake = Stake::of(decision.crossed.signal);
        let mut order = OpenOrder::new(id, victim, (threshold, stake), phase, now);
        order.dry_run = dry_run;
        self.open = Some(order);
        if dry_run {
            actions.push(Action::WouldEvict {
                order: id,
                workload,
            });
            return;
        }
        if stake == Stake::Disk {
            let signal = decision.crossed.signal;
            let held = self.held(signal, usage, workload);
            let amounts = (decision.observation.available, decision.quantity.value());
            let place = (self.policy.layout(), signal);
            self.debts.add(place, id, amounts, held);
        }
        self.recent.add(now, workload, id);
        actions.push(match phase {
            Phase::Asked { until } => Action::Ask {
                order: id,
                workload,
                until,
            },
            Phase::Killed { .. } => Action::Kill {
                order: id,
                workload,
            },
        });
    }
}
