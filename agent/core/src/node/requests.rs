//! Requests and limits of a whole pod from its containers, and the quality of service class.
//!
//! A pod's figure is the larger of what runs together at the end (containers and sidecars) and
//! what runs during start-up (each init container beside the sidecars started before it).

use super::workload::{Container, ContainerKind, QosClass, ResourceList, Resources, Workload};
use crate::base::{Format, Quantity};

/// Picks one resource out of a list.
pub type Pick = fn(&ResourceList) -> Option<Quantity>;
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

/// What the containers request together of one resource; `None` if none of them names it.
pub fn of_containers(containers: &[Container], pick: Pick) -> Option<Quantity> {
    aggregate(containers, REQUESTS, pick)
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

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn quantity(text: &str) -> Option<Quantity> {
        (!text.is_empty()).then(|| text.parse().unwrap())
    }

    /// A list with the same amount of memory and storage; an empty text leaves both out.
    fn list(text: &str) -> ResourceList {
        let amount = quantity(text);
        ResourceList {
            memory: amount,
            ephemeral_storage: amount,
            ..ResourceList::default()
        }
    }

    fn container((kind, request): (ContainerKind, &str)) -> Container {
        let resources = Resources {
            requests: list(request),
            limits: list(request),
        };
        Container {
            kind,
            resources,
            ..Container::default()
        }
    }

    fn pod(containers: &[(ContainerKind, &str)], overhead: &str) -> Workload {
        Workload {
            containers: containers.iter().copied().map(container).collect(),
            overhead: list(overhead),
            ..Workload::default()
        }
    }

    #[track_caller]
    fn check(containers: &[(ContainerKind, &str)], overhead: &str, expected: &str) {
        let pod = pod(containers, overhead);
        assert_eq!(memory_request(&pod).to_string(), expected);
        assert_eq!(storage_request(&pod).to_string(), expected);
        let limit = storage_limit(&pod).map_or_else(|| "0".to_string(), |limit| limit.to_string());
        assert_eq!(limit, expected);
    }

    #[test]
    fn the_larger_of_start_and_end() {
        use ContainerKind::{Init, Regular, Sidecar};
        check(&[], "", "0");
        check(&[(Regular, "1Gi"), (Regular, "512Mi")], "", "1536Mi");
        check(&[(Regular, "1Gi"), (Init, "2Gi"), (Init, "3Gi")], "", "3Gi");
        check(&[(Regular, "1Gi"), (Sidecar, "2Gi")], "", "3Gi");
        // An init container runs beside the sidecars started before it, not those after it.
        check(
            &[(Regular, "1Gi"), (Sidecar, "2Gi"), (Init, "3Gi")],
            "",
            "5Gi",
        );
        check(
            &[(Regular, "1Gi"), (Init, "3Gi"), (Sidecar, "1Gi")],
            "",
            "3Gi",
        );
        check(&[(Regular, ""), (Regular, "1Gi")], "", "1Gi");
    }

    #[test]
    fn overhead_only_on_top_of_something() {
        use ContainerKind::Regular;
        check(&[(Regular, "1Gi")], "100Mi", "1124Mi");
        check(&[(Regular, "")], "100Mi", "0");
        check(&[(Regular, "0")], "100Mi", "0");
    }

    #[test]
    fn pod_level_resources_replace_the_containers() {
        let base = pod(&[(ContainerKind::Regular, "1Gi")], "1Mi");
        let with = |pod_resources| Workload {
            pod_resources: Some(pod_resources),
            ..base.clone()
        };
        let requests = list("3Gi");
        let set = with(Resources {
            requests,
            ..Resources::default()
        });
        assert_eq!(memory_request(&set).to_string(), "3073Mi");
        // There is no such entry on pod level, and the containers' is not looked at.
        assert_eq!(storage_request(&set).to_string(), "0");
        assert_eq!(storage_limit(&set).unwrap().to_string(), "1025Mi");
        let huge = ResourceList {
            hugepages: true,
            ..ResourceList::default()
        };
        let only_huge = with(Resources {
            limits: huge,
            ..Resources::default()
        });
        assert_eq!(memory_request(&only_huge).to_string(), "0");
        let storage = ResourceList {
            ephemeral_storage: quantity("5Gi"),
            ..ResourceList::default()
        };
        let unsupported = with(Resources {
            requests: storage,
            ..Resources::default()
        });
        assert_eq!(memory_request(&unsupported).to_string(), "1025Mi");
        assert_eq!(
            memory_request(&with(Resources::default())).to_string(),
            "1025Mi"
        );
    }

    fn resources([cpu, memory, cpu_limit, memory_limit]: [&str; 4]) -> Resources {
        let list = |cpu, memory| ResourceList {
            cpu: quantity(cpu),
            memory: quantity(memory),
            ..ResourceList::default()
        };
        Resources {
            requests: list(cpu, memory),
            limits: list(cpu_limit, memory_limit),
        }
    }

    #[track_caller]
    fn check_class(containers: &[[&str; 4]], pod_level: Option<[&str; 4]>, expected: QosClass) {
        let container = |texts: &[&str; 4]| Container {
            resources: resources(*texts),
            ..Container::default()
        };
        let workload = Workload {
            containers: containers.iter().map(container).collect(),
            pod_resources: pod_level.map(resources),
            ..Workload::default()
        };
        assert_eq!(
            qos_class(&workload),
            expected,
            "{containers:?} {pod_level:?}"
        );
        let reported = Workload {
            reported_qos: Some(QosClass::Guaranteed),
            ..workload
        };
        assert_eq!(qos_class(&reported), QosClass::Guaranteed);
    }

    #[test]
    fn classes() {
        use QosClass::{BestEffort, Burstable, Guaranteed};
        let full = ["1", "1Gi", "1000m", "1024Mi"];
        let nothing = ["", "", "", ""];
        check_class(&[], None, BestEffort);
        check_class(&[nothing, nothing], None, BestEffort);
        check_class(&[["0", "0", "", ""]], None, BestEffort);
        check_class(&[full, full], None, Guaranteed);
        check_class(&[full, nothing], None, Burstable);
        check_class(&[["1", "", "1", ""]], None, Burstable);
        check_class(&[["", "1Gi", "", ""]], None, Burstable);
        check_class(&[["", "", "", "1Gi"]], None, Burstable);
        check_class(&[["1", "1Gi", "2", "1Gi"]], None, Burstable);
        check_class(&[nothing], Some(full), Guaranteed);
        check_class(&[full], Some(nothing), BestEffort);
        check_class(&[nothing], Some(["1", "", "2", ""]), Burstable);
    }

    proptest! {
        /// At no moment of its life does a pod have more than its figure, and once exactly that.
        #[test]
        fn the_figure_is_the_largest_of_all_moments(
            pods in proptest::collection::vec((0u8..3, 0i64..100), 0..8),
        ) {
            let kind = |k| [ContainerKind::Regular, ContainerKind::Init, ContainerKind::Sidecar][usize::from(k)];
            let containers: Vec<Container> = pods
                .iter()
                .map(|&(k, bytes)| container((kind(k), &alloc::format!("{bytes}"))))
                .collect();
            let total = |wanted: ContainerKind| -> i64 {
                pods.iter().filter(|&&(k, _)| kind(k) == wanted).map(|&(_, bytes)| bytes).sum()
            };
            let mut moments = vec![total(ContainerKind::Regular) + total(ContainerKind::Sidecar)];
            let mut sidecars = 0;
            for &(k, bytes) in &pods {
                match kind(k) {
                    ContainerKind::Regular => {}
                    ContainerKind::Sidecar => sidecars += bytes,
                    ContainerKind::Init => moments.push(sidecars + bytes),
                }
            }
            let workload = Workload { containers, ..Workload::default() };
            prop_assert_eq!(Some(memory_request(&workload).value()), moments.into_iter().max());
        }
    }
}
