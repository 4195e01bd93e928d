//! Filesystems: who goes for one, when the next may, and what comes first.

mod reclaim;

use super::super::super::workload::FsUsage;
use super::*;

/// A node with a hard threshold of 160 MiB on its only filesystem; the pods hold so many MiB of it, where that is known.
struct Disk {
    node: Node,
    available: Option<i64>,
    /// What images have left, where they have a filesystem of their own.
    images: Option<i64>,
    /// The same of writable layers.
    layers: Option<i64>,
}

impl Disk {
    fn new(held: [Option<u64>; 3], disks: Disks) -> Self {
        let thresholds = [
            threshold(Signal::NodefsAvailable, 160, 0),
            threshold(Signal::MemoryAvailable, 100, 0),
            Threshold {
                value: Value::Quantity(Quantity::from_bytes(100)),
                ..threshold(Signal::PidAvailable, 0, 0)
            },
        ];
        Self::with(held, disks, &thresholds)
    }

    fn with(held: [Option<u64>; 3], disks: Disks, thresholds: &[Threshold]) -> Self {
        let settings = LiveSettings {
            enforce: true,
            memory: MemoryPolicy::Kubelet,
            disks,
            ..LiveSettings::default()
        };
        let mut node = Node::new(settings, thresholds.to_vec());
        for (used, mib) in node.usage.iter_mut().flatten().zip(held) {
            used.volumes = FsUsage {
                bytes: mib.map(|mib| mib * MIB as u64),
                inodes: None,
            };
        }
        Self {
            node,
            available: None,
            images: None,
            layers: None,
        }
    }

    fn ours(held: [Option<u64>; 3]) -> Self {
        Self::new(held, Disks::Ours)
    }

    /// A sample at `at` ms with so many MiB left, and as much memory as the node has.
    fn at(&mut self, at: i64, mib: i64) -> Vec<Action> {
        self.available = Some(mib);
        self.sample(at, 2048)
    }

    fn sample(&mut self, at: i64, memory: i64) -> Vec<Action> {
        let node = &mut self.node;
        (node.now, node.available, node.headroom) = (ms(at), memory, Some(memory));
        let (mut observations, confirmation) = node.figures();
        for (signal, left) in [
            (Signal::NodefsAvailable, self.available),
            (Signal::ImagefsAvailable, self.images),
            (Signal::ContainerfsAvailable, self.layers),
        ] {
            observations[signal] = left.map(|mib| Observation {
                available: mib * MIB,
                capacity: CAPACITY,
                at: Some(node.now),
            });
        }
        let usage = node.usage.clone();
        node.step(Input::Sample(&Sample {
            observations,
            confirmation,
            usage: &usage,
        }))
    }

    /// For which signal the node is asked.
    fn asked_for(&self, actions: &[Action]) -> Option<Signal> {
        let index = actions.iter().find_map(|action| match action {
            Action::Reclaim { threshold } => Some(*threshold),
            _ => None,
        })?;
        Some(self.node.engine.policy().thresholds()[index].signal)
    }

    /// Other filesystems under the same thresholds.
    fn lay_out(&mut self, layout: Layout) {
        let before = self.node.engine.policy();
        let policy = Policy::new(before.thresholds().to_vec(), layout, before.settings);
        let live = LiveSettings {
            enforce: true,
            memory: MemoryPolicy::Kubelet,
            ..LiveSettings::default()
        };
        let new = Reconfiguration { policy, live };
        self.node.step(Input::Reconfigure(&new));
    }

    /// A shortage for which the node has given back all it can.
    fn short(&mut self, at: i64, mib: i64) -> Vec<Action> {
        let actions = self.at(at, mib);
        assert!(asks(&actions), "{actions:?}");
        self.node.step(Input::Reclaimed);
        self.at(at + 1, mib)
    }
}

fn asks(actions: &[Action]) -> bool {
    let mut actions = actions.iter();
    actions.any(|action| matches!(action, Action::Reclaim { .. }))
}

