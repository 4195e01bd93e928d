//! The gate: grace, minimum reclaim, freshness and conditions, over time.

use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::super::observe::{Layout, Observation};
use super::super::policy::Settings;
use super::super::signal::{PerSignal, Signal};
use super::super::threshold::Value;
use super::*;
use crate::base::{Quantity, Span};

const MEMORY: Signal = Signal::MemoryAvailable;

fn threshold(signal: Signal, grace: i64, value: i64) -> Threshold {
    let value = Value::Quantity(Quantity::from_bytes(value));
    Threshold {
        signal,
        grace: Span::from_secs(grace),
        value,
        min_reclaim: None,
    }
}

fn with_reclaim(threshold: Threshold, more: i64) -> Threshold {
    let more = Value::Quantity(Quantity::from_bytes(more));
    Threshold {
        min_reclaim: Some(more),
        ..threshold
    }
}

fn policy(thresholds: &[Threshold]) -> Policy {
    Policy::new(thresholds.to_vec(), Layout::Single, Settings::default())
}

fn saw(at: i64, values: &[(Signal, i64)]) -> Observations {
    let mut seen = Observations::default();
    for &(signal, available) in values {
        let at = Some(Moment::from_secs(at));
        seen[signal] = Some(Observation {
            available,
            capacity: 1000,
            at,
        });
    }
    seen
}

/// Runs a policy over steps of (second, available memory) and gives what was ready at each.
fn ready(policy: &Policy, steps: &[(i64, i64)]) -> Vec<Vec<usize>> {
    let mut state = GateState::default();
    let step = |&(at, available): &(i64, i64)| {
        let now = Moment::from_secs(at);
        evaluate(policy, &mut state, now, &saw(at, &[(MEMORY, available)]))
            .ready
            .iter()
            .collect()
    };
    steps.iter().map(step).collect()
}

#[test]
fn a_hard_threshold_is_ready_at_once_and_strictly_below() {
    let policy = policy(&[threshold(MEMORY, 0, 100)]);
    assert_eq!(
        ready(&policy, &[(0, 100), (1, 99), (2, 100)]),
        [vec![], vec![0], vec![]]
    );
}

#[test]
fn one_good_sample_restarts_a_soft_grace() {
    let policy = policy(&[threshold(MEMORY, 60, 100)]);
    let steps = [
        (0, 50),
        (59, 50),
        (60, 50),
        (61, 100),
        (62, 50),
        (121, 50),
        (122, 50),
    ];
    let expected = [vec![], vec![], vec![0], vec![], vec![], vec![], vec![0]];
    assert_eq!(ready(&policy, &steps), expected);
}

#[test]
fn only_what_was_fully_met_holds_on_until_its_minimum_reclaim() {
    let hard = policy(&[with_reclaim(threshold(MEMORY, 0, 100), 50)]);
    let steps = [(0, 149), (1, 99), (2, 149), (3, 150), (4, 149)];
    assert_eq!(
        ready(&hard, &steps),
        [vec![], vec![0], vec![0], vec![], vec![]]
    );
    // A soft one inside its grace does not hold on.
    let soft = policy(&[with_reclaim(threshold(MEMORY, 10, 100), 50)]);
    assert_eq!(
        ready(&soft, &[(0, 99), (5, 120), (6, 99), (15, 99)]),
        [(); 4].map(|()| vec![])
    );
    assert_eq!(ready(&soft, &[(0, 99), (10, 99), (11, 120)])[2], [0]);
}

#[test]
fn without_an_observation_nothing_fires_and_nothing_holds() {
    let policy = policy(&[with_reclaim(threshold(MEMORY, 0, 100), 50)]);
    let mut state = GateState::default();
    let low = evaluate(
        &policy,
        &mut state,
        Moment::from_secs(0),
        &saw(0, &[(MEMORY, 1)]),
    );
    assert_eq!(low.met.len(), 1);
    let none = Observations::default();
    let absent = evaluate(&policy, &mut state, Moment::from_secs(1), &none);
    assert!(absent.met.is_empty() && absent.ready.is_empty());
    // The condition outlives it all the same.
    assert!(absent.conditions.contains(Condition::MemoryPressure));
    assert_eq!(state.first_observed(0), None);
}

