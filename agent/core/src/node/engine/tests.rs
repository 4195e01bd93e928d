//! The live rules as short stories: a node, its workloads, and what happens when.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::super::action::Action;
use super::super::input::{Confirmation, Control, Delivery, Reconfiguration, Sample};
use super::super::observe::{Layout, Observation, Observations};
use super::super::order::End;
use super::super::policy::Settings;
use super::super::signal::Signal;
use super::super::threshold::{Threshold, Value};
use super::super::workload::{PodUsage, Protection, Workload};
use super::*;
use crate::base::{Quantity, Span};

const MIB: i64 = 1 << 20;
const CAPACITY: i64 = 4096 * MIB;

fn ms(value: i64) -> Moment {
    Moment::from_nanos(value * 1_000_000)
}

fn threshold(signal: Signal, mib: i64, grace: i64) -> Threshold {
    Threshold {
        signal,
        grace: Span::from_secs(grace),
        value: Value::Quantity(Quantity::from_bytes(mib * MIB)),
        min_reclaim: None,
    }
}

/// A node with three workloads that use 300, 200 and 100 MiB, none of them requested.
struct Node {
    engine: Engine,
    actions: Actions,
    now: Moment,
    available: i64,
    headroom: Option<i64>,
    swap: u64,
    pids: Option<i64>,
    usage: Vec<Option<PodUsage>>,
}

impl Node {
    fn new(settings: LiveSettings, thresholds: Vec<Threshold>) -> Self {
        let policy = Policy::new(
            thresholds,
            Layout::Single,
            Settings {
                max_pod_grace: 5,
                ..Settings::default()
            },
        );
        let mut node = Self {
            engine: Engine::new(policy, settings, ms(0)),
            actions: Actions::default(),
            now: ms(0),
            available: 2048,
            headroom: Some(2048),
            swap: 0,
            pids: None,
            usage: [300, 200, 100].map(|mib| Some(holding(mib))).to_vec(),
        };
        node.workloads(["a", "b", "c"].map(named).to_vec());
        node
    }

    fn enforcing(thresholds: Vec<Threshold>) -> Self {
        let settings = LiveSettings {
            enforce: true,
            memory: MemoryPolicy::Kubelet,
            ..LiveSettings::default()
        };
        Self::new(settings, thresholds)
    }

    fn workloads(&mut self, workloads: Vec<Workload>) {
        let generation = self.engine.table().generation() + 1;
        let table = Arc::new(WorkloadTable::new(workloads, generation));
        self.step(Input::Workloads(table));
    }

    fn step(&mut self, input: Input<'_>) -> Vec<Action> {
        self.engine.step(self.now, input, &mut self.actions);
        assert_eq!(self.actions.lost(), 0);
        self.actions.as_slice().to_vec()
    }

    /// A sample at `at` ms with so many MiB available, and as much headroom.
    fn at(&mut self, at: i64, available: i64) -> Vec<Action> {
        self.headroom = Some(available);
        self.sample(at, available)
    }

    fn sample(&mut self, at: i64, available: i64) -> Vec<Action> {
        self.now = ms(at);
        self.available = available;
        let mut observations = Observations::default();
        observations[Signal::MemoryAvailable] = Some(Observation {
            available: self.available * MIB,
            capacity: CAPACITY,
            at: Some(self.now),
        });
        observations[Signal::MemoryHeadroom] = self.headroom.map(|mib| Observation {
            available: mib * MIB,
            capacity: CAPACITY,
            at: Some(self.now),
        });
        observations[Signal::PidAvailable] = self.pids.map(|left| Observation {
            available: left,
            capacity: 32_768,
            at: Some(self.now),
        });
        let confirmation = Confirmation {
            node: self.headroom.map(|mib| mib * MIB),
            pods: None,
            swap: self.swap,
            reserve: 10 * MIB as u64,
        };
        let usage = self.usage.clone();
        self.step(Input::Sample(&Sample {
            observations,
            confirmation,
            usage: &usage,
        }))
    }

    fn holds(&mut self, workload: usize, mib: u64) {
        self.usage[workload] = Some(holding(mib));
    }
}

fn holding(mib: u64) -> PodUsage {
    PodUsage {
        memory: Some(mib * MIB as u64),
        processes: Some(1),
        ..PodUsage::default()
    }
}

fn named(name: &str) -> Workload {
    Workload {
        name: name.to_string(),
        uid: name.to_string(),
        ..Workload::default()
    }
}

fn kills(actions: &[Action]) -> Vec<usize> {
    let kill = |action: &Action| match action {
        Action::Kill { workload, .. } => Some(*workload),
        _ => None,
    };
    actions.iter().filter_map(kill).collect()
}

fn held(actions: &[Action]) -> Vec<Reason> {
    let held = |action: &Action| match action {
        Action::Held { reason, .. } => Some(*reason),
        _ => None,
    };
    actions.iter().filter_map(held).collect()
}

fn ends(actions: &[Action]) -> Vec<End> {
    let end = |action: &Action| match action {
        Action::Ended { end, .. } => Some(*end),
        _ => None,
    };
    actions.iter().filter_map(end).collect()
}

fn hard() -> Vec<Threshold> {
    [threshold(Signal::MemoryAvailable, 100, 0)].to_vec()
}

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
fn the_next_order_waits_until_the_memory_is_back() {
    let mut node = Node::enforcing(hard());
    assert_eq!(kills(&node.at(0, 50)), [0]);
    assert_eq!(held(&node.at(1, 60)), [Reason::Waiting]);
    node.holds(0, 150);
    assert_eq!(node.at(50, 60), []);
    node.holds(0, 0);
    let actions = node.at(90, 60);
    assert_eq!(ends(&actions), [End::MemoryBack]);
    assert_eq!(kills(&actions), [1]);
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

fn soft_and_hard() -> Vec<Threshold> {
    [
        threshold(Signal::MemoryAvailable, 100, 0),
        threshold(Signal::MemoryAvailable, 200, 60),
    ]
    .to_vec()
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
fn nobody_left_to_evict_is_told_once() {
    let mut node = Node::enforcing(hard());
    node.workloads(Vec::new());
    assert_eq!(held(&node.at(1, 50)), [Reason::Nobody]);
    assert_eq!(held(&node.at(2, 50)), []);
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

#[test]
fn the_node_gives_back_what_it_can_before_anybody_dies() {
    let mut node = Node::enforcing([threshold(Signal::NodefsAvailable, 100, 0)].to_vec());
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
    node.step(Input::Gone { workload: 1 });
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
