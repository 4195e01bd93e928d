//! What was measured of one workload, put together from its folders.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use brink_core::base::Moment;
use brink_core::node::workload::{ContainerUsage, FsUsage, PodDetail, VolumeUsage, Workload};

use super::owned::{Owned, Part};
use crate::guard::storage::{Disk, DiskUsage};

/// `st_blocks` counts in these.
const BLOCK: u64 = 512;

/// What one workload uses of disks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Part by part.
    pub detail: PodDetail,
    /// The same, summed up.
    pub usage: DiskUsage,
    /// The same as a ranking needs it: without volumes and logs that are not on nodefs, as nobody's end frees anything there.
    pub ranked: DiskUsage,
    /// When the last of it was measured.
    pub at: Moment,
    /// Whether something is not known, so that it uses at least so much.
    pub is_partial: bool,
    /// Whether that is what a container has written, of which nobody has told yet: it is still to be measured.
    pub lacks_layers: bool,
    /// Whether it has folders and no containers: there are neither logs nor writable layers to be measured.
    pub has_folders_alone: bool,
}

/// What was found in each folder of a workload.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// By what the folder is.
    pub parts: HashMap<Part, FsUsage>,
    /// Those of these that do not lie on nodefs.
    pub elsewhere: HashSet<Part>,
    /// The pod's file of host names.
    pub hosts_file: FsUsage,
    /// Writable layers by the ids of containers, as far as a runtime tells.
    pub layers: HashMap<String, FsUsage>,
    /// Whether one is missing there because nobody has told of it yet.
    pub lacks_layers: bool,
    /// Whether something could not be looked at.
    pub is_partial: bool,
}

impl Measured {
    /// Puts together what was found of a workload. What is not there is unknown, and adds nothing.
    pub fn of(workload: &Workload, owned: &Owned, found: &Found, at: Moment) -> Self {
        let part = |part: Part| found.parts.get(&part).copied().unwrap_or_default();
        let layer = |name: &str| {
            let mut of_container = owned.containers.iter().filter(|(known, _)| known == name);
            // One that was started anew has another id, and the last one counts.
            let (_, id) = of_container.next_back()?;
            found.layers.get(id).copied()
        };
        let containers = workload.containers.iter().map(|container| ContainerUsage {
            name: container.name.clone(),
            memory: None,
            rootfs: layer(&container.name).unwrap_or_default(),
            logs: part(Part::Logs(container.name.clone())),
        });
        // Of ephemeral ones there is nothing but the id: they have no limit, and count against the pod's.
        let is_known = |name: &str| workload.containers.iter().any(|one| one.name == name);
        let names: BTreeSet<&str> = owned.containers.iter().map(|(name, _)| &**name).collect();
        let others = names.into_iter().filter(|&name| !is_known(name));
        let others = others.map(|name| ContainerUsage {
            name: name.to_owned(),
            rootfs: layer(name).unwrap_or_default(),
            ..ContainerUsage::default()
        });
        let containers: Vec<ContainerUsage> = containers.chain(others).collect();
        let volumes = owned.pieces.iter().filter_map(|piece| match &piece.part {
            Part::Volume(name) => Some(VolumeUsage {
                name: name.clone(),
                used: *found.parts.get(&piece.part)?,
            }),
            Part::Logs(_) | Part::PodLogs => None,
        });
        let volumes: Vec<VolumeUsage> = volumes.collect();
        let sum = |of: fn(&ContainerUsage) -> FsUsage| {
            containers
                .iter()
                .map(of)
                .fold(FsUsage::default(), FsUsage::plus)
        };
        let (rootfs, logs) = (sum(|one| one.rootfs), sum(|one| one.logs));
        let is_here = |part: Part| !found.elsewhere.contains(&part);
        let logs_here = containers
            .iter()
            .filter(|one| is_here(Part::Logs(one.name.clone())))
            .fold(FsUsage::default(), |sum, one| sum.plus(one.logs));
        let here = PodDetail {
            volumes: volumes
                .iter()
                .filter(|one| is_here(Part::Volume(one.name.clone())))
                .cloned()
                .collect(),
            ..PodDetail::default()
        };
        let detail = PodDetail {
            volumes,
            other: less(part(Part::PodLogs), logs).plus(found.hosts_file),
            containers,
        };
        Self {
            usage: DiskUsage {
                rootfs,
                logs,
                volumes: detail.local_volumes(workload),
            },
            ranked: DiskUsage {
                rootfs,
                logs: logs_here,
                volumes: here.local_volumes(workload),
            },
            detail,
            at,
            is_partial: found.is_partial || found.lacks_layers,
            lacks_layers: found.lacks_layers,
            has_folders_alone: owned.has_folders_alone(),
        }
    }

