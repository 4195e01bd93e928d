//! The gate between "below the threshold" and "act": minimum reclaim, grace, freshness, conditions.
//!
//! One evaluation is steps 6 to 10 of the kubelet's cycle. All state is a few arrays of fixed
//! size, so an evaluation allocates nothing.

use super::condition::{Condition, ConditionSet};
use super::observe::Observations;
use super::policy::Policy;
use super::threshold::{Threshold, ThresholdSet};
use crate::base::Moment;

/// What the gate remembers from one evaluation to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct GateState {
    first_observed: [Option<Moment>; ThresholdSet::CAPACITY],
    /// Fully met last time, grace included; these hold on until their minimum reclaim is there.
    previous: ThresholdSet,
    last_seen: [Option<Moment>; Condition::COUNT],
    /// What the last evaluation saw, to tell a new measurement from an old one.
    observed: Observations,
}

/// The outcome of one evaluation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Verdict {
    /// Below the threshold, or acted on before and still short of the minimum reclaim.
    pub met: ThresholdSet,
    /// Met for at least the grace.
    pub ready: ThresholdSet,
    /// Ready, and measured since the last evaluation: these may drive action.
    pub fresh: ThresholdSet,
    /// Conditions to report, the transition period included.
    pub conditions: ConditionSet,
}

impl GateState {
    /// Since when the threshold at `index` has been met without a break.
    pub fn first_observed(&self, index: usize) -> Option<Moment> {
        self.first_observed.get(index).copied().flatten()
    }

    /// When `condition` was last seen to hold.
    pub const fn last_seen(&self, condition: Condition) -> Option<Moment> {
        self.last_seen[condition as usize]
    }

    /// The thresholds that are met by `seen`: below, or acted on before and still short of the minimum reclaim.
    pub fn met(&self, policy: &Policy, seen: &Observations) -> ThresholdSet {
        met_or_held(policy, self.previous, seen)
    }

    /// The state for another policy: what is known of its thresholds from equal ones of the old
    /// policy, so that a new configuration restarts no grace that it leaves alone.
    #[must_use]
    pub fn carried(&self, old: &Policy, new: &Policy) -> Self {
        let mut carried = Self {
            first_observed: [None; _],
            previous: ThresholdSet::EMPTY,
            ..*self
        };
        for (index, threshold) in new.thresholds().iter().enumerate() {
            let same = old
                .thresholds()
                .iter()
                .position(|other| other.is_same_as(threshold));
            let Some(before) = same else { continue };
            carried.first_observed[index] = self.first_observed(before);
            if self.previous.contains(before) {
                carried.previous.insert(index);
            }
        }
        carried
    }

    /// Lets a threshold count as met since `since`, so that a soft grace survives a restart.
    pub fn resume(&mut self, index: usize, since: Moment) {
        if let Some(entry) = self.first_observed.get_mut(index) {
            *entry = Some(since);
        }
    }
}

/// Evaluates every threshold of `policy` at `now` and moves the state on.
pub fn evaluate(
    policy: &Policy,
    state: &mut GateState,
    now: Moment,
    seen: &Observations,
) -> Verdict {
    let met = state.met(policy, seen);
    state.observe_first(met, now);
    let conditions = state.observe_conditions(policy, met, now);
    let ready = state.grace_over(policy, met, now);
    state.previous = ready;
    let fresh = state.measured_anew(policy, ready, seen);
    Verdict {
        met,
        ready,
        fresh,
        conditions,
    }
}

/// Thresholds met by `seen` regardless of grace; with `held`, minimum reclaim added.
pub fn thresholds_met(policy: &Policy, seen: &Observations, held: bool) -> ThresholdSet {
    let is_met = if held {
        Threshold::is_held
    } else {
        Threshold::is_met
    };
    let met = |threshold: &Threshold| is_met(threshold, seen[threshold.signal].as_ref());
    let thresholds = policy.thresholds().iter().enumerate();
    thresholds
        .filter(|(_, threshold)| met(threshold))
        .map(|(index, _)| index)
        .collect()
}

fn met_or_held(policy: &Policy, previous: ThresholdSet, seen: &Observations) -> ThresholdSet {
    let mut met = thresholds_met(policy, seen, false);
    for index in thresholds_met(policy, seen, true)
        .intersection(previous)
        .iter()
    {
        // The kubelet merges by equality, so a threshold equal to a met one is not added again.
        if policy.equals(index).intersection(met).is_empty() {
            met.insert(index);
        }
    }
    met
}

impl GateState {
    fn observe_first(&mut self, met: ThresholdSet, now: Moment) {
        for (index, first) in self.first_observed.iter_mut().enumerate() {
            *first = if met.contains(index) {
                Some(first.unwrap_or(now))
            } else {
                None
            };
        }
    }

    fn observe_conditions(
        &mut self,
        policy: &Policy,
        met: ThresholdSet,
        now: Moment,
    ) -> ConditionSet {
        for index in met.iter() {
            let condition = policy.thresholds()[index].signal.condition();
            self.last_seen[condition as usize] = Some(now);
        }
        let period = policy.settings.pressure_transition;
        let recent = |seen: Option<Moment>| seen.is_some_and(|at| now.since(at) < period);
        let all = Condition::ALL.into_iter();
        all.filter(|&condition| recent(self.last_seen(condition)))
            .collect()
    }

    fn grace_over(&self, policy: &Policy, met: ThresholdSet, now: Moment) -> ThresholdSet {
        let over = |index: &usize| {
            let grace = policy.thresholds()[*index].grace;
            self.first_observed(*index)
                .is_some_and(|first| now.since(first) >= grace)
        };
        met.intersection(policy.distinct())
            .iter()
            .filter(over)
            .collect()
    }

    /// Ready thresholds whose signal was measured after the last evaluation's measurement, and
    /// this evaluation's measurements remembered, fresh or not.
    fn measured_anew(
        &mut self,
        policy: &Policy,
        ready: ThresholdSet,
        seen: &Observations,
    ) -> ThresholdSet {
        let anew = |index: &usize| {
            let signal = policy.thresholds()[*index].signal;
            seen[signal].is_some_and(|seen| match (self.observed[signal], seen.at) {
                (None, _) | (_, None) => true,
                (Some(last), at) => at > last.at,
            })
        };
        let fresh = ready.iter().filter(anew).collect();
        self.observed = *seen;
        fresh
    }
}

#[cfg(test)]
mod tests;
