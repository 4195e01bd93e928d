//! What is watched over: the cgroups that would be workloads now, and the pods that manifests describe.

use std::path::Path;
use std::time::Duration;

use brink_core::node::threshold::Threshold;
use brink_core::node::workload::Workload;
use brink_host::cgroup::{CgroupDir, Controller, Layout};

use super::oom_scores::Audit;
use super::source::{Known, known};
use crate::backend::build::Scan;
use crate::config::document::{Limits, Node, Origins, Reader, Value};
use crate::config::finding::Report;
use crate::config::{AgentConfig, drop_ins, read_documents};
use crate::equip::builder;
use crate::guard::disks::Role;
use crate::guard::roster::Roster;
use crate::guard::storage::DiskUsage;
use crate::pod::{Manifest, Reading, read_folder, read_pod};
use crate::storage::once;

/// What is watched over.
#[derive(Debug)]
pub struct Workloads {
    /// What the agent would watch over now.
    pub bound: Known<Vec<Bound>>,
    /// Cgroups that could not be opened.
    pub troubles: Vec<String>,
    /// Annotations of pods that count for nothing, and why.
    pub unheard: Vec<String>,
    /// Their `oom_score_adj`.
    pub oom_scores: Known<Audit>,
    /// The folder of manifests; none where it is not configured.
    pub manifests: Option<Known<Manifests>>,
    /// Pods that a `DaemonSet` made, of the folder and of the API; none where neither tells of pods.
    pub daemons: Option<Vec<Daemon>>,
}

/// A workload the agent would watch over.
#[derive(Clone, Debug)]
pub struct Bound {
    /// The workload.
    pub workload: Workload,
    /// Whether anything runs in it.
    pub runs: bool,
    /// What it holds now, bytes; none where that cannot be read.
    pub working_set: Option<u64>,
    /// Its tasks; none where they are not counted.
    pub tasks: Option<u64>,
    /// What it uses of disks; none where nothing here asks for that, or it could not be measured.
    pub disk: Option<DiskUsage>,
}

/// For measuring what all of them use of disks.
const MEASURED: Duration = Duration::from_secs(5);

/// A folder of manifests.
#[derive(Debug, Default)]
pub struct Manifests {
    /// Pods that were read.
    pub pods: usize,
    /// What is doubtful, one sentence each.
    pub doubts: Vec<String>,
    /// What is wrong, one sentence each; none of those files' pods is known.
    pub faults: Vec<String>,
}

/// A pod that a `DaemonSet` made: evicted, it is made again at once on the same node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Daemon {
    /// `namespace/name` of the pod.
    pub pod: String,
    /// The `DaemonSet`'s name.
    pub owner: String,
    /// Its priority; none where it is not set, which ranks as 0.
    pub priority: Option<i32>,
    /// Whether its priority keeps it from being evicted.
    pub is_kept: bool,
}

impl Workloads {
    /// Looks at what is there; `pods` are those of the API, if it was asked and has answered.
    pub fn read(config: &AgentConfig, layout: &Known<Layout>, pods: Option<Vec<Manifest>>) -> Self {
        let folder = config.workloads.manifests.as_deref();
        let of_the_api = pods
            .as_deref()
            .map(|pods| pods.iter().filter_map(daemon_of));
        let mut daemons: Option<Vec<Daemon>> = of_the_api.map(Iterator::collect);
        let mut pods = pods.unwrap_or_default();
        let manifests = folder.map(|folder| {
            let (written, owned, manifests) = read_manifests(folder)?;
            pods.extend(written);
            daemons.get_or_insert_default().extend(owned);
            Ok(manifests)
        });
        let built = layout
            .as_ref()
            .map_err(Clone::clone)
            .and_then(|layout| known(builder(config, layout).build(&pods, Scan::All)));
        let oom_scores = built.as_ref().map_err(Clone::clone).map(|built| {
            let scores = config.workloads.oom_scores;
            Audit::read(&config.paths.root, scores, &built.roster.scores)
        });
        let (bound, troubles, unheard) = match built {
            Ok(built) => {
                let used = used(config, &built.roster);
                let bound = bound(&built.roster, layout, &used);
                (Ok(bound), built.troubles, built.remarks)
            }
            Err(why) => (Err(why), Vec::new(), Vec::new()),
        };
        Self {
            bound,
            troubles,
            unheard,
            oom_scores,
            manifests,
            daemons,
        }
    }
}

