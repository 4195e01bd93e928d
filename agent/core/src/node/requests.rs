//! Requests and limits of a whole pod from its containers, and the quality of service class.
//!
//! A pod's figure is the larger of what runs together at the end (containers and sidecars) and
//! what runs during start-up (each init container beside the sidecars started before it).

use super::workload::{Container, ContainerKind, QosClass, ResourceList, Resources, Workload};
use crate::base::{Format, Quantity};

type Pick = fn(&ResourceList) -> Option<Quantity>;
type Side = fn(&Resources) -> &ResourceList;

const MEMORY: Pick = |list| list.memory;
const STORAGE: Pick = |list| list.ephemeral_storage;
const REQUESTS: Side = |resources| &resources.requests;
const LIMITS: Side = |resources| &resources.limits;

/// The pod's memory request: its pod-level one where pod-level resources are set, the containers'
/// otherwise; overhead on top unless the sum is zero.
pub fn memory_request(workload: &Workload) -> Quantity {
    let request = match &workload.pod_resources {
        Some(pod) if is_set(pod) => pod.requests.memory,
        _ => aggregate(&workload.containers, REQUESTS, MEMORY),
    };
    with_overhead(request, workload.overhead.memory)
}

/// The pod's ephemeral-storage request. Pod-level resources have no such entry, yet where they are
/// set the containers' are not looked at: such a pod requests nothing.
pub fn storage_request(workload: &Workload) -> Quantity {
    let request = match &workload.pod_resources {
        Some(pod) if is_set(pod) => None,
        _ => aggregate(&workload.containers, REQUESTS, STORAGE),
    };
    with_overhead(request, workload.overhead.ephemeral_storage)
}

/// The pod's ephemeral-storage limit: `None` unless some container has one. Pod-level resources
/// change nothing here.
pub fn storage_limit(workload: &Workload) -> Option<Quantity> {
    let limit = aggregate(&workload.containers, LIMITS, STORAGE)?;
    Some(with_overhead(
        Some(limit),
        workload.overhead.ephemeral_storage,
    ))
}

/// A missing figure is zero bytes; overhead is added to what is not zero only.
fn with_overhead(sum: Option<Quantity>, overhead: Option<Quantity>) -> Quantity {
    let sum = Quantity::new(0, Format::BinarySi).plus(sum.unwrap_or_default());
    match overhead {
        Some(overhead) if !sum.is_zero() => sum.plus(overhead),
        _ => sum,
    }
}

/// Whether pod-level resources count as set: a request or limit of cpu, memory or huge pages.
pub fn is_set(pod: &Resources) -> bool {
    let any = |list: &ResourceList| list.cpu.is_some() || list.memory.is_some() || list.hugepages;
    any(&pod.requests) || any(&pod.limits)
}

fn aggregate(containers: &[Container], side: Side, pick: Pick) -> Option<Quantity> {
    let of = |container: &Container| pick(side(&container.resources));
    let (mut together, mut sidecars, mut start) = (None, None, None);
    for container in containers
        .iter()
        .filter(|c| c.kind == ContainerKind::Regular)
    {
        together = add(together, of(container));
    }
    for container in containers
        .iter()
        .filter(|c| c.kind != ContainerKind::Regular)
    {
        let step = if container.kind == ContainerKind::Sidecar {
            together = add(together, of(container));
            sidecars = add(sidecars, of(container));
            sidecars
        } else {
            add(of(container), sidecars)
        };
        start = larger(start, step);
    }
    larger(together, start)
}

fn add(sum: Option<Quantity>, more: Option<Quantity>) -> Option<Quantity> {
    match (sum, more) {
        (Some(sum), Some(more)) => Some(sum.plus(more)),
        (known, None) | (None, known) => known,
    }
}

fn larger(a: Option<Quantity>, b: Option<Quantity>) -> Option<Quantity> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.at_least(b)),
        (known, None) | (None, known) => known,
    }
}

/// The quality of service class: as reported, else from pod-level resources if the field is there
/// at all, else one class common to all containers, or Burstable.
pub fn qos_class(workload: &Workload) -> QosClass {
    if let Some(reported) = workload.reported_qos {
        return reported;
    }
    if let Some(pod) = &workload.pod_resources {
        return class_of(pod);
    }
    let mut classes = workload
        .containers
        .iter()
        .map(|container| class_of(&container.resources));
    let Some(first) = classes.next() else {
        return QosClass::BestEffort;
    };
    if classes.all(|class| class == first) {
        first
    } else {
        QosClass::Burstable
    }
}

fn class_of(resources: &Resources) -> QosClass {
    let requested = |pick: Pick| pick(&resources.requests).unwrap_or_default();
    let limited = |pick: Pick| pick(&resources.limits).unwrap_or_default();
    let cpu: Pick = |list| list.cpu;
    if [cpu, MEMORY]
        .into_iter()
        .any(|pick| requested(pick) != limited(pick))
    {
        return QosClass::Burstable;
    }
    match (requested(cpu).is_zero(), requested(MEMORY).is_zero()) {
        (true, true) => QosClass::BestEffort,
        (false, false) => QosClass::Guaranteed,
        _ => QosClass::Burstable,
    }
}