#[test]
fn a_measurement_drives_action_once() {
    let policy = policy(&[threshold(MEMORY, 0, 100)]);
    let mut state = GateState::default();
    let mut fresh = |now: i64, at: Option<i64>| {
        let mut seen = saw(0, &[(MEMORY, 1)]);
        seen[MEMORY] = seen[MEMORY].map(|s| Observation {
            at: at.map(Moment::from_secs),
            ..s
        });
        let verdict = evaluate(&policy, &mut state, Moment::from_secs(now), &seen);
        assert_eq!(verdict.ready.len(), 1);
        !verdict.fresh.is_empty()
    };
    assert!(fresh(0, Some(60)));
    assert!(!fresh(1, Some(60)));
    assert!(!fresh(2, Some(50)));
    // The older one was remembered, so the same time as before counts as new again.
    assert!(fresh(3, Some(60)));
    assert!(fresh(4, None));
    assert!(fresh(5, None));
    assert!(fresh(6, Some(0)));
}

#[test]
fn conditions_end_when_the_period_is_over_exactly() {
    let policy = policy(&[
        threshold(MEMORY, 60, 100),
        threshold(Signal::PidAvailable, 0, 10),
    ]);
    let mut state = GateState::default();
    let mut conditions = |at: i64, memory: i64, pids: i64| -> Vec<Condition> {
        let seen = saw(at, &[(MEMORY, memory), (Signal::PidAvailable, pids)]);
        evaluate(&policy, &mut state, Moment::from_secs(at), &seen)
            .conditions
            .iter()
            .collect()
    };
    // The grace of a soft threshold does not delay its condition.
    assert_eq!(conditions(0, 50, 10), [Condition::MemoryPressure]);
    assert_eq!(
        conditions(100, 100, 9),
        [Condition::MemoryPressure, Condition::PidPressure]
    );
    assert_eq!(
        conditions(299, 100, 10),
        [Condition::MemoryPressure, Condition::PidPressure]
    );
    assert_eq!(conditions(300, 100, 10), [Condition::PidPressure]);
    assert_eq!(conditions(400, 100, 10), []);
    assert_eq!(state.last_seen(Condition::DiskPressure), None);
}

#[test]
fn a_transition_period_of_zero_reports_nothing() {
    let settings = Settings {
        pressure_transition: Span::ZERO,
        ..Settings::default()
    };
    let policy = Policy::new(vec![threshold(MEMORY, 0, 100)], Layout::Single, settings);
    let verdict = evaluate(
        &policy,
        &mut GateState::default(),
        Moment::from_secs(0),
        &saw(0, &[(MEMORY, 1)]),
    );
    assert_eq!(
        (verdict.fresh.len(), verdict.conditions),
        (1, ConditionSet::EMPTY)
    );
}

#[test]
fn equal_thresholds_share_what_the_kubelet_shares() {
    let fraction = Threshold {
        value: Value::Fraction(0.1),
        ..threshold(MEMORY, 0, 0)
    };
    let fractions = policy(&[fraction, fraction]);
    let mut state = GateState::default();
    let verdict = evaluate(
        &fractions,
        &mut state,
        Moment::from_secs(0),
        &saw(0, &[(MEMORY, 1)]),
    );
    assert_eq!((verdict.met.len(), verdict.ready.len()), (2, 1));
    // Amounts are told apart by identity there, so both become ready.
    let amounts = policy(&[threshold(MEMORY, 0, 100), threshold(MEMORY, 0, 100)]);
    assert_eq!(ready(&amounts, &[(0, 1)])[0].len(), 2);
}

#[test]
fn a_resumed_grace_goes_on() {
    let policy = policy(&[threshold(MEMORY, 60, 100)]);
    let mut state = GateState::default();
    state.resume(0, Moment::from_secs(-50));
    let now = Moment::from_secs(10);
    assert_eq!(
        evaluate(&policy, &mut state, now, &saw(10, &[(MEMORY, 1)]))
            .ready
            .len(),
        1
    );
}

