//! A pod and what it uses, read from the objects of a scenario.

use std::collections::BTreeMap;

use serde_json::Value;

use super::quantity::{Amount, ONE};

/// A figure of a scenario, which is a number or a text; left out it is nothing.
pub(crate) fn amount(value: &Value) -> Option<Amount> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(Amount::read(text)),
        number => Some(Amount::read(&number.to_string())),
    }
}

fn whole(value: &Value) -> i64 {
    amount(value).map_or(0, Amount::whole)
}

pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_string()
}

fn sum(one: Option<Amount>, other: Option<Amount>) -> Option<Amount> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.plus(other)),
        (known, None) | (None, known) => known,
    }
}

fn larger(one: Option<Amount>, other: Option<Amount>) -> Option<Amount> {
    match (one, other) {
        (Some(one), Some(other)) if other.nanos <= one.nanos => Some(one),
        (known, None) | (_, known) => known,
    }
}

fn is_sidecar(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

/// Of all containers together: what runs at the end, or at the most demanding moment of the start.
fn together(spec: &Value, side: &str, resource: &str) -> Option<Amount> {
    let of = |container: &Value| amount(&container["resources"][side][resource]);
    let mut end = list(&spec["containers"]).iter().map(of).fold(None, sum);
    let (mut sidecars, mut start) = (None, None);
    for container in list(&spec["initContainers"]) {
        let own = of(container);
        if is_sidecar(container) {
            end = sum(end, own);
            sidecars = sum(sidecars, own);
            start = larger(start, sidecars);
        } else {
            start = larger(start, sum(own, sidecars));
        }
    }
    larger(end, start)
}

/// Overhead goes on top of what is not zero.
fn with_overhead(spec: &Value, resource: &str, base: Amount) -> Amount {
    match amount(&spec["overhead"][resource]) {
        Some(overhead) if base.nanos != 0 => base.plus(overhead),
        _ => base,
    }
}

/// Resources of the pod itself count as set by a request or limit of cpu or memory.
fn has_own_resources(spec: &Value) -> bool {
    ["requests", "limits"].iter().any(|side| {
        let own = &spec["resources"][side];
        ["cpu", "memory"].iter().any(|name| own.get(name).is_some())
    })
}

fn request(spec: &Value, resource: &str) -> Amount {
    let base = if !has_own_resources(spec) {
        together(spec, "requests", resource)
    } else if resource == "memory" {
        amount(&spec["resources"]["requests"]["memory"])
    } else {
        None
    };
    with_overhead(
        spec,
        resource,
        Amount::NONE.plus(base.unwrap_or(Amount::NONE)),
    )
}

pub(crate) struct Pod {
    pub(crate) full: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) priority: i64,
    pub(crate) grace: Option<i64>,
    pub(crate) refuses: bool,
    pub(crate) is_candidate: bool,
    pub(crate) memory: Amount,
    pub(crate) storage: Amount,
    pub(crate) storage_limit: Option<Amount>,
    /// What the pod itself requests of memory, if its resources count.
    pub(crate) own_memory: Option<Amount>,
    /// Containers, then init containers: name, and requests of memory and storage.
    pub(crate) containers: Vec<(String, [Amount; 2])>,
    /// Containers and sidecars with a storage limit.
    pub(crate) limited: Vec<(String, Amount)>,
    /// Name, size limit, whether it is local, and whether it ends with the pod.
    pub(crate) volumes: Vec<(String, Option<Amount>, bool, bool)>,
}

impl Pod {
    pub(crate) fn read(pod: &Value) -> Self {
        let (meta, spec) = (&pod["metadata"], &pod["spec"]);
        let namespace = meta["namespace"].as_str().unwrap_or("default");
        let annotation = |key: &str| meta["annotations"][key].as_str();
        let mirror = annotation("kubernetes.io/config.mirror").is_some();
        let source = annotation("kubernetes.io/config.source");
        let is_static = source.is_some_and(|source| source != "api");
        let priority = spec["priority"].as_i64();
        let over = matches!(
            pod["status"]["phase"].as_str(),
            Some("Succeeded" | "Failed")
        );
        let own_memory = amount(&spec["resources"]["requests"]["memory"]);
        let limit = together(spec, "limits", "ephemeral-storage");
        Self {
            full: format!("{namespace}/{}", text(&meta["name"])),
            name: text(&meta["name"]),
            uid: text(&meta["uid"]),
            priority: priority.unwrap_or(0),
            grace: spec["terminationGracePeriodSeconds"].as_i64(),
            refuses: is_static || priority.is_some_and(|priority| priority >= 2_000_000_000),
            is_candidate: !mirror && (!over || !meta["deletionTimestamp"].is_null()),
            memory: request(spec, "memory"),
            storage: request(spec, "ephemeral-storage"),
            storage_limit: limit.map(|limit| with_overhead(spec, "ephemeral-storage", limit)),
            own_memory: own_memory.filter(|_| has_own_resources(spec)),
            containers: containers(spec),
            limited: limited(spec),
            volumes: list(&spec["volumes"]).iter().map(volume).collect(),
        }
    }
}

