//! What holds a threshold back that is met: memory that is on its way back, headroom that confirms nothing, ids.

use super::super::input::{Confirmation, Sample};
use super::super::observe::{Observation, Observations};
use super::super::signal::Signal;
use super::super::threshold::{Threshold, ThresholdSet};
use super::{Engine, MemoryPolicy};
use crate::base::{Moment, Quantity, Reason};

impl Engine {
    /// Bytes that a signal does not show yet: what the dying still hold and, of headroom, what the dead gave back and lies
    /// on lists of CPUs.
    pub(super) fn on_its_way(&self, index: usize, sample: &Sample<'_>, credit: u64) -> u64 {
        let threshold = self.policy.thresholds().get(index);
        match threshold.map(|threshold| threshold.signal) {
            Some(Signal::MemoryHeadroom) if !self.is_under_reserve(sample) => {
                credit.saturating_add(sample.confirmation.parked.unwrap_or(0))
            }
            _ => credit,
        }
    }

    /// Whether there is no time to wait for anything: headroom is less than the kernel's reserve, and less than half of each hard
    /// threshold on the node's memory. On a large machine the reserve alone is more than a small threshold, of which every
    /// crossing would leave no time then.
    pub(super) fn is_under_reserve(&self, sample: &Sample<'_>) -> bool {
        let halves = self.policy.thresholds().iter().filter_map(|threshold| {
            let is_of_the_node = matches!(
                threshold.signal,
                Signal::MemoryAvailable | Signal::MemoryHeadroom
            );
            let seen = sample.observations[threshold.signal]
                .filter(|_| is_of_the_node && threshold.is_hard())?;
            Some(threshold.quantity(seen.capacity).value() / 2)
        });
        let most = halves.min().unwrap_or(i64::MAX);
        sample.confirmation.is_under_reserve(most)
    }

    /// Why a ready threshold is not acted on, before anybody is ranked.
    pub(super) fn held_back(
        &self,
        now: Moment,
        index: usize,
        sample: &Sample<'_>,
        credit: u64,
    ) -> Option<Reason> {
        let threshold = self.policy.thresholds().get(index)?;
        if threshold.signal == Signal::PidAvailable {
            return self.held_by_reaping(now, threshold, sample);
        }
        if !threshold.signal.is_memory() {
            return self.held_for_disk(now, index, threshold.signal);
        }
        let Some(seen) = sample.observations[threshold.signal] else {
            return Some(Reason::Unknown);
        };
        let quantity = threshold.quantity(seen.capacity);
        if !self.is_confirmed(index, seen.capacity, &sample.confirmation) {
            return Some(Reason::Unconfirmed);
        }
        let credit = self.on_its_way(index, sample, credit);
        let credited = seen.available.saturating_add(saturated(credit));
        let enough = quantity <= Quantity::from_bytes(credited);
        (credit > 0 && enough).then_some(Reason::Credited)
    }

    /// Killed processes whose ids will do once they are reaped.
    fn held_by_reaping(
        &self,
        now: Moment,
        threshold: &Threshold,
        sample: &Sample<'_>,
    ) -> Option<Reason> {
        let seen = sample.observations[Signal::PidAvailable]?;
        let (ids, left) = self.reaped_ids(now, threshold, seen);
        (ids > 0 && left >= 0).then_some(Reason::Credited)
    }

    /// Process ids that can be taken before somebody has to go for them, those that come back when the killed are reaped
    /// included; none without a threshold, or beyond it.
    pub fn ids_left(&self, now: Moment, observations: &Observations) -> Option<i64> {
        let seen = observations[Signal::PidAvailable]?;
        let thresholds = self.policy.thresholds().iter();
        let left = thresholds
            .filter(|threshold| threshold.signal == Signal::PidAvailable)
            .map(|threshold| self.reaped_ids(now, threshold, seen).1);
        left.filter(|&left| left >= 0).min()
    }

    /// The process ids that come back when the killed are reaped, and how many then are left above a threshold.
    fn reaped_ids(&self, now: Moment, threshold: &Threshold, seen: Observation) -> (i64, i64) {
        let wanted = threshold.quantity(seen.capacity).value();
        let ids = self.reaping.ids(now, seen.available, wanted);
        let available = seen.available.saturating_add(ids);
        (ids, available.saturating_sub(wanted))
    }

    /// Whether less can be allocated, headroom and usable swap together, than a threshold wants. Headroom lets go of a
    /// threshold as available memory does on the kubelet: one that it has confirmed stays confirmed until the minimum
    /// reclaim can be allocated too.
    fn is_confirmed(&self, index: usize, capacity: i64, seen: &Confirmation) -> bool {
        let Some(threshold) = self.policy.thresholds().get(index) else {
            return false;
        };
        let signal = threshold.signal;
        let is_asked = signal == Signal::MemoryHeadroom || self.memory == MemoryPolicy::Confirmed;
        let left = self.confirming(signal, seen);
        let is_short = |of: Quantity| left.is_some_and(|left| Quantity::from_bytes(left) < of);
        !is_asked
            || is_short(threshold.quantity(capacity))
            || self.confirmed.contains(index) && is_short(threshold.release(capacity))
    }

    /// Those of the thresholds that are confirmed by a sample.
    pub(super) fn confirmed_by(&self, ready: ThresholdSet, sample: &Sample<'_>) -> ThresholdSet {
        let is_confirmed = |&index: &usize| {
            let signal = self.policy.thresholds()[index].signal;
            let seen = sample.observations[signal].filter(|_| signal.is_memory());
            seen.is_some_and(|seen| self.is_confirmed(index, seen.capacity, &sample.confirmation))
        };
        ready.iter().filter(is_confirmed).collect()
    }

    /// The bytes that could still be allocated, where they decide with a memory signal whether anybody is killed; none
    /// where they do not, or are unknown.
    pub fn confirming(&self, signal: Signal, seen: &Confirmation) -> Option<i64> {
        let (headroom, swap) = match (signal, self.memory) {
            (Signal::MemoryHeadroom, _) => (seen.node, seen.swap),
            (_, MemoryPolicy::Kubelet) => return None,
            (Signal::AllocatableMemoryAvailable, MemoryPolicy::Confirmed) => {
                (seen.pods, seen.pods_swap)
            }
            (_, MemoryPolicy::Confirmed) => (seen.node, seen.swap),
        };
        Some(headroom?.saturating_add(saturated(swap)))
    }

    /// Whether somebody could have to go for one of the `met` thresholds. One that headroom does not confirm is only
    /// told.
    pub fn is_pressing(
        &self,
        met: ThresholdSet,
        observations: &Observations,
        confirmation: &Confirmation,
    ) -> bool {
        let is_pressing = |index: usize| {
            let signal = self.policy.thresholds().get(index)?.signal;
            let capacity = observations[signal].map(|seen| seen.capacity);
            let confirmed =
                capacity.is_some_and(|capacity| self.is_confirmed(index, capacity, confirmation));
            Some(!signal.is_memory() || confirmed)
        };
        met.iter().filter_map(is_pressing).any(|pressing| pressing)
    }
}

fn saturated(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
