//! One agent of a node after another, as an update of the `DaemonSet` has it: the node has one that enforces at every moment.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brink::control::client::ask;
use brink::control::protocol::{Answer, Question};
use brink_host::lock::holder_of;
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

/// The agent of a pod, as this machine has it.
#[derive(Clone)]
struct Process {
    pid: i32,
    socket: PathBuf,
}

impl Process {
    fn of(installed: &Installed<'_>, pod: &str) -> Self {
        let status = installed.brink(pod, &["status"]);
        let pid = status["pid"].as_i64().unwrap();
        Self {
            pid: i32::try_from(pid).unwrap(),
            socket: format!("/proc/{pid}/root/run/brink-pod/brink.sock").into(),
        }
    }

    fn enforces(&self) -> bool {
        match ask(&self.socket, &Question::Status) {
            Ok(Answer::Status(status)) => status.mode == "enforcing",
            _ => false,
        }
    }

    /// Whether it has the thread that kills: as long as it enforces, and it may once its socket is closed.
    fn has_guard(&self) -> bool {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid));
        let mut tasks = tasks.into_iter().flatten().flatten();
        tasks.any(|task| {
            let name = fs::read_to_string(task.path().join("comm"));
            name.is_ok_and(|name| name.trim() == "brink-guard")
        })
    }

    /// Whether the lock of whoever enforces is its own, by the kernel's word.
    fn holds(&self, lock: &Path) -> bool {
        holder_of(Path::new("/"), lock).is_ok_and(|holder| holder == Some(self.pid))
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

    let [first_of, next_of] = [&first, &next].map(|pod| Process::of(&installed, pod));
    let lock = installed.lock();
    let before = [&first_of, &next_of].map(|one| (one.enforces(), one.holds(&lock)));
    assert_eq!(before, [(true, true), (false, false)], "before the change");
    assert!(first_of.has_guard() && next_of.has_guard());
    // The next is asked first: whatever the one before still has after that, it had when the next said that it enforces. Its guard is the
    // last of it that could, and ends after its socket is closed and before the lock is let go.
    let (one, other) = (next_of.clone(), first_of.clone());
    let both = Never::begin(move || one.enforces() && (other.has_guard() || !one.holds(&lock)));
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
    let Ok(Answer::Decisions(records)) = ask(&next_of.socket, &Question::Decisions) else {
        panic!("{}", told());
    };
    let carried_out = records.iter().filter(|record| record.mode == "enforcing");
    let victims: Vec<&str> = carried_out.map(|record| &*record.victim.uid).collect();
    assert_eq!(victims, [&*waiting.uid], "{records:#?}");
    let is_gone = || installed.pods().len() == 1;
    assert!(holds_in_time(is_gone), "{}", installed.described());
    assert!(!both.has_held(), "two enforce: {}", installed.described());
    assert!(next_of.enforces() && next_of.holds(&installed.lock()));
    // While it has the rights to take back what it has said of the node.
    installed.end_set(NEXT);
}
