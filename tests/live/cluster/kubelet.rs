//! The kubelet of `cargo xtask cluster`, given another threshold; and it or the API server, held where it stands for a while.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brink_host::meminfo::MeminfoReader;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::{FOLDER, holds_in_time, pods_group};

/// In the cluster's folder, the configuration.
const CONFIG: &str = "node/kubelet.yaml";
/// In the group of all pods, what they may take.
const LIMIT: &str = "memory.limit_in_bytes";

/// After so long a shortage it evicts: by then it has figures of every pod.
pub(crate) const GRACE: Duration = Duration::from_secs(40);

/// A kubelet that evicts; with this it goes back to what it was.
pub(crate) struct Evicting {
    before: String,
    /// What all pods together could take before, where that is less now.
    limit: Option<u64>,
}

impl Evicting {
    /// One that is short of memory for as long as this lives, as it sees it: no node has so much available.
    pub(crate) fn everything() -> Self {
        let grace = format!("{}s", GRACE.as_secs());
        Self::with(&[
            ("evictionSoft", json!({ "memory.available": "100Ti" })),
            (
                "evictionSoftGracePeriod",
                json!({ "memory.available": grace }),
            ),
            ("evictionMaxPodGracePeriod", json!(1)),
        ])
    }

    /// One that evicts at once with less than so many bytes available, and forgets it soon.
    pub(crate) fn below(bytes: u64) -> Self {
        let bytes = bytes.to_string();
        Self::with(&[
            ("evictionHard", json!({ "memory.available": bytes })),
            ("evictionPressureTransitionPeriod", json!("1s")),
        ])
    }

    /// The same on a node of so many bytes for all pods together, since the rest is reserved: the pods alone can make it short of
    /// memory, whatever else takes some on this machine.
    pub(crate) fn on_a_node_of(room: u64, bytes: u64) -> Self {
        let meminfo = MeminfoReader::open(Path::new("/")).unwrap();
        let total = meminfo.read().unwrap().total;
        let reserved = (total - room).to_string();
        let mut evicting = Self::with(&[
            ("kubeReserved", json!({ "memory": reserved })),
            (
                "evictionHard",
                json!({ "memory.available": bytes.to_string() }),
            ),
            ("evictionPressureTransitionPeriod", json!("1s")),
        ]);
        evicting.limit = Some(total);
        let is_in_force = || pods_limit() == room;
        assert!(
            holds_in_time(is_in_force),
            "all pods may take {} and not {room}",
            pods_limit()
        );
        evicting
    }

    fn with(settings: &[(&str, Value)]) -> Self {
        // A test that was killed in the middle has left it as it made it.
        let kept = config().with_extension("before");
        if !kept.exists() {
            fs::copy(config(), &kept).unwrap();
        }
        let before = fs::read_to_string(kept).unwrap();
        let mut changed: Value = serde_json::from_str(&before).unwrap();
        for (name, value) in settings {
            changed[name] = value.clone();
        }
        let evicting = Self {
            before,
            limit: None,
        };
        restart_with(&format!("{changed:#}\n"));
        evicting
    }
}

impl Drop for Evicting {
    fn drop(&mut self) {
        // Nothing here may fail: the test may have failed already. One between two lives reads the file when it starts.
        let _told_by_the_next_test = fs::write(config(), &self.before);
        if let Some(limit) = self.limit {
            // As the next kubelet does when it starts: nobody has to wait for that.
            let _done_by_the_kubelet = fs::write(pods_group().join(LIMIT), limit.to_string());
        }
        if let Some(pid) = kubelet() {
            let _ended_already = kill_process(pid, Signal::TERM);
        }
    }
}

/// A part of the cluster that stands still. With this it goes on.
pub(crate) struct Held(Pid);

impl Held {
    /// A kubelet that looks at nothing, starts nothing and writes nothing.
    pub(crate) fn kubelet() -> Self {
        Self::hold("kubelet", kubelet)
    }

    /// An API server that answers nobody. The kernel takes connections for it all the same, and keeps what is sent to it.
    pub(crate) fn api_server() -> Self {
        Self::hold("API server", api_server)
    }

    fn hold(what: &str, find: impl Fn() -> Option<Pid>) -> Self {
        assert!(
            holds_in_time(|| find().is_some()),
            "no {what} of the cluster's own"
        );
        let held = Self(find().unwrap());
        kill_process(held.0, Signal::STOP).unwrap();
        assert!(holds_in_time(|| held.stands_still()), "the {what} goes on");
        held
    }

    fn stands_still(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.as_raw_nonzero()));
        stat.is_ok_and(|stat| stat.contains(") T "))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ended_already = kill_process(self.0, Signal::CONT);
    }
}

/// Has those go on that a test held when it was killed in the middle; for any other that is nothing.
pub(crate) fn go_on() {
    for pid in [kubelet(), api_server()].into_iter().flatten() {
        let _ended_already = kill_process(pid, Signal::CONT);
    }
}

fn config() -> PathBuf {
    Path::new(FOLDER).join(CONFIG)
}

/// Whether anything of the cluster of this machine runs.
pub(crate) fn is_any_running() -> bool {
    kubelet().or_else(api_server).is_some()
}

/// Ends it with SIGTERM; what keeps it running starts the next one, with this configuration.
fn restart_with(text: &str) {
    fs::write(config(), text).unwrap();
    assert!(
        holds_in_time(|| kubelet().is_some()),
        "no kubelet of the cluster's own"
    );
    let before = kubelet().unwrap();
    kill_process(before, Signal::TERM).unwrap();
    let is_another = || kubelet().is_some_and(|pid| pid != before);
    assert!(holds_in_time(is_another), "no kubelet was started again");
}

/// What all pods together may take, in bytes.
pub(crate) fn pods_limit() -> u64 {
    let limit = fs::read_to_string(pods_group().join(LIMIT)).unwrap();
    limit.trim().parse().unwrap()
}

/// What the kubelet has mounted of a pod, line by line as the kernel tells it; nothing is known while there is no kubelet.
pub(crate) fn mounts_of(uid: &str) -> Option<Vec<String>> {
    let pid = kubelet()?.as_raw_nonzero();
    let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).ok()?;
    let own = mounts.lines().filter(|line| line.contains(uid));
    Some(own.map(str::to_owned).collect())
}

/// Waits until the kubelet has unmounted all volumes of a pod.
#[track_caller]
pub(crate) fn wait_unmounted(uid: &str) {
    let is_none_left = || mounts_of(uid).is_some_and(|mounts| mounts.is_empty());
    assert!(
        holds_in_time(is_none_left),
        "volumes of pod {uid} stay mounted: {:#?}",
        mounts_of(uid)
    );
}

/// The process that has our configuration.
fn kubelet() -> Option<Pid> {
    running("/kubelet", &format!("--config={}", config().display()))
}

/// The process that has our authority.
fn api_server() -> Option<Pid> {
    let authority = Path::new(FOLDER).join("pki/ca.crt");
    let option = format!("--client-ca-file={}", authority.display());
    running("/kube-apiserver", &option)
}

/// The process of a program that has this option, and not the shell that starts it.
fn running(program: &str, option: &str) -> Option<Pid> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let pid = pids.find(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        let is_it = words
            .next()
            .is_some_and(|first| first.ends_with(program.as_bytes()));
        is_it && words.any(|word| word == option.as_bytes())
    })?;
    Pid::from_raw(pid)
}
