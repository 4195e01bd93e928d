//! Pods as manifests describe them: v1.Pod objects in YAML or JSON, as far as eviction looks at them.

mod admit;
mod files;
mod read;
mod resources;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use brink_core::node::workload::Workload;
use brink_host::cgroup::glob::Glob;

use crate::config::document::Site;

pub use files::{
    Broken, BrokenFile, Folder, LastGood, MOST_BROKEN, Manifests, read_file, read_folder,
};
pub use read::read_pod;

/// The annotation that binds a pod to its control group: a path below the cgroup root, or a glob.
pub const CGROUP_ANNOTATION: &str = "brink.dev/cgroup";

/// The annotation that names folders of a pod's own, separated by commas: absolute paths.
pub const DIRECTORIES_ANNOTATION: &str = "brink.dev/directories";

/// The annotation by which a pod asks to be evicted first, last or never.
pub const EVICTION_ANNOTATION: &str = "brink.dev/eviction";

/// What a pod asks for by [`EVICTION_ANNOTATION`]; the configuration says whose word counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// `first`: before all others.
    First,
    /// `last`: after all others.
    Last,
    /// `never`: not at all.
    Never,
    /// Anything else, which counts for nothing.
    Unknown,
}

/// What a manifest says of a pod's files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFiles {
    /// Folders named by [`DIRECTORIES_ANNOTATION`].
    pub directories: Vec<PathBuf>,
    /// Whether it runs in a user namespace of its own (`spec.hostUsers: false`).
    pub has_user_namespace: bool,
}

/// A pod, and which control group it is.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// The pod.
    pub workload: Workload,
    /// The control group named by [`CGROUP_ANNOTATION`]; without it the kubelet's naming holds.
    pub cgroup: Option<Glob>,
    /// Who manages it, `ReplicaSet/web-5d` and the like, if it says so.
    pub owner: Option<String>,
    /// Names and ids of its containers, as far as its status tells them: `status.containerStatuses` and the like, the
    /// runtime's name cut off (`containerd://`).
    pub container_ids: Vec<(String, String)>,
    /// Whether it has a status: it is what an API server knows of it, and that will know of its eviction.
    pub is_observed: bool,
    /// What it says of its files.
    pub files: PodFiles,
    /// What it asks for, if anything.
    pub wish: Option<Wish>,
    /// Where it begins.
    pub site: Site,
}

/// The name of the container with that id, of such names and ids.
pub fn container_name<'a>(known: &'a [(String, String)], id: &str) -> Option<&'a str> {
    let mut known = known.iter();
    let (name, _) = known.find(|(_, listed)| listed == id)?;
    Some(name)
}

/// How a manifest is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Literally: what is not there is not set. This is what the kubelet's code sees of a scenario.
    AsWritten,
    /// As the API server would hand it out: requests default to limits, the grace to 30 seconds, the
    /// namespace to `default`, and the two system priority classes have their values.
    AsAdmitted,
}
