//! Orders for limits of local storage: whom, when, and what they leave to thresholds.

use super::super::super::limits::{Exceeded, LimitKind};
use super::super::super::safety::Limits;
use super::*;

fn exceeded() -> Exceeded {
    Exceeded {
        kind: LimitKind::EmptyDir,
        place: 0,
        limit: Quantity::from_bytes(100 * MIB),
        used: 101 * MIB as u64,
    }
}

impl Node {
    fn exceeds(&mut self, at: i64, workload: usize) -> Vec<Action> {
        self.now = ms(at);
        self.step(Input::Exceeded {
            workload,
            limit: exceeded(),
            memory: Some(100 * MIB as u64),
        })
    }
}

#[test]
fn exactly_that_workload_goes_at_once_and_the_decision_has_the_limit() {
    let mut node = Node::enforcing(hard());
    assert_eq!(kills(&node.exceeds(0, 1)), [1]);
    let decision = node.engine.decision().unwrap();
    assert_eq!(decision.limit, Some(exceeded()));
    assert_eq!((decision.victim.workload, decision.candidates), (1, 1));
    assert_eq!(decision.observation.available, -MIB);
    node.holds(1, 0);
    assert_eq!(ends(&node.at(5, 2048)), [End::MemoryBack]);
}

#[test]
fn whoever_is_protected_stays() {
    let mut node = Node::enforcing(hard());
    let mut workloads = ["a", "b", "c"].map(named);
    workloads[1].protection = Some(Protection::Configured);
    workloads[2].priority = Some(2_000_000_000);
    node.workloads(workloads.to_vec());
    assert_eq!(node.exceeds(0, 1), []);
    assert_eq!(node.exceeds(0, 2), []);
    assert_eq!(node.exceeds(0, 7), [], "there is no such workload");
    assert_eq!(kills(&node.exceeds(0, 0)), [0]);
}

#[test]
fn it_waits_for_the_open_order_and_a_threshold_for_what_comes_back() {
    let mut node = Node::enforcing(hard());
    assert_eq!(kills(&node.at(0, 50)), [0]);
    assert_eq!(node.exceeds(1, 1), []);
    node.holds(0, 0);
    assert_eq!(ends(&node.at(10, 500)), [End::MemoryBack]);
    assert_eq!(kills(&node.exceeds(11, 1)), [1]);
    assert_eq!(kills(&node.at(12, 50)), []);
    node.holds(1, 0);
    let actions = node.at(60, 50);
    assert_eq!(kills(&actions), []);
    let actions = node.at(65, 50);
    assert_eq!(
        (ends(&actions), kills(&actions)),
        ([End::MemoryBack].to_vec(), [2].to_vec())
    );
}

#[test]
fn the_same_one_goes_again_only_after_five_minutes() {
    let mut node = Node::enforcing(hard());
    assert_eq!(kills(&node.exceeds(0, 1)), [1]);
    assert_eq!(ends(&node.at(200, 2048)), [End::Stalled]);
    node.now = ms(250);
    node.step(Input::Gone {
        workload: 1,
        kept: 0,
        unseen: 0,
    });
    assert_eq!(node.exceeds(6_000, 1), []);
    assert_eq!(node.exceeds(299_999, 1), []);
    assert_eq!(kills(&node.exceeds(300_000, 1)), [1]);
}

#[test]
fn half_of_the_kills_are_left_to_thresholds() {
    let limits = Limits {
        burst: 2,
        refill: Span::from_secs(600),
        ..Limits::default()
    };
    let settings = LiveSettings {
        enforce: true,
        memory: MemoryPolicy::Kubelet,
        limits,
        ..LiveSettings::default()
    };
    let mut node = Node::new(settings, hard());
    assert_eq!(kills(&node.exceeds(0, 1)), [1]);
    assert_eq!(ends(&node.at(200, 2048)), [End::Stalled]);
    assert_eq!(node.exceeds(300, 2), []);
    assert_eq!(node.engine.mode(ms(300)), Mode::Enforcing, "nothing trips");
    assert_eq!(kills(&node.at(400, 50)), [0]);
}

#[test]
fn observed_it_is_told_once_and_done_when_orders_are_carried_out() {
    let mut node = Node::new(LiveSettings::default(), hard());
    let told = |actions: &[Action]| {
        let is_told = |one: &&Action| matches!(one, Action::WouldEvict { workload: 1, .. });
        actions.iter().filter(is_told).count()
    };
    assert_eq!(told(&node.exceeds(0, 1)), 1);
    assert_eq!(ends(&node.at(10, 2048)), [End::DryRun]);
    assert_eq!(told(&node.exceeds(20, 1)), 0);
    node.step(Input::Control(Control::Enforce(true)));
    assert_eq!(kills(&node.exceeds(30, 1)), [1]);
}

#[test]
fn without_isolation_nobody_goes() {
    let mut node = Node::enforcing(hard());
    let mut policy = node.engine.policy().clone();
    policy.settings.local_storage_isolation = false;
    let live = LiveSettings {
        enforce: true,
        ..LiveSettings::default()
    };
    node.step(Input::Reconfigure(&Reconfiguration { policy, live }));
    assert_eq!(node.exceeds(0, 1), []);
}
