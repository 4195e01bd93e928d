//! The pods of the API as a source of rosters, and their last state as a file.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use brink_core::node::workload::{self, Workload};
use brink_kube::pods::kept::{self, Kept, LARGEST};
use brink_kube::pods::{LARGEST_POD, MOST_PODS, Pod, Pods};
use jiff::Timestamp;
use tracing::{info, warn};

use super::KNOWN_PODS;
use crate::backend::source::PodSource;
use crate::config::document::{Limits, Origin, Origins, Reader, parse};
use crate::config::finding::Report;
use crate::pod::{Manifest, Reading, read_pod};
use crate::runtime::kept as files;

/// The file is written so often at most.
const SELDOM: Duration = Duration::from_secs(10);
/// And so often at least while the server is reached: it says of when it is.
const OFTEN: Duration = Duration::from_mins(5);

/// Pods as the API has them.
pub(super) struct ClusterPods {
    pods: Arc<Pods>,
    node: String,
    file: PathBuf,
    /// What was read of each pod, by uid; as long as its JSON is the same piece of memory nobody has changed it.
    read: HashMap<Box<str>, Known>,
    /// The change up to which the file is written, and when it was.
    written: Option<(u64, Instant)>,
}

/// One pod as it was read.
struct Known {
    json: Arc<[u8]>,
    manifest: Option<Manifest>,
    troubles: Vec<String>,
}

impl ClusterPods {
    /// Begins with what the file in this folder says. What is wrong with it is told, and nothing is recalled.
    pub(super) fn recall(pods: Arc<Pods>, node: &str, folder: &Path) -> Self {
        let file = folder.join(KNOWN_PODS);
        match recalled(&file, node) {
            Ok(None) => {}
            Ok(Some(Kept { as_of, pods: known })) => {
                info!(pods = known.len(), %as_of, "the pods of the last run are known");
                pods.recall(known, as_of);
            }
            Err(error) => {
                warn!(%error, path = %file.display(), "the pods of the last run are not known");
            }
        }
        Self {
            pods,
            node: node.to_owned(),
            file,
            read: HashMap::new(),
            written: None,
        }
    }

    /// Writes the file if it is time; what is wrong is told.
    fn keep(&mut self, (changes, pods): (u64, &[Pod]), now: Instant) -> Option<String> {
        let standing = self.pods.standing(Timestamp::now());
        let as_of = standing.as_of?;
        let is_due = self.written.is_none_or(|(upto, at)| {
            let age = now.saturating_duration_since(at);
            (upto != changes && age >= SELDOM) || (standing.connected && age >= OFTEN)
        });
        if !is_due {
            return None;
        }
        self.written = Some((changes, now));
        let written = kept::write(&self.node, as_of, pods).map_err(io::Error::from);
        let written = written.and_then(|text| files::write_bytes(&self.file, &text));
        let error = written.err()?;
        let path = self.file.display();
        Some(format!(
            "{path}: {error}; a restart without the API would not know the pods"
        ))
    }
}

impl PodSource for ClusterPods {
    fn pods(&mut self) -> (Vec<Manifest>, Vec<String>) {
        let (changes, pods) = self.pods.snapshot();
        let mut before = std::mem::take(&mut self.read);
        let (mut manifests, mut troubles) = (Vec::with_capacity(pods.len()), Vec::new());
        let mut taken: HashSet<String> = pods.iter().map(|pod| pod.uid.to_string()).collect();
        for pod in &pods {
            let known = before
                .remove(&pod.uid)
                .filter(|known| Arc::ptr_eq(&known.json, &pod.json));
            let known = known.unwrap_or_else(|| read(pod));
            if let Some(manifest) = &known.manifest {
                match refusal(pod, &manifest.workload, &self.node, &mut taken) {
                    None => manifests.push(manifest.clone()),
                    Some(why) => troubles.push(why),
                }
            }
            troubles.extend(known.troubles.iter().cloned());
            self.read.insert(pod.uid.clone(), known);
        }
        let left_out = self.pods.standing(Timestamp::now()).left_out;
        if left_out > 0 {
            troubles.push(format!(
                "more than {MOST_PODS} pods on this node: {left_out} are not known"
            ));
        }
        troubles.extend(self.keep((changes, &pods), Instant::now()));
        (manifests, troubles)
    }

    fn close(&mut self) {
        let (changes, pods) = self.pods.snapshot();
        self.written = None;
        if let Some(trouble) = self.keep((changes, &pods), Instant::now()) {
            warn!(trouble, "the known pods are not kept");
        }
    }
}

fn recalled(file: &Path, node: &str) -> anyhow::Result<Option<Kept>> {
    let opened = match File::open(file) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut text = Vec::new();
    opened.take(LARGEST).read_to_end(&mut text)?;
    Ok(Some(kept::read(&text, node)?))
}

