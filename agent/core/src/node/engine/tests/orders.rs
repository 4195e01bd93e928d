//! The life of an order, and when the next one may follow.

use super::*;

#[test]
fn the_next_order_waits_until_the_memory_is_back() {
    let mut node = Node::enforcing(hard());
    assert_eq!(kills(&node.at(0, 50)), [0]);
    assert_eq!(held(&node.at(1, 60)), [Reason::Waiting]);
    node.holds(0, 150);
    assert_eq!(node.at(50, 60), []);
    node.holds(0, 0);
    // It is charged to nobody any more; a moment later it is free as well.
    assert_eq!(node.at(90, 60), []);
    assert_eq!(node.engine.next_wake(node.now), Some(ms(95)));
    let actions = node.at(95, 60);
    assert_eq!(ends(&actions), [End::MemoryBack]);
    assert_eq!(kills(&actions), [1]);
}

#[test]
fn memory_that_shows_a_moment_later_costs_nobody_else() {
    let mut node = Node::enforcing(hard());
    assert_eq!(kills(&node.at(0, 50)), [0]);
    node.holds(0, 0);
    assert_eq!(held(&node.at(3, 60)), [Reason::Waiting]);
    let actions = node.at(4, 160);
    assert_eq!(ends(&actions), [End::MemoryBack]);
    assert_eq!(kills(&actions), []);
}

/// A threshold on headroom, and its victim of 300 MiB dead and charged with nothing, at 60 of the 100 MiB wanted.
fn short_after_a_kill(parked_mib: u64) -> Node {
    let mut node = Node::enforcing([threshold(Signal::MemoryHeadroom, 100, 0)].to_vec());
    assert_eq!(kills(&node.at(0, 60)), [0]);
    node.holds(0, 0);
    node.parked = Some(parked_mib * MIB as u64);
    node.at(1, 60);
    node
}

#[test]
fn memory_on_lists_of_cpus_costs_nobody_else() {
    let mut node = short_after_a_kill(40);
    let actions = node.at(6, 60);
    assert_eq!(ends(&actions), [End::MemoryBack]);
    assert_eq!(kills(&actions), []);
    assert_eq!(kills(&node.at(1_000, 60)), []);
    // Somebody takes it from there.
    node.parked = Some(39 * MIB as u64);
    assert_eq!(kills(&node.at(1_001, 60)), [1]);
}

#[test]
fn memory_on_lists_of_cpus_does_not_count_where_it_is_too_little_or_too_late() {
    assert_eq!(kills(&short_after_a_kill(39).at(6, 60)), [1]);
    assert_eq!(kills(&short_after_a_kill(400).at(6, 9)), [1], "the reserve");
    let mut node = short_after_a_kill(400);
    node.parked = None;
    assert_eq!(kills(&node.at(6, 60)), [1]);
}

#[test]
fn a_stuck_victim_is_given_up_after_200_ms_and_not_ordered_again() {
    let mut node = Node::enforcing(hard());
    assert_eq!(kills(&node.at(0, 50)), [0]);
    assert_eq!(kills(&node.at(199, 50)), []);
    let actions = node.at(200, 50);
    assert_eq!(ends(&actions), [End::Stalled]);
    assert_eq!(kills(&actions), [1]);
}

#[test]
fn under_the_reserve_nobody_waits() {
    let mut node = Node::enforcing(hard());
    assert_eq!(kills(&node.at(0, 5)), [0]);
    assert_eq!(kills(&node.at(9, 5)), []);
    let actions = node.at(10, 5);
    assert_eq!(ends(&actions), [End::UnderReserve]);
    assert_eq!(kills(&actions), [1]);
}

#[test]
fn who_could_not_be_waited_for_is_waited_for_when_there_is_time() {
    let mut node = Node::enforcing(hard());
    assert_eq!(kills(&node.at(0, 5)), [0]);
    node.holds(0, 250);
    assert_eq!(kills(&node.at(10, 5)), [1]);
    node.holds(1, 0);
    node.at(12, 60);
    let actions = node.at(17, 60);
    assert_eq!(ends(&actions), [End::MemoryBack]);
    assert_eq!(kills(&actions), []);
    assert_eq!(
        kills(&node.at(210, 60)),
        [2],
        "for no longer than any other"
    );
}

