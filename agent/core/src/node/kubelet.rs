//! The kubelet's loop alone: one cycle from observations to evictions, without anything of Brink's.
//!
//! The order of steps is the kubelet's. Where it is random there, it is fixed here and always one
//! of the orders the kubelet might have taken: thresholds as in [`choose`](super::choose), pods
//! that are equal by uid, conditions as listed.

use alloc::vec::Vec;

use super::choose::choose;
use super::condition::ConditionSet;
use super::gate::{GateState, evaluate};
use super::grace;
use super::limits;
use super::message::{Annotations, DisruptionTarget, Victim, eviction_message};
use super::metrics::EvictionSignal;
use super::observe::{Layout, Observations};
use super::policy::Policy;
use super::rank::{Preferences, Ranking, rank};
use super::reclaim::{self, Reclaim};
use super::threshold::{Threshold, ThresholdSet};
use super::workload::{PodDetail, PodUsage, WorkloadTable};
use crate::base::{Moment, Span};
use alloc::string::String;

/// How often the loop runs while nothing happens.
pub const MONITORING_INTERVAL: Span = Span::from_secs(10);

/// How long the loop waits for evicted pods to be gone before it runs again.
pub const CLEANUP_TIMEOUT: Span = Span::from_secs(30);

/// How often it looks whether they are gone; the first time after one interval.
pub const CLEANUP_POLL: Span = Span::from_secs(1);

/// What one cycle sees. `usage` and `details` run parallel to the table; a pod without usage has
/// no statistics.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// The signals at the start of the cycle.
    pub observations: &'a Observations,
    /// The signals after reclaim on the node, if it comes to that; `None` if they cannot be read.
    pub after_reclaim: Option<&'a Observations>,
    /// The pods.
    pub table: &'a WorkloadTable,
    /// What they use.
    pub usage: &'a [Option<PodUsage>],
    /// What their containers and volumes use.
    pub details: &'a [PodDetail],
}

/// What one cycle decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cycle {
    /// Thresholds met, or held by their minimum reclaim.
    pub met: ThresholdSet,
    /// Thresholds whose grace is over and whose observation is new.
    pub ready: ThresholdSet,
    /// Conditions reported.
    pub conditions: ConditionSet,
    /// The threshold acted on, by index.
    pub chosen: Option<usize>,
    /// What was tried on the node first.
    pub reclaim: &'static [Reclaim],
    /// Whether that was enough.
    pub reclaimed: bool,
    /// All candidates, first to be evicted first; empty if no ranking was made.
    pub ranking: Vec<u32>,
    /// The pod evicted for a threshold.
    pub evict: Option<Eviction>,
    /// Pods evicted for their own local-storage limits; if there are any, the cycle ended there.
    pub local_storage: Vec<Eviction>,
}

/// One pod evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// Index of the pod in the table.
    pub workload: u32,
    /// What it is counted under.
    pub signal: EvictionSignal,
    /// The grace asked for, in seconds.
    pub grace_seconds: i64,
    /// The message of status, condition and event.
    pub message: String,
    /// Annotations of the event.
    pub annotations: Option<Annotations>,
    /// The condition the pod gets.
    pub disruption: Option<DisruptionTarget>,
}

/// The kubelet's eviction manager between two cycles.
#[derive(Clone, Debug)]
pub struct Kubelet {
    policy: Policy,
    gate: GateState,
}

impl Kubelet {
    /// The loop before its first cycle. Containerfs thresholds are derived at once, where the
    /// kubelet runs its first cycle without them; Brink's own signal is left out.
    pub fn new(policy: &Policy, layout: Layout) -> Self {
        let policy = policy.without_headroom().on_layout(layout);
        Self {
            policy,
            gate: GateState::default(),
        }
    }

    /// The policy it goes by; sets of thresholds refer to its list.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// One cycle.
    pub fn cycle(&mut self, now: Moment, seen: &Snapshot<'_>) -> Cycle {
        let isolation = self.policy.settings.local_storage_isolation;
        if self.policy.thresholds().is_empty() && !isolation {
            return Cycle::default();
        }
        let verdict = evaluate(&self.policy, &mut self.gate, now, seen.observations);
        let cycle = Cycle {
            met: verdict.met,
            ready: verdict.fresh,
            conditions: verdict.conditions,
            ..Cycle::default()
        };
        let local_storage = if isolation {
            self.over_limits(seen)
        } else {
            Vec::new()
        };
        if !local_storage.is_empty() {
            return Cycle {
                local_storage,
                ..cycle
            };
        }
        match choose(&self.policy, verdict.fresh) {
            Some(chosen) => self.act(chosen, seen, cycle),
            None => cycle,
        }
    }

    fn over_limits(&self, seen: &Snapshot<'_>) -> Vec<Eviction> {
        let layout = self.policy.layout();
        limits::exceeded(layout, seen.table, seen.usage, seen.details)
            .map(|excess| Eviction {
                workload: excess.workload,
                signal: EvictionSignal::Limit(excess.limit.kind),
                grace_seconds: grace::IMMEDIATE,
                message: excess.message,
                annotations: None,
                disruption: None,
            })
            .collect()
    }

    /// Reclaim on the node first; if that is not enough, the first candidate that accepts.
    fn act(&self, chosen: usize, seen: &Snapshot<'_>, mut cycle: Cycle) -> Cycle {
        let Some(threshold) = self.policy.thresholds().get(chosen) else {
            return cycle;
        };
        cycle.chosen = Some(chosen);
        cycle.reclaim = reclaim::functions(self.policy.layout(), threshold.signal);
        cycle.reclaimed =
            !cycle.reclaim.is_empty() && reclaim::is_sufficient(&self.policy, seen.after_reclaim);
        if cycle.reclaimed {
            return cycle;
        }
        let ranking = Ranking {
            signal: threshold.signal,
            layout: self.policy.layout(),
            preferences: Preferences::Ignore,
        };
        rank(ranking, seen.table, seen.usage, &mut cycle.ranking);
        let rows = seen.table.rows();
        let victim = cycle
            .ranking
            .iter()
            .find(|&&index| !rows[index as usize].is_critical);
        cycle.evict = victim.map(|&index| self.evict(index, threshold, seen));
        cycle
    }

    fn evict(&self, index: u32, threshold: &Threshold, seen: &Snapshot<'_>) -> Eviction {
        let at = index as usize;
        let pod = &seen.table.workloads()[at];
        let none = PodDetail::default();
        let victim = Victim {
            pod,
            usage: seen.usage.get(at).and_then(Option::as_ref),
            detail: seen.details.get(at).unwrap_or(&none),
        };
        let observed = seen.observations[threshold.signal].as_ref();
        let message = eviction_message(threshold, observed, victim);
        let maximum = self.policy.settings.max_pod_grace;
        Eviction {
            workload: index,
            signal: EvictionSignal::Threshold(threshold.signal),
            grace_seconds: grace::override_seconds(
                threshold.is_hard(),
                maximum,
                pod.termination_grace,
            ),
            disruption: Some(DisruptionTarget {
                message: message.text.clone(),
                observed_generation: pod.generation,
            }),
            message: message.text,
            annotations: message.annotations,
        }
    }
}

#[cfg(test)]
mod tests;
