//! Observations: how the numbers of kernel and runtime become what a threshold is compared with.

use super::signal::PerSignal;
use crate::base::{Moment, Quantity};

/// One reading of one signal: bytes, inodes or process ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Observation {
    /// What is left; negative if the kernel reports more used than there is.
    pub available: i64,
    /// What percentages refer to.
    pub capacity: i64,
    /// When it was measured, by the clock of the source; `None` where the source has none, which
    /// counts as always fresh.
    pub at: Option<Moment>,
}

/// What is known now; a signal without an observation neither fires nor clears.
pub type Observations = PerSignal<Option<Observation>>;

impl Observation {
    /// Whether strictly less than `quantity` is available.
    pub fn is_below(&self, quantity: Quantity) -> bool {
        quantity > Quantity::from_bytes(self.available)
    }
}

/// How the node's filesystems are laid out; decides what is measured, reclaimed and derived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub enum Layout {
    /// Kubelet, images and writable layers share one filesystem.
    #[default]
    Single,
    /// Images and writable layers have a filesystem of their own.
    DedicatedImagefs,
    /// Images have a filesystem of their own; writable layers stay on the kubelet's.
    Split,
}
