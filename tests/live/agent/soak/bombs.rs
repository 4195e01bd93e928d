//! Fork bombs, one after the other and together with everything else that forks and leaks.

use brink_host::hog::Load;

use super::scene::Scene;

/// More processes than are forked in the time of the test.
const CHURN: u64 = 10_000_000;

#[test]
fn bomb_after_bomb_ends_as_a_whole() {
    let mut scene = Scene::begin();
    for _ in 0..3 {
        // Beside the dead of the one before it may be short of memory first.
        scene.explode();
        scene.audit(&["test/bomb"]);
    }
    scene.close();
}

#[test]
fn a_bomb_and_a_leak_beside_processes_that_come_and_go() {
    let mut scene = Scene::begin();
    let churn = scene.node.load(scene.leaker, Load::ForkChurn, CHURN);
    scene.explode();
    scene.audit(&["test/bomb"]);
    drop(churn);
    let churn = scene.node.load(scene.bomb, Load::ForkChurn, CHURN);
    scene.leak(Load::Anon);
    scene.audit(&["test/leaker"]);
    drop(churn);
    scene.close();
}
