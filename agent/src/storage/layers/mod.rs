//! Writable layers: what containers have written beside their volumes, as their runtime tells it, where one is reached.

#[cfg(not(feature = "cri"))]
mod absent;
#[cfg(feature = "cri")]
mod asked;
#[cfg(feature = "cri")]
mod asking;
mod kept;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use brink_core::node::workload::FsUsage;

use super::owned::Owned;
use crate::disks::answer::Folders;

#[cfg(not(feature = "cri"))]
pub(super) use absent::Layers;
#[cfg(feature = "cri")]
pub(super) use asked::Layers;
pub(super) use kept::{Kept, Silence};

/// What a runtime tells.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// What each container has written, by its id. Those that were asked about and of which the runtime has no figures are there too,
    /// as unknown.
    pub(super) layers: HashMap<String, FsUsage>,
    /// Where images and writable layers lie.
    pub(super) folders: Option<Folders>,
    /// How long before it was asked the oldest of these figures was taken.
    pub(super) behind: Duration,
}

/// What comes of a question: an answer, or why there is none.
pub(super) type Answer = Result<Told, String>;

/// The same with when it came.
pub(super) type Heard = (Answer, Instant);

/// The ids of all containers in these workloads.
pub(super) fn ids<'a>(all: impl Iterator<Item = &'a Owned>) -> Vec<String> {
    let containers = all.flat_map(|owned| &owned.containers);
    containers.map(|(_, id)| id.clone()).collect()
}