#[test]
fn whoever_is_not_known_to_hold_any_of_it_is_not_killed_for_it() {
    let mut disk = Disk::ours([None, Some(0), Some(5)]);
    assert_eq!(kills(&disk.short(1, 150)), [2]);
    let ranking = disk.node.engine.decision().unwrap().ranking;
    let refused = ranking.as_slice().iter().map(|ranked| ranked.refusal);
    let refused: Vec<_> = refused.collect();
    assert_eq!(refused, [None, Some(Reason::Unused), Some(Reason::Unused)]);
    let mut disk = Disk::ours([None, Some(0), None]);
    let actions = disk.short(1, 150);
    assert_eq!(
        (kills(&actions), held(&actions)),
        (Vec::new(), [Reason::Nobody].to_vec())
    );
}

#[test]
fn where_layers_lie_apart_whoever_has_them_goes_for_them_and_for_nothing_else() {
    for (signal, victim, uses_nothing) in [
        (Signal::NodefsAvailable, 0, 1),
        (Signal::ContainerfsAvailable, 1, 0),
    ] {
        let held = [Some(40), None, None];
        let mut disk = Disk::with(held, Disks::Ours, &[threshold(signal, 160, 0)]);
        disk.node.usage[1].as_mut().unwrap().rootfs = FsUsage {
            bytes: Some(50 * MIB as u64),
            inodes: None,
        };
        disk.lay_out(Layout::LayersApart);
        disk.layers = Some(150);
        assert_eq!(kills(&disk.short(1, 150)), [victim], "{signal}");
        let ranking = disk.node.engine.decision().unwrap().ranking;
        let mut all = ranking.as_slice().iter();
        let other = all.find(|one| one.workload == uses_nothing).unwrap();
        assert_eq!(other.refusal, Some(Reason::Unused), "{signal}");
    }
}

#[test]
fn nobody_goes_before_the_large_ones_are_known_and_the_node_is_asked_all_the_same() {
    let mut disk = Disk::ours([None, None, Some(5)]);
    disk.node.step(Input::Control(Control::Measuring(true)));
    let actions = disk.short(1, 150);
    assert_eq!(held(&actions), [Reason::Unmeasured]);
    assert_eq!(kills(&disk.at(3, 140)), []);
    assert_eq!(kills(&disk.sample(4, 50)), [0], "memory does not wait");
    let mut disk = Disk::ours([None, None, Some(5)]);
    disk.node.step(Input::Control(Control::Measuring(true)));
    disk.short(1, 150);
    let volumes = FsUsage {
        bytes: Some(90 * MIB as u64),
        inodes: None,
    };
    disk.node.usage[0].as_mut().unwrap().volumes = volumes;
    disk.node.step(Input::Control(Control::Measuring(false)));
    assert_eq!(kills(&disk.at(3, 140)), [0]);
}

#[test]
fn nobody_else_goes_until_the_bytes_of_the_first_are_back() {
    let mut disk = Disk::ours([Some(40), Some(30), Some(20)]);
    assert_eq!(kills(&disk.short(1, 150)), [0]);
    disk.node.usage[0] = None;
    // Nothing came, for longer than a kubelet waits.
    let actions = disk.at(30_100, 149);
    assert_eq!(ends(&actions), [End::Stalled]);
    assert!(asks(&actions), "the node is asked again: {actions:?}");
    disk.node.step(Input::Reclaimed);
    assert_eq!(held(&disk.at(30_200, 149)), [Reason::Owed]);
    assert_eq!(kills(&disk.at(300_000, 141)), []);
    // All that it held is back, and used up by others.
    disk.at(300_100, 190);
    assert_eq!(kills(&disk.short(300_200, 150)), [1]);
}

