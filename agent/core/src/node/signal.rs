//! The eviction signals: their names, what they measure, and which node condition they raise.

use core::fmt;
use core::ops::{Index, IndexMut};
use core::str::FromStr;

use super::condition::Condition;
use crate::base::Format;

/// A measured amount that a threshold can be set on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(u8)]
pub enum Signal {
    /// Node memory less its working set, in bytes.
    MemoryAvailable,
    /// The same for the cgroup all pods live in, in bytes.
    AllocatableMemoryAvailable,
    /// Space left on the kubelet's filesystem, in bytes.
    NodefsAvailable,
    /// Inodes left on the kubelet's filesystem.
    NodefsInodesFree,
    /// Space left where the runtime keeps images, in bytes.
    ImagefsAvailable,
    /// Inodes left where the runtime keeps images.
    ImagefsInodesFree,
    /// Space left where the runtime keeps writable layers, in bytes.
    ContainerfsAvailable,
    /// Inodes left where the runtime keeps writable layers.
    ContainerfsInodesFree,
    /// Thread ids left on the node.
    PidAvailable,
    /// Brink's own: memory that could still be allocated, in bytes. Unknown to the kubelet.
    MemoryHeadroom,
}

/// What an eviction gives back; the word is part of events and messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Resource {
    /// Bytes of memory.
    Memory,
    /// Bytes on a local filesystem.
    EphemeralStorage,
    /// Inodes of a local filesystem.
    Inodes,
    /// Process ids.
    Pids,
}

/// A name that is no eviction signal of the kubelet's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown eviction signal")]
pub struct UnknownSignal;

impl Signal {
    /// How many signals there are.
    pub const COUNT: usize = 10;

    /// Every signal, in the order a single one is chosen to be reclaimed.
    pub const ALL: [Self; Self::COUNT] = [
        Self::MemoryAvailable,
        Self::AllocatableMemoryAvailable,
        Self::NodefsAvailable,
        Self::NodefsInodesFree,
        Self::ImagefsAvailable,
        Self::ImagefsInodesFree,
        Self::ContainerfsAvailable,
        Self::ContainerfsInodesFree,
        Self::PidAvailable,
        Self::MemoryHeadroom,
    ];

    /// The nine that the kubelet's configuration accepts.
    pub const KUBELET: [Self; 9] = [
        Self::MemoryAvailable,
        Self::AllocatableMemoryAvailable,
        Self::NodefsAvailable,
        Self::NodefsInodesFree,
        Self::ImagefsAvailable,
        Self::ImagefsInodesFree,
        Self::ContainerfsAvailable,
        Self::ContainerfsInodesFree,
        Self::PidAvailable,
    ];

    /// The one of that name, Brink's own included; [`Signal::from_str`] knows the kubelet's alone.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|signal| signal.name() == name)
    }

    /// The name used in configuration, metrics and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MemoryAvailable => "memory.available",
            Self::AllocatableMemoryAvailable => "allocatableMemory.available",
            Self::NodefsAvailable => "nodefs.available",
            Self::NodefsInodesFree => "nodefs.inodesFree",
            Self::ImagefsAvailable => "imagefs.available",
            Self::ImagefsInodesFree => "imagefs.inodesFree",
            Self::ContainerfsAvailable => "containerfs.available",
            Self::ContainerfsInodesFree => "containerfs.inodesFree",
            Self::PidAvailable => "pid.available",
            Self::MemoryHeadroom => "memory.headroom",
        }
    }

    /// What an eviction for this signal gives back.
    pub const fn resource(self) -> Resource {
        match self {
            Self::MemoryAvailable | Self::AllocatableMemoryAvailable | Self::MemoryHeadroom => {
                Resource::Memory
            }
            Self::NodefsAvailable | Self::ImagefsAvailable | Self::ContainerfsAvailable => {
                Resource::EphemeralStorage
            }
            Self::NodefsInodesFree | Self::ImagefsInodesFree | Self::ContainerfsInodesFree => {
                Resource::Inodes
            }
            Self::PidAvailable => Resource::Pids,
        }
    }

    /// The node condition a met threshold on this signal raises.
    pub const fn condition(self) -> Condition {
        match self.resource() {
            Resource::Memory => Condition::MemoryPressure,
            Resource::EphemeralStorage | Resource::Inodes => Condition::DiskPressure,
            Resource::Pids => Condition::PidPressure,
        }
    }

    /// How observed amounts of this signal print.
    pub const fn format(self) -> Format {
        match self.resource() {
            Resource::Memory | Resource::EphemeralStorage => Format::BinarySi,
            Resource::Inodes | Resource::Pids => Format::DecimalSi,
        }
    }

    /// Whether pods are ranked by memory for this signal.
    pub const fn is_memory(self) -> bool {
        matches!(self.resource(), Resource::Memory)
    }
}

