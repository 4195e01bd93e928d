//! Local-storage limits: pods that use more disk than they may, whatever the node has left.

use alloc::format;
use alloc::string::String;

use super::observe::Layout;
use super::workload::{
    ContainerKind, FsUsage, PodDetail, PodUsage, VolumeSource, Workload, WorkloadTable,
};
use crate::base::Quantity;

/// The limit that was exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum LimitKind {
    /// `sizeLimit` of an emptyDir volume.
    EmptyDir,
    /// The sum of the containers' ephemeral-storage limits.
    Pod,
    /// One container's ephemeral-storage limit.
    Container,
}

/// A limit of a pod, and what is used against it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Exceeded {
    /// Which kind of limit.
    pub kind: LimitKind,
    /// Index of the volume, or of the container, in the pod; 0 for the whole pod.
    pub place: u32,
    /// The limit.
    pub limit: Quantity,
    /// What is used, in bytes.
    pub used: u64,
}

/// A pod over one of its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excess {
    /// Index of the pod in the table.
    pub workload: u32,
    /// The limit, the first in the order of [`LimitKind`].
    pub limit: Exceeded,
    /// The message of its eviction.
    pub message: String,
}

impl Exceeded {
    /// The volume or container of `pod` whose limit it is; the pod itself has none to name.
    pub fn part<'a>(&self, pod: &'a Workload) -> Option<&'a str> {
        let place = self.place as usize;
        match self.kind {
            LimitKind::EmptyDir => pod.volumes.get(place).map(|volume| &*volume.name),
            LimitKind::Pod => None,
            LimitKind::Container => pod.containers.get(place).map(|one| &*one.name),
        }
    }

    /// Bytes that are left of the limit: below zero, as it is exceeded.
    pub fn left(&self) -> i64 {
        let used = i64::try_from(self.used).unwrap_or(i64::MAX);
        self.limit.value().saturating_sub(used)
    }
}

/// The message of an eviction for that limit of the volume or container called `part`. It ends with a space.
pub fn message(kind: LimitKind, part: &str, limit: Quantity) -> String {
    match kind {
        LimitKind::EmptyDir => {
            format!("Usage of EmptyDir volume {part:?} exceeds the limit \"{limit}\". ")
        }
        LimitKind::Pod => format!(
            "Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "
        ),
        LimitKind::Container => {
            format!("Container {part} exceeded its local ephemeral storage limit \"{limit}\". ")
        }
    }
}

impl LimitKind {
    /// All of them, in the order in which they are looked at.
    pub const ALL: [Self; 3] = [Self::EmptyDir, Self::Pod, Self::Container];

    /// The name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::EmptyDir => "emptydirfs.limit",
            Self::Pod => "ephemeralpodfs.limit",
            Self::Container => "ephemeralcontainerfs.limit",
        }
    }
}

/// All candidates over a limit, in the order of the table: every one of them is evicted at once.
/// Pods without statistics are skipped, critical pods refuse.
pub fn exceeded<'a>(
    layout: Layout,
    table: &'a WorkloadTable,
    usage: &'a [Option<PodUsage>],
    details: &'a [PodDetail],
) -> impl Iterator<Item = Excess> + 'a {
    (0u32..)
        .zip(table.workloads())
        .filter_map(move |(index, pod)| {
            let at = index as usize;
            let used = usage.get(at)?.as_ref()?;
            let none = PodDetail::default();
            let detail = details.get(at).unwrap_or(&none);
            let limit = exceeded_by(layout, table, at, (used, detail))?;
            let part = limit.part(pod).unwrap_or_default();
            Some(Excess {
                workload: index,
                limit,
                message: message(limit.kind, part, limit.limit),
            })
        })
}

/// The limit that one workload exceeds, if it is a candidate and would not refuse.
pub fn exceeded_by(
    layout: Layout,
    table: &WorkloadTable,
    index: usize,
    (used, detail): (&PodUsage, &PodDetail),
) -> Option<Exceeded> {
    let (pod, row) = (table.workloads().get(index)?, table.rows().get(index)?);
    if !row.is_candidate || row.is_critical {
        return None;
    }
    empty_dir(pod, detail)
        .or_else(|| whole_pod(row.storage_limit?, pod, used, detail))
        .or_else(|| container(layout, pod, detail))
}

/// The first emptyDir over its size limit, in the order of the manifest; the medium does not matter.
fn empty_dir(pod: &Workload, detail: &PodDetail) -> Option<Exceeded> {
    (0u32..).zip(&pod.volumes).find_map(|(place, volume)| {
        let VolumeSource::EmptyDir {
            size_limit: Some(limit),
            ..
        } = volume.source
        else {
            return None;
        };
        let used = detail.volume(&volume.name)?;
        (limit.signum() > 0).then_some(())?;
        over(LimitKind::EmptyDir, place, limit, used)
    })
}

/// The whole pod: writable layers, logs, local ephemeral volumes, and what else it has.
fn whole_pod(
    limit: Quantity,
    pod: &Workload,
    used: &PodUsage,
    detail: &PodDetail,
) -> Option<Exceeded> {
    let used = used
        .rootfs
        .plus(used.logs)
        .plus(detail.ephemeral_volumes(pod))
        .plus(detail.other);
    over(LimitKind::Pod, 0, limit, used)
}

/// The first container or sidecar over its limit, in the order of the statistics. Its writable
/// layer counts unless images have a filesystem of their own.
fn container(layout: Layout, pod: &Workload, detail: &PodDetail) -> Option<Exceeded> {
    detail.containers.iter().find_map(|stats| {
        let of_spec = (0u32..)
            .zip(&pod.containers)
            .filter(|(_, container)| container.kind != ContainerKind::Init);
        let (place, spec) = of_spec
            .filter(|(_, container)| container.name == stats.name)
            .last()?;
        let limit = spec
            .resources
            .limits
            .ephemeral_storage
            .filter(|limit| !limit.is_zero())?;
        let used = if layout.has_dedicated_imagefs() {
            stats.logs
        } else {
            stats.logs.plus(stats.rootfs)
        };
        over(LimitKind::Container, place, limit, used)
    })
}

/// The limit, if strictly more is used.
fn over(kind: LimitKind, place: u32, limit: Quantity, used: FsUsage) -> Option<Exceeded> {
    (bytes(used) > limit).then(|| Exceeded {
        kind,
        place,
        limit,
        used: used.bytes.unwrap_or(0),
    })
}

fn bytes(used: FsUsage) -> Quantity {
    Quantity::from_bytes(used.bytes.unwrap_or(0).cast_signed())
}

#[cfg(test)]
mod tests;