#[test]
fn a_configuration_that_is_read_again_settles_nothing() {
    let live = LiveSettings {
        enforce: true,
        memory: MemoryPolicy::Kubelet,
        ..LiveSettings::default()
    };
    let mut disk = Disk::ours([Some(40), Some(30), Some(20)]);
    assert_eq!(kills(&disk.short(1, 150)), [0]);
    disk.node.usage[0] = None;
    let policy = disk.node.engine.policy().clone();
    let mut thresholds = policy.thresholds().to_vec();
    let same = Reconfiguration { policy, live };
    disk.node.step(Input::Reconfigure(&same));
    assert!(asks(&disk.at(30_100, 149)));
    disk.node.step(Input::Reclaimed);
    assert_eq!(held(&disk.at(30_200, 149)), [Reason::Owed]);
    disk.node.step(Input::Reconfigure(&same));
    let actions = disk.at(30_300, 149);
    assert!(kills(&actions).is_empty() && !asks(&actions), "{actions:?}");
    let mut nodefs = thresholds.iter_mut();
    let nodefs = nodefs.find(|one| one.signal == Signal::NodefsAvailable);
    *nodefs.unwrap() = threshold(Signal::NodefsAvailable, 170, 0);
    let policy = Policy::new(thresholds, Layout::Single, same.policy.settings);
    let other = Reconfiguration { policy, live };
    disk.node.step(Input::Reconfigure(&other));
    assert_eq!(kills(&disk.short(30_400, 149)), [1]);
}

#[test]
fn a_shortage_that_grows_takes_the_next_one_all_the_same() {
    let mut disk = Disk::ours([Some(40), Some(30), Some(20)]);
    assert_eq!(kills(&disk.short(1, 150)), [0]);
    disk.node.usage[0] = None;
    disk.at(30_100, 141);
    disk.node.step(Input::Reclaimed);
    assert_eq!(kills(&disk.at(30_200, 141)), []);
    assert_eq!(kills(&disk.at(30_300, 140)), [1], "a sixteenth of 160 MiB");
}

#[test]
fn a_kill_that_failed_is_nobodys_debt() {
    let mut disk = Disk::ours([Some(40), Some(30), Some(20)]);
    assert_eq!(kills(&disk.short(1, 150)), [0]);
    disk.node.step(Input::Outcome {
        order: 1,
        delivered: Delivery::Failed,
    });
    assert_eq!(kills(&disk.at(3, 150)), [1]);
}

#[test]
fn of_a_kill_that_reached_nobody_nothing_is_waited_for() {
    let mut disk = Disk::ours([Some(40), Some(30), Some(20)]);
    let of_a_kubelet = |name| Workload {
        by_kubelet: true,
        ..named(name)
    };
    disk.node
        .workloads(["a", "b", "c"].map(of_a_kubelet).to_vec());
    assert_eq!(kills(&disk.short(1, 150)), [0]);
    let ended = disk.node.step(Input::Outcome {
        order: 1,
        delivered: Delivery::Empty,
    });
    assert_eq!(ends(&ended), [End::Gone]);
    disk.node.usage[0].as_mut().unwrap().processes = Some(0);
    assert_eq!(kills(&disk.at(3, 150)), [1]);
    let ranking = disk.node.engine.decision().unwrap().ranking;
    assert_eq!(ranking.as_slice()[0].refusal, Some(Reason::Waiting));
    assert_eq!(disk.node.engine.evicted_by(ms(3), 0), None);
}

#[test]
fn whoever_is_asked_to_end_for_memory_keeps_its_grace_when_a_disk_fills_up() {
    let mut disk = Disk::with(
        [None, Some(30), Some(20)],
        Disks::Ours,
        &[
            threshold(Signal::NodefsAvailable, 160, 0),
            threshold(Signal::MemoryAvailable, 200, 1),
        ],
    );
    disk.sample(0, 150);
    let asked = disk.sample(1_000, 150);
    let is_asked = |action: &Action| matches!(action, Action::Ask { workload: 0, .. });
    assert!(asked.iter().any(is_asked), "{asked:?}");
    disk.available = Some(100);
    for at in [1_001, 2_000, 5_999] {
        let actions = disk.sample(at, 150);
        assert!(kills(&actions).is_empty() && !asks(&actions), "{actions:?}");
    }
    assert_eq!(kills(&disk.sample(6_000, 150)), [0]);
}