/// What a victim still owes is owed once, whoever else has told of its death.
#[test]
fn who_could_not_be_waited_for_is_owed_once_and_not_when_it_is_gone() {
    // The kernel's killer was in the same workload; 20 MiB are to come, and 40 are missing.
    let mut node = Node::enforcing(hard());
    node.step(Input::Dying {
        workload: 0,
        charged: 300 * MIB as u64,
    });
    assert_eq!(kills(&node.at(0, 5)), [0]);
    assert_eq!(kills(&node.at(10, 5)), [1]);
    node.holds(0, 20);
    node.holds(1, 0);
    node.at(12, 60);
    assert_eq!(kills(&node.at(17, 60)), [2]);
    // It is gone, and what it left stays: whoever is in it by now goes as anybody else.
    let mut node = Node::enforcing(hard());
    assert_eq!(kills(&node.at(0, 5)), [0]);
    assert_eq!(kills(&node.at(10, 5)), [1]);
    node.step(Input::Gone {
        workload: 0,
        kept: 0,
        unseen: 0,
    });
    node.holds(1, 0);
    node.at(12, 60);
    assert_eq!(kills(&node.at(17, 60)), [0]);
}

/// Of a threshold as small as the reserve every crossing would be under it.
#[test]
fn half_of_a_small_threshold_is_time_to_wait() {
    let small = threshold(Signal::MemoryHeadroom, 8, 0);
    let mut node = Node::enforcing([small].to_vec());
    assert_eq!(kills(&node.at(0, 7)), [0]);
    let actions = node.at(198, 4);
    assert_eq!((kills(&actions), ends(&actions)), (Vec::new(), Vec::new()));
    let actions = node.at(199, 3);
    assert_eq!(ends(&actions), [End::UnderReserve]);
    assert_eq!(kills(&actions), [1]);
}

#[test]
fn nobody_goes_beside_a_victim_that_took_its_memory_again_before_it_was_killed() {
    let mut node = Node::enforcing(soft_and_hard());
    node.at(0, 150);
    assert_eq!(kills(&node.at(60_000, 150)), []);
    node.holds(0, 2);
    node.at(61_000, 450);
    node.holds(0, 300);
    assert_eq!(kills(&node.at(63_000, 90)), [0]);
    let actions = node.at(63_010, 90);
    assert_eq!((kills(&actions), ends(&actions)), (Vec::new(), Vec::new()));
}

#[test]
fn what_the_dying_still_owe_counts_before_anybody_else_dies() {
    let mut node = Node::enforcing(hard());
    node.step(Input::Dying {
        workload: 0,
        charged: 80 * MIB as u64,
    });
    node.holds(0, 80);
    assert_eq!(held(&node.at(1, 50)), [Reason::Credited]);
    node.holds(0, 20);
    assert_eq!(
        kills(&node.at(2, 50)),
        [1],
        "20 MiB are not enough for the missing 50"
    );
}

#[test]
fn credit_never_counts_under_the_reserve() {
    let mut node = Node::enforcing(hard());
    node.step(Input::Dying {
        workload: 0,
        charged: 200 * MIB as u64,
    });
    assert_eq!(kills(&node.at(1, 9)), [0]);
}

#[test]
fn a_soft_order_asks_first_and_kills_at_the_end_of_the_grace() {
    let mut node = Node::enforcing(soft_and_hard());
    assert_eq!(kills(&node.at(0, 150)), []);
    assert_eq!(node.engine.next_wake(ms(0)), Some(ms(60_000)));
    let actions = node.at(60_000, 150);
    let until = ms(65_000);
    assert!(actions.contains(&Action::Ask {
        order: 1,
        workload: 0,
        until
    }));
    assert_eq!(node.engine.next_wake(ms(60_000)), Some(until));
    node.now = until;
    assert_eq!(kills(&node.step(Input::Tick)), [0]);
}

#[test]
fn a_hard_crossing_takes_over_an_open_soft_order() {
    let mut node = Node::enforcing(soft_and_hard());
    node.at(0, 150);
    node.at(60_000, 150);
    assert_eq!(kills(&node.at(61_000, 90)), [0], "the same victim, at once");
    assert_eq!(kills(&node.at(61_001, 90)), []);
}

#[test]
fn a_failed_kill_goes_on_to_the_next() {
    let mut node = Node::enforcing(hard());
    assert_eq!(kills(&node.at(0, 50)), [0]);
    let outcome = Input::Outcome {
        order: 1,
        delivered: Delivery::Failed,
    };
    assert_eq!(ends(&node.step(outcome)), [End::Failed]);
    assert_eq!(kills(&node.at(1, 50)), [1]);
}

/// On its way out when the kill comes: nobody is found, and its memory is still to come.
#[test]
fn a_victim_that_leaves_by_itself_is_waited_for_all_the_same() {
    let mut node = Node::enforcing(soft_and_hard());
    node.at(0, 150);
    node.at(60_000, 150);
    assert_eq!(kills(&node.at(61_000, 90)), [0]);
    let outcome = Input::Outcome {
        order: 1,
        delivered: Delivery::Empty,
    };
    assert_eq!(ends(&node.step(outcome)), []);
    assert_eq!(kills(&node.at(61_030, 90)), []);
    assert_eq!(kills(&node.at(61_200, 90)), [1], "nothing came");
}

