//! What the node can give back before a pod has to go, and whether it was enough.

use super::gate::thresholds_met;
use super::observe::{Layout, Observations};
use super::policy::Policy;
use super::signal::Signal;

/// One way for the node to free disk space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub enum Reclaim {
    /// Delete all dead containers.
    DeadContainers,
    /// Delete all images no container uses.
    UnusedImages,
}

impl Reclaim {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DeadContainers => "deadContainers",
            Self::UnusedImages => "unusedImages",
        }
    }
}

/// What is tried for a signal, in order. Nothing for memory and process ids; and nothing for
/// nodefs where images have a filesystem of their own, so pods go at once there.
pub const fn functions(layout: Layout, signal: Signal) -> &'static [Reclaim] {
    use Reclaim::{DeadContainers, UnusedImages};
    match (layout, signal) {
        (
            _,
            Signal::MemoryAvailable
            | Signal::AllocatableMemoryAvailable
            | Signal::MemoryHeadroom
            | Signal::PidAvailable,
        )
        | (Layout::DedicatedImagefs, Signal::NodefsAvailable | Signal::NodefsInodesFree) => &[],
        (Layout::Single | Layout::DedicatedImagefs, _) => &[DeadContainers, UnusedImages],
        (
            Layout::Split | Layout::LayersApart,
            Signal::ImagefsAvailable | Signal::ImagefsInodesFree,
        ) => &[UnusedImages],
        (Layout::Split | Layout::LayersApart, _) => &[DeadContainers],
    }
}

/// Whether reclaim was enough: no threshold at all, hard or soft, of any signal and regardless of
/// grace, is short of its quantity with its minimum reclaim. `after` is what was measured
/// afterwards; `None`, when that failed, is not enough.
pub fn is_sufficient(policy: &Policy, after: Option<&Observations>) -> bool {
    after.is_some_and(|after| thresholds_met(policy, after, true).is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_has_its_ways() {
        use Reclaim::{DeadContainers, UnusedImages};
        let both = [DeadContainers, UnusedImages];
        let disks = [
            [Signal::NodefsAvailable, Signal::NodefsInodesFree],
            [Signal::ImagefsAvailable, Signal::ImagefsInodesFree],
            [Signal::ContainerfsAvailable, Signal::ContainerfsInodesFree],
        ];
        let split: [&[Reclaim]; 3] = [&[DeadContainers], &[UnusedImages], &[DeadContainers]];
        for (layout, expected) in [
            (Layout::Single, [&both[..], &both, &both]),
            (Layout::DedicatedImagefs, [&[], &both, &both]),
            (Layout::Split, split),
            (Layout::LayersApart, split),
        ] {
            for (signals, expected) in disks.iter().zip(expected) {
                for &signal in signals {
                    assert_eq!(functions(layout, signal), expected, "{layout:?} {signal}");
                }
            }
            for signal in Signal::ALL.into_iter().filter(|s| s.is_memory()) {
                assert_eq!(functions(layout, signal), &[], "{layout:?} {signal}");
            }
            assert_eq!(functions(layout, Signal::PidAvailable), &[]);
        }
    }
}
