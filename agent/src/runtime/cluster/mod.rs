//! The Kubernetes API beside the guard: a thread that follows this node's pods and tells what happens here; pods for rosters.
//!
//! The thread has a runtime of its own: a large list, a handshake or a plugin for credentials keeps nobody waiting who asks
//! the agent something. The pods that are to outlive the agent are written by the watcher; the thread writes only small files.

#[cfg(not(feature = "kubernetes"))]
mod absent;
#[cfg(feature = "kubernetes")]
mod configz;
#[cfg(feature = "kubernetes")]
mod following;
#[cfg(feature = "kubernetes")]
mod source;

#[cfg(not(feature = "kubernetes"))]
pub use absent::{Cluster, ask_kubelet, try_out};
#[cfg(feature = "kubernetes")]
pub use configz::InVain;
#[cfg(feature = "kubernetes")]
pub use following::{Cluster, ask_kubelet, try_out};

use std::sync::{Arc, OnceLock};

use brink_host::cgroup::Layout;
use brink_host::cgroup::pod::PodRoots;
use brink_host::clock::BootId;
use tokio::sync::watch;

use super::state::Shared;
use crate::pod::Manifest;
use crate::recorder::Recorder;
use crate::storage::Keeper;

/// What the API server said when it was tried out.
#[derive(Clone, Debug)]
pub struct Answered {
    /// What this node is called there.
    pub node: String,
    /// By what it was reached.
    pub by: String,
    /// The pods of this node.
    pub pods: Vec<Manifest>,
}

/// Why the kubelet, asked once, has not said what it goes by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsaid {
    /// In a sentence.
    pub why: String,
    /// What stands in the way.
    pub obstacle: Obstacle,
}

/// What stands between a kubelet that is asked and what it goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Nobody can be asked from here: no way to the API server, or no name of the node.
    NoWay,
    /// What says how the API server is reached, or who asks, cannot be used.
    Unusable,
    /// The API server does not know who asks.
    Stranger,
    /// It grants no right to ask.
    NoRight,
    /// It knows no such node, or the kubelet does not serve it.
    NotServed,
    /// There is no answer, or an error that may pass.
    Away,
    /// The answer is no kubelet's configuration, or too long for one.
    Strange,
    /// It is one, and cannot be taken over.
    Refused,
}

/// What the kubelet says of itself, as it changes; none before it has said anything.
pub type Answers = watch::Receiver<Option<Arc<str>>>;

/// What is needed to tell a cluster what happens here.
pub struct Voice {
    /// This boot.
    pub boot: BootId,
    /// Where control groups are.
    pub layout: Layout,
    /// Where a kubelet makes its pods.
    pub roots: PodRoots,
    /// Has what containers held, once it is started.
    pub recorder: Arc<OnceLock<Arc<Recorder>>>,
    /// Has what they use of disks.
    pub keeper: Arc<Keeper>,
    /// Where decisions are remembered.
    pub shared: Arc<Shared>,
}

/// The file of the last known pods in the state directory.
pub const KNOWN_PODS: &str = "pods.json";
