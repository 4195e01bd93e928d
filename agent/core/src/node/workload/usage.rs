//! What workloads use: hot figures for ranking, cold ones for messages and limits.

use alloc::string::String;
use alloc::vec::Vec;

use super::Workload;

/// What one pod uses; a pod without any figures is `None` where this is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PodUsage {
    /// Working set of the pod's cgroup, in bytes; unknown ranks as zero.
    pub memory: Option<u64>,
    /// Processes; unknown ranks as zero.
    pub processes: Option<u64>,
    /// Writable layers of all containers.
    pub rootfs: FsUsage,
    /// Logs of all containers.
    pub logs: FsUsage,
    /// Local volumes: host paths and local ephemeral ones.
    pub volumes: FsUsage,
}

/// What is used of a filesystem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FsUsage {
    /// Bytes; unknown ranks as zero.
    pub bytes: Option<u64>,
    /// Inodes; unknown ranks as zero.
    pub inodes: Option<u64>,
}

/// What the parts of one pod use; needed for messages and local-storage limits only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PodDetail {
    /// Containers, in the order in which messages name them.
    pub containers: Vec<ContainerUsage>,
    /// Volumes, by name.
    pub volumes: Vec<VolumeUsage>,
    /// What is neither a container's nor a volume's: log files of the pod itself, and its file of host names. It counts
    /// against the pod's limit alone.
    #[cfg_attr(feature = "serde", serde(default))]
    pub other: FsUsage,
}

/// What one container uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ContainerUsage {
    /// `name`.
    pub name: String,
    /// Working set, in bytes.
    pub memory: Option<u64>,
    /// Writable layer.
    pub rootfs: FsUsage,
    /// Logs.
    pub logs: FsUsage,
}

/// What one volume uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct VolumeUsage {
    /// `name`.
    pub name: String,
    /// What is used of it.
    pub used: FsUsage,
}

impl FsUsage {
    /// The sum; unknown parts add nothing, and a sum of unknowns is unknown.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            bytes: sum(self.bytes, other.bytes),
            inodes: sum(self.inodes, other.inodes),
        }
    }
}

/// Wraps: the kubelet reads counters as signed numbers, so a counter that fell below zero must
/// still take its part off the sum.
fn sum(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.wrapping_add(b)),
        (known, None) | (None, known) => known,
    }
}

impl PodDetail {
    /// What the local volumes of `workload` use together: the figure for [`PodUsage::volumes`].
    pub fn local_volumes(&self, workload: &Workload) -> FsUsage {
        let local = workload
            .volumes
            .iter()
            .filter(|volume| volume.source.is_local());
        local
            .filter_map(|volume| self.volume(&volume.name))
            .fold(FsUsage::default(), FsUsage::plus)
    }

    /// What its local ephemeral volumes use together: the part that counts against limits.
    pub fn ephemeral_volumes(&self, workload: &Workload) -> FsUsage {
        let ephemeral = workload
            .volumes
            .iter()
            .filter(|v| v.source.is_local_ephemeral());
        ephemeral
            .filter_map(|volume| self.volume(&volume.name))
            .fold(FsUsage::default(), FsUsage::plus)
    }

    /// What the volume of that name uses, if it was measured.
    pub fn volume(&self, name: &str) -> Option<FsUsage> {
        self.volumes
            .iter()
            .find(|volume| volume.name == name)
            .map(|volume| volume.used)
    }

    /// The sum of the containers' working sets; unknown if none is known.
    pub fn containers_memory(&self) -> Option<u64> {
        self.containers
            .iter()
            .fold(None, |total, container| sum(total, container.memory))
    }
}
