//! The cycle as a whole: what follows what, and that nobody protected is ever ordered.

use alloc::format;
use alloc::string::ToString;
use alloc::vec;

use proptest::prelude::*;

use super::super::observe::Observation;
use super::super::policy::Settings;
use super::super::signal::{PerSignal, Signal};
use super::super::threshold::Value;
use super::super::workload::{FsUsage, Origin, Volume, VolumeSource, VolumeUsage, Workload};
use super::*;
use crate::base::Quantity;

const MEMORY: Signal = Signal::MemoryAvailable;
const NODEFS: Signal = Signal::NodefsAvailable;

fn threshold(signal: Signal, grace: i64, value: i64) -> Threshold {
    let value = Value::Quantity(Quantity::from_bytes(value));
    Threshold {
        signal,
        grace: Span::from_secs(grace),
        value,
        min_reclaim: None,
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

fn pod(name: &str) -> Workload {
    Workload {
        name: name.to_string(),
        uid: name.to_string(),
        ..Workload::default()
    }
}

struct Node {
    kubelet: Kubelet,
    table: WorkloadTable,
    usage: Vec<Option<PodUsage>>,
    details: Vec<PodDetail>,
}

impl Node {
    fn new(thresholds: &[Threshold], layout: Layout, pods: Vec<Workload>) -> Self {
        let details = vec![PodDetail::default(); pods.len()];
        Self {
            kubelet: Kubelet::new(&policy(thresholds), layout),
            usage: vec![None; pods.len()],
            table: WorkloadTable::new(pods, 1),
            details,
        }
    }

    fn cycle(&mut self, at: i64, seen: &Observations, after: Option<&Observations>) -> Cycle {
        let snapshot = Snapshot {
            observations: seen,
            after_reclaim: after,
            table: &self.table,
            usage: &self.usage,
            details: &self.details,
        };
        self.kubelet.cycle(Moment::from_secs(at), &snapshot)
    }
}

fn victim(cycle: &Cycle) -> Option<(u32, i64)> {
    cycle
        .evict
        .as_ref()
        .map(|evict| (evict.workload, evict.grace_seconds))
}

#[test]
fn the_first_that_accepts_goes() {
    let mut pods = vec![pod("a"), pod("b"), pod("c")];
    pods[0].origin = Origin::Static;
    pods[1].priority = Some(-5);
    pods[1].origin = Origin::Static;
    let mut node = Node::new(&[threshold(MEMORY, 0, 100)], Layout::Single, pods);
    let cycle = node.cycle(0, &saw(0, &[(MEMORY, 50)]), None);
    assert_eq!(cycle.ranking, [1, 0, 2]);
    assert_eq!(victim(&cycle), Some((2, 1)));
    let evict = cycle.evict.unwrap();
    assert_eq!(evict.signal.name(), "memory.available");
    let text = "The node was low on resource: memory. Threshold quantity: 100, available: 50. ";
    assert_eq!((&*evict.message, evict.annotations), (text, None));
    assert_eq!(evict.disruption.unwrap().message, text);
}

#[test]
fn if_all_refuse_nothing_happens_and_without_pods_nothing_is_ranked() {
    let fixed = Workload {
        origin: Origin::Static,
        ..pod("a")
    };
    let mut node = Node::new(&[threshold(MEMORY, 0, 100)], Layout::Single, vec![fixed]);
    let cycle = node.cycle(0, &saw(0, &[(MEMORY, 50)]), None);
    assert_eq!((cycle.ranking.len(), cycle.evict), (1, None));
    let mirror = Workload {
        origin: Origin::Mirror,
        ..pod("a")
    };
    let mut node = Node::new(&[threshold(MEMORY, 0, 100)], Layout::Single, vec![mirror]);
    let cycle = node.cycle(0, &saw(0, &[(MEMORY, 50)]), None);
    assert_eq!(
        (cycle.chosen, cycle.ranking.len(), cycle.evict),
        (Some(0), 0, None)
    );
}

#[test]
fn reclaim_that_is_enough_spares_the_pods() {
    let thresholds = [threshold(NODEFS, 0, 100), threshold(MEMORY, 600, 500)];
    let mut node = Node::new(&thresholds, Layout::Single, vec![pod("a")]);
    let low = saw(0, &[(NODEFS, 50)]);
    let cycle = node.cycle(0, &low, Some(&saw(0, &[(NODEFS, 100)])));
    assert!(cycle.reclaimed && cycle.ranking.is_empty() && cycle.evict.is_none());
    assert_eq!(cycle.reclaim.len(), 2);
    assert_eq!(cycle.conditions.iter().count(), 1);
    // Not measured afterwards, or not freed: not enough.
    assert_eq!(
        victim(&node.cycle(1, &saw(1, &[(NODEFS, 50)]), None)),
        Some((0, 1))
    );
    let low = saw(2, &[(NODEFS, 50)]);
    assert_eq!(victim(&node.cycle(2, &low, Some(&low))), Some((0, 1)));
    // A soft threshold of another signal inside its grace makes a clean-up count as failed.
    let after = saw(3, &[(NODEFS, 900), (MEMORY, 400)]);
    let cycle = node.cycle(3, &saw(3, &[(NODEFS, 50), (MEMORY, 400)]), Some(&after));
    assert_eq!((cycle.reclaimed, victim(&cycle)), (false, Some((0, 1))));
}

#[test]
fn with_a_dedicated_imagefs_nodefs_has_nothing_to_clean() {
    let mut node = Node::new(
        &[threshold(NODEFS, 0, 100)],
        Layout::DedicatedImagefs,
        vec![pod("a")],
    );
    let fine = saw(0, &[(NODEFS, 900)]);
    let cycle = node.cycle(0, &saw(0, &[(NODEFS, 50)]), Some(&fine));
    assert_eq!((cycle.reclaim.len(), victim(&cycle)), (0, Some((0, 1))));
}

#[test]
fn local_storage_comes_first_and_ends_the_cycle() {
    let size_limit = Some("1Mi".parse().unwrap());
    let source = VolumeSource::EmptyDir {
        on_disk: true,
        size_limit,
    };
    let mut pods = vec![pod("a"), pod("b"), pod("c")];
    for at in [0, 2] {
        pods[at].volumes = vec![Volume {
            name: "data".to_string(),
            source,
        }];
    }
    let mut node = Node::new(&[threshold(MEMORY, 0, 100)], Layout::Single, pods);
    node.usage = vec![Some(PodUsage::default()); 3];
    let used = FsUsage {
        bytes: Some(2 << 20),
        inodes: None,
    };
    for at in [0, 2] {
        node.details[at].volumes = vec![VolumeUsage {
            name: "data".to_string(),
            used,
        }];
    }
    let cycle = node.cycle(0, &saw(0, &[(MEMORY, 50)]), None);
    assert_eq!(cycle.ready.len(), 1);
    assert_eq!(
        (cycle.chosen, cycle.evict, cycle.ranking.len()),
        (None, None, 0)
    );
    let gone: Vec<_> = cycle
        .local_storage
        .iter()
        .map(|e| (e.workload, e.signal.name()))
        .collect();
    assert_eq!(gone, [(0, "emptydirfs.limit"), (2, "emptydirfs.limit")]);
    assert!(
        cycle
            .local_storage
            .iter()
            .all(|e| e.grace_seconds == 1 && e.disruption.is_none())
    );
}

#[test]
fn nothing_configured_nothing_done() {
    let settings = Settings {
        local_storage_isolation: false,
        ..Settings::default()
    };
    let mut kubelet = Kubelet::new(
        &Policy::new(Vec::new(), Layout::Single, settings),
        Layout::Single,
    );
    let table = WorkloadTable::new(vec![pod("a")], 1);
    let snapshot = Snapshot {
        observations: &saw(0, &[(MEMORY, 0)]),
        after_reclaim: None,
        table: &table,
        usage: &[],
        details: &[],
    };
    assert_eq!(kubelet.cycle(Moment::START, &snapshot), Cycle::default());
}

#[test]
fn a_soft_eviction_asks_for_the_smaller_grace() {
    let settings = Settings {
        max_pod_grace: 30,
        ..Settings::default()
    };
    let policy = Policy::new(vec![threshold(MEMORY, 10, 100)], Layout::Single, settings);
    let impatient = Workload {
        termination_grace: Some(7),
        ..pod("a")
    };
    let mut node = Node::new(&[], Layout::Single, vec![impatient]);
    node.kubelet = Kubelet::new(&policy, Layout::Single);
    assert_eq!(victim(&node.cycle(0, &saw(0, &[(MEMORY, 50)]), None)), None);
    assert_eq!(
        victim(&node.cycle(10, &saw(10, &[(MEMORY, 50)]), None)),
        Some((0, 7))
    );
}

fn any_pods() -> impl Strategy<Value = Vec<Workload>> {
    let origin = prop_oneof![
        Just(Origin::Api),
        Just(Origin::Static),
        Just(Origin::Mirror)
    ];
    let priority = proptest::option::of(prop_oneof![
        Just(-1),
        Just(0),
        Just(1_999_999_999),
        Just(2_000_000_000),
        Just(2_000_001_000),
    ]);
    proptest::collection::vec((origin, priority), 0..12).prop_map(|pods| {
        let build = |(at, (origin, priority)): (usize, (Origin, Option<i32>))| Workload {
            priority,
            origin,
            ..pod(&format!("p{at}"))
        };
        pods.into_iter().enumerate().map(build).collect()
    })
}

proptest! {
    #[test]
    fn nobody_critical_is_ever_ordered_and_one_pod_at_most(
        pods in any_pods(),
        thresholds in proptest::collection::vec(
            (proptest::sample::select(&Signal::KUBELET[..]), 0i64..20, 1i64..1000), 1..8),
        steps in proptest::collection::vec(
            (1i64..30, proptest::collection::vec(proptest::option::of(-5i64..1005), Signal::COUNT)), 1..6),
    ) {
        let thresholds: Vec<_> = thresholds.into_iter().map(|(s, grace, value)| threshold(s, grace, value)).collect();
        let mut node = Node::new(&thresholds, Layout::Split, pods);
        let mut now = 0;
        for (pause, values) in steps {
            now += pause;
            let at = Some(Moment::from_secs(now));
            let seen = PerSignal::from_fn(|signal| {
                values[signal as usize].map(|available| Observation { available, capacity: 1000, at })
            });
            let cycle = node.cycle(now, &seen, Some(&seen));
            let rows = node.table.rows();
            let orders: Vec<u32> = cycle.evict.iter().chain(&cycle.local_storage).map(|e| e.workload).collect();
            prop_assert!(orders.len() <= 1);
            for &index in &orders {
                prop_assert!(!rows[index as usize].is_critical && rows[index as usize].is_candidate);
                prop_assert_eq!(cycle.ranking.iter().find(|&&i| !rows[i as usize].is_critical), Some(&index));
                prop_assert!(cycle.chosen.is_some_and(|chosen| cycle.ready.contains(chosen)));
            }
            prop_assert!(cycle.ready.is_subset_of(cycle.met));
        }
    }
}
