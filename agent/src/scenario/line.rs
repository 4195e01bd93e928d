//! What is printed of a step: one line of JSON, every key always there.

use brink_core::node::condition::Condition;
use brink_core::node::kubelet::{Cycle, Eviction};
use brink_core::node::message::REASON;
use brink_core::node::policy::Policy;
use brink_core::node::threshold::ThresholdSet;
use serde::Serialize;

use crate::config::thresholds::ThresholdLine;

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepLine<'a> {
    /// When, as it was written.
    pub at: &'a str,
    /// Thresholds met, or held by their minimum reclaim.
    pub met: Vec<ThresholdLine>,
    /// Those whose grace is over and whose observation is new.
    pub ready: Vec<ThresholdLine>,
    /// Conditions reported.
    pub conditions: Vec<&'static str>,
    /// What was tried on the node before any pod.
    pub reclaim: Vec<&'static str>,
    /// All candidates, first to go in front; empty if no ranking was made.
    pub ranking: Vec<&'a str>,
    /// Who goes.
    pub evict: Evicted<'a>,
}

/// Who goes in a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Evicted<'a> {
    /// Nobody; `null`.
    Nobody,
    /// One pod for a threshold.
    One(EvictLine<'a>),
    /// Pods over their own local-storage limits.
    OverLimits(Vec<EvictLine<'a>>),
}

/// One pod evicted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EvictLine<'a> {
    /// `namespace/name`.
    pub pod: &'a str,
    /// What it is counted under.
    pub signal: &'static str,
    /// The grace asked for.
    pub grace_period_seconds: i64,
    /// Always `Evicted`.
    pub reason: &'static str,
    /// The message of its status.
    pub message: String,
}

impl<'a> StepLine<'a> {
    /// The line of a cycle; `names` runs parallel to the table.
    pub fn of(at: &'a str, policy: &Policy, cycle: &Cycle, names: &'a [String]) -> Self {
        let evicted = |eviction: &Eviction| EvictLine {
            pod: name(names, eviction.workload),
            signal: eviction.signal.name(),
            grace_period_seconds: eviction.grace_seconds,
            reason: REASON,
            message: eviction.message.clone(),
        };
        let evict = match (&cycle.evict, cycle.local_storage.as_slice()) {
            (None, []) => Evicted::Nobody,
            (Some(eviction), []) => Evicted::One(evicted(eviction)),
            (_, over) => Evicted::OverLimits(over.iter().map(evicted).collect()),
        };
        Self {
            at,
            met: thresholds(policy, cycle.met),
            ready: thresholds(policy, cycle.ready),
            conditions: cycle.conditions.iter().map(Condition::name).collect(),
            reclaim: cycle.reclaim.iter().map(|way| way.name()).collect(),
            ranking: cycle
                .ranking
                .iter()
                .map(|&index| name(names, index))
                .collect(),
            evict,
        }
    }
}

/// The thresholds of a set, by name of the signal and then by grace, as the policy lists them.
pub(super) fn thresholds(policy: &Policy, set: ThresholdSet) -> Vec<ThresholdLine> {
    let all = policy.thresholds();
    set.iter()
        .filter_map(|index| all.get(index))
        .map(ThresholdLine::of)
        .collect()
}

pub(super) fn name(names: &[String], index: u32) -> &str {
    let index = usize::try_from(index).unwrap_or(usize::MAX);
    names.get(index).map_or("", String::as_str)
}
