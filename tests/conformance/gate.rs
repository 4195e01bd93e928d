//! From observation to readiness: met, fresh, first observed, grace, conditions, order.

use brink_core::base::{Moment, Quantity, Span};
use brink_core::node::choose::choose;
use brink_core::node::condition::Condition;
use brink_core::node::gate::{GateState, evaluate, thresholds_met as met};
use brink_core::node::observe::{Layout, Observation, Observations};
use brink_core::node::policy::{Policy, Settings};
use brink_core::node::signal::Signal;
use brink_core::node::threshold::{Threshold, ThresholdSet, Value as Limit};
use serde_json::Value;

use super::decode::{observations, policy, signal, threshold, thresholds};
use super::{Case, of_areas};

const MEMORY: Signal = Signal::MemoryAvailable;

fn hard(signal: Signal, bytes: i64) -> Threshold {
    let value = Limit::Quantity(Quantity::from_bytes(bytes));
    Threshold {
        signal,
        grace: Span::ZERO,
        value,
        min_reclaim: None,
    }
}

fn low(at: Option<Moment>) -> Observations {
    let mut seen = Observations::default();
    seen[MEMORY] = Some(Observation {
        available: 0,
        capacity: 100,
        at,
    });
    seen
}

fn seconds(value: &Value) -> Moment {
    Moment::from_secs(value.as_i64().unwrap())
}

#[test]
fn thresholds_met() {
    for Case {
        id, input, expect, ..
    } in of_areas(&["thresholds-met"])
    {
        let held = input["enforce_min_reclaim"].as_bool().unwrap();
        if let Some(list) = input.get("thresholds") {
            let mut seen = Observations::default();
            for (name, signal) in [("memory", MEMORY), ("nodefs", Signal::NodefsAvailable)] {
                let figure = |key: &str| input[name][key].as_i64();
                seen[signal] =
                    figure("available")
                        .zip(figure("capacity"))
                        .map(|(available, capacity)| Observation {
                            available,
                            capacity,
                            at: None,
                        });
            }
            let policy = policy(thresholds(list));
            let met = met(&policy, &seen, held).iter();
            let met: Vec<_> = met.map(|i| policy.thresholds()[i].signal.name()).collect();
            let expected = expect.as_array().unwrap().iter();
            let expected: Vec<_> = expected
                .map(|name| format!("{}.available", name.as_str().unwrap()))
                .collect();
            assert_eq!(met, expected, "{id}");
        } else {
            let policy = policy(vec![threshold(&input["threshold"])]);
            let available = input["available"].as_i64();
            let seen = available.map(|available| observations(&[(MEMORY, available, 0)]));
            let met = met(&policy, &seen.unwrap_or_default(), held);
            assert_eq!(Some(!met.is_empty()), expect.as_bool(), "{id}");
        }
    }
}

#[test]
fn updated_stats() {
    for Case {
        id, input, expect, ..
    } in of_areas(&["updated-stats"])
    {
        let policy = policy(vec![hard(MEMORY, 1)]);
        let mut state = GateState::default();
        let time = |key: &str| input[key].as_i64().map(Moment::from_secs);
        if input["last_time_s"] != "absent" {
            evaluate(
                &policy,
                &mut state,
                Moment::START,
                &low(time("last_time_s")),
            );
        }
        let verdict = evaluate(
            &policy,
            &mut state,
            Moment::START,
            &low(time("observed_time_s")),
        );
        assert_eq!(
            Some(!verdict.fresh.is_empty()),
            expect["may_act"].as_bool(),
            "{id}"
        );
    }
}

#[test]
fn first_observed() {
    for Case {
        id, input, expect, ..
    } in of_areas(&["first-observed"])
    {
        let policy = policy(vec![hard(MEMORY, 1)]);
        let mut state = GateState::default();
        if !input["previous"].is_null() {
            evaluate(&policy, &mut state, seconds(&input["previous"]), &low(None));
        }
        evaluate(&policy, &mut state, seconds(&input["now"]), &low(None));
        assert_eq!(
            state.first_observed(0),
            Some(seconds(&expect["first_observed"])),
            "{id}"
        );
    }
}

#[test]
fn grace() {
    for Case {
        id, input, expect, ..
    } in of_areas(&["grace"])
    {
        let grace = Span::from_secs(input["grace_s"].as_i64().unwrap());
        let policy = policy(vec![Threshold {
            grace,
            ..hard(MEMORY, 1)
        }]);
        let mut state = GateState::default();
        evaluate(
            &policy,
            &mut state,
            seconds(&input["first_observed"]),
            &low(None),
        );
        let verdict = evaluate(&policy, &mut state, seconds(&input["now"]), &low(None));
        assert_eq!(Some(!verdict.ready.is_empty()), expect.as_bool(), "{id}");
    }
}

