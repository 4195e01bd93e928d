//! Agents that are killed in the middle of things and started again, and configurations that change all the time.

use std::process::{Child, Command};
use std::thread::sleep;
use std::time::Duration;

use brink_host::hog::Load;
use brink_tests::{Chance, wait_until};
use rustix::process::Signal;

use super::scene::{HARD, NODE, Scene, ids_left};
use super::truth::now;
use crate::support::{MIB, PATIENCE, gone_after, lives, runs};

/// Kills the agent at a moment of a leak, and starts another one, which must end it.
pub(super) fn kill_in_a_leak(scene: &mut Scene, after: Duration) {
    let leak = scene.node.load(scene.leaker, Load::Anon, (NODE - 80) * MIB);
    sleep(after);
    let killed = now();
    scene.node.stop(Signal::KILL);
    scene.restarted(&leak, killed);
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

/// More process ids than others on the machine take or give back meanwhile, twice.
const CROWD: u64 = 600;
/// A kill is waited for no longer than 5 s by whom nobody tells how many it leaves to be reaped.
const LONG_AFTER: Duration = Duration::from_secs(6);

/// Processes that do nothing, in the bomb's cgroup. Their dead keep their process ids until this ends, as those of a bomb do
/// below an init that takes its time.
struct Crowd(Vec<Child>);

impl Crowd {
    fn gather(scene: &Scene) -> Self {
        let mut crowd = Self(Vec::new());
        for _ in 0..CROWD {
            let child = Command::new("sleep").arg("60").spawn().unwrap();
            let id = child.id();
            crowd.0.push(child);
            scene.node.groups[scene.bomb].add_process(id).unwrap();
        }
        crowd
    }

    fn is_dead(&self) -> bool {
        let mut pids = self.0.iter().map(|child| child.id().cast_signed());
        !pids.any(runs)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ended_already = child.kill();
            let _reaped = child.wait();
        }
    }
}

/// The next agent knows that the process ids of the killed come back as soon as somebody reaps them.
#[test]
fn an_agent_that_starts_long_after_a_kill_leaves_nobody_else_to_die() {
    let mut scene = Scene::begin();
    let crowd = Crowd::gather(&scene);
    scene.limit_ids(ids_left() + CROWD / 2);
    assert!(wait_until(PATIENCE, || crowd.is_dead().then_some(())).is_some());
    let record = scene.next_record();
    assert_eq!(record.victim_name(), "test/bomb", "{record:#?}");
    scene.audit(&["test/bomb"]);
    scene.node.stop(Signal::KILL);
    sleep(LONG_AFTER);
    let pid = scene.node.start(&[]).pid;
    // It has looked more than once by then.
    sleep(Duration::from_secs(2));
    let orders = scene.node.decisions();
    assert!(
        orders.iter().all(|order| order.order <= record.order),
        "{orders:#?}\n{}",
        scene.node.log()
    );
    assert!(scene.bystanders.iter().all(|each| lives(&each.hog)));
    drop(crowd);
    scene.reload(HARD);
    scene.replaced(pid);
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