    /// The same without what containers have written.
    #[must_use]
    pub fn without_layers(&self) -> Self {
        let mut rest = self.clone();
        for container in &mut rest.detail.containers {
            container.rootfs = FsUsage::default();
        }
        (rest.usage.rootfs, rest.ranked.rootfs) = (FsUsage::default(), FsUsage::default());
        rest
    }

    /// Puts what a ranking needs where the guard reads it.
    pub fn put_on(&self, disk: &Disk) {
        if self.lacks_layers {
            disk.set_in_part(&self.ranked);
        } else {
            disk.set(&self.ranked);
        }
    }
}

/// What of a whole is not in its parts, which were measured a moment earlier.
fn less(whole: FsUsage, parts: FsUsage) -> FsUsage {
    let less = |whole: Option<u64>, parts: Option<u64>| {
        whole.map(|whole| whole.saturating_sub(parts.unwrap_or(0)))
    };
    FsUsage {
        bytes: less(whole.bytes, parts.bytes),
        inodes: less(whole.inodes, parts.inodes),
    }
}

/// What a single file uses; unknown if it cannot be looked at.
pub(super) fn of_file(path: &Path) -> FsUsage {
    path.symlink_metadata().map_or_else(
        |_| FsUsage::default(),
        |found| FsUsage {
            bytes: Some(found.blocks().saturating_mul(BLOCK)),
            inodes: Some(1),
        },
    )
}

#[cfg(test)]
mod tests {
    use brink_core::base::Quantity;
    use brink_core::node::limits::{LimitKind, exceeded_by};
    use brink_core::node::observe::Layout;
    use brink_core::node::workload::{Container, PodUsage, Volume, VolumeSource, WorkloadTable};

    use super::*;

    fn used(bytes: u64, inodes: u64) -> FsUsage {
        FsUsage {
            bytes: Some(bytes),
            inodes: Some(inodes),
        }
    }

    fn pod() -> Workload {
        let volume = |name: &str, source| Volume {
            name: name.to_owned(),
            source,
        };
        Workload {
            containers: ["app", "side"]
                .map(|name| Container {
                    name: name.to_owned(),
                    ..Container::default()
                })
                .to_vec(),
            volumes: vec![
                volume("data", VolumeSource::GitRepo),
                volume(
                    "shm",
                    VolumeSource::EmptyDir {
                        on_disk: false,
                        size_limit: None,
                    },
                ),
                volume("gone", VolumeSource::ConfigMap),
            ],
            ..Workload::default()
        }
    }

    fn owned() -> Owned {
        let piece = |part| super::super::owned::Piece {
            part,
            folder: brink_host::disk::Folder {
                path: "/".into(),
                quota: false,
                written_directly: true,
            },
        };
        let volume = |name: &str| piece(Part::Volume(name.to_owned()));
        Owned {
            pieces: vec![volume("data"), volume("shm"), volume("gone")],
            containers: [("app", "old"), ("app", "new")]
                .map(|(name, id)| (name.to_owned(), id.to_owned()))
                .to_vec(),
            ..Owned::default()
        }
    }