impl Workloads {
    /// What all hold together that may be evicted; none where that is not known of one of them.
    pub fn evictable(&self, held: impl Fn(&Bound) -> Option<u64>) -> Option<i64> {
        let all = self.bound.as_ref().ok()?.iter();
        let mut open = all.filter(|one| {
            one.runs && one.workload.is_candidate() && one.workload.spared().is_none()
        });
        let sum = open.try_fold(0_u64, |sum, one| Some(sum.saturating_add(held(one)?)));
        i64::try_from(sum?).ok()
    }
}

/// What workloads use of disks, where a minimum reclaim on one asks for it; shorter than they are where nobody does.
fn used(config: &AgentConfig, roster: &Roster) -> Vec<Option<DiskUsage>> {
    let asks = |one: &Threshold| Role::of(one.signal).is_some() && one.min_reclaim.is_some();
    if !config.policy.thresholds().iter().any(asks) {
        return Vec::new();
    }
    let workloads = roster.table.workloads().iter().cloned();
    let all = workloads.zip(roster.owned.iter().cloned()).collect();
    once::measured(config, all, MEASURED).unwrap_or_default()
}

fn bound(roster: &Roster, layout: &Known<Layout>, used: &[Option<DiskUsage>]) -> Vec<Bound> {
    let ids = layout.as_ref().ok();
    let ids = ids.and_then(|layout| layout.hierarchy(Controller::Pids));
    let tasks = |index: usize| {
        let mut groups = roster.of(index);
        groups.try_fold(0_u64, |sum, (_, group)| {
            let dir = CgroupDir::open(ids?, group.paths.first()?).ok()?;
            Some(sum.saturating_add(dir.tasks().ok()?))
        })
    };
    let runs = |index: usize| {
        let mut groups = roster.of(index);
        groups.any(|(_, group)| !group.is_empty())
    };
    let working_set = |index: usize| {
        let mut groups = roster.of(index);
        groups.try_fold(0_u64, |sum, (_, group)| {
            let usage = group.usage.read().ok()?;
            let inactive = group.stat.inactive_file().ok()?;
            Some(sum.saturating_add(usage.saturating_sub(inactive)))
        })
    };
    let all = roster.table.workloads().iter().enumerate();
    all.map(|(index, workload)| Bound {
        workload: workload.clone(),
        runs: runs(index),
        working_set: working_set(index),
        tasks: tasks(index),
        disk: used.get(index).copied().flatten(),
    })
    .collect()
}

fn read_manifests(folder: &Path) -> Known<(Vec<Manifest>, Vec<Daemon>, Manifests)> {
    let failed = |error| format!("{}: {error}", folder.display());
    let read = read_folder(folder).map_err(failed)?;
    let manifests = Manifests {
        pods: read.pods.len(),
        doubts: read.warnings.iter().map(ToString::to_string).collect(),
        faults: read.faults.iter().map(ToString::to_string).collect(),
    };
    let mut owned = Vec::new();
    for path in drop_ins(folder, &["yaml", "yml", "json"]).map_err(failed)? {
        owned.extend(daemons(&path));
    }
    Ok((read.pods, owned, manifests))
}

/// The pod, if a `DaemonSet` manages it.
fn daemon_of(pod: &Manifest) -> Option<Daemon> {
    let owner = pod.owner.as_deref()?.strip_prefix("DaemonSet/")?;
    let workload = &pod.workload;
    Some(Daemon {
        pod: format!("{}/{}", workload.namespace, workload.name),
        owner: owner.to_owned(),
        priority: workload.priority,
        is_kept: workload.is_critical(),
    })
}

/// The pods of a file that a `DaemonSet` owns. What is wrong with the file has been told already.
fn daemons(path: &Path) -> Vec<Daemon> {
    let (mut origins, mut told_already) = (Origins::default(), Report::default());
    let documents = read_documents(path, Limits::WRITTEN, &mut origins, &mut told_already);
    let mut found = Vec::new();
    for document in &documents {
        let mut reader = Reader::new(document, &origins, &mut told_already);
        for_each_pod(document, &mut |pod| found.extend(daemon(&mut reader, pod)));
    }
    found
}

