//! Local-storage limits: which of them, in which order, and who is spared.

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use super::super::workload::{
    Container, ContainerUsage, Origin, ResourceList, Resources, Volume, VolumeUsage,
};
use super::*;

const MI: u64 = 1 << 20;

fn used(bytes: u64) -> FsUsage {
    FsUsage {
        bytes: Some(bytes),
        inodes: None,
    }
}

fn container(name: &str, kind: ContainerKind, limit: &str) -> Container {
    let ephemeral_storage = (!limit.is_empty()).then(|| limit.parse().unwrap());
    let limits = ResourceList {
        ephemeral_storage,
        ..ResourceList::default()
    };
    let resources = Resources {
        limits,
        ..Resources::default()
    };
    Container {
        name: name.to_string(),
        kind,
        resources,
    }
}

fn volume(name: &str, on_disk: bool, limit: &str) -> Volume {
    let size_limit = (!limit.is_empty()).then(|| limit.parse().unwrap());
    Volume {
        name: name.to_string(),
        source: VolumeSource::EmptyDir {
            on_disk,
            size_limit,
        },
    }
}

/// A pod with its figures: writable layer and logs of each container, and volumes.
#[derive(Clone, Default)]
struct Case {
    pod: Workload,
    usage: PodUsage,
    detail: PodDetail,
}

impl Case {
    fn container(mut self, name: &str, limit: &str, rootfs: u64, logs: u64) -> Self {
        self.pod
            .containers
            .push(container(name, ContainerKind::Regular, limit));
        let (rootfs, logs) = (used(rootfs), used(logs));
        let name = name.to_string();
        self.detail.containers.push(ContainerUsage {
            name,
            memory: None,
            rootfs,
            logs,
        });
        self.usage.rootfs = self.usage.rootfs.plus(rootfs);
        self.usage.logs = self.usage.logs.plus(logs);
        self
    }

    fn volume(mut self, volume: Volume, bytes: u64) -> Self {
        self.detail.volumes.push(VolumeUsage {
            name: volume.name.clone(),
            used: used(bytes),
        });
        self.pod.volumes.push(volume);
        self
    }
}

fn found(layout: Layout, cases: &[Case]) -> Vec<Excess> {
    let table = WorkloadTable::new(cases.iter().map(|case| case.pod.clone()).collect(), 1);
    let usage: Vec<_> = cases.iter().map(|case| Some(case.usage)).collect();
    let details: Vec<_> = cases.iter().map(|case| case.detail.clone()).collect();
    exceeded(layout, &table, &usage, &details).collect()
}

#[track_caller]
fn check(layout: Layout, case: &Case, expected: Option<(LimitKind, &str)>) {
    let found = found(layout, core::slice::from_ref(case));
    let found = found
        .first()
        .map(|excess| (excess.limit.kind, &*excess.message));
    assert_eq!(found, expected, "{layout:?}");
}

#[test]
fn an_empty_dir_over_its_limit_strictly() {
    let with = |bytes| Case::default().volume(volume("data", true, "1Gi"), bytes);
    check(Layout::Single, &with(1024 * MI), None);
    let text = "Usage of EmptyDir volume \"data\" exceeds the limit \"1Gi\". ";
    check(
        Layout::Single,
        &with(1024 * MI + 1),
        Some((LimitKind::EmptyDir, text)),
    );
    // The medium is not looked at.
    let in_memory = Case::default().volume(volume("data", false, "1Gi"), 1025 * MI);
    check(
        Layout::Single,
        &in_memory,
        Some((LimitKind::EmptyDir, text)),
    );
    // No limit, a limit of zero, no measurement.
    check(
        Layout::Single,
        &Case::default().volume(volume("data", true, ""), u64::MAX >> 1),
        None,
    );
    check(
        Layout::Single,
        &Case::default().volume(volume("data", true, "0"), 5),
        None,
    );
    let mut unmeasured = with(2048 * MI);
    unmeasured.detail.volumes.clear();
    check(Layout::Single, &unmeasured, None);
}

