//! What an agent leaves to the next one: graces, kills, and the order that was open.

use super::*;

#[test]
fn a_soft_grace_resumes_after_a_restart() {
    let mut node = Node::enforcing(soft_and_hard());
    node.step(Input::Recall(Recalled::Met {
        threshold: 1,
        since: ms(-50_000),
    }));
    assert_eq!(kills(&node.at(0, 150)), []);
    let actions = node.at(10_000, 150);
    assert!(
        actions
            .iter()
            .any(|action| matches!(action, Action::Ask { .. }))
    );
}

/// What an agent that ended has left of a soft order on the first workload: asked at second -10, to be killed at 20.
fn left_asked(is_sent: bool) -> Unfinished {
    Unfinished {
        order: 7,
        workload: 0,
        threshold: Some(1),
        signal: Signal::MemoryAvailable,
        opened: ms(-10_000),
        phase: Phase::Asked { until: ms(20_000) },
        is_sent,
        charged: 300 * MIB as u64,
    }
}

/// Whoever is asked or killed, with when.
fn orders(actions: &[Action]) -> Vec<(u64, usize, Option<i64>)> {
    let order = |action: &Action| match *action {
        Action::Ask {
            order,
            workload,
            until,
        } => Some((order, workload, Some(until.as_nanos() / 1_000_000))),
        Action::Kill { order, workload } => Some((order, workload, None)),
        _ => None,
    };
    actions.iter().filter_map(order).collect()
}

#[test]
fn an_asked_victim_of_before_a_restart_keeps_its_deadline_and_nobody_else_is_left_asked() {
    let mut node = Node::enforcing(soft_and_hard());
    node.step(Input::Recall(Recalled::Met {
        threshold: 1,
        since: ms(-70_000),
    }));
    node.step(Input::Recall(Recalled::Kill {
        at: ms(-10_000),
        ids: 0,
    }));
    assert_eq!(
        node.step(Input::Recall(Recalled::Unfinished(left_asked(true)))),
        []
    );
    assert_eq!(orders(&node.at(1, 150)), []);
    assert_eq!(orders(&node.at(19_999, 150)), []);
    assert_eq!(orders(&node.at(20_000, 150)), [(7, 0, None)]);
}

#[test]
fn a_hard_crossing_takes_over_a_soft_order_of_before_a_restart() {
    let mut node = Node::enforcing(soft_and_hard());
    node.step(Input::Recall(Recalled::Unfinished(left_asked(true))));
    assert_eq!(orders(&node.at(1, 50)), [(7, 0, None)]);
}

#[test]
fn a_deadline_that_passed_without_an_agent_is_carried_out_at_once() {
    let mut node = Node::enforcing(soft_and_hard());
    node.now = ms(20_100);
    let actions = node.step(Input::Recall(Recalled::Unfinished(left_asked(true))));
    assert_eq!(orders(&actions), [(7, 0, None)]);
}

#[test]
fn whoever_may_not_have_been_asked_is_asked_again_and_has_its_whole_grace() {
    let mut node = Node::enforcing(soft_and_hard());
    node.now = ms(100);
    let actions = node.step(Input::Recall(Recalled::Unfinished(left_asked(false))));
    assert_eq!(orders(&actions), [(7, 0, Some(30_100))]);
}

#[test]
fn a_soft_order_of_before_a_restart_is_dropped_where_it_could_not_be_given() {
    let mut node = Node::enforcing(soft_and_hard());
    node.step(Input::Control(Control::Pause(None)));
    node.now = ms(30_000);
    let actions = node.step(Input::Recall(Recalled::Unfinished(left_asked(true))));
    assert_eq!(
        (orders(&actions), node.engine.open_order()),
        ([].into(), None)
    );
    let mut node = Node::enforcing(soft_and_hard());
    let mut workloads = ["a", "b", "c"].map(named).to_vec();
    workloads[0].protection = Some(Protection::OomdOmit);
    node.workloads(workloads);
    node.step(Input::Recall(Recalled::Unfinished(left_asked(true))));
    assert_eq!(node.engine.open_order(), None);
}

#[test]
fn a_kill_of_before_a_restart_is_waited_for_and_hits_nobody_twice() {
    let killed = |is_sent| Unfinished {
        phase: Phase::Killed { at: ms(0) },
        is_sent,
        ..left_asked(true)
    };
    for (is_sent, next) in [(true, 1), (false, 0)] {
        let mut node = Node::enforcing(hard());
        node.now = ms(100);
        node.step(Input::Recall(Recalled::Unfinished(killed(is_sent))));
        assert_eq!(kills(&node.at(101, 50)), [], "it is on its way");
        node.holds(0, 250);
        assert_eq!(kills(&node.at(250, 50)), [], "it goes on");
        assert_eq!(
            kills(&node.at(450, 50)),
            [next],
            "{is_sent}: it has stopped"
        );
        assert_eq!(node.engine.open_order().unwrap().id, 8);
    }
}

#[test]
fn a_kill_of_before_a_restart_is_waited_for_no_longer_than_any_other() {
    let killed_at_5_s = |each: u64| {
        let mut node = Node::enforcing(hard());
        node.now = ms(4_000);
        node.step(Input::Recall(Recalled::Unfinished(Unfinished {
            phase: Phase::Killed { at: ms(0) },
            ..left_asked(true)
        })));
        for (step, at) in (0..).zip([4_001, 4_150, 4_300, 4_450, 4_600, 4_750, 4_900]) {
            node.holds(0, 300 - step * each);
            assert_eq!(kills(&node.at(at, 50)), [], "{at}");
        }
        node.holds(0, 300 - 7 * each);
        !kills(&node.at(5_000, 50)).is_empty()
    };
    assert!(killed_at_5_s(1), "next to nothing came back");
    assert!(!killed_at_5_s(10), "it goes on");
}

#[test]
fn ids_that_the_dead_of_before_a_restart_still_hold_kill_nobody() {
    let mut few = threshold(Signal::PidAvailable, 0, 0);
    few.value = Value::Quantity(Quantity::from_count(1000));
    let short_at = |node: &mut Node, at: i64| {
        node.pids = Some(950);
        for used in node.usage.iter_mut().flatten() {
            used.processes = Some(1);
        }
        kills(&node.sample(at, 2048))
    };
    for (ids, spared) in [(650, true), (0, false), (20, false)] {
        let mut node = Node::enforcing([few].to_vec());
        node.now = ms(100);
        node.step(Input::Recall(Recalled::Kill { at: ms(0), ids }));
        assert_eq!(short_at(&mut node, 101).is_empty(), spared, "{ids}");
        assert_eq!(short_at(&mut node, 29_999).is_empty(), spared, "{ids}");
        if spared {
            assert_eq!(short_at(&mut node, 30_000), [0], "nobody reaps");
        }
    }
}

#[test]
fn of_several_kills_for_process_ids_only_the_late_ones_count() {
    let mut few = threshold(Signal::PidAvailable, 0, 0);
    few.value = Value::Quantity(Quantity::from_count(1000));
    for (ids, spared) in [(10, false), (60, true)] {
        let mut node = Node::enforcing([few].to_vec());
        node.now = ms(100_000);
        for (at, ids) in [(1_000, 600), (99_000, ids)] {
            node.step(Input::Recall(Recalled::Kill { at: ms(at), ids }));
        }
        node.pids = Some(950);
        assert_eq!(
            kills(&node.sample(100_001, 2048)).is_empty(),
            spared,
            "{ids}"
        );
    }
}
