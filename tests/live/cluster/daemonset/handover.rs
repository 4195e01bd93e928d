//! One agent of a node after another, as an update of the `DaemonSet` has it: the node has one that enforces at every moment.

use std::path::{Path, PathBuf};
use std::time::Duration;

use brink::control::client::ask;
use brink::control::protocol::{Answer, Question};
use brink_tests::{Never, skip, slowed, wait_until};

use super::{no_image, wait_mode};
use crate::installed::{Installed, NAMESPACE, SET};
use crate::leak::{Kind, MIB, Waiting, leaker};
use crate::running::ROOM;
use crate::sampler::look_on;
use crate::support::{PODS, available, holds_in_time};
use crate::told::{events, is_failed};
use crate::watch::Watch;

/// The set of the agents that come after: a server of this age starts no pod of an update beside the one before.
const NEXT: &str = "brink-next";
/// What the leaker takes.
const LEAK: u64 = 300 * MIB;
/// From the crossing to the end of the last process, whichever agent kills.
const AT_ONCE: Duration = Duration::from_secs(1);
/// Once a set is deleted its pods are within this, and whoever leaks is gone.
const LONGEST: Duration = Duration::from_mins(1);

/// The socket of a pod's agent, as this machine has it.
fn socket_of(installed: &Installed<'_>, pod: &str) -> PathBuf {
    let status = installed.brink(pod, &["status"]);
    PathBuf::from(format!(
        "/proc/{}/root/run/brink-pod/brink.sock",
        status["pid"]
    ))
}

fn enforces(socket: &Path) -> bool {
    match ask(socket, &Question::Status) {
        Ok(Answer::Status(status)) => status.mode == "enforcing",
        _ => false,
    }
}

#[test]
fn a_pod_that_leaks_while_one_agent_follows_another_is_killed_at_once_and_once() {
    let cluster = cluster!(with_pods_here);
    if let Some(reason) = no_image(&cluster) {
        skip!("{reason}");
    }
    let mut installed = Installed::new(&cluster, "enforce");
    installed.wait_ready();
    let name = format!("handover-{}", std::process::id());
    let manifest = leaker(&name, "handover", Kind::Small, LEAK);
    let waiting = Waiting::start(&cluster, [(Kind::Small, manifest)]).remove(0);
    let threshold = available() - ROOM;
    let settings = format!(
        "memoryPolicy: kubelet\nheadroomHard: 0%\nnode: {{cgroup: {PODS}}}\nenforceNodeAllocatable: []\n\
         evictionHard: {{memory.available: \"{threshold}\"}}\n"
    );
    installed.configure("brink-handover", &settings);
    installed.apply();
    installed.wait_ready();
    let first = installed.pod();
    wait_mode(&installed, &first, "enforcing");
    installed.add_set(NEXT);
    installed.apply();
    installed.wait_set_ready(NEXT);
    let next = installed.pod_of(NEXT);
    wait_mode(&installed, &next, "standby");

    // The next is asked first: the one before, which does not get the right back, was then still to have it after the next had got it.
    let sockets = [&next, &first].map(|pod| socket_of(&installed, pod));
    let of_next = sockets[0].clone();
    let are_heard = [0, 1].map(|which| enforces(&sockets[which]));
    assert_eq!(are_heard, [false, true], "before the change");
    let both = Never::begin(move || sockets.iter().all(|socket| enforces(socket)));
    let of_first = (NAMESPACE, first.as_str());
    let ends = Watch::of_pod(&cluster, of_first, &["/metadata/deletionTimestamp"]);
    assert!(holds_in_time(|| !ends.told().is_empty()), "a watch");
    installed.begin_to_end(SET);
    let is_ending = || ends.told().iter().any(|at| !at.is_empty());
    let is_told = wait_until(LONGEST, || is_ending().then_some(()));
    assert!(is_told.is_some(), "{}", installed.described());
    let looking = look_on(threshold, &waiting.groups, slowed(LONGEST));
    waiting.begin();
    let seen = looking.join().unwrap();
    let told = || format!("{}\n{}", waiting.pod.described(), installed.described());
    let seen = seen.unwrap_or_else(|| panic!("no crossing: {}", told()));
    let gone = seen.gone.unwrap_or_else(|| panic!("it lives: {}", told()));
    let after = Duration::from_nanos(gone - seen.crossed);
    println!("gone {after:?} after the crossing");
    assert!(after < slowed(AT_ONCE), "{after:?}: {}", told());

    wait_mode(&installed, &next, "enforcing");
    let is_told =
        || is_failed(&waiting.pod) && events(&cluster, &waiting.uid, "Evicted").len() == 1;
    assert!(holds_in_time(is_told), "{}", told());
    let Ok(Answer::Decisions(records)) = ask(&of_next, &Question::Decisions) else {
        panic!("{}", told());
    };
    let carried_out = records.iter().filter(|record| record.mode == "enforcing");
    let victims: Vec<&str> = carried_out.map(|record| &*record.victim.uid).collect();
    assert_eq!(victims, [&*waiting.uid], "{records:#?}");
    let is_gone = || installed.pods().len() == 1;
    assert!(holds_in_time(is_gone), "{}", installed.described());
    assert!(!both.has_held(), "two enforce: {}", installed.described());
    // While it has the rights to take back what it has said of the node.
    installed.end_set(NEXT);
}