fn condition(name: &str) -> Condition {
    Condition::ALL
        .into_iter()
        .find(|condition| condition.name() == name)
        .unwrap()
}

fn signal_of(condition: Condition) -> Signal {
    Signal::ALL
        .into_iter()
        .find(|signal| signal.condition() == condition)
        .unwrap()
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .collect()
}

#[test]
fn node_conditions() {
    for Case {
        id, input, expect, ..
    } in of_areas(&["node-conditions"])
    {
        if input.is_array() {
            let found: Vec<_> = input
                .as_array()
                .unwrap()
                .iter()
                .map(|name| signal(name).condition().name())
                .collect();
            assert_eq!(found, names(&expect), "{id}");
            continue;
        }
        let period = input["period_s"]
            .as_i64()
            .map_or(Span::MAX, Span::from_secs);
        let settings = Settings {
            pressure_transition: period,
            ..Settings::default()
        };
        let all = Condition::ALL
            .map(|condition| hard(signal_of(condition), 1))
            .to_vec();
        let policy = Policy::new(all, Layout::Single, settings);
        let mut state = GateState::default();
        let mut at = |now: Moment, conditions: &[&str]| {
            let low = |name: &&str| (signal_of(condition(name)), 0, 100);
            let seen: Vec<_> = conditions.iter().map(low).collect();
            evaluate(&policy, &mut state, now, &observations(&seen)).conditions
        };
        for (name, last) in input["last"].as_object().unwrap() {
            at(seconds(last), &[name]);
        }
        let current = input.get("current").map(names).unwrap_or_default();
        let reported = at(seconds(&input["now"]), &current);
        if expect.is_array() {
            let reported: Vec<_> = reported.iter().map(Condition::name).collect();
            assert_eq!(reported, names(&expect), "{id}");
        } else {
            for (name, last) in expect.as_object().unwrap() {
                assert_eq!(
                    state.last_seen(condition(name)),
                    Some(seconds(last)),
                    "{id}"
                );
            }
        }
    }
}

/// The kubelet's own order of a short list: an insertion sort whose comparison calls the left one
/// smaller whenever it is a memory signal.
fn kubelet_order(list: &[Threshold]) -> Vec<Threshold> {
    let mut sorted: Vec<Threshold> = Vec::new();
    for &threshold in list {
        let mut at = sorted.len();
        while at > 0 && threshold.signal.is_memory() {
            at -= 1;
        }
        sorted.insert(at, threshold);
    }
    sorted
}

fn permutations(list: &[Threshold]) -> Vec<Vec<Threshold>> {
    if list.is_empty() {
        return vec![Vec::new()];
    }
    let with_first = |first: usize| {
        let mut rest = list.to_vec();
        let head = rest.remove(first);
        permutations(&rest)
            .into_iter()
            .map(move |tail| [vec![head], tail].concat())
    };
    (0..list.len()).flat_map(with_first).collect()
}

/// A case gives the kubelet's result for one order of its input, which is random there. Ours must
/// be what the kubelet does for some order of it, and the same for all of them.
#[test]
fn threshold_order() {
    let read = |text: &str| {
        let (name, kind) = text.split_once('#').unwrap_or((text, "hard"));
        let grace = Span::from_secs(if kind == "soft" { 60 } else { 0 });
        Threshold {
            grace,
            ..hard(name.parse().unwrap(), 1)
        }
    };
    let show =
        |list: &[Threshold]| -> Vec<String> { list.iter().map(ToString::to_string).collect() };
    for Case {
        id, input, expect, ..
    } in of_areas(&["threshold-order"])
    {
        let given: Vec<_> = names(&input).into_iter().map(read).collect();
        let expected: Vec<_> = names(&expect).into_iter().map(read).collect();
        assert_eq!(show(&kubelet_order(&given)), show(&expected), "{id}");
        let policy = policy(given.clone());
        let mut left: ThresholdSet = (0..given.len()).collect();
        let mut ours = Vec::new();
        while let Some(chosen) = choose(&policy, left) {
            ours.push(policy.thresholds()[chosen]);
            left.remove(chosen);
        }
        let mut possible = permutations(&given)
            .into_iter()
            .map(|list| show(&kubelet_order(&list)));
        assert!(
            possible.any(|order| order == show(&ours)),
            "{id}: {:?}",
            show(&ours)
        );
    }
}