#[test]
fn whoever_is_asked_to_end_for_a_disk_is_killed_for_it_when_the_node_has_nothing_left() {
    let mut disk = Disk::with(
        [Some(40), Some(30), Some(20)],
        Disks::Ours,
        &[
            threshold(Signal::NodefsAvailable, 80, 0),
            threshold(Signal::NodefsAvailable, 160, 1),
        ],
    );
    disk.at(0, 150);
    assert!(asks(&disk.at(1_000, 150)));
    disk.node.step(Input::Reclaimed);
    disk.at(1_001, 150);
    let open = |disk: &Disk| disk.node.engine.open_order().map(OpenOrder::is_soft);
    assert_eq!(open(&disk), Some(true));
    // It was asked a moment ago: the next time it is worth it again.
    disk.node.engine.reclaim = Reclaiming::default();
    let actions = disk.at(1_002, 70);
    assert!(asks(&actions) && kills(&actions).is_empty(), "{actions:?}");
    disk.node.step(Input::Reclaimed);
    assert_eq!(kills(&disk.at(1_003, 70)), [0]);
}

#[test]
fn memory_does_not_wait_for_a_filesystem() {
    let mut disk = Disk::ours([Some(40), Some(30), Some(20)]);
    assert_eq!(kills(&disk.short(1, 150)), [0]);
    let met = |index| ThresholdSet::from_iter([index]);
    let sample = |disk: &Disk| {
        let (observations, confirmation) = disk.node.figures();
        let sample = Sample {
            observations,
            confirmation,
            usage: &[],
        };
        let may_order = |index| disk.node.engine.may_order(ms(99), &sample, met(index));
        (may_order(0), may_order(1))
    };
    // By name: memory stands before the filesystem.
    assert_eq!(sample(&disk), (true, false), "who would go is to be known");
    let actions = disk.sample(100, 50);
    assert_eq!(ends(&actions), [End::Overtaken]);
    assert_eq!(kills(&actions), [1]);
}

#[test]
fn process_ids_do_not_wait_for_a_filesystem_either() {
    let mut disk = Disk::ours([Some(40), Some(30), Some(20)]);
    disk.node.pids = Some(50);
    disk.node.usage[2].as_mut().unwrap().processes = Some(9);
    let actions = disk.at(1, 150);
    assert_eq!(kills(&actions), [2], "{actions:?}");
    assert!(!asks(&actions));
}

#[test]
fn where_nobody_goes_for_memory_the_filesystem_has_its_turn() {
    let mut disk = Disk::ours([Some(40), None, None]);
    for used in disk.node.usage.iter_mut().flatten() {
        used.processes = Some(0);
    }
    disk.available = Some(150);
    let actions = disk.sample(1, 50);
    assert!(asks(&actions), "{actions:?}");
    assert_eq!(held(&actions), [Reason::Nobody, Reason::Waiting]);
}

#[test]
fn the_node_is_not_asked_at_every_sample() {
    let mut disk = Disk::ours([None; 3]);
    disk.short(1, 150);
    assert!(!asks(&disk.at(5_000, 150)));
    assert!(!asks(&disk.at(10_000, 150)));
    assert!(asks(&disk.at(10_001, 150)));
    disk.node.step(Input::Reclaimed);
    assert!(!asks(&disk.at(10_003, 170)), "it was enough");
    assert!(asks(&disk.at(10_004, 150)), "another shortage");
}

