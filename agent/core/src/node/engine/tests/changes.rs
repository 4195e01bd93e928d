//! What changes under an engine that runs: tables, modes, configurations, restarts.

use super::*;

#[test]
fn the_stop_button_ends_an_order_that_only_asked() {
    let mut node = Node::enforcing(soft_and_hard());
    node.at(0, 150);
    node.at(60_000, 150);
    let actions = node.step(Input::Control(Control::Pause(None)));
    assert_eq!(ends(&actions), [End::Stopped]);
    node.now = ms(70_000);
    assert_eq!(kills(&node.step(Input::Tick)), []);
    let actions = node.at(70_001, 50);
    assert_eq!(kills(&actions), []);
    assert!(actions.contains(&Action::WouldEvict {
        order: 2,
        workload: 0
    }));
}

#[test]
fn resuming_acts_on_a_crossing_that_still_holds() {
    let mut node = Node::enforcing(hard());
    node.step(Input::Control(Control::Pause(None)));
    assert_eq!(kills(&node.at(1, 50)), []);
    let actions = node.step(Input::Control(Control::Resume));
    assert_eq!(ends(&actions), [End::DryRun]);
    assert_eq!(kills(&node.at(2, 50)), [0]);
}

#[test]
fn an_exhausted_guard_ends_in_observing_and_says_so() {
    let limits = Limits {
        burst: 1,
        ..Limits::default()
    };
    let settings = LiveSettings {
        enforce: true,
        memory: MemoryPolicy::Kubelet,
        limits,
        disks: Disks::Ours,
    };
    let mut node = Node::new(settings, hard());
    assert_eq!(kills(&node.at(0, 50)), [0]);
    let actions = node.at(200, 50);
    assert_eq!(kills(&actions), []);
    assert!(actions.contains(&Action::Mode(Mode::Observing(Reason::Throttled))));
    assert!(actions.contains(&Action::WouldEvict {
        order: 2,
        workload: 1
    }));
}

#[test]
fn a_new_table_keeps_the_open_order_on_its_victim() {
    let mut node = Node::enforcing(hard());
    assert_eq!(kills(&node.at(0, 50)), [0]);
    node.workloads(["x", "c", "b", "a"].map(named).to_vec());
    node.usage = [400, 100, 200, 300].map(|mib| Some(holding(mib))).to_vec();
    assert_eq!(node.engine.open_order().unwrap().workload, Some(3));
    assert_eq!(kills(&node.at(10, 50)), []);
    node.workloads(["x", "c", "b"].map(named).to_vec());
    assert_eq!(node.engine.open_order().unwrap().workload, None);
    assert_eq!(kills(&node.at(200, 50)), [0]);
}

#[test]
fn a_soft_grace_counts_from_a_break_that_is_told_late() {
    let mut node = Node::enforcing(soft_and_hard());
    let asks = |actions: &[Action]| {
        let is_ask = |action: &Action| matches!(action, Action::Ask { .. });
        actions.iter().any(is_ask)
    };
    node.at(0, 150);
    node.now = ms(59_000);
    node.step(Input::Recall(Recalled::Met {
        threshold: 1,
        since: ms(40_000),
    }));
    assert!(!asks(&node.at(60_000, 150)));
    assert!(!asks(&node.at(99_999, 150)));
    assert!(asks(&node.at(100_000, 150)));
}

#[test]
fn another_configuration_keeps_what_both_know() {
    let mut node = Node::enforcing(soft_and_hard());
    node.at(0, 150);
    node.step(Input::Control(Control::Pause(None)));
    let mut thresholds = soft_and_hard();
    thresholds.insert(0, threshold(Signal::MemoryHeadroom, 10, 0));
    let policy = Policy::new(thresholds, Layout::Single, Settings::default());
    let live = LiveSettings {
        enforce: true,
        memory: MemoryPolicy::Kubelet,
        ..LiveSettings::default()
    };
    node.step(Input::Reconfigure(&Reconfiguration { policy, live }));
    let soft = node
        .engine
        .policy()
        .thresholds()
        .iter()
        .position(|t| !t.is_hard());
    assert_eq!(
        node.engine.gate().first_observed(soft.unwrap()),
        Some(ms(0)),
        "the grace goes on"
    );
    let actions = node.at(60_000, 150);
    assert_eq!(kills(&actions), [], "and so does the pause");
    assert!(
        actions
            .iter()
            .any(|action| matches!(action, Action::WouldEvict { .. }))
    );
}

#[test]
fn an_open_order_survives_a_new_configuration() {
    let mut node = Node::enforcing(hard());
    assert_eq!(kills(&node.at(0, 50)), [0]);
    let policy = Policy::new(Vec::new(), Layout::Single, Settings::default());
    let live = LiveSettings::default();
    node.step(Input::Reconfigure(&Reconfiguration { policy, live }));
    assert!(node.engine.open_order().is_some());
    assert_eq!(ends(&node.at(200, 50)), [End::Stalled]);
}

#[test]
fn whoever_is_protected_meanwhile_is_not_killed_for_staying() {
    let mut node = Node::enforcing([threshold(Signal::MemoryAvailable, 500, 1)].to_vec());
    node.at(0, 400);
    assert_eq!(
        node.at(1_000, 400)
            .iter()
            .filter(|a| matches!(a, Action::Ask { workload: 0, .. }))
            .count(),
        1
    );
    let mut workloads = ["a", "b", "c"].map(named).to_vec();
    workloads[0].protection = Some(Protection::OomdOmit);
    let generation = node.engine.table().generation() + 1;
    let table = Arc::new(WorkloadTable::new(workloads, generation));
    assert_eq!(ends(&node.step(Input::Workloads(table))), [End::Stopped]);
    assert_eq!(kills(&node.at(60_000, 400)), []);
}

