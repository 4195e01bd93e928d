//! Pods that wait, and once they are told to take memory of one kind or another: for good, or for a moment.

use std::fs;
use std::iter::once;
use std::path::PathBuf;
use std::time::Duration;

use brink_host::hog::{HogSpec, Load};
use serde_json::{Value, json};

use crate::kubelet::wait_unmounted;
use crate::manifest::{GO, waiting};
use crate::running::Agent;
use crate::support::{
    Cluster, Pod, available, groups_beside, has_shim, holds_in_time, id_of, write_inside,
};
use crate::{groups_of, wait_running};

pub(crate) const MIB: u64 = 1 << 20;
/// Whether this kernel has huge pages to give.
const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
/// The program that takes memory, as a container has it.
const HOG: &str = "/hog";
/// What a container has from this machine, by name: that program, and the libraries it is put together from. Its image is a busybox
/// and nothing else.
const FROM_HERE: [(&str, &str, &str); 3] = [
    ("hog", env!("CARGO_BIN_EXE_brink-hog"), HOG),
    ("lib", "/lib", "/lib"),
    ("lib64", "/lib64", "/lib64"),
];
/// With less memory than this on the machine it gives everything back, and after so long.
const FLOOR: u64 = 256 * MIB;
const LASTING: Duration = Duration::from_mins(5);
/// How long a spike lasts, which is much less than the time between two polls of a kubelet.
pub(crate) const SPIKE: Duration = Duration::from_secs(2);
/// A file in the pod's volume in memory.
const FILE: &str = "/m/taken";
/// All but so much must be available again before the next pod takes something.
const SLACK: u64 = 60 * MIB;

/// The kinds of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Anonymous memory in 4K pages.
    Small,
    /// The same in huge pages.
    Huge,
    /// The same in 4K pages, half of it in each of two containers.
    Containers,
    /// A file in a volume in memory, which outlives its writer.
    Volume,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Small, Self::Huge, Self::Containers, Self::Volume];

    /// Those that can be had on this machine.
    pub(crate) fn here() -> Vec<Self> {
        let mut kinds = Self::ALL.to_vec();
        let given = fs::read_to_string(HUGE_PAGES).unwrap_or_default();
        if given.is_empty() || given.contains("[never]") {
            println!("no huge pages on this machine: {HUGE_PAGES} says {given:?}");
            kinds.retain(|kind| *kind != Self::Huge);
        }
        kinds
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Small => "anonymous, 4K",
            Self::Huge => "anonymous, huge pages",
            Self::Containers => "two containers",
            Self::Volume => "volume in memory",
        }
    }

    pub(crate) fn is_anonymous(self) -> bool {
        self != Self::Volume
    }

    /// What each container of its pod does to take so many bytes in all.
    fn for_good(self, bytes: u64) -> Vec<String> {
        let take = |load: Load, bytes: u64| format!("exec {}", hog(load, bytes, LASTING));
        match self {
            Self::Small => vec![take(Load::Anon, bytes)],
            Self::Huge => vec![take(Load::AnonHuge, bytes)],
            Self::Containers => vec![take(Load::Anon, bytes / 2); 2],
            Self::Volume => vec![format!("{}; sleep 3600", write(bytes))],
        }
    }

    /// The same for a moment, over and over, each time it is told to. Of two containers the first would take the word away from the
    /// second: there is one.
    fn for_a_moment(self, bytes: u64) -> String {
        let taking = match self {
            Self::Small | Self::Containers => hog(Load::Anon, bytes, SPIKE),
            Self::Huge => hog(Load::AnonHuge, bytes, SPIKE),
            Self::Volume => format!("{}; sleep {}; rm {FILE}", write(bytes), SPIKE.as_secs()),
        };
        format!("while :; do rm {GO}; {taking}; until [ -e {GO} ]; do sleep 0.1; done; done")
    }
}

/// The command of a process that takes so many bytes at full speed, and keeps them for so long.
fn hog(load: Load, bytes: u64, time: Duration) -> String {
    let mut spec = HogSpec::new(load, bytes, time);
    spec.floor = FLOOR;
    let arguments = spec.to_args().into_iter();
    let arguments = arguments.map(|argument| argument.into_string().unwrap());
    let words: Vec<String> = once(HOG.to_owned()).chain(arguments).collect();
    words.join(" ")
}

