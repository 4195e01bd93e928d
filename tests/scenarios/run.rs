//! Runs a scenario through the kubelet's loop and renders each step as `brink simulate` does.

use brink_core::node::condition::Condition;
use brink_core::node::kubelet::{Cycle, Eviction, Kubelet, Snapshot};
use brink_core::node::policy::Policy;
use brink_core::node::threshold::{Threshold, ThresholdSet, Value as Limit};
use brink_core::node::workload::{Workload, WorkloadTable};
use serde_json::{Value, json};

use super::read::Scenario;

/// One evaluated step.
pub(crate) struct Evaluated {
    pub(crate) cycle: Cycle,
    pub(crate) line: Value,
}

pub(crate) fn run(scenario: &Scenario) -> Vec<Evaluated> {
    let policy = scenario
        .draft
        .check()
        .unwrap_or_else(|faults| panic!("{faults}"));
    let mut kubelet = Kubelet::new(&policy, scenario.layout);
    let mut pods = scenario.pods.clone();
    let mut evaluate = |step: &super::read::Step| {
        pods.retain(|pod| !step.gone.contains(&name(pod)));
        let table = WorkloadTable::new(pods.clone(), 1);
        let (usage, details): (Vec<_>, Vec<_>) = pods.iter().map(|pod| step.usage_of(pod)).unzip();
        let snapshot = Snapshot {
            observations: &step.seen,
            after_reclaim: Some(&step.after_reclaim),
            table: &table,
            usage: &usage,
            details: &details,
        };
        let cycle = kubelet.cycle(step.now, &snapshot);
        let line = line(&step.at, kubelet.policy(), &cycle, table.workloads());
        Evaluated { cycle, line }
    };
    scenario.steps.iter().map(&mut evaluate).collect()
}

fn name(pod: &Workload) -> String {
    format!("{}/{}", pod.namespace, pod.name)
}

fn line(at: &str, policy: &Policy, cycle: &Cycle, pods: &[Workload]) -> Value {
    let thresholds = |set: ThresholdSet| -> Vec<Value> {
        set.iter()
            .map(|index| threshold(&policy.thresholds()[index]))
            .collect()
    };
    let conditions: Vec<_> = cycle.conditions.iter().map(Condition::name).collect();
    let reclaim: Vec<_> = cycle.reclaim.iter().map(|way| way.name()).collect();
    let ranking: Vec<_> = cycle
        .ranking
        .iter()
        .map(|&index| name(&pods[index as usize]))
        .collect();
    let of = |eviction: &Eviction| evict(eviction, pods);
    let evict = if cycle.local_storage.is_empty() {
        cycle.evict.as_ref().map_or(Value::Null, of)
    } else {
        cycle.local_storage.iter().map(of).collect()
    };
    json!({
        "at": at,
        "met": thresholds(cycle.met),
        "ready": thresholds(cycle.ready),
        "conditions": conditions,
        "reclaim": reclaim,
        "ranking": ranking,
        "evict": evict,
    })
}

fn threshold(threshold: &Threshold) -> Value {
    let value = |value: Limit| match value {
        Limit::Quantity(quantity) => json!({"bytes_or_count": quantity.value()}),
        Limit::Fraction(fraction) => json!({"fraction_f32": fraction}),
    };
    json!({
        "signal": threshold.signal.name(),
        "op": "LessThan",
        "grace_s": threshold.grace.as_secs(),
        "value": value(threshold.value),
        "min_reclaim": threshold.min_reclaim.map(value),
    })
}

fn evict(eviction: &Eviction, pods: &[Workload]) -> Value {
    json!({
        "pod": name(&pods[eviction.workload as usize]),
        "signal": eviction.signal.name(),
        "gracePeriodSeconds": eviction.grace_seconds,
        "reason": brink_core::node::message::REASON,
        "message": eviction.message,
    })
}
