//! Agents that are killed in the middle of things and started again, and configurations that change all the time.

use std::thread::sleep;
use std::time::Duration;

use brink_host::hog::Load;
use brink_tests::{Chance, wait_until};
use rustix::process::Signal;

use super::scene::{HARD, NODE, Scene};
use crate::support::{MIB, PATIENCE, gone_after};

/// Kills the agent at a moment of a leak, and starts another one, which must end it.
pub(super) fn kill_in_a_leak(scene: &mut Scene, after: Duration) {
    let leak = scene.node.load(scene.leaker, Load::Anon, (NODE - 80) * MIB);
    sleep(after);
    scene.node.stop(Signal::KILL);
    scene.restarted(&leak);
}

#[test]
fn agents_that_are_killed_in_a_leak_leave_it_to_the_next_one() {
    let mut scene = Scene::begin();
    let mut chance = Chance::new(7);
    for _ in 0..5 {
        let after = Duration::from_millis(chance.below(250));
        kill_in_a_leak(&mut scene, after);
    }
    scene.close();
}

/// An init may take its time to reap what a bomb has left; the next agent knows of it.
#[test]
fn agents_that_are_killed_after_a_bomb_leave_nobody_else_to_die() {
    let mut scene = Scene::begin();
    for _ in 0..2 {
        scene.limit_ids();
        scene.ignite();
        scene.audit(&["test/bomb"]);
        scene.node.stop(Signal::KILL);
        let pid = scene.node.start(&[]).pid;
        scene.replaced(pid);
        scene.reload(HARD);
    }
    scene.close();
}

#[test]
fn configurations_that_change_during_leaks_change_nothing_else() {
    let mut scene = Scene::begin();
    for round in 0..4 {
        let leak = scene.node.load(scene.leaker, Load::Anon, (NODE - 16) * MIB);
        for hard in [72, HARD] {
            scene.reload(hard);
        }
        gone_after(&leak);
        let record = scene.next_record();
        assert_eq!(record.victim_name(), "test/leaker", "{round}: {record:#?}");
        scene.audit(&["test/leaker"]);
    }
    let taken = || {
        let status = scene.node.status()?;
        status
            .thresholds
            .iter()
            .any(|each| each.value == "64Mi")
            .then_some(())
    };
    assert!(
        wait_until(PATIENCE, taken).is_some(),
        "{}",
        scene.node.log()
    );
    scene.close();
}
