//! What comes of asking the node first: all of it, a part, or only the word of what it would be.

use super::*;

/// Whom an order would go to.
fn would(actions: &[Action]) -> Vec<usize> {
    let would = |action: &Action| match action {
        Action::WouldEvict { workload, .. } => Some(*workload),
        _ => None,
    };
    actions.iter().filter_map(would).collect()
}

/// The same node, where orders are not carried out.
fn observing(mut disk: Disk) -> Disk {
    disk.node.step(Input::Control(Control::Enforce(false)));
    disk
}

fn ours() -> Disk {
    Disk::ours([Some(40), Some(30), Some(20)])
}

fn says(disk: &mut Disk, mib: i64) {
    let bytes = (mib * MIB).cast_unsigned();
    disk.node.step(Input::WouldReclaim { bytes });
}

#[test]
fn a_node_whose_time_ran_out_goes_on_before_anybody_goes_and_not_for_ever() {
    let mut disk = ours();
    assert!(asks(&disk.at(1, 150)));
    for at in 2..5 {
        disk.node.step(Input::ReclaimedInPart);
        let actions = disk.at(at, 150);
        assert!(asks(&actions) && kills(&actions).is_empty(), "{actions:?}");
    }
    disk.node.step(Input::ReclaimedInPart);
    let actions = disk.at(5, 150);
    assert!(!asks(&actions), "{actions:?}");
    assert_eq!(kills(&actions), [0]);
    // Where it is through with it, nothing is asked for once more.
    let mut disk = ours();
    assert!(asks(&disk.at(1, 150)));
    disk.node.step(Input::ReclaimedInPart);
    assert!(asks(&disk.at(2, 150)));
    disk.node.step(Input::Reclaimed);
    assert_eq!(kills(&disk.at(3, 150)), [0]);
}

#[test]
fn nobody_would_go_where_what_the_node_says_it_would_give_back_is_enough() {
    let mut disk = observing(ours());
    assert!(asks(&disk.at(1, 150)));
    says(&mut disk, 10);
    let actions = disk.at(2, 150);
    assert_eq!(held(&actions), [Reason::Reclaimed]);
    assert!(would(&actions).is_empty(), "{actions:?}");
    // It is filled on, and what is said is too little now.
    let actions = disk.at(3, 149);
    assert!(!asks(&actions), "{actions:?}");
    assert_eq!(would(&actions), [0]);
}

#[test]
fn what_would_be_given_back_is_asked_for_every_half_minute() {
    let mut disk = observing(ours());
    assert!(asks(&disk.at(0, 150)));
    says(&mut disk, 10);
    for at in [1, 29_999] {
        let actions = disk.at(at, 150);
        assert!(!asks(&actions) && would(&actions).is_empty(), "{actions:?}");
    }
    assert!(asks(&disk.at(30_000, 150)));
}

#[test]
fn the_minimum_reclaim_is_to_be_given_back_too() {
    let more = Quantity::from_bytes(20 * MIB);
    let nodefs = Threshold {
        min_reclaim: Some(Value::Quantity(more)),
        ..threshold(Signal::NodefsAvailable, 160, 0)
    };
    let check = |mib, expected: &[usize]| {
        let held = [Some(40), Some(30), Some(20)];
        let mut disk = observing(Disk::with(held, Disks::Ours, &[nodefs]));
        assert!(asks(&disk.at(1, 150)));
        says(&mut disk, mib);
        assert_eq!(would(&disk.at(2, 150)), expected, "{mib}");
    };
    check(29, &[0]);
    check(30, &[]);
}

#[test]
fn what_was_only_said_is_asked_for_once_orders_are_carried_out() {
    for mib in [0, 10] {
        let mut disk = observing(ours());
        assert!(asks(&disk.at(1, 150)));
        says(&mut disk, mib);
        assert!(!asks(&disk.at(2, 150)));
        disk.node.step(Input::Control(Control::Enforce(true)));
        let actions = disk.at(3, 150);
        assert!(asks(&actions) && kills(&actions).is_empty(), "{actions:?}");
        disk.node.step(Input::Reclaimed);
        assert_eq!(kills(&disk.at(4, 150)), [0]);
    }
}

#[test]
fn a_filesystem_that_would_have_enough_keeps_no_other_from_its_turn() {
    let thresholds =
        [Signal::NodefsAvailable, Signal::ImagefsAvailable].map(|signal| threshold(signal, 160, 0));
    let mut disk = Disk::with([Some(40), Some(30), Some(20)], Disks::Ours, &thresholds);
    let settings = disk.node.engine.policy().settings;
    disk.node.step(Input::Reconfigure(&Reconfiguration {
        policy: Policy::new(thresholds.to_vec(), Layout::Split, settings),
        live: LiveSettings {
            memory: MemoryPolicy::Kubelet,
            ..LiveSettings::default()
        },
    }));
    disk.images = Some(150);
    for (at, asked) in [
        (1, Some(Signal::NodefsAvailable)),
        (2, Some(Signal::ImagefsAvailable)),
        (3, None),
    ] {
        let actions = disk.at(at, 150);
        assert_eq!(disk.asked_for(&actions), asked);
        assert!(would(&actions).is_empty(), "{actions:?}");
        says(&mut disk, 10);
    }
}

#[test]
fn another_threshold_that_is_short_makes_it_no_less_enough() {
    let mut disk = Disk::with(
        [Some(40), Some(30), Some(20)],
        Disks::Ours,
        &[
            threshold(Signal::NodefsAvailable, 160, 0),
            threshold(Signal::MemoryAvailable, 200, 60),
        ],
    );
    disk.available = Some(150);
    assert!(asks(&disk.sample(1, 150)));
    disk.node.step(Input::Reclaimed);
    disk.available = Some(170);
    let actions = disk.sample(2, 150);
    assert!(kills(&actions).is_empty() && !asks(&actions), "{actions:?}");
}