#[test]
fn a_dry_run_orders_once_per_crossing() {
    let mut node = Node::new(
        LiveSettings {
            memory: MemoryPolicy::Kubelet,
            ..LiveSettings::default()
        },
        hard(),
    );
    let would = |actions: &[Action]| {
        actions
            .iter()
            .filter(|action| matches!(action, Action::WouldEvict { .. }))
            .count()
    };
    assert_eq!(would(&node.at(0, 50)), 1);
    assert_eq!(would(&node.at(10_000, 50)), 0);
    assert_eq!(ends(&node.at(10_001, 150)), [End::DryRun]);
    assert_eq!(would(&node.at(10_002, 50)), 1);
    assert_eq!(
        would(&node.at(40_002, 50)),
        1,
        "told again after the kubelet's cleanup wait"
    );
}

#[test]
fn killed_processes_that_nobody_has_reaped_yet_kill_nobody_else() {
    let mut few = threshold(Signal::PidAvailable, 0, 0);
    few.value = Value::Quantity(Quantity::from_count(1000));
    let mut node = Node::enforcing([few].to_vec());
    let at = |node: &mut Node, at: i64, pids: i64, running: [u64; 3]| {
        node.pids = Some(pids);
        for (used, processes) in node.usage.iter_mut().flatten().zip(running) {
            used.processes = Some(processes);
        }
        node.sample(at, 2048)
    };
    let actions = at(&mut node, 0, 999, [1, 600, 2]);
    assert_eq!(kills(&actions), [1]);
    let delivered = Delivery::Done { processes: 650 };
    node.step(Input::Outcome {
        order: 1,
        delivered,
    });
    at(&mut node, 10, 950, [1, 0, 2]);
    let left = |node: &Node, pids| {
        let mut observations = Observations::default();
        observations[Signal::PidAvailable] = Some(Observation {
            available: pids,
            capacity: 32_768,
            at: None,
        });
        node.engine.ids_left(ms(11), &observations)
    };
    assert_eq!(left(&node, 950), Some(600));
    assert_eq!(left(&node, 350), None, "too few even when all are reaped");
    node.step(Input::Gone {
        workload: 1,
        kept: 0,
        unseen: 0,
    });
    let actions = at(&mut node, 40, 950, [1, 0, 2]);
    assert_eq!(ends(&actions), [End::Gone]);
    assert_eq!(kills(&actions), [], "650 ids are on their way");
    assert_eq!(kills(&at(&mut node, 4_999, 950, [1, 0, 2])), []);
    assert_eq!(
        kills(&at(&mut node, 5_000, 950, [1, 0, 2])),
        [2],
        "nobody reaps"
    );
}

#[test]
fn a_rehearsal_is_the_decision_that_follows_and_changes_nothing() {
    let mut node = Node::enforcing([threshold(Signal::MemoryAvailable, 100, 0)].to_vec());
    node.at(0, 200);
    let (observations, confirmation) = node.figures();
    let usage = node.usage.clone();
    let sample = Sample {
        observations,
        confirmation,
        usage: &usage,
    };
    let rehearsed = node.engine.rehearse(ms(1), &sample).unwrap();
    assert!(node.engine.decision().is_none());
    assert_eq!(kills(&node.at(2, 50)), [0]);
    let taken = node.engine.decision().unwrap();
    assert_eq!(
        (rehearsed.order, rehearsed.victim, rehearsed.mode),
        (taken.order, taken.victim, taken.mode)
    );
    assert_eq!(rehearsed.ranking.as_slice(), taken.ranking.as_slice());
}

#[test]
fn processes_killed_for_memory_are_no_credit_of_process_ids() {
    let mut few = threshold(Signal::PidAvailable, 0, 0);
    few.value = Value::Quantity(Quantity::from_count(1000));
    let mut node = Node::enforcing([threshold(Signal::MemoryAvailable, 100, 0), few].to_vec());
    node.pids = Some(2000);
    assert_eq!(kills(&node.at(0, 50)), [0]);
    let delivered = Delivery::Done { processes: 650 };
    node.step(Input::Outcome {
        order: 1,
        delivered,
    });
    node.holds(0, 0);
    node.pids = Some(900);
    let actions = node.at(10, 500);
    assert_eq!(ends(&actions), [End::MemoryBack]);
    assert_eq!(kills(&actions).len(), 1, "a fork bomb is nobody's debt");
}