fn for_each_pod<'a>(node: &'a Node, see: &mut impl FnMut(&'a Node)) {
    match node.get("kind").and_then(Node::scalar) {
        Some("List" | "PodList") => {
            for item in node.get("items").map_or(&[][..], items) {
                for_each_pod(item, see);
            }
        }
        Some("Pod") | None => see(node),
        Some(_) => {}
    }
}

fn items(node: &Node) -> &[Node] {
    match &node.value {
        Value::List(items) => items,
        _ => &[],
    }
}

fn daemon<'a>(reader: &mut Reader<'a>, pod: &'a Node) -> Option<Daemon> {
    let owners = items(pod.get("metadata")?.get("ownerReferences")?);
    let text = |node: &'a Node, key: &str| node.get(key).and_then(Node::scalar);
    let owner = owners
        .iter()
        .find(|owner| text(owner, "kind") == Some("DaemonSet"))?;
    let workload = read_pod(reader, pod, Reading::AsAdmitted)?.workload;
    Some(Daemon {
        pod: format!("{}/{}", workload.namespace, workload.name),
        owner: text(owner, "name").unwrap_or("of no name").to_owned(),
        priority: workload.priority,
        is_kept: workload.is_critical(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(String, String, Option<i32>, bool)> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pods.yaml");
        std::fs::write(&path, text).unwrap();
        daemons(&path)
            .into_iter()
            .map(|daemon| (daemon.pod, daemon.owner, daemon.priority, daemon.is_kept))
            .collect()
    }

    #[test]
    fn pods_of_daemon_sets_are_found_by_their_owner() {
        let owned = |name: &str, kind: &str, spec: &str| {
            format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: ops, ownerReferences: \
                 [{{kind: {kind}, name: agent}}]}}\nspec: {{{spec}, containers: [{{name: c}}]}}\n---\n"
            )
        };
        let text = [
            owned("a", "DaemonSet", "priority: 7"),
            owned("b", "DaemonSet", "priorityClassName: system-node-critical"),
            owned("c", "ReplicaSet", "priority: 1"),
        ]
        .concat();
        assert_eq!(
            found(&text),
            [
                ("ops/a".to_owned(), "agent".to_owned(), Some(7), false),
                (
                    "ops/b".to_owned(),
                    "agent".to_owned(),
                    Some(2_000_001_000),
                    true
                ),
            ]
        );
    }

    #[test]
    fn a_pod_of_the_api_is_found_by_who_manages_it() {
        let pod = |owner: Option<&str>, priority| Manifest {
            workload: Workload {
                namespace: "ops".to_owned(),
                name: "a".to_owned(),
                priority,
                ..Workload::default()
            },
            cgroup: None,
            owner: owner.map(str::to_owned),
            container_ids: Vec::new(),
            is_observed: true,
            files: crate::pod::PodFiles::default(),
            wish: None,
            site: crate::config::document::Site::whole(Origins::DEFAULT),
        };
        let found = |owner, priority| {
            let daemon = daemon_of(&pod(owner, priority))?;
            Some((daemon.owner, daemon.is_kept))
        };
        let net = Some("DaemonSet/net");
        assert_eq!(found(net, Some(5)), Some(("net".to_owned(), false)));
        assert_eq!(
            found(net, Some(2_000_001_000)),
            Some(("net".to_owned(), true))
        );
        assert_eq!(found(Some("ReplicaSet/net"), None), None);
        assert_eq!(found(None, None), None);
    }

    #[test]
    fn lists_are_opened_and_broken_files_have_none() {
        let list = "kind: List\nitems:\n- kind: Pod\n  metadata: {name: a, ownerReferences: [{kind: DaemonSet}]}\n  \
                    spec: {containers: [{name: c}]}\n- kind: Service\n  metadata: {name: s}\n";
        assert_eq!(
            found(list),
            [("default/a".to_owned(), "of no name".to_owned(), None, false)]
        );
        assert_eq!(found("metadata: [\n"), []);
        assert_eq!(found("- 1\n- 2\n"), []);
    }
}
