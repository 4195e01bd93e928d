//! Writable layers: what containers have written beside their volumes, as their runtime tells it, where one is reached.

#[cfg(not(feature = "cri"))]
mod absent;
#[cfg(feature = "cri")]
mod asked;

use std::collections::HashMap;

use brink_core::node::workload::FsUsage;

use super::owned::Owned;
use crate::disks::answer::Folders;

#[cfg(not(feature = "cri"))]
pub(super) use absent::Layers;
#[cfg(feature = "cri")]
pub(super) use asked::Layers;

/// What a runtime tells.
#[derive(Default)]
pub(super) struct Told {
    /// What each container has written, by its id; nothing where nobody answers.
    pub(super) layers: HashMap<String, FsUsage>,
    /// Where images and writable layers lie.
    pub(super) folders: Option<Folders>,
}

/// What the runtime tells, where any of these workloads has containers in it.
pub(super) fn ask<'a>(runtime: &mut Layers, mut all: impl Iterator<Item = &'a Owned>) -> Told {
    if all.any(|owned| !owned.containers.is_empty()) {
        runtime.read()
    } else {
        Told::default()
    }
}
