//! What the API server makes of a pod before the kubelet sees it, as far as eviction looks at it.

use brink_core::base::Quantity;
use brink_core::node::requests;
use brink_core::node::workload::{ResourceList, Resources, Workload};

use crate::config::document::{Node, Reader};

/// `terminationGracePeriodSeconds` where it is not set.
const GRACE: i64 = 30;

/// The class of what a node cannot do without.
pub(super) const NODE_CRITICAL: &str = "system-node-critical";

/// The two priority classes that every cluster has.
const CLASSES: [(&str, i32); 2] = [
    (NODE_CRITICAL, 2_000_001_000),
    ("system-cluster-critical", 2_000_000_000),
];

/// Fills in what a pod leaves out. `class` is its `priorityClassName`.
pub(super) fn apply<'a>(reader: &mut Reader<'a>, class: Option<&'a Node>, workload: &mut Workload) {
    workload.termination_grace.get_or_insert(GRACE);
    if workload.uid.is_empty() {
        // Nothing else is known to tell two pods apart by, and nothing else may.
        workload.uid = format!("{}/{}", workload.namespace, workload.name);
    }
    for container in &mut workload.containers {
        requests_from_limits(&mut container.resources);
    }
    if let Some(mut resources) = workload.pod_resources {
        pod_requests(workload, &mut resources);
        workload.pod_resources = Some(resources);
    }
    if workload.priority.is_none()
        && let Some(node) = class
        && let Some(name) = reader.text(node)
    {
        workload.priority = CLASSES
            .iter()
            .find(|(class, _)| *class == name)
            .map(|(_, priority)| *priority);
        if workload.priority.is_none() && !name.is_empty() {
            let problem = "only a cluster knows the value of this class; it ranks as 0 until \
                           spec.priority says otherwise";
            reader.warn(node, problem);
        }
    }
}

/// A limit without a request is the request too.
fn requests_from_limits(resources: &mut Resources) {
    let Resources { requests, limits } = resources;
    requests.cpu = requests.cpu.or(limits.cpu);
    requests.memory = requests.memory.or(limits.memory);
    requests.ephemeral_storage = requests.ephemeral_storage.or(limits.ephemeral_storage);
    requests.hugepages |= limits.hugepages;
}

/// A pod-level request that is missing is what the containers request together, or else the
/// pod-level limit. Nothing happens where the pod has no limits of its own.
fn pod_requests(workload: &Workload, resources: &mut Resources) {
    let Resources { requests, limits } = resources;
    if limits.cpu.is_none() && limits.memory.is_none() && !limits.hugepages {
        return;
    }
    let together = |pick: fn(&ResourceList) -> Option<Quantity>| {
        let sum = requested_together(workload, pick);
        (!sum.is_zero()).then_some(sum)
    };
    requests.cpu = requests
        .cpu
        .or_else(|| together(|list| list.cpu))
        .or(limits.cpu);
    requests.memory = requests
        .memory
        .or_else(|| together(|list| list.memory))
        .or(limits.memory);
    requests.hugepages |= limits.hugepages;
}

/// What the containers request of one resource, by the rule for memory: the larger of start-up and
/// of what runs together afterwards.
fn requested_together(
    workload: &Workload,
    pick: fn(&ResourceList) -> Option<Quantity>,
) -> Quantity {
    let mut alone = Workload {
        containers: workload.containers.clone(),
        ..Workload::default()
    };
    for container in &mut alone.containers {
        container.resources.requests.memory = pick(&container.resources.requests);
    }
    requests::memory_request(&alone)
}
