//! What pods use in a step. A pod left out has no statistics; a figure left out is zero.

use brink_core::node::workload::{
    ContainerUsage, FsUsage, PodDetail, PodUsage, VolumeUsage, Workload,
};

use super::read::{Index, find_pod};
use crate::config::document::{Fields, Keys, Node, Reader, Value};

const KEYS: [&str; 6] = [
    "memory",
    "processes",
    "rootfs",
    "logs",
    "volumes",
    "containers",
];

/// Usage and its details, parallel to the pods.
pub(super) fn read_usage<'a>(
    reader: &mut Reader<'a>,
    node: Option<&'a Node>,
    (pods, index): (&[Workload], &Index),
) -> (Vec<Option<PodUsage>>, Vec<PodDetail>) {
    let mut usage = vec![None; pods.len()];
    let mut details = vec![PodDetail::default(); pods.len()];
    let entries = match node {
        Some(node) => reader.entries(node, Keys::Closed),
        None => &[],
    };
    for entry in entries {
        let Some(at) = find_pod(reader, &entry.node, &entry.key, index) else {
            continue;
        };
        // Null is no statistics, and so is nothing at all.
        if entry.node.value == Value::Null {
            continue;
        }
        let (used, detail) = read_pod_usage(reader, &entry.node, &pods[at]);
        usage[at] = Some(used);
        details[at] = detail;
    }
    (usage, details)
}

fn read_pod_usage<'a>(
    reader: &mut Reader<'a>,
    node: &'a Node,
    pod: &Workload,
) -> (PodUsage, PodDetail) {
    let fields = reader.fields(node, &KEYS, Keys::Closed);
    let detail = PodDetail {
        containers: read_containers(reader, fields.get("containers"), pod),
        volumes: read_volumes(reader, fields.get("volumes")),
        ..PodDetail::default()
    };
    let memory = fields.get("memory").map(|node| amount(reader, Some(node)));
    let used = PodUsage {
        // The sum of no containers is nothing, which is a figure all the same.
        memory: memory.or(detail.containers_memory()).or(Some(0)),
        processes: Some(amount(reader, fields.get("processes"))),
        rootfs: read_fs(reader, fields, "rootfs"),
        logs: read_fs(reader, fields, "logs"),
        volumes: detail.local_volumes(pod),
    };
    (used, detail)
}

/// Containers in the order of the manifest, which is the order of sentences in messages; those that
/// it does not know come last and are never named.
fn read_containers<'a>(
    reader: &mut Reader<'a>,
    node: Option<&'a Node>,
    pod: &Workload,
) -> Vec<ContainerUsage> {
    let Some(node) = node else {
        return Vec::new();
    };
    let mut used = Vec::new();
    for entry in reader.entries(node, Keys::Closed) {
        let fields = reader.fields(&entry.node, &["memory", "rootfs", "logs"], Keys::Closed);
        used.push(ContainerUsage {
            name: entry.key.clone(),
            memory: Some(amount(reader, fields.get("memory"))),
            rootfs: read_fs(reader, fields, "rootfs"),
            logs: read_fs(reader, fields, "logs"),
        });
    }
    used.sort_by_key(|container| {
        let mut manifest = pod.containers.iter();
        let place = manifest.position(|known| known.name == container.name);
        place.unwrap_or(usize::MAX)
    });
    used
}

fn read_volumes<'a>(reader: &mut Reader<'a>, node: Option<&'a Node>) -> Vec<VolumeUsage> {
    let Some(node) = node else {
        return Vec::new();
    };
    let mut used = Vec::new();
    for entry in reader.entries(node, Keys::Closed) {
        let fields = reader.fields(&entry.node, &["bytes", "inodes"], Keys::Closed);
        used.push(VolumeUsage {
            name: entry.key.clone(),
            used: fs_of(reader, fields),
        });
    }
    used
}

fn read_fs<'a>(reader: &mut Reader<'a>, fields: Fields<'a>, key: &str) -> FsUsage {
    let fields = match fields.get(key) {
        Some(node) => reader.fields(node, &["bytes", "inodes"], Keys::Closed),
        None => Fields::NONE,
    };
    fs_of(reader, fields)
}

fn fs_of<'a>(reader: &mut Reader<'a>, fields: Fields<'a>) -> FsUsage {
    FsUsage {
        bytes: Some(amount(reader, fields.get("bytes"))),
        inodes: Some(amount(reader, fields.get("inodes"))),
    }
}

/// A quantity or a plain number; zero where there is none.
fn amount<'a>(reader: &mut Reader<'a>, node: Option<&'a Node>) -> u64 {
    let quantity = node.and_then(|node| reader.amount(node));
    quantity.map_or(0, |quantity| u64::try_from(quantity.value()).unwrap_or(0))
}
