//! Whole timelines of the kubelet's loop: pressure, victim, grace and admission, step by step.

use brink_core::base::{Moment, Quantity, Span};
use brink_core::node::admission::{Admission, admit};
use brink_core::node::kubelet::{Cycle, Kubelet, Snapshot};
use brink_core::node::policy::{Policy, Settings};
use brink_core::node::signal::Signal;
use brink_core::node::threshold::{Threshold, Value as Limit};
use brink_core::node::workload::{PodUsage, QosClass, Workload, WorkloadTable};
use serde_json::Value;

use super::decode::{layout, observations, usage, workload};
use super::{Case, of_areas};

/// `hard memory.available<1Gi minReclaim 500Mi`, `soft pid.available<1500 grace 120s`.
fn threshold(text: &str) -> Threshold {
    let mut words = text.split(' ');
    let soft = words.next().unwrap() == "soft";
    let (signal, value) = words.next().unwrap().split_once('<').unwrap();
    let amount = |text: &str| Limit::Quantity(text.parse::<Quantity>().unwrap());
    let mut threshold = Threshold {
        signal: signal.parse().unwrap(),
        grace: Span::ZERO,
        value: amount(value),
        min_reclaim: None,
    };
    while let (Some(key), Some(value)) = (words.next(), words.next()) {
        match key {
            "grace" => threshold.grace = value.parse().unwrap(),
            "minReclaim" => threshold.min_reclaim = Some(amount(value)),
            other => panic!("{other} in {text}"),
        }
    }
    assert_eq!(soft, !threshold.is_hard(), "{text}");
    threshold
}

/// Seconds and what is available then, whichever way the case says it.
fn steps(input: &Value) -> Vec<(i64, i64)> {
    let pairs = |key: &str| -> Option<Vec<(i64, i64)>> {
        let steps = input[key].as_array()?.iter();
        Some(
            steps
                .map(|step| (step[0].as_i64().unwrap(), step[1].as_i64().unwrap()))
                .collect(),
        )
    };
    let left = |used: Vec<(i64, i64)>| {
        let max = input["max_pid"].as_i64().unwrap();
        used.into_iter()
            .map(|(at, used)| (at, max - used))
            .collect()
    };
    pairs("steps_t_s_available")
        .or_else(|| pairs("steps_t_s_free"))
        .or_else(|| pairs("steps_t_s_used").map(left))
        .unwrap()
}

struct Timeline {
    kubelet: Kubelet,
    signal: Signal,
    capacity: i64,
    table: WorkloadTable,
    usage: Vec<Option<PodUsage>>,
}

impl Timeline {
    fn new(input: &Value) -> Self {
        let texts = input["thresholds"].as_array().unwrap().iter();
        let thresholds: Vec<_> = texts
            .map(|text| threshold(text.as_str().unwrap()))
            .collect();
        let signal = thresholds[0].signal;
        let settings = Settings {
            max_pod_grace: input["max_pod_grace_s"].as_i64().unwrap_or(0),
            pressure_transition: input["transition_s"]
                .as_i64()
                .map_or(Settings::default().pressure_transition, Span::from_secs),
            ..Settings::default()
        };
        let layout = layout(&input["layout"]);
        let pods = input["pods"].as_array().unwrap();
        let counts_inodes = signal.name().ends_with("inodesFree");
        let capacity = input["max_pid"].as_i64().or(input["inodes_total"].as_i64());
        Self {
            kubelet: Kubelet::new(&Policy::new(thresholds, layout, settings), layout),
            signal,
            capacity: capacity.unwrap_or(1 << 40),
            table: WorkloadTable::new(pods.iter().map(workload).collect(), 1),
            usage: pods.iter().map(|pod| usage(pod, counts_inodes)).collect(),
        }
    }

    fn step(&mut self, (at, available): (i64, i64)) -> Cycle {
        let seen = observations(&[(self.signal, available, self.capacity)]);
        let snapshot = Snapshot {
            observations: &seen,
            after_reclaim: Some(&seen),
            table: &self.table,
            usage: &self.usage,
            details: &[],
        };
        self.kubelet.cycle(Moment::from_secs(at), &snapshot)
    }
}

fn check(id: &str, timeline: &Timeline, cycle: &Cycle, expect: &Value) {
    let id = format!("{id} at {}", expect["t"]);
    let under_pressure = cycle.conditions.contains(timeline.signal.condition());
    if let Some(pressure) = expect["pressure"].as_bool() {
        assert_eq!(under_pressure, pressure, "{id}");
    }
    if let Some(kill) = expect.get("kill") {
        let victim = cycle.evict.as_ref();
        let name = victim.map(|v| &*timeline.table.workloads()[v.workload as usize].name);
        assert_eq!(name, kill.as_str(), "{id}");
        if let Some(grace) = expect["grace_s"].as_i64() {
            assert_eq!(victim.map(|v| v.grace_seconds), Some(grace), "{id}");
        }
    }
    let admitted = |class| {
        let pod = Workload {
            reported_qos: Some(class),
            ..Workload::default()
        };
        Some(admit(cycle.conditions, &pod) == Admission::Admit)
    };
    let best_effort = expect["admit"]["best_effort"]
        .as_bool()
        .or(expect["admit"].as_bool());
    let burstable = expect["admit"]["burstable"]
        .as_bool()
        .or(expect["admit"].as_bool());
    for (class, expected) in [
        (QosClass::BestEffort, best_effort),
        (QosClass::Burstable, burstable),
    ] {
        if expected.is_some() {
            assert_eq!(admitted(class), expected, "{id} {class:?}");
        }
    }
}

#[test]
fn every_case() {
    for Case {
        id, input, expect, ..
    } in of_areas(&["timeline"])
    {
        let mut timeline = Timeline::new(&input);
        let mut expected = expect.as_array().unwrap().iter().peekable();
        for step in steps(&input) {
            let cycle = timeline.step(step);
            if let Some(expect) = expected.next_if(|expect| expect["t"].as_i64() == Some(step.0)) {
                check(&id, &timeline, &cycle, expect);
            }
        }
        assert_eq!(expected.next(), None, "{id}: a step that never came");
    }
}
