//! The Kubernetes API beside the guard: a thread that follows the pods of this node, and the pods as a source of rosters.
//!
//! The thread has a runtime of its own: a large list, a handshake or a plugin for credentials keeps nobody waiting who asks
//! the agent something. It touches no file; what is to outlive the agent is written by the watcher, which may wait for files.

#[cfg(not(feature = "kubernetes"))]
mod absent;
#[cfg(feature = "kubernetes")]
mod following;
#[cfg(feature = "kubernetes")]
mod source;

#[cfg(not(feature = "kubernetes"))]
pub use absent::{Cluster, try_out};
#[cfg(feature = "kubernetes")]
pub use following::{Cluster, try_out};

use crate::pod::Manifest;

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

/// The file of the last known pods in the state directory.
pub const KNOWN_PODS: &str = "pods.json";