    #[test]
    fn parts_are_put_together_as_the_kubelet_tells_them_apart() {
        let volume = |name: &str| Part::Volume(name.to_owned());
        let found = Found {
            parts: HashMap::from([
                (volume("data"), used(100, 10)),
                (volume("shm"), used(1_000, 1)),
                (Part::Logs("app".to_owned()), used(20, 2)),
                (Part::PodLogs, used(27, 5)),
            ]),
            hosts_file: used(8, 1),
            layers: HashMap::from([
                ("old".to_owned(), used(9_000, 9)),
                ("new".to_owned(), used(3, 1)),
            ]),
            ..Found::default()
        };
        let measured = Measured::of(&pod(), &owned(), &found, Moment::START);
        assert_eq!(
            measured.usage.volumes,
            used(100, 10),
            "not what is in memory"
        );
        assert_eq!(measured.usage.logs, used(20, 2));
        assert_eq!(measured.usage.rootfs, used(3, 1));
        assert_eq!(measured.detail.other, used(7 + 8, 3 + 1));
        assert_eq!(measured.detail.volume("shm"), Some(used(1_000, 1)));
        assert_eq!(measured.detail.volume("gone"), None);
        assert_eq!(measured.ranked, measured.usage);
    }

    #[test]
    fn what_ephemeral_containers_have_written_is_the_pods_and_under_no_limit_of_their_own() {
        let mut owned = owned();
        owned.containers.push(("debug".to_owned(), "d".to_owned()));
        let found = Found {
            layers: HashMap::from([
                ("new".to_owned(), used(3, 1)),
                ("d".to_owned(), used(50, 5)),
            ]),
            ..Found::default()
        };
        let usage_against = |limit: i64| {
            let mut pod = pod();
            pod.containers[0].resources.limits.ephemeral_storage =
                Some(Quantity::from_bytes(limit));
            let measured = Measured::of(&pod, &owned, &found, Moment::START);
            assert_eq!(measured.usage.rootfs, used(53, 6));
            assert_eq!(measured.ranked.rootfs, used(53, 6));
            let usage = PodUsage {
                rootfs: measured.usage.rootfs,
                ..PodUsage::default()
            };
            let table = WorkloadTable::new(vec![pod], 1);
            let exceeded = exceeded_by(Layout::Single, &table, 0, (&usage, &measured.detail));
            exceeded.map(|limit| limit.kind)
        };
        assert_eq!(usage_against(52), Some(LimitKind::Pod));
        assert_eq!(usage_against(53), None);
    }

    #[test]
    fn what_lies_elsewhere_counts_against_limits_and_in_no_ranking() {
        let data = Part::Volume("data".to_owned());
        let logs = |of: &str| Part::Logs(of.to_owned());
        let mut found = Found {
            parts: HashMap::from([
                (data.clone(), used(100, 10)),
                (logs("app"), used(20, 2)),
                (logs("side"), used(7, 1)),
            ]),
            elsewhere: [data.clone(), logs("app")].into(),
            ..Found::default()
        };
        let measured = Measured::of(&pod(), &owned(), &found, Moment::START);
        assert_eq!(measured.usage.volumes, used(100, 10));
        assert_eq!(measured.usage.logs, used(27, 3));
        assert_eq!(measured.detail.volume("data"), Some(used(100, 10)));
        assert_eq!(measured.ranked.volumes, FsUsage::default(), "unknown");
        assert_eq!(measured.ranked.logs, used(7, 1));
        found.elsewhere.clear();
        let measured = Measured::of(&pod(), &owned(), &found, Moment::START);
        assert_eq!(measured.ranked, measured.usage);
    }

    #[test]
    fn of_nothing_everything_is_unknown() {
        let measured = Measured::of(&pod(), &owned(), &Found::default(), Moment::START);
        assert_eq!(measured.usage, DiskUsage::default());
        assert_eq!(measured.detail.other, FsUsage::default());
        assert_eq!(of_file(Path::new("/nowhere/at/all")), FsUsage::default());
    }
}