impl FromStr for Signal {
    type Err = UnknownSignal;

    /// The kubelet's nine names only: Brink's own signal has keys of its own.
    fn from_str(name: &str) -> Result<Self, UnknownSignal> {
        Self::KUBELET
            .into_iter()
            .find(|signal| signal.name() == name)
            .ok_or(UnknownSignal)
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Resource {
    /// The word in messages and annotations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::EphemeralStorage => "ephemeral-storage",
            Self::Inodes => "inodes",
            Self::Pids => "pids",
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One value for each signal, without a map: indexed by the signal itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PerSignal<T>([T; Signal::COUNT]);

impl<T> PerSignal<T> {
    /// The value each signal gets from `make`.
    pub fn from_fn(make: impl FnMut(Signal) -> T) -> Self {
        Self(Signal::ALL.map(make))
    }

    /// Each signal with its value.
    pub fn iter(&self) -> impl Iterator<Item = (Signal, &T)> {
        Signal::ALL.into_iter().zip(&self.0)
    }
}

impl<T> Index<Signal> for PerSignal<T> {
    type Output = T;

    fn index(&self, signal: Signal) -> &T {
        &self.0[signal as usize]
    }
}

impl<T> IndexMut<Signal> for PerSignal<T> {
    fn index_mut(&mut self, signal: Signal) -> &mut T {
        &mut self.0[signal as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_signal_sits_at_its_own_index() {
        let names = PerSignal::from_fn(Signal::name);
        for (at, signal) in Signal::ALL.into_iter().enumerate() {
            assert_eq!(signal as usize, at);
            assert_eq!(names[signal], signal.name());
        }
    }

    #[test]
    fn only_the_kubelets_names_are_read() {
        for signal in Signal::KUBELET {
            assert_eq!(signal.name().parse(), Ok(signal));
        }
        for name in [
            "memory.headroom",
            "swap.available",
            "mem.available",
            "",
            "Memory.available",
        ] {
            assert_eq!(name.parse::<Signal>(), Err(UnknownSignal), "{name:?}");
        }
    }

    #[test]
    fn resources_and_conditions_follow_the_table() {
        for (signal, resource, condition) in [
            (Signal::MemoryAvailable, "memory", "MemoryPressure"),
            (
                Signal::AllocatableMemoryAvailable,
                "memory",
                "MemoryPressure",
            ),
            (Signal::MemoryHeadroom, "memory", "MemoryPressure"),
            (Signal::NodefsAvailable, "ephemeral-storage", "DiskPressure"),
            (
                Signal::ImagefsAvailable,
                "ephemeral-storage",
                "DiskPressure",
            ),
            (
                Signal::ContainerfsAvailable,
                "ephemeral-storage",
                "DiskPressure",
            ),
            (Signal::NodefsInodesFree, "inodes", "DiskPressure"),
            (Signal::ImagefsInodesFree, "inodes", "DiskPressure"),
            (Signal::ContainerfsInodesFree, "inodes", "DiskPressure"),
            (Signal::PidAvailable, "pids", "PIDPressure"),
        ] {
            assert_eq!(signal.resource().name(), resource, "{signal}");
            assert_eq!(signal.condition().name(), condition, "{signal}");
        }
    }
}