/// Why a pod is not the image of a static pod that it says it is. Whoever may make a pod may say so, with the uid of any
/// other: the control groups of that one would be taken for this one's. `taken` are the uids that are somebody's.
fn refusal(
    pod: &Pod,
    workload: &Workload,
    node: &str,
    taken: &mut HashSet<String>,
) -> Option<String> {
    if workload.uid == *pod.uid {
        return None;
    }
    // So the kubelet names them.
    let end = format!("-{}", node.to_lowercase());
    let why = if !workload.name.ends_with(&end) {
        format!("its name does not end in {end}")
    } else if !taken.insert(workload.uid.clone()) {
        "another pod has the uid that it names".to_owned()
    } else {
        return None;
    };
    let uid = &pod.uid;
    Some(format!(
        "pod {uid}: left out, as it is no image of a static pod: {why}"
    ))
}

/// A pod as a manifest; nothing if it is none.
pub(super) fn manifest_of(pod: &Pod) -> Option<Manifest> {
    read(pod).manifest
}

/// Reads a pod as a manifest is read.
fn read(pod: &Pod) -> Known {
    let (mut origins, mut report) = (Origins::default(), Report::default());
    let source = origins.add(Origin::File(format!("pod {}", pod.uid)));
    let mut troubles = Vec::new();
    if pod.is_stub {
        let (uid, most) = (&pod.uid, LARGEST_POD >> 10);
        troubles.push(format!(
            "pod {uid}: larger than {most} KiB; its requests and containers are not known"
        ));
    }
    let mut manifest = None;
    match parse(&pod.json, source, Limits::WRITTEN) {
        Ok(documents) => {
            if let Some(document) = documents.first() {
                let mut reader = Reader::new(document, &origins, &mut report);
                manifest = read_pod(&mut reader, document, Reading::AsAdmitted);
            }
        }
        Err(error) => troubles.push(format!("pod {}: {}", pod.uid, error.message)),
    }
    troubles.extend(report.faults.iter().map(ToString::to_string));
    if let Some(manifest) = &mut manifest {
        // Whoever may make a pod is not whoever may say which groups of this machine are killed for it.
        manifest.cgroup = None;
        // Nor which of its folders are walked.
        manifest.files.directories.clear();
        // Nor who may say that it is a static one, which is never killed. Of those the API has images, with uids of their own.
        if manifest.workload.uid == *pod.uid {
            manifest.workload.origin = workload::Origin::Api;
        }
    }
    Known {
        json: Arc::clone(&pod.json),
        manifest,
        troubles,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use brink_core::base::Reason;
    use brink_core::node::workload::QosClass;
    use brink_kube::watch::Change;

    use super::*;
    use crate::pod::Wish;

    fn pod(uid: &str, spec: &str) -> Pod {
        let cgroup = r#""brink.dev/cgroup":"/system.slice","kubernetes.io/config.source":"file""#;
        annotated("web", uid, cgroup, spec)
    }

    fn annotated(name: &str, uid: &str, annotations: &str, spec: &str) -> Pod {
        let text = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"shop","uid":"{uid}","resourceVersion":"7",
                "annotations":{{{annotations}}}}},
                "spec":{{{spec}}},"status":{{"phase":"Running","qosClass":"Burstable"}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn list(pods: &Arc<Pods>, found: &[Pod]) {
        pods.take(Change::Began, Timestamp::now());
        for pod in found {
            pods.take(Change::Found(pod.clone()), Timestamp::now());
        }
        pods.take(Change::Complete, Timestamp::now());
    }

    fn known(folder: &Path, node: &str) -> (Arc<Pods>, ClusterPods) {
        let pods = Arc::new(Pods::new(|| {}));
        let source = ClusterPods::recall(Arc::clone(&pods), node, folder);
        (pods, source)
    }

    #[test]
    fn a_pod_of_the_api_is_bound_by_its_uid_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (pods, mut source) = known(folder.path(), "node");
        let spec = r#""containers":[{"name":"c","resources":{"requests":{"memory":"1Gi"}}}]"#;
        list(&pods, &[pod("u1", spec), pod("u2", r#""priority":"high""#)]);
        let (manifests, troubles) = source.pods();
        let first = &manifests[0];
        assert!(
            first.cgroup.is_none(),
            "nobody names a group for a pod in the API"
        );
        assert_eq!(first.workload.refusal(), None, "nor calls it static");
        assert_eq!(
            (
                first.workload.namespace.as_str(),
                first.workload.name.as_str(),
                first.workload.uid.as_str()
            ),
            ("shop", "web", "u1")
        );
        assert_eq!(first.workload.reported_qos, Some(QosClass::Burstable));
        let requests = first.workload.containers[0].resources.requests;
        assert_eq!(requests.memory, Some("1Gi".parse().unwrap()));
        assert_eq!(manifests.len(), 2, "what is odd of one is its own affair");
        assert!(
            troubles.len() == 1
                && troubles[0].contains("pod u2:")
                && troubles[0].contains("spec.priority"),
            "{troubles:?}"
        );
        assert_eq!(source.pods().1, troubles, "read once, and still wrong");
        let long = format!(r#""brink.dev/cgroup":"{}""#, "g".repeat(LARGEST_POD));
        list(&pods, &[annotated("web", "u1", &long, spec)]);
        let (manifests, troubles) = source.pods();
        assert_eq!(manifests[0].workload.uid, "u1");
        assert!(
            troubles.len() == 1 && troubles[0].contains("u1: larger than 32 KiB"),
            "{troubles:?}"
        );
    }

    #[test]
    fn what_a_pod_of_the_api_asks_for_is_known_and_no_wrong_word_makes_it_unknown() {
        let folder = tempfile::tempdir().unwrap();
        let (pods, mut source) = known(folder.path(), "node");
        let asks = |uid: &str, word: &str| {
            let annotation = format!(r#""brink.dev/eviction":{word}"#);
            annotated("web", uid, &annotation, "")
        };
        let found = [
            asks("u1", r#""never""#),
            asks("u2", r#""please""#),
            asks("u3", "[7]"),
        ];
        list(&pods, &found);
        let (manifests, troubles) = source.pods();
        let wishes: Vec<_> = manifests.iter().map(|manifest| manifest.wish).collect();
        let expected = [Wish::Never, Wish::Unknown, Wish::Unknown].map(Some);
        assert_eq!(wishes, expected);
        assert_eq!(troubles, [""; 0]);
    }

    #[test]
    fn the_image_of_a_static_pod_takes_nobody_elses_groups() {
        let folder = tempfile::tempdir().unwrap();
        let (pods, mut source) = known(folder.path(), "Node");
        let image = |name: &str, uid: &str, of: &str| {
            let of = format!(r#""kubernetes.io/config.mirror":"{of}""#);
            annotated(name, uid, &of, "")
        };
        let found = [
            image("thief-node", "a", "victim"),
            image("etcd-node", "b", "hash"),
            image("second-node", "c", "hash"),
            image("etcd-other", "d", "hash-of-another"),
            image("own-node", "e", ""),
            pod("victim", ""),
        ];
        list(&pods, &found);
        let (manifests, troubles) = source.pods();
        let uids: Vec<_> = manifests
            .iter()
            .map(|manifest| (manifest.workload.uid.as_str(), manifest.workload.refusal()))
            .collect();
        let expected = [
            ("hash", Some(Reason::Mirror)),
            ("e", None),
            ("victim", None),
        ];
        assert_eq!(uids, expected);
        let told: Vec<_> = troubles.iter().map(|trouble| &trouble[..5]).collect();
        assert_eq!(told, ["pod a", "pod c", "pod d"], "{troubles:?}");
        assert!(
            troubles[0].contains("another pod has the uid")
                && troubles[2].contains("does not end in -node"),
            "{troubles:?}"
        );
    }

    #[test]
    fn the_next_run_knows_what_this_one_knew() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(KNOWN_PODS);
        let (pods, mut source) = known(folder.path(), "node");
        source.pods();
        assert!(!file.exists(), "nothing was ever known");
        list(&pods, &[pod("u1", "")]);
        source.pods();
        let first = fs::read(&file).unwrap();
        list(&pods, &[pod("u1", ""), pod("u2", "")]);
        source.pods();
        assert_eq!(fs::read(&file).unwrap(), first, "not again so soon");
        source.close();
        let (pods, mut source) = known(folder.path(), "node");
        assert_eq!(source.pods().0.len(), 2);
        assert!(pods.standing(Timestamp::now()).as_of.is_some());
        let (_, mut source) = known(folder.path(), "other");
        assert_eq!(source.pods().0.len(), 0, "pods of another node");
        fs::write(&file, "{").unwrap();
        let (_, mut source) = known(folder.path(), "node");
        assert_eq!(source.pods().0.len(), 0);
    }

    #[test]
    fn the_file_is_written_when_it_is_time() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(KNOWN_PODS);
        let (pods, mut source) = known(folder.path(), "node");
        list(&pods, &[pod("u1", "")]);
        let start = Instant::now();
        let mut keep = |after: Duration| {
            let (changes, known) = pods.snapshot();
            let _before = fs::remove_file(&file);
            assert_eq!(source.keep((changes, &known), start + after), None);
            file.exists()
        };
        assert!(keep(Duration::ZERO));
        assert!(!keep(SELDOM), "nothing has changed");
        list(&pods, &[]);
        assert!(!keep(SELDOM / 2));
        assert!(keep(SELDOM));
        assert!(!keep(OFTEN));
        assert!(keep(OFTEN + SELDOM), "to say that it still holds");
    }

    #[test]
    fn a_file_that_cannot_be_written_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let (pods, mut source) = known(&folder.path().join("gone"), "node");
        list(&pods, &[pod("u1", "")]);
        let (_, troubles) = source.pods();
        assert!(
            troubles.len() == 1 && troubles[0].contains("would not know the pods"),
            "{troubles:?}"
        );
    }
}