#[test]
fn what_was_tried_for_one_filesystem_says_nothing_of_another() {
    let thresholds =
        [Signal::NodefsAvailable, Signal::ImagefsAvailable].map(|signal| threshold(signal, 160, 0));
    let held = [Some(40), Some(30), Some(20)];
    let mut disk = Disk::with(held, Disks::Ours, &thresholds);
    disk.lay_out(Layout::Split);
    disk.images = Some(150);
    let mut check = |at, left, asked, killed: &[usize]| {
        let actions = disk.at(at, left);
        assert_eq!(
            (disk.asked_for(&actions), &*kills(&actions)),
            (asked, killed)
        );
        disk.node.step(Input::Reclaimed);
    };
    check(1, 170, Some(Signal::ImagefsAvailable), &[]);
    check(2, 150, Some(Signal::NodefsAvailable), &[]);
    check(3, 150, None, &[0]);
}

#[test]
fn an_answer_that_was_not_looked_at_for_long_is_asked_for_again() {
    let mut disk = Disk::ours([Some(40), Some(30), Some(20)]);
    assert!(asks(&disk.at(1, 150)));
    disk.node.step(Input::Reclaimed);
    let actions = disk.at(10_002, 150);
    assert!(asks(&actions) && kills(&actions).is_empty(), "{actions:?}");
    disk.node.step(Input::Reclaimed);
    assert_eq!(kills(&disk.at(10_003, 150)), [0]);
}

#[test]
fn an_answer_that_nobody_waits_for_answers_nothing() {
    let mut disk = Disk::ours([Some(40), Some(30), Some(20)]);
    disk.node.step(Input::Reclaimed);
    let actions = disk.at(1, 150);
    assert!(asks(&actions) && kills(&actions).is_empty(), "{actions:?}");
}

#[test]
fn a_filesystem_that_is_a_kubelets_is_left_to_it() {
    let mut disk = Disk::new([Some(40), Some(30), Some(20)], Disks::Kubelets);
    let actions = disk.at(1, 150);
    assert_eq!(held(&actions), [Reason::Kubelet]);
    assert!(!asks(&actions) && kills(&actions).is_empty());
    assert_eq!(kills(&disk.sample(2, 50)), [0], "memory is not");
}

#[test]
fn a_kubelet_that_is_found_later_has_it_left_to_it_as_well() {
    let mut disk = Disk::new([Some(40), Some(30), Some(20)], Disks::UnlessKubelets);
    disk.node.step(Input::Control(Control::Kubelet(true)));
    assert_eq!(held(&disk.at(1, 150)), [Reason::Kubelet]);
    disk.node.step(Input::Control(Control::Kubelet(false)));
    assert_eq!(kills(&disk.short(2, 150)), [0]);
}

#[test]
fn as_long_as_nobody_has_looked_for_a_kubelet_there_may_be_one() {
    let mut disk = Disk::new([Some(40), Some(30), Some(20)], Disks::UnlessKubelets);
    let actions = disk.at(1, 150);
    assert_eq!(held(&actions), [Reason::Kubelet]);
    assert!(!asks(&actions) && kills(&actions).is_empty());
    disk.node.step(Input::Control(Control::Kubelet(false)));
    assert_eq!(kills(&disk.short(2, 150)), [0]);
}

#[test]
fn a_filesystem_that_does_not_answer_has_not_got_better() {
    let mut disk = Disk::ours([Some(40), None, None]);
    let said = |actions: &[Action]| {
        let told = actions.iter().filter(|action| {
            matches!(
                action,
                Action::Cleared { .. } | Action::Crossed { .. } | Action::Conditions(_)
            )
        });
        told.count()
    };
    assert_eq!(said(&disk.at(1, 150)), 2);
    disk.available = None;
    assert_eq!(said(&disk.sample(2, 2048)), 0);
    assert_eq!(
        said(&disk.sample(900_000, 2048)),
        0,
        "longer than any transition"
    );
    assert_eq!(said(&disk.at(900_001, 150)), 0);
    assert_eq!(said(&disk.at(900_002, 170)), 1, "cleared");
}