#[test]
fn a_new_policy_restarts_only_what_it_changes() {
    let (memory, pids) = (
        threshold(MEMORY, 60, 100),
        threshold(Signal::PidAvailable, 60, 10),
    );
    let old = policy(&[memory, pids]);
    let new = policy(&[
        threshold(MEMORY, 0, 50),
        memory,
        threshold(Signal::PidAvailable, 60, 20),
    ]);
    let mut state = GateState::default();
    let low = |at| saw(at, &[(MEMORY, 1), (Signal::PidAvailable, 1)]);
    evaluate(&old, &mut state, Moment::from_secs(0), &low(0));
    let mut carried = state.carried(&old, &new);
    let verdict = evaluate(&new, &mut carried, Moment::from_secs(60), &low(60));
    let ready: Vec<_> = verdict
        .ready
        .iter()
        .map(|i| new.thresholds()[i].grace)
        .collect();
    assert_eq!(ready, [Span::ZERO, Span::from_secs(60)]);
    assert!(carried.last_seen(Condition::PidPressure).is_some());
}

fn any_threshold() -> impl Strategy<Value = Threshold> {
    let value = prop_oneof![
        (1i64..1200).prop_map(|v| Value::Quantity(Quantity::from_bytes(v))),
        (0.0f32..1.0).prop_map(Value::Fraction),
    ];
    let signal = proptest::sample::select(&Signal::ALL[..]);
    let reclaim = proptest::option::of(0i64..500);
    let grace = prop_oneof![Just(0i64), 1i64..100];
    (signal, value, grace, reclaim).prop_map(|(signal, value, grace, reclaim)| Threshold {
        signal,
        grace: Span::from_secs(grace),
        value,
        min_reclaim: reclaim.map(|more| Value::Quantity(Quantity::from_bytes(more))),
    })
}

fn any_policy() -> impl Strategy<Value = Policy> {
    proptest::collection::vec(any_threshold(), 0..20).prop_map(|thresholds| policy(&thresholds))
}

fn any_seen(at: i64) -> impl Strategy<Value = Observations> {
    proptest::collection::vec(proptest::option::of(-100i64..1100), Signal::COUNT).prop_map(
        move |values| {
            PerSignal::from_fn(|signal| {
                let at = Some(Moment::from_secs(at));
                values[signal as usize].map(|available| Observation {
                    available,
                    capacity: 1000,
                    at,
                })
            })
        },
    )
}

proptest! {
    #[test]
    fn met_without_reclaim_is_part_of_met_with_it(policy in any_policy(), seen in any_seen(0)) {
        let met = thresholds_met(&policy, &seen, false);
        prop_assert!(met.is_subset_of(thresholds_met(&policy, &seen, true)));
    }

    #[test]
    fn less_available_meets_no_less(policy in any_policy(), seen in any_seen(0), less in 0i64..500) {
        let lower = PerSignal::from_fn(|signal| {
            seen[signal].map(|s| Observation { available: s.available - less, ..s })
        });
        for held in [false, true] {
            let met = thresholds_met(&policy, &seen, held);
            prop_assert!(met.is_subset_of(thresholds_met(&policy, &lower, held)));
        }
    }

    #[test]
    fn each_stage_is_part_of_the_one_before(
        policy in any_policy(),
        steps in proptest::collection::vec((0i64..50, any_seen(0), 0i64..3), 1..8),
    ) {
        let mut state = GateState::default();
        let mut now = 0;
        for (pause, seen, late) in steps {
            now += pause;
            let at = Some(Moment::from_secs(now - late));
            let seen = PerSignal::from_fn(|s| seen[s].map(|seen| Observation { at, ..seen }));
            let verdict = evaluate(&policy, &mut state, Moment::from_secs(now), &seen);
            prop_assert!(verdict.fresh.is_subset_of(verdict.ready));
            prop_assert!(verdict.ready.is_subset_of(verdict.met));
            for index in verdict.met.iter() {
                prop_assert!(verdict.conditions.contains(policy.thresholds()[index].signal.condition()));
                prop_assert!(state.first_observed(index).is_some());
            }
        }
    }

    /// Ready stays ready while what is available does not rise.
    #[test]
    fn readiness_is_monotonous_while_nothing_recovers(
        policy in any_policy(),
        seen in any_seen(0),
        pauses in proptest::collection::vec(1i64..60, 1..8),
    ) {
        let mut state = GateState::default();
        let (mut now, mut before) = (0, ThresholdSet::EMPTY);
        for pause in pauses {
            now += pause;
            let ready = evaluate(&policy, &mut state, Moment::from_secs(now), &seen).ready;
            prop_assert!(before.is_subset_of(ready));
            before = ready;
        }
    }
}
