//! Who is chosen, and who never is.

use super::*;

#[test]
fn a_hard_crossing_kills_the_first_in_the_ranking_at_once() {
    let mut node = Node::enforcing(hard());
    assert_eq!(node.at(1, 100), []);
    let actions = node.at(2, 99);
    assert_eq!(kills(&actions), [0]);
    assert!(actions.contains(&Action::Crossed { threshold: 0 }));
    let decision = node.engine.decision().unwrap();
    assert_eq!(decision.victim.workload, 0);
    assert_eq!(decision.candidates, 3);
    assert_eq!(decision.quantity.value(), 100 * MIB);
    assert_eq!(decision.observation.available, 99 * MIB);
}

#[test]
fn page_cache_kills_nobody_where_crossings_are_confirmed() {
    let settings = LiveSettings {
        enforce: true,
        ..LiveSettings::default()
    };
    let mut node = Node::new(settings, hard());
    node.headroom = Some(900);
    let actions = node.sample(1, 50);
    assert_eq!(kills(&actions), []);
    assert_eq!(held(&actions), [Reason::Unconfirmed]);
    assert!(
        actions
            .iter()
            .any(|a| matches!(a, Action::Conditions(set) if !set.is_empty()))
    );
    node.headroom = Some(99);
    assert_eq!(kills(&node.sample(2, 50)), [0]);
}

#[test]
fn a_node_that_can_still_swap_is_not_dying() {
    let settings = LiveSettings {
        enforce: true,
        ..LiveSettings::default()
    };
    let both = [
        threshold(Signal::MemoryAvailable, 100, 0),
        threshold(Signal::MemoryHeadroom, 50, 0),
    ];
    let mut node = Node::new(settings, both.to_vec());
    node.swap = 80 * MIB as u64;
    assert_eq!(
        held(&node.at(1, 30)),
        [Reason::Unconfirmed, Reason::Unconfirmed]
    );
    node.swap = 0;
    assert_eq!(kills(&node.at(2, 30)), [0]);
}

#[test]
fn unknown_headroom_confirms_nothing() {
    let settings = LiveSettings {
        enforce: true,
        ..LiveSettings::default()
    };
    let mut node = Node::new(settings, hard());
    node.headroom = None;
    assert_eq!(held(&node.sample(1, 50)), [Reason::Unconfirmed]);
}

#[test]
fn the_protected_and_critical_are_ranked_and_refuse() {
    let mut node = Node::enforcing(hard());
    let mut workloads = ["a", "b", "c"].map(named).to_vec();
    workloads[0].protection = Some(Protection::System);
    workloads[1].priority = Some(2_000_000_000);
    node.workloads(workloads);
    assert_eq!(kills(&node.at(1, 50)), [2]);
    let places = node.engine.decision().unwrap().ranking;
    let refusals: Vec<_> = places
        .as_slice()
        .iter()
        .map(|place| place.refusal)
        .collect();
    assert_eq!(
        refusals,
        [Some(Reason::Protected), None, Some(Reason::Critical)]
    );
}

#[test]
fn what_annotations_ask_for_is_in_the_decision() {
    let mut node = Node::enforcing(hard());
    let mut workloads = ["a", "b", "c"].map(named).to_vec();
    workloads[0].protection = Some(Protection::Annotated);
    workloads[1].preference = Preference::Avoid;
    workloads[1].preference_by = PreferenceBy::Annotation;
    node.workloads(workloads);
    assert_eq!(kills(&node.at(1, 50)), [2]);
    let places = node.engine.decision().unwrap().ranking;
    let told: Vec<_> = places
        .as_slice()
        .iter()
        .map(|place| (place.refusal, place.standing.preference_by))
        .collect();
    let expected = [
        (Some(Reason::Annotated), PreferenceBy::Node),
        (None, PreferenceBy::Node),
        (None, PreferenceBy::Annotation),
    ];
    assert_eq!(told, expected);
}

#[test]
fn the_one_who_accepts_is_found_behind_a_hundred_who_refuse() {
    let mut node = Node::enforcing(hard());
    let mut workloads: Vec<Workload> = (0..101).map(|n| named(&n.to_string())).collect();
    for workload in &mut workloads[..100] {
        workload.protection = Some(Protection::System);
    }
    node.usage = (0..101).map(|n| Some(holding(500 - n))).collect();
    node.workloads(workloads);
    assert_eq!(kills(&node.at(1, 50)), [100]);
    assert_eq!(node.engine.decision().unwrap().candidates, 101);
}

#[test]
fn nobody_left_to_evict_is_told_once() {
    let mut node = Node::enforcing(hard());
    node.workloads(Vec::new());
    assert_eq!(held(&node.at(1, 50)), [Reason::Nobody]);
    assert_eq!(held(&node.at(2, 50)), []);
}

