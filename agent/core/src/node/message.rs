//! What is said about an eviction: message, annotations, events and the status of the pod.

use alloc::format;
use alloc::string::String;
use core::fmt;

use super::observe::Observation;
use super::requests;
use super::signal::Resource;
use super::threshold::Threshold;
use super::workload::{ContainerUsage, PodDetail, PodUsage, ResourceList, Workload};
use crate::base::{Format, Quantity};

/// `phase` of an evicted pod's status.
pub const PHASE: &str = "Failed";

/// `reason` of an evicted pod's status and of its event.
pub const REASON: &str = "Evicted";

/// The condition an evicted pod gets, unless it went for its own local-storage limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisruptionTarget {
    /// The same message as the status.
    pub message: String,
    /// Generation of the pod that was evicted.
    pub observed_generation: i64,
}

impl DisruptionTarget {
    /// `type` of the condition.
    pub const TYPE: &'static str = "DisruptionTarget";
    /// `status` of the condition.
    pub const STATUS: &'static str = "True";
    /// `reason` of the condition.
    pub const REASON: &'static str = "TerminationByKubelet";
}

/// What is said about one eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The message of status, condition and event. Every sentence ends with a space.
    pub text: String,
    /// Annotations of the event; only of a pod with statistics.
    pub annotations: Option<Annotations>,
}

/// Annotations of the event on an evicted pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotations {
    /// `starved_resource`.
    pub starved_resource: Resource,
    /// `offending_containers`, separated by commas; empty if there is none.
    pub offending_containers: String,
    /// `offending_containers_usage`, parallel to it.
    pub offending_containers_usage: String,
    /// `offending_pod` and `offending_pod_usage`, where the request is the pod's own.
    pub offending_pod: Option<(String, String)>,
}

impl Annotations {
    /// Keys and values.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let pod = self.offending_pod.as_ref();
        [
            ("starved_resource", self.starved_resource.name()),
            ("offending_containers", &self.offending_containers),
            (
                "offending_containers_usage",
                &self.offending_containers_usage,
            ),
        ]
        .into_iter()
        .chain(pod.map(|(name, _)| ("offending_pod", &**name)))
        .chain(pod.map(|(_, usage)| ("offending_pod_usage", &**usage)))
    }
}

/// What is known of a victim.
#[derive(Clone, Copy, Debug)]
pub struct Victim<'a> {
    /// The pod.
    pub pod: &'a Workload,
    /// What it uses, if that is known.
    pub usage: Option<&'a PodUsage>,
    /// What its containers use.
    pub detail: &'a PodDetail,
}

/// The message of an eviction for `threshold`, given what was observed of its signal.
pub fn eviction_message(
    threshold: &Threshold,
    seen: Option<&Observation>,
    victim: Victim<'_>,
) -> Message {
    let resource = threshold.signal.resource();
    let mut text = format!("The node was low on resource: {resource}. ");
    if let Some(seen) = seen {
        let quantity = threshold.quantity(seen.capacity);
        let available = Quantity::new(seen.available, threshold.signal.format());
        push(
            &mut text,
            format_args!("Threshold quantity: {quantity}, available: {available}. "),
        );
    }
    let annotations = victim.usage.map(|usage| {
        let offending_pod = blame_pod(&mut text, resource, victim.pod, usage);
        let (containers, usages) = blame_containers(&mut text, resource, victim);
        Annotations {
            starved_resource: resource,
            offending_containers: containers,
            offending_containers_usage: usages,
            offending_pod,
        }
    });
    Message { text, annotations }
}

/// Message of the event on the node.
pub fn node_event(resource: Resource) -> String {
    format!("Attempting to reclaim {resource}")
}

fn push(text: &mut String, sentence: fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = fmt::Write::write_fmt(text, sentence);
}

/// Who used how much of what, against which request.
struct Blame<'a> {
    kind: &'static str,
    name: &'a str,
    used: Quantity,
    request: Quantity,
    resource: Resource,
}

impl fmt::Display for Blame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            name,
            used,
            request,
            resource,
        } = self;
        write!(
            f,
            "{kind} {name} was using {used}, request is {request}, has larger consumption of \
             {resource}. "
        )
    }
}

/// A pod whose own resources are set is named with them, over its request or not.
fn blame_pod(
    text: &mut String,
    resource: Resource,
    pod: &Workload,
    usage: &PodUsage,
) -> Option<(String, String)> {
    let resources = pod
        .pod_resources
        .as_ref()
        .filter(|pod| requests::is_set(pod))?;
    if resource != Resource::Memory {
        return None;
    }
    let (request, used) = resources.requests.memory.zip(usage.memory.map(bytes))?;
    let blame = Blame {
        kind: "Pod",
        name: &pod.name,
        used,
        request,
        resource,
    };
    push(text, format_args!("{blame}"));
    Some((pod.name.clone(), format!("{used}")))
}

/// Names and usages of the containers over their request, comma-separated.
fn blame_containers(text: &mut String, resource: Resource, victim: Victim<'_>) -> (String, String) {
    let (mut names, mut usages) = (String::new(), String::new());
    for stats in &victim.detail.containers {
        let name = &*stats.name;
        let Some(spec) = victim.pod.containers.iter().find(|c| c.name == stats.name) else {
            continue;
        };
        let request = request_of(&spec.resources.requests, resource);
        let Some(used) = usage_of(stats, resource).filter(|used| *used > request) else {
            continue;
        };
        push(
            text,
            format_args!(
                "{}",
                Blame {
                    kind: "Container",
                    name,
                    used,
                    request,
                    resource
                }
            ),
        );
        if !names.is_empty() {
            names.push(',');
            usages.push(',');
        }
        names.push_str(name);
        push(&mut usages, format_args!("{used}"));
    }
    (names, usages)
}

/// A container's request; missing is zero.
fn request_of(requests: &ResourceList, resource: Resource) -> Quantity {
    let request = match resource {
        Resource::Memory => requests.memory,
        Resource::EphemeralStorage => requests.ephemeral_storage,
        Resource::Inodes | Resource::Pids => None,
    };
    request.unwrap_or(Quantity::new(0, Format::BinarySi))
}

/// A container's usage where it can be held against a request: writable layer and logs only if
/// both are known, and nothing for inodes and process ids.
fn usage_of(stats: &ContainerUsage, resource: Resource) -> Option<Quantity> {
    match resource {
        Resource::Memory => stats.memory.map(bytes),
        Resource::EphemeralStorage => {
            let (rootfs, logs) = stats.rootfs.bytes.zip(stats.logs.bytes)?;
            Some(bytes(rootfs.wrapping_add(logs)))
        }
        Resource::Inodes | Resource::Pids => None,
    }
}

fn bytes(amount: u64) -> Quantity {
    Quantity::from_bytes(amount.cast_signed())
}

#[cfg(test)]
mod tests;
