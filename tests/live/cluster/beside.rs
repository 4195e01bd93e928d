//! Beside the kubelet: its thresholds as it says them itself, and what the node says of who acts first.

use std::fs;

use rustix::process::Signal;

use crate::running::Agent;
use crate::support::{NODE, holds_in_time};
use crate::told::condition;

/// One whose node is the machine, and that has nothing to do.
const SETTINGS: &str = "mode: enforce\nheadroomHard: 0%\nkernelPrograms: false\nrealtime: {priority: 0}\n\
                        localStorageCapacityIsolation: false\n";

#[test]
fn the_kubelet_is_asked_what_it_goes_by_and_the_node_says_who_acts_first() {
    let cluster = cluster!(with_pods_here);
    let (_line, mut agent) = Agent::with_line(&cluster, SETTINGS, ", configz: true");
    agent.start();
    let has = |signal: &str, value: &str| {
        let status = agent.status();
        let thresholds = status.map_or_else(Vec::new, |status| status.thresholds);
        let mut thresholds = thresholds.iter();
        thresholds.any(|one| one.hard && one.signal == signal && one.value == value)
    };
    // The kubelet's defaults have 10 % there.
    let is_asked = || has("nodefs.available", "1%") && has("memory.available", "164Mi");
    assert!(holds_in_time(is_asked), "{}", agent.log());
    assert_eq!(agent.kubernetes().configz_why, None, "{}", agent.log());
    let said = || {
        condition(
            &cluster.get("node", NODE).unwrap(),
            "brink.dev/KubeletConflict",
        )
    };
    let is_said = |status: &str, reason: &str| {
        said().is_some_and(|said| said["status"] == status && said["reason"] == reason)
    };
    assert!(
        holds_in_time(|| is_said("False", "BrinkActsFirst")),
        "{:?}\n{}",
        said(),
        agent.log()
    );
    let path = agent.path("config.yaml");
    let settings = fs::read_to_string(&path).unwrap();
    let own = "evictionHard: {memory.available: 50Mi}\n";
    fs::write(&path, settings + own).unwrap();
    agent.signal(Signal::HUP);
    assert!(
        holds_in_time(|| is_said("True", "KubeletActsFirst")),
        "{:?}\n{}",
        said(),
        agent.log()
    );
    agent.stop(Signal::TERM);
    assert_eq!(said(), None, "{}", agent.log());
}
