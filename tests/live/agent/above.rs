//! A node below a group with a limit of tasks: the first limit that a fork bomb meets is not the node's own.

use std::path::Path;
use std::time::Duration;

use brink_host::cgroup::owned::OwnedCgroup;
use brink_host::cgroup::{CgroupDir, Controller};
use brink_host::hog::{HogSpec, Load};
use brink_tests::{Hog, lacks, wait_until};

use crate::support::{MIB, Node, PATIENCE, lives};

/// Tasks that the group above the node may have; the kernel forks no more, whatever becomes of the agent.
const MOST: u64 = 1000;
/// The threshold: so many are to be left.
const LEFT: u64 = 400;
/// More than the bomb comes to, as a limit that its load asks for.
const OF_A_WORKLOAD: u64 = 4000;

/// A node, and beside it somebody who counts in the group above both.
struct Below {
    node: Node,
    bomb: usize,
    innocent: Hog,
    neighbour: Hog,
    _beside: OwnedCgroup,
    /// Goes after all that is in it.
    above: OwnedCgroup,
}

impl Below {
    /// None where the kernel's programs do not run.
    fn new() -> Option<Self> {
        let mut node = Node::new(1500);
        let group = node.sandbox.group.child("node").unwrap();
        group
            .limit_memory(&node.sandbox.layout, 1500 * MIB)
            .unwrap();
        let above = std::mem::replace(&mut node.sandbox.group, group);
        above.limit_tasks(&node.sandbox.layout, MOST).unwrap();
        let beside = above.child("beside").unwrap();
        let innocent = node.workload("innocent", "containers: [{name: c}]");
        let bomb = node.workload("bomb", "containers: [{name: c}]");
        node.groups[bomb]
            .limit_tasks(&node.sandbox.layout, OF_A_WORKLOAD)
            .unwrap();
        let hard = format!("evictionHard: {{pid.available: \"{LEFT}\"}}");
        node.configure("enforce", &hard);
        let status = node.start(&[]);
        let spec = HogSpec::new(Load::Anon, 8 * MIB, Duration::from_mins(1));
        let program = Path::new(env!("CARGO_BIN_EXE_brink-hog"));
        let runs = status.rung.as_deref() == Some("kernel-sampler");
        runs.then(|| Self {
            innocent: node.holding(innocent, 8),
            neighbour: Hog::spawn(program, Some(&beside), &spec).unwrap(),
            node,
            bomb,
            _beside: beside,
            above,
        })
    }

    fn ids<'a>(&self, group: &'a OwnedCgroup) -> &'a CgroupDir {
        group
            .dir(&self.node.sandbox.layout, Controller::Pids)
            .unwrap()
    }
}

#[test]
fn a_bomb_below_a_limit_of_tasks_goes_before_that_is_met() {
    let Some(below) = Below::new() else {
        lacks!("needs the kernel's programs");
    };
    let tasks = |group| i64::try_from(below.ids(group).tasks().unwrap()).unwrap();
    let seen = || {
        let status = below.node.status()?;
        let mut signals = status.signals.into_iter();
        let seen = signals.find(|seen| seen.signal == "pid.available")?;
        assert_eq!(seen.capacity, MOST.cast_signed());
        (seen.available == MOST.cast_signed() - tasks(&below.above)).then_some(())
    };
    assert!(
        wait_until(PATIENCE, seen).is_some(),
        "{:?}",
        below.node.status()
    );
    assert!(below.node.decisions().is_empty());

    let spec = HogSpec::new(Load::ForkStorm, MOST, Duration::from_mins(1));
    let mut storm = below.node.hog(below.bomb, &spec);
    let _killed = storm.wait(PATIENCE).unwrap();
    let record = below.node.finished(1);
    let bomb = &below.node.groups[below.bomb];
    let empty = wait_until(PATIENCE, || (tasks(bomb) == 0).then_some(()));
    assert!(empty.is_some(), "{} left: {record:#?}", tasks(bomb));
    assert_eq!(record.victim_name(), "test/bomb");
    assert_eq!(record.threshold.signal, "pid.available");
    assert_eq!(record.threshold.quantity, LEFT.cast_signed());
    assert_eq!(record.threshold.capacity, MOST.cast_signed());
    // The fork that crossed told it, by the counter of the group above.
    let left = record.threshold.available;
    assert!((1..LEFT.cast_signed()).contains(&left), "{record:#?}");
    let kill = record.kill.as_ref().unwrap();
    assert!(u64::from(kill.signalled) >= MOST - LEFT - 20, "{record:#?}");
    for other in [&below.innocent, &below.neighbour] {
        assert!(lives(other), "{record:#?}");
    }
    assert_eq!(below.node.decisions().len(), 1);
}