fn containers(spec: &Value) -> Vec<(String, [Amount; 2])> {
    let both = list(&spec["containers"]).iter();
    both.chain(list(&spec["initContainers"]))
        .map(|container| {
            let requests = &container["resources"]["requests"];
            let of = |name: &str| amount(&requests[name]).unwrap_or(Amount::NONE);
            (
                text(&container["name"]),
                [of("memory"), of("ephemeral-storage")],
            )
        })
        .collect()
}

fn limited(spec: &Value) -> Vec<(String, Amount)> {
    let sidecars = list(&spec["initContainers"])
        .iter()
        .filter(|c| is_sidecar(c));
    let both = list(&spec["containers"]).iter().chain(sidecars);
    both.filter_map(|container| {
        let limit = amount(&container["resources"]["limits"]["ephemeral-storage"])?;
        (limit.nanos != 0).then(|| (text(&container["name"]), limit))
    })
    .collect()
}

fn volume(volume: &Value) -> (String, Option<Amount>, bool, bool) {
    let empty = &volume["emptyDir"];
    let on_disk = !empty.is_null() && text(&empty["medium"]).is_empty();
    let ephemeral = on_disk || !volume["configMap"].is_null() || !volume["gitRepo"].is_null();
    let local = ephemeral || !volume["hostPath"].is_null();
    (
        text(&volume["name"]),
        amount(&empty["sizeLimit"]),
        local,
        ephemeral,
    )
}

/// Bytes and inodes.
type Disk = [i64; 2];

pub(crate) struct Usage {
    pub(crate) memory: i64,
    pub(crate) processes: i64,
    pub(crate) rootfs: Disk,
    pub(crate) logs: Disk,
    pub(crate) local_volumes: Disk,
    pub(crate) volumes: BTreeMap<String, i64>,
    /// Memory, bytes of the writable layer, bytes of logs.
    pub(crate) containers: BTreeMap<String, [i64; 3]>,
    pub(crate) ephemeral: i64,
}

impl Usage {
    pub(crate) fn read(usage: &Value, pod: &Pod) -> Self {
        let disk = |value: &Value| ["bytes", "inodes"].map(|key| whole(&value[key]));
        let entries = |key: &str| usage[key].as_object().into_iter().flatten();
        let volumes: BTreeMap<_, _> = entries("volumes")
            .map(|(name, value)| (name.clone(), disk(value)))
            .collect();
        let containers: BTreeMap<_, _> = entries("containers")
            .map(|(name, value)| {
                let bytes = |key: &str| whole(&value[key]["bytes"]);
                (
                    name.clone(),
                    [whole(&value["memory"]), bytes("rootfs"), bytes("logs")],
                )
            })
            .collect();
        let (rootfs, logs) = (disk(&usage["rootfs"]), disk(&usage["logs"]));
        let (mut local_volumes, mut ephemeral) = ([0, 0], rootfs[0] + logs[0]);
        for (name, _, local, ends) in &pod.volumes {
            let used = volumes.get(name).copied().unwrap_or_default();
            if *local {
                local_volumes = [local_volumes[0] + used[0], local_volumes[1] + used[1]];
            }
            ephemeral += if *ends { used[0] } else { 0 };
        }
        let in_containers = containers.values().map(|figures| figures[0]).sum();
        Self {
            memory: amount(&usage["memory"]).map_or(in_containers, Amount::whole),
            processes: whole(&usage["processes"]),
            rootfs,
            logs,
            local_volumes,
            volumes: volumes
                .into_iter()
                .map(|(name, used)| (name, used[0]))
                .collect(),
            containers,
            ephemeral,
        }
    }

    /// A figure beyond an amount, in billionths.
    pub(crate) fn beyond(figure: i64, amount: Amount) -> i128 {
        i128::from(figure) * ONE - amount.nanos
    }
}
