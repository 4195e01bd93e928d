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

/// A pod over one of its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excess {
    /// Index of the pod in the table.
    pub workload: u32,
    /// The limit, the first in the order of [`LimitKind`].
    pub kind: LimitKind,
    /// The message of its eviction.
    pub message: String,
}

impl LimitKind {
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
        .zip(table.rows())
        .filter_map(move |((index, pod), row)| {
            let at = index as usize;
            let used = usage.get(at)?.as_ref()?;
            if !row.is_candidate || row.is_critical {
                return None;
            }
            let none = PodDetail::default();
            let detail = details.get(at).unwrap_or(&none);
            let (kind, message) = empty_dir(pod, detail)
                .or_else(|| whole_pod(row.storage_limit?, pod, used, detail))
                .or_else(|| container(layout, pod, detail))?;
            Some(Excess {
                workload: index,
                kind,
                message,
            })
        })
}

/// The first emptyDir over its size limit, in the order of the manifest; the medium does not matter.
fn empty_dir(pod: &Workload, detail: &PodDetail) -> Option<(LimitKind, String)> {
    pod.volumes.iter().find_map(|volume| {
        let VolumeSource::EmptyDir {
            size_limit: Some(limit),
            ..
        } = volume.source
        else {
            return None;
        };
        let over = limit.signum() > 0 && bytes(detail.volume(&volume.name)?) > limit;
        over.then(|| {
            let name = &volume.name;
            let text = format!("Usage of EmptyDir volume {name:?} exceeds the limit \"{limit}\". ");
            (LimitKind::EmptyDir, text)
        })
    })
}

/// The whole pod: writable layers, logs and local ephemeral volumes.
fn whole_pod(
    limit: Quantity,
    pod: &Workload,
    used: &PodUsage,
    detail: &PodDetail,
) -> Option<(LimitKind, String)> {
    let used = used
        .rootfs
        .plus(used.logs)
        .plus(detail.ephemeral_volumes(pod));
    (bytes(used) > limit).then(|| {
        let text = format!(
            "Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "
        );
        (LimitKind::Pod, text)
    })
}

/// The first container or sidecar over its limit, in the order of the statistics. Its writable
/// layer counts unless images have a filesystem of their own.
fn container(layout: Layout, pod: &Workload, detail: &PodDetail) -> Option<(LimitKind, String)> {
    detail.containers.iter().find_map(|stats| {
        let of_spec = pod
            .containers
            .iter()
            .filter(|c| c.kind != ContainerKind::Init);
        let spec = of_spec
            .rev()
            .find(|container| container.name == stats.name)?;
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
        (bytes(used) > limit).then(|| {
            let name = &stats.name;
            let text = format!(
                "Container {name} exceeded its local ephemeral storage limit \"{limit}\". "
            );
            (LimitKind::Container, text)
        })
    })
}

fn bytes(used: FsUsage) -> Quantity {
    Quantity::from_bytes(used.bytes.unwrap_or(0).cast_signed())
}

#[cfg(test)]
mod tests;
