//! Pods as a kubelet makes them, whose containers write into layers, logs and an emptyDir, and who of them has ended.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brink::control::protocol::{DiskView, Status};
use brink_cri::client::Client;
use brink_cri::state::Standing;
use tokio::task::JoinSet;

use super::containerd::{Containerd, SANDBOX};
use super::pods::{Pod, ended};
use super::told;
use crate::support::Node;

/// Bytes in a kibibyte.
pub(super) const KIB: u64 = 1 << 10;
/// The words in which it is said what a container does: it writes so many KiB into a file or into its log, and waits to be let.
const WORDS: &str = "file() { dd if=/dev/zero of=$1 bs=1K count=$2; }
log() { dd if=/dev/zero bs=1K count=$1; }
until_let() { until [ -e /scratch/go ]; do sleep 0.1; done; }
";

/// A pod as a kubelet makes one, with an emptyDir without a limit.
pub(super) struct Plan {
    pub(super) name: &'static str,
    pub(super) uid: &'static str,
    pub(super) containers: &'static [Part],
    /// What its layers, logs and volumes hold at least before it is let, in KiB.
    pub(super) at_first: [u64; 3],
}

/// A container of such a pod.
pub(super) struct Part {
    pub(super) name: &'static str,
    /// What it may use of local storage; nothing is said where it is none.
    pub(super) limit: Option<&'static str>,
    /// What it does before it rests.
    pub(super) does: &'static str,
}

impl Plan {
    /// Where a kubelet with its files on this disk has the pod's.
    fn home(&self, disk: &Path) -> PathBuf {
        disk.join("kubelet/pods").join(self.uid)
    }

    /// Its emptyDir there.
    pub(super) fn scratch(&self, disk: &Path) -> PathBuf {
        let volumes = self.home(disk).join("volumes");
        volumes.join("kubernetes.io~empty-dir/scratch")
    }

    /// Makes it in the node that is this group, and tells the ids of its containers.
    async fn make(&self, client: &Client, group: &str, disk: &Path) -> Vec<String> {
        let scratch = self.scratch(disk);
        fs::create_dir_all(&scratch).unwrap();
        let hosts = self.home(disk).join("etc-hosts");
        fs::write(hosts, "127.0.0.1 localhost\n").unwrap();
        let logs = disk.join(format!("logs/test_{}_{}", self.name, self.uid));
        let parent = format!("{group}/kubepods/burstable/pod{}", self.uid);
        let pod = Pod::make_logging(client, (self.name, self.uid), &parent, &logs).await;
        let pod = pod.expect("a pod");
        let mut ids = Vec::new();
        for part in self.containers {
            fs::create_dir_all(logs.join(part.name)).unwrap();
            let script = format!("{WORDS}{}\nexec /busybox sleep 3600", part.does);
            let command = ["/busybox", "sh", "-c", script.as_str()];
            let of = (SANDBOX, &command[..]);
            let volume = (scratch.as_path(), "/scratch");
            let started = pod.run_logging(client, part.name, of, volume).await;
            ids.push(started.expect("a container"));
        }
        ids
    }

    /// As the API has it, with these containers.
    fn manifest(&self, ids: &[String]) -> String {
        let (mut containers, mut statuses) = (Vec::new(), Vec::new());
        for (part, id) in self.containers.iter().zip(ids) {
            let limits = part.limit.map_or_else(String::new, |limit| {
                format!(", resources: {{limits: {{ephemeral-storage: {limit}}}}}")
            });
            containers.push(format!("{{name: {}{limits}}}", part.name));
            let name = part.name;
            statuses.push(format!(
                "{{name: {name}, containerID: 'containerd://{id}'}}"
            ));
        }
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {}, namespace: test, uid: {}}}, \
             spec: {{containers: [{}], volumes: [{{name: scratch, emptyDir: {{}}}}]}}, \
             status: {{phase: Running, containerStatuses: [{}]}}}}\n",
            self.name,
            self.uid,
            containers.join(", "),
            statuses.join(", ")
        )
    }

    /// What an agent knows of its files.
    pub(super) fn view<'a>(&self, status: &'a Status) -> Option<&'a DiskView> {
        let mut workloads = status.storage.as_ref()?.workloads.iter();
        let name = format!("test/{}", self.name);
        workloads.find(|one| one.workload == name)
    }

    /// Whether an agent knows of all that it writes before it is let.
    fn is_known(&self, status: &Status) -> bool {
        self.view(status).is_some_and(|view| {
            let seen = [view.rootfs_bytes, view.logs_bytes, view.volumes_bytes];
            let mut parts = seen.into_iter().zip(self.at_first);
            parts.all(|(seen, least)| seen.unwrap_or(0) >= least * KIB)
        })
    }
}

/// The lines of an agent's configuration by which it finds their files on this disk, and looks often.
pub(super) fn storage(disk: &Path) -> String {
    let disk = disk.display();
    format!(
        "storage: {{volumeStatsAggPeriod: 1s, rootDir: \"{disk}/kubelet\", podLogsDir: \"{disk}/logs\"}}"
    )
}

/// Such pods in a containerd, each with the ids of its containers.
pub(super) struct Writers(Vec<(&'static Plan, Vec<String>)>);

impl Writers {
    /// Makes these, with a kubelet's files on this disk.
    pub(super) fn make(containerd: &Containerd, disk: &Path, plans: &[&'static Plan]) -> Self {
        let group = containerd.group();
        Self(told(async {
            let client = Arc::new(containerd.connect().await.expect("an answer"));
            let mut making = JoinSet::new();
            for &plan in plans {
                let client = Arc::clone(&client);
                let (group, disk) = (group.clone(), disk.to_path_buf());
                making.spawn(async move { (plan, plan.make(&client, &group, &disk).await) });
            }
            making.join_all().await
        }))
    }

    /// Gives an agent their manifests.
    pub(super) fn tell(&self, node: &Node) {
        for (plan, ids) in &self.0 {
            let file = node.path("manifests").join(format!("{}.yaml", plan.name));
            fs::write(file, plan.manifest(ids)).unwrap();
        }
    }

    /// Whether an agent knows of all that they write before they are let.
    pub(super) fn are_known(&self, status: &Status) -> bool {
        self.0.iter().all(|(plan, _)| plan.is_known(status))
    }

    /// All containers of these pods end; those of all others run, and so does what every pod is kept by.
    #[track_caller]
    pub(super) fn have_ended(&self, plans: &[&Plan], (containerd, node): (&Containerd, &Node)) {
        let is_gone = |one: &Plan| plans.iter().any(|gone| gone.uid == one.uid);
        let of_gone = self.0.iter().filter(|(plan, _)| is_gone(plan));
        let gone: Vec<&String> = of_gone.flat_map(|(_, ids)| ids).collect();
        let state = told(async {
            let client = containerd.connect_again().await;
            ended(&client, &gone).await
        });
        let all: usize = self.0.iter().map(|(_, ids)| ids.len()).sum();
        assert_eq!(state.containers.len(), all, "{state:#?}");
        for one in &state.containers {
            let expected = if gone.contains(&&one.id) {
                Standing::Exited
            } else {
                Standing::Running
            };
            assert_eq!(one.standing, expected, "{one:?}\n{}", node.log());
        }
        let are_kept = state.sandboxes.iter().all(|sandbox| sandbox.is_ready);
        assert!(are_kept, "{:#?}\n{}", state.sandboxes, node.log());
    }
}