/// The command that writes so many bytes into the volume.
fn write(bytes: u64) -> String {
    format!("dd if=/dev/zero of={FILE} bs=1M count={}", bytes / MIB)
}

/// A pod that takes so many bytes for good as soon as it is told to, also when it is started again.
pub(crate) fn leaker(name: &str, label: &str, kind: Kind, bytes: u64) -> Value {
    let scripts = kind.for_good(bytes);
    let scripts: Vec<&str> = scripts.iter().map(String::as_str).collect();
    pod(name, label, &scripts)
}

/// A pod of one container that takes so many bytes for a moment, each time it is told to.
pub(crate) fn spiker(name: &str, label: &str, kind: Kind, bytes: u64) -> Value {
    pod(name, label, &[&kind.for_a_moment(bytes)])
}

fn pod(name: &str, label: &str, scripts: &[&str]) -> Value {
    let resources = json!({ "limits": { "memory": "400Mi" }, "requests": { "memory": "8Mi" } });
    let mut pod = waiting(name, scripts, &resources);
    pod["metadata"]["labels"] = json!({ "brink-test": label });
    let spec = &mut pod["spec"];
    // A kubelet that has just evicted somebody has the node shunned for a while.
    spec["tolerations"] =
        json!([{ "key": "node.kubernetes.io/memory-pressure", "operator": "Exists" }]);
    for (name, from, to) in FROM_HERE {
        let volume = json!({ "name": name, "hostPath": { "path": from } });
        spec["volumes"].as_array_mut().unwrap().push(volume);
        for container in spec["containers"].as_array_mut().unwrap() {
            let mount = json!({ "name": name, "mountPath": to, "readOnly": true });
            let mounts = container["volumeMounts"].as_array_mut().unwrap();
            mounts.push(mount);
        }
    }
    pod
}

/// A pod that runs, and waits until it is told to take something.
pub(crate) struct Waiting<'a> {
    pub(crate) pod: Pod<'a>,
    pub(crate) kind: Kind,
    pub(crate) uid: String,
    /// Of its containers.
    pub(crate) groups: Vec<PathBuf>,
    /// Of its sandbox, and of all its containers but the first.
    beside: Vec<PathBuf>,
}

impl<'a> Waiting<'a> {
    /// Starts pods of these manifests together, and waits until all of them run.
    pub(crate) fn start(
        cluster: &'a Cluster,
        manifests: impl IntoIterator<Item = (Kind, Value)>,
    ) -> Vec<Self> {
        let manifests = manifests.into_iter();
        let made = manifests.map(|(kind, manifest)| (kind, cluster.pod(&manifest)));
        let made: Vec<(Kind, Pod<'a>)> = made.collect();
        let running = made.into_iter().map(|(kind, pod)| Self::running(kind, pod));
        running.collect()
    }

    fn running(kind: Kind, pod: Pod<'a>) -> Self {
        let found = wait_running(&pod);
        let groups = groups_of(&found);
        Self {
            uid: found["metadata"]["uid"].as_str().unwrap().to_owned(),
            beside: groups_beside(&groups[0]),
            groups,
            kind,
            pod,
        }
    }

    /// Tells it to.
    pub(crate) fn begin(&self) {
        write_inside(&self.groups[0], GO, "go");
    }

    /// Waits until the kubelet has taken it apart: groups, shims and volumes.
    pub(crate) fn wait_until_apart(&self) {
        let first = &self.groups[0];
        let is_gone = || !first.exists() && groups_beside(first).is_empty();
        assert!(
            holds_in_time(is_gone),
            "the groups of {} stay",
            self.pod.name
        );
        for group in &self.beside {
            assert!(
                holds_in_time(|| !has_shim(id_of(group))),
                "the shim of {} stays",
                group.display()
            );
        }
        wait_unmounted(&self.uid);
    }
}

/// Waits until as much is available as was before, but for what pods take that only wait.
pub(crate) fn wait_for_room(before: u64, agent: &Agent) {
    let has_room = || available() + SLACK >= before;
    assert!(
        holds_in_time(has_room),
        "memory does not come back\n{}",
        agent.log()
    );
}
