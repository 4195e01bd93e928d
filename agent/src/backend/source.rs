//! Where pods come from: a folder of manifests, the Kubernetes API, or both.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::pod::{Broken, LastGood, Manifest};

/// One place that pods come from.
pub trait PodSource: Send {
    /// The pods that are known now, and what is wrong with some of them, one sentence each.
    fn pods(&mut self) -> (Vec<Manifest>, Vec<String>);

    /// Keeps what the next run is to begin with.
    fn close(&mut self) {}
}

/// A folder of manifests. What a file said when it was last in order stands until it is again, or gone.
#[derive(Debug, Default)]
pub struct Folder {
    path: Option<PathBuf>,
    memory: LastGood,
}

impl Folder {
    /// The folder, if there is one.
    pub fn new(path: Option<PathBuf>) -> Self {
        Self {
            path,
            memory: LastGood::default(),
        }
    }
}

impl PodSource for Folder {
    fn pods(&mut self) -> (Vec<Manifest>, Vec<String>) {
        self.memory.read(self.path.as_deref())
    }
}

/// Every place there is.
#[derive(Default)]
pub struct Sources {
    folder: Folder,
    cluster: Option<Box<dyn PodSource>>,
}

impl Sources {
    /// A folder of manifests and the API of a cluster, each if there is one.
    pub fn new(folder: Option<PathBuf>, cluster: Option<Box<dyn PodSource>>) -> Self {
        Self {
            folder: Folder::new(folder),
            cluster,
        }
    }

    /// The folder of manifests, if there is one.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.path.as_deref()
    }

    /// Whether there is no place that pods could come from.
    pub const fn are_none(&self) -> bool {
        self.folder.path.is_none() && self.cluster.is_none()
    }

    /// Its files that were not in order when they were read last.
    pub const fn broken(&self) -> &Broken {
        self.folder.memory.broken()
    }

    /// Takes another folder.
    pub fn set_folder(&mut self, folder: Option<PathBuf>) {
        self.folder.path = folder;
    }
}

impl PodSource for Sources {
    /// Of two pods with the same uid that of the API counts: it knows how the pod stands.
    fn pods(&mut self) -> (Vec<Manifest>, Vec<String>) {
        let (written, mut troubles) = self.folder.pods();
        let Some(cluster) = &mut self.cluster else {
            return (written, troubles);
        };
        let (mut pods, more) = cluster.pods();
        troubles.extend(more);
        let known: HashSet<String> = pods.iter().map(|pod| pod.workload.uid.clone()).collect();
        pods.extend(
            written
                .into_iter()
                .filter(|pod| !known.contains(&pod.workload.uid)),
        );
        (pods, troubles)
    }

    fn close(&mut self) {
        self.folder.close();
        if let Some(cluster) = &mut self.cluster {
            cluster.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use brink_core::node::workload::Workload;

    use super::*;
    use crate::config::document::{Origins, Site};

    /// Pods that are always the same.
    struct Always(Vec<Manifest>);

    impl PodSource for Always {
        fn pods(&mut self) -> (Vec<Manifest>, Vec<String>) {
            (self.0.clone(), Vec::from(["one is odd".to_owned()]))
        }
    }

    fn pod(name: &str, uid: &str) -> Manifest {
        Manifest {
            site: Site::whole(Origins::DEFAULT),
            workload: Workload {
                uid: uid.to_owned(),
                name: name.to_owned(),
                ..Workload::default()
            },
            cgroup: None,
            owner: None,
            container_ids: Vec::new(),
            is_observed: false,
            files: crate::pod::PodFiles::default(),
            wish: None,
        }
    }

    #[test]
    fn a_pod_that_the_api_knows_is_the_apis() {
        let folder = tempfile::tempdir().unwrap();
        let text = "metadata: {name: written, uid: 1}\n---\nmetadata: {name: alone, uid: '3'}\n";
        let text = text.replace("uid: 1", "uid: '1'");
        fs::write(folder.path().join("pods.yaml"), text).unwrap();
        let api = Always(Vec::from([pod("a", "1"), pod("b", "2")]));
        let path = folder.path().to_path_buf();
        let names = |mut sources: Sources| {
            let (pods, troubles) = sources.pods();
            let names: Vec<String> = pods.into_iter().map(|pod| pod.workload.name).collect();
            (names.join(" "), troubles.len())
        };
        let both = Sources::new(Some(path.clone()), Some(Box::new(api)));
        assert!(!both.are_none() && !Sources::new(Some(path.clone()), None).are_none());
        assert!(Sources::default().are_none());
        assert_eq!(names(both), ("a b alone".to_owned(), 1));
        let one = Sources::new(Some(path), None);
        assert_eq!(names(one), ("written alone".to_owned(), 0));
        assert_eq!(names(Sources::default()), (String::new(), 0));
    }
}