#[test]
fn the_node_gives_back_what_it_can_before_anybody_dies() {
    let mut node = Node::enforcing([threshold(Signal::NodefsAvailable, 100, 0)].to_vec());
    for used in node.usage.iter_mut().flatten() {
        used.logs.bytes = Some(1);
    }
    let disk = |node: &mut Node, at: i64, mib: i64| {
        node.now = ms(at);
        let mut observations = Observations::default();
        observations[Signal::NodefsAvailable] = Some(Observation {
            available: mib * MIB,
            capacity: CAPACITY,
            at: Some(node.now),
        });
        let usage = node.usage.clone();
        let confirmation = Confirmation::default();
        node.step(Input::Sample(&Sample {
            observations,
            confirmation,
            usage: &usage,
        }))
    };
    let actions = disk(&mut node, 1, 50);
    assert!(actions.contains(&Action::Reclaim { threshold: 0 }));
    assert_eq!(kills(&disk(&mut node, 2, 50)), []);
    node.step(Input::Reclaimed);
    assert_eq!(kills(&disk(&mut node, 3, 150)), [], "it was enough");
    disk(&mut node, 4, 50);
    node.step(Input::Reclaimed);
    assert_eq!(kills(&disk(&mut node, 5, 60)).len(), 1, "it was not");
}

#[test]
fn a_workload_in_which_nothing_runs_is_not_killed() {
    let mut node = Node::enforcing(hard());
    node.usage[0] = Some(PodUsage {
        processes: Some(0),
        ..holding(300)
    });
    assert_eq!(kills(&node.at(1, 50)), [1]);
    let places = node.engine.decision().unwrap().ranking;
    assert_eq!(places.as_slice()[0].refusal, Some(Reason::Empty));
}

#[test]
fn memory_of_the_pods_is_given_back_by_pods_alone() {
    let both = [
        threshold(Signal::MemoryAvailable, 100, 0),
        threshold(Signal::AllocatableMemoryAvailable, 100, 0),
    ];
    for (crossed, expected, refusal) in [
        (Signal::AllocatableMemoryAvailable, 1, Some(Reason::Outside)),
        (Signal::MemoryAvailable, 0, None),
    ] {
        let mut node = Node::enforcing(both.to_vec());
        let mut workloads = ["a", "b", "c"].map(named).to_vec();
        workloads[0].outside_pods = true;
        node.workloads(workloads);
        let mut observations = Observations::default();
        observations[crossed] = Some(Observation {
            available: 50 * MIB,
            capacity: CAPACITY,
            at: Some(node.now),
        });
        let usage = node.usage.clone();
        let actions = node.step(Input::Sample(&Sample {
            observations,
            confirmation: Confirmation::default(),
            usage: &usage,
        }));
        assert_eq!(kills(&actions), [expected], "{crossed:?}");
        let places = node.engine.decision().unwrap().ranking;
        assert_eq!(places.as_slice()[0].refusal, refusal, "{crossed:?}");
    }
}

/// A hard threshold of 100 MiB with a minimum reclaim of as much, in a policy.
fn with_minimum_reclaim(memory: MemoryPolicy) -> Node {
    let settings = LiveSettings {
        enforce: true,
        memory,
        ..LiveSettings::default()
    };
    let mut hard = hard();
    hard[0].min_reclaim = Some(Value::Quantity(Quantity::from_bytes(100 * MIB)));
    Node::new(settings, hard)
}

#[test]
fn a_minimum_reclaim_is_taken_while_both_signals_are_short_of_it() {
    use MemoryPolicy::{Confirmed, Kubelet};
    /// MiB available, MiB of headroom, whether somebody goes.
    type Look = (i64, Option<i64>, bool);
    let table: &[(MemoryPolicy, &[Look])] = &[
        // Once confirmed, until headroom has the minimum reclaim; from then on it must confirm anew.
        (
            Confirmed,
            &[
                (50, Some(50), true),
                (150, Some(150), true),
                (150, Some(200), false),
                (150, Some(150), false),
                (150, Some(99), true),
            ],
        ),
        // Page cache holds available memory down, and nobody goes for it.
        (
            Confirmed,
            &[
                (50, Some(50), true),
                (50, Some(200), false),
                (150, Some(900), false),
            ],
        ),
        (
            Confirmed,
            &[(50, Some(900), false), (150, Some(150), false)],
        ),
        // Available memory lets go, as on the kubelet.
        (Confirmed, &[(50, Some(50), true), (200, Some(150), false)]),
        // Unknown confirms nothing.
        (
            Confirmed,
            &[
                (50, Some(50), true),
                (150, None, false),
                (150, Some(150), false),
            ],
        ),
        (
            Kubelet,
            &[
                (50, Some(900), true),
                (150, None, true),
                (200, Some(5), false),
            ],
        ),
    ];
    for (memory, looks) in table {
        let mut node = with_minimum_reclaim(*memory);
        // A second apart, so that the order before is over and its victim not forgotten.
        for (second, &(available, headroom, goes)) in (0..).zip(*looks) {
            node.headroom = headroom;
            let actions = node.sample(second * 1000, available);
            assert_eq!(kills(&actions).len() == 1, goes, "{looks:?} at {second} s");
            assert_eq!(node.is_pressed(), goes, "{looks:?} at {second} s");
        }
    }
}

#[test]
fn what_the_kubelets_policy_acted_on_headroom_has_not_confirmed() {
    let mut node = with_minimum_reclaim(MemoryPolicy::Kubelet);
    node.headroom = Some(900);
    assert_eq!(kills(&node.sample(0, 50)), [0]);
    let live = LiveSettings {
        enforce: true,
        ..LiveSettings::default()
    };
    let policy = node.engine.policy().clone();
    node.step(Input::Reconfigure(&Reconfiguration { policy, live }));
    node.headroom = Some(150);
    let actions = node.sample(1000, 150);
    assert_eq!(kills(&actions), []);
    assert_eq!(held(&actions), [Reason::Unconfirmed]);
}
