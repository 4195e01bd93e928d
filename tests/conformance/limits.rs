//! Local-storage limits, those of the end-to-end tests included: their figures are data enough.

use brink_core::base::Quantity;
use brink_core::node::observe::{Layout, Observations};
use brink_core::node::workload::{
    Container, ContainerUsage, FsUsage, PodDetail, PodUsage, ResourceList, Resources, Volume,
    VolumeSource, VolumeUsage, Workload,
};
use serde_json::Value;

use super::actions::{Pod, cycle};
use super::{Case, of_areas};

/// A pod with one container of the given limit, whose writable layer and logs are given.
fn limited(limit: i64, rootfs: u64, logs: u64) -> Pod {
    let [rootfs, logs] = [rootfs, logs].map(|bytes| FsUsage {
        bytes: Some(bytes),
        inodes: None,
    });
    let ephemeral_storage = Some(Quantity::from_bytes(limit));
    let limits = ResourceList {
        ephemeral_storage,
        ..ResourceList::default()
    };
    let resources = Resources {
        limits,
        ..Resources::default()
    };
    let name = "c".to_string();
    Pod {
        workload: Workload {
            containers: vec![Container {
                name: name.clone(),
                resources,
                ..Container::default()
            }],
            ..Workload::default()
        },
        usage: PodUsage {
            rootfs,
            logs,
            ..PodUsage::default()
        },
        detail: PodDetail {
            containers: vec![ContainerUsage {
                name,
                memory: None,
                rootfs,
                logs,
            }],
            ..PodDetail::default()
        },
    }
}

/// A pod with one emptyDir of the given limit and usage.
fn empty_dir(limit: i64, used: u64, on_disk: bool) -> Pod {
    let name = "data".to_string();
    let size_limit = Some(Quantity::from_bytes(limit));
    let source = VolumeSource::EmptyDir {
        on_disk,
        size_limit,
    };
    let used = FsUsage {
        bytes: Some(used),
        inodes: None,
    };
    Pod {
        workload: Workload {
            volumes: vec![Volume {
                name: name.clone(),
                source,
            }],
            ..Workload::default()
        },
        detail: PodDetail {
            volumes: vec![VolumeUsage { name, used }],
            ..PodDetail::default()
        },
        ..Pod::default()
    }
}

/// The pods of a local-storage case, whichever way it says what they use. A megabyte is 2^20 bytes
/// in the tests these come from.
fn storage_pods(id: &str, input: &Value) -> Vec<Pod> {
    let mb = |key: &str| input[key].as_u64().map(|mb| mb << 20);
    let bytes = |key: &str| input[key].as_u64();
    let limit = |key: &str| input[key].as_i64().unwrap();
    if input["pods"].is_array() {
        assert_eq!(id, "limit-three-pods-one-cycle", "unknown notation");
        let over = 900 << 20;
        let mut sum = limited(800 << 20, over, 0);
        sum.detail = PodDetail::default();
        let mut container = limited(800 << 20, over, 0);
        container
            .workload
            .containers
            .push(limited(1 << 30, 0, 0).workload.containers.remove(0));
        container.workload.containers[1].name = "other".to_string();
        return vec![empty_dir(1 << 20, 2 << 20, true), container, sum];
    }
    if input["medium"] == "Memory" {
        // tmpfs does not let more be written than its limit.
        let limit = limit("limit");
        let written = mb("attempt_MB").unwrap().min(limit.unsigned_abs());
        return vec![empty_dir(limit, written, false)];
    }
    if let Some(used) = bytes("used").or(mb("used_MB")) {
        let key = if input["size_limit"].is_null() {
            "emptydir_limit"
        } else {
            "size_limit"
        };
        return vec![empty_dir(limit(key), used, true)];
    }
    let rootfs = bytes("rootfs").or(mb("rootfs_MB")).unwrap_or(0);
    vec![limited(
        limit("container_limit"),
        rootfs,
        bytes("logs").unwrap_or(0),
    )]
}

#[test]
fn local_storage() {
    for Case {
        id, input, expect, ..
    } in of_areas(&["local-storage", "local-storage-e2e"])
    {
        let pods = storage_pods(&id, &input);
        let none = Observations::default();
        let evicted = cycle(Vec::new(), Layout::Single, [&none, &none], pods).local_storage;
        if let Some(count) = expect["evicted_in_one_cycle"].as_u64() {
            assert_eq!(evicted.len() as u64, count, "{id}");
        } else {
            assert_eq!(
                Some(!evicted.is_empty()),
                expect["evicted"].as_bool(),
                "{id}"
            );
        }
        for eviction in evicted {
            let grace = expect["grace_s"].as_i64().unwrap_or(1);
            assert_eq!(eviction.grace_seconds, grace, "{id}");
            let disruption = expect["disruption_condition"].as_bool().unwrap_or(false);
            assert_eq!(eviction.disruption.is_some(), disruption, "{id}");
        }
    }
}