/// A soft order on `a` that has been given, and the node a second later.
fn asked() -> Node {
    let mut node = Node::enforcing(soft_and_hard());
    node.at(0, 150);
    let asks = |action: &Action| matches!(action, Action::Ask { workload: 0, .. });
    assert!(node.at(60_000, 150).iter().any(asks));
    node.now = ms(61_000);
    node
}

fn without_a(node: &mut Node) -> Vec<Action> {
    let generation = node.engine.table().generation() + 1;
    let workloads = ["b", "c"].map(named).to_vec();
    let table = Arc::new(WorkloadTable::new(workloads, generation));
    node.usage = [200, 100].map(|mib| Some(holding(mib))).to_vec();
    node.step(Input::Workloads(table))
}

#[test]
fn an_order_whose_victim_left_the_table_before_its_grace_was_over_holds_nobody_up() {
    let mut node = asked();
    assert_eq!(ends(&without_a(&mut node)), [End::Stopped]);
    assert_eq!(kills(&node.at(61_001, 50)), [0], "b goes at once");
}

#[test]
fn whoever_ended_when_asked_and_left_the_table_then_is_gone() {
    let mut node = asked();
    node.step(Input::Gone {
        workload: 0,
        kept: 0,
        unseen: 0,
    });
    assert_eq!(ends(&without_a(&mut node)), []);
    assert_eq!(kills(&node.at(61_019, 50)), []);
    let actions = node.at(61_020, 50);
    assert_eq!(ends(&actions), [End::Gone]);
    assert_eq!(kills(&actions), [0]);
}

#[test]
fn whoever_ended_when_asked_and_is_protected_then_is_gone_and_stays_evicted() {
    let mut node = Node::enforcing(soft_and_hard());
    let mut workloads = ["a", "b", "c"].map(named).to_vec();
    workloads[0].by_kubelet = true;
    node.workloads(workloads.clone());
    node.at(0, 150);
    node.at(60_000, 150);
    node.now = ms(61_000);
    node.step(Input::Gone {
        workload: 0,
        kept: 0,
        unseen: 0,
    });
    // Nobody is left in it but a stranger.
    workloads[0].protection = Some(Protection::Unrecognized);
    let table = Arc::new(WorkloadTable::new(workloads, 9));
    assert_eq!(ends(&node.step(Input::Workloads(table))), []);
    assert_eq!(ends(&node.at(61_020, 150)), [End::Gone]);
    assert_eq!(node.engine.evicted_by(ms(61_021), 0), Some(1));
}

/// `a` was killed and its cgroup is removed although a reader of `/proc` still has hold of so many MiB of its dead.
fn removed(unseen: u64) -> Node {
    let mut node = Node::enforcing(hard());
    assert_eq!(kills(&node.at(0, 50)), [0]);
    node.now = ms(5);
    node.step(Input::Gone {
        workload: 0,
        kept: 0,
        unseen: unseen * MIB as u64,
    });
    without_a(&mut node);
    node
}

#[test]
fn what_nobody_saw_come_back_before_its_cgroup_was_removed_is_owed_for_a_while() {
    let mut node = removed(50);
    let actions = node.at(25, 50);
    assert_eq!(
        (ends(&actions), kills(&actions)),
        ([End::Gone].into(), [].into())
    );
    assert_eq!(kills(&node.at(204, 50)), []);
    assert_eq!(kills(&node.at(205, 50)), [0]);
    let mut node = removed(49);
    assert_eq!(kills(&node.at(25, 50)), [0], "it would not be enough");
    let mut node = removed(60);
    for (at, available) in [(25, 50), (150, 70), (204, 70), (349, 70)] {
        assert_eq!(
            kills(&node.at(at, available)),
            [],
            "{at}: it shows in the node"
        );
    }
    assert_eq!(kills(&node.at(350, 70)), [0]);
}

#[test]
fn who_was_waited_for_no_longer_owes_nothing_by_the_removal_of_its_cgroup() {
    let mut node = Node::enforcing(hard());
    node.step(Input::Gone {
        workload: 0,
        kept: 0,
        unseen: 100 * MIB as u64,
    });
    assert_eq!(kills(&node.at(1, 50)), [0]);
}

#[test]
fn a_killed_victim_that_left_the_table_is_waited_for_no_longer_than_any_other() {
    let mut node = Node::enforcing(hard());
    assert_eq!(kills(&node.at(0, 50)), [0]);
    node.now = ms(100);
    assert_eq!(ends(&without_a(&mut node)), []);
    assert_eq!(ends(&node.at(199, 50)), []);
    let actions = node.at(200, 50);
    assert_eq!(ends(&actions), [End::Stalled]);
    assert_eq!(kills(&actions), [0]);
}

/// What comes back of it by single bytes for ever is not worth another order.
#[test]
fn a_victim_that_gives_back_next_to_nothing_lets_others_go() {
    let mut node = Node::enforcing(hard());
    assert_eq!(kills(&node.at(0, 50)), [0]);
    let mut next = Vec::new();
    for step in 1..60 {
        let left = holding(300).memory.map(|bytes| bytes - step);
        node.usage[0] = Some(PodUsage {
            memory: left,
            ..holding(300)
        });
        next = kills(&node.at(i64::try_from(step).unwrap() * 100, 50));
        if !next.is_empty() {
            break;
        }
    }
    assert_eq!((next, node.now), ([1].to_vec(), ms(5_000)));
}
