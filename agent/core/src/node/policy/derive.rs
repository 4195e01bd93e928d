//! Thresholds that follow from others: allocatable memory from memory, containerfs from its disk.

use alloc::vec::Vec;

use super::super::observe::Layout;
use super::super::signal::Signal;
use super::super::threshold::Threshold;
use super::Policy;

/// Appends a copy on allocatable memory of every hard memory threshold: the same value, even where
/// it is a fraction of the other capacity, and the same minimum reclaim.
pub fn add_allocatable(thresholds: &mut Vec<Threshold>) {
    let hard = thresholds
        .iter()
        .filter(|t| t.signal == Signal::MemoryAvailable && t.is_hard());
    let copies: Vec<Threshold> = hard
        .map(|memory| Threshold {
            signal: Signal::AllocatableMemoryAvailable,
            ..*memory
        })
        .collect();
    thresholds.extend(copies);
}

impl Policy {
    /// The policy on a node of that layout: containerfs thresholds are those of the filesystem
    /// that writable layers live on, whatever was configured for them.
    ///
    /// Where that filesystem has no threshold of a kind, containerfs has none either (the kubelet
    /// keeps an empty one that can never be met). If one kind was configured twice, as hard and as
    /// soft without grace, only the second is replaced, as in the kubelet.
    #[must_use]
    pub fn on_layout(&self, layout: Layout) -> Self {
        let origins = match layout {
            // The kubelet takes layers apart for split.
            Layout::Single | Layout::Split | Layout::LayersApart => {
                [Signal::NodefsAvailable, Signal::NodefsInodesFree]
            }
            Layout::DedicatedImagefs => [Signal::ImagefsAvailable, Signal::ImagefsInodesFree],
        };
        let targets = [Signal::ContainerfsAvailable, Signal::ContainerfsInodesFree];
        let mut thresholds = self.thresholds().to_vec();
        for (origin, target) in origins.into_iter().zip(targets) {
            for hard in [true, false] {
                replace(
                    &mut thresholds,
                    last(self.thresholds(), origin, hard),
                    (target, hard),
                );
            }
        }
        Self::new(thresholds, layout, self.settings)
    }

    /// The policy without Brink's own signal: the kubelet alone.
    #[must_use]
    pub fn without_headroom(&self) -> Self {
        let kubelets = self
            .thresholds()
            .iter()
            .filter(|t| t.signal != Signal::MemoryHeadroom);
        Self::new(kubelets.copied().collect(), self.layout(), self.settings)
    }
}

fn last(thresholds: &[Threshold], signal: Signal, hard: bool) -> Option<Threshold> {
    thresholds
        .iter()
        .rfind(|t| t.signal == signal && t.is_hard() == hard)
        .copied()
}

fn replace(
    thresholds: &mut Vec<Threshold>,
    origin: Option<Threshold>,
    (signal, hard): (Signal, bool),
) {
    if let Some(at) = thresholds
        .iter()
        .rposition(|t| t.signal == signal && t.is_hard() == hard)
    {
        thresholds.remove(at);
    }
    thresholds.extend(origin.map(|origin| Threshold { signal, ..origin }));
}