#[test]
fn the_sum_counts_containers_that_have_a_limit_and_everything_the_pod_uses() {
    let text = "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ";
    let two = |logs| {
        Case::default()
            .container("a", "512Mi", 500 * MI, 0)
            .container("b", "512Mi", 500 * MI, logs)
    };
    check(
        Layout::Single,
        &two(24 * MI),
        Some((
            LimitKind::Container,
            "Container b exceeded its \
        local ephemeral storage limit \"512Mi\". ",
        )),
    );
    check(Layout::Single, &two(25 * MI), Some((LimitKind::Pod, text)));
    // Even where writable layers lie elsewhere.
    check(
        Layout::DedicatedImagefs,
        &two(25 * MI),
        Some((LimitKind::Pod, text)),
    );
    let volumes = |on_disk| {
        Case::default()
            .container("a", "1Gi", 0, 0)
            .volume(volume("data", on_disk, ""), 1025 * MI)
    };
    check(Layout::Single, &volumes(true), Some((LimitKind::Pod, text)));
    check(Layout::Single, &volumes(false), None);
    let unlimited = Case::default().container("a", "", 1 << 40, 0);
    check(Layout::Single, &unlimited, None);
}

#[test]
fn a_containers_writable_layer_counts_unless_images_live_elsewhere() {
    // A second container raises the sum, so that only the container's own limit is passed.
    let case = Case::default()
        .container("b", "10Gi", 0, 0)
        .container("a", "1Gi", 1024 * MI, 1);
    let text = "Container a exceeded its local ephemeral storage limit \"1Gi\". ";
    check(Layout::Single, &case, Some((LimitKind::Container, text)));
    check(Layout::DedicatedImagefs, &case, None);
    check(Layout::Split, &case, None);
    let logs = Case::default()
        .container("b", "10Gi", 0, 0)
        .container("a", "1Gi", 0, 1025 * MI);
    check(Layout::Split, &logs, Some((LimitKind::Container, text)));
    // A sidecar has a limit of its own; an init container's counts in the sum only, and a limit of
    // zero not at all.
    let as_kind = |kind| {
        let mut case = case.clone();
        case.pod.containers[1].kind = kind;
        case
    };
    let sidecar = as_kind(ContainerKind::Sidecar);
    check(Layout::Single, &sidecar, Some((LimitKind::Container, text)));
    check(Layout::Single, &as_kind(ContainerKind::Init), None);
    let zero = Case::default()
        .container("b", "10Gi", 0, 0)
        .container("a", "0", 5, 0);
    check(Layout::Single, &zero, None);
}

#[test]
fn the_first_rule_that_matches_and_several_pods_at_once() {
    let all = Case::default()
        .container("a", "1Mi", 5 * MI, 0)
        .volume(volume("one", true, "9Mi"), MI)
        .volume(volume("two", true, "1Mi"), 2 * MI);
    let text = "Usage of EmptyDir volume \"two\" exceeds the limit \"1Mi\". ";
    check(Layout::Single, &all, Some((LimitKind::EmptyDir, text)));
    let fine = Case::default().container("a", "1Gi", 1, 1);
    let mut fixed = all.clone();
    fixed.pod.origin = Origin::Static;
    let mut mirror = all.clone();
    mirror.pod.origin = Origin::Mirror;
    let mut important = all.clone();
    important.pod.priority = Some(2_000_000_000);
    let cases = [all.clone(), fixed, fine, mirror, important, all];
    let evicted: Vec<_> = found(Layout::Single, &cases)
        .iter()
        .map(|e| e.workload)
        .collect();
    assert_eq!(evicted, [0, 5]);
    // Without statistics nobody is judged.
    let table = WorkloadTable::new(vec![cases[0].pod.clone()], 1);
    let details = [cases[0].detail.clone()];
    assert_eq!(
        exceeded(Layout::Single, &table, &[None], &details).count(),
        0
    );
}
