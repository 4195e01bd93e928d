//! The defaults a pod has before the kubelet looks at it.
//!
//! The API server fills them in, or the kubelet's own reading of a manifest does.

use super::super::requests;
use super::{Container, ResourceList, Workload};

/// `terminationGracePeriodSeconds` where a pod names none.
pub const DEFAULT_TERMINATION_GRACE: i64 = 30;

impl Workload {
    /// The workload with Kubernetes' own defaults: requests follow limits in each container, a
    /// pod with limits of its own requests what its containers do or else its limits, and the
    /// grace is thirty seconds.
    ///
    /// For manifests as people write them. Objects that come from the API server have all this
    /// already, and a scenario is taken as it is written.
    #[must_use]
    pub fn with_api_defaults(mut self) -> Self {
        for Container { resources, .. } in &mut self.containers {
            resources.requests = resources.requests.or(resources.limits);
        }
        if let Some(pod) = &mut self.pod_resources
            && pod.limits != ResourceList::default()
        {
            let of_containers = ResourceList {
                cpu: requests::of_containers(&self.containers, |list| list.cpu),
                memory: requests::of_containers(&self.containers, |list| list.memory),
                ..ResourceList::default()
            };
            let limits = ResourceList {
                ephemeral_storage: None,
                ..pod.limits
            };
            pod.requests = pod.requests.or(of_containers).or(limits);
        }
        self.termination_grace
            .get_or_insert(DEFAULT_TERMINATION_GRACE);
        self
    }
}

impl ResourceList {
    /// Entry by entry, this list's own or the other's.
    fn or(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.or(other.cpu),
            memory: self.memory.or(other.memory),
            ephemeral_storage: self.ephemeral_storage.or(other.ephemeral_storage),
            hugepages: self.hugepages || other.hugepages,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::super::{QosClass, Resources};
    use super::*;

    fn list(cpu: &str, memory: &str) -> ResourceList {
        let read = |text: &str| (!text.is_empty()).then(|| text.parse().unwrap());
        ResourceList {
            cpu: read(cpu),
            memory: read(memory),
            ..ResourceList::default()
        }
    }

    fn pod(requests: ResourceList, limits: ResourceList) -> Workload {
        let resources = Resources { requests, limits };
        Workload {
            containers: vec![Container {
                resources,
                ..Container::default()
            }],
            ..Workload::default()
        }
    }

    #[test]
    fn requests_follow_limits() {
        let written = pod(list("", "1Gi"), list("2", "3Gi"));
        let defaulted = written.with_api_defaults();
        assert_eq!(defaulted.containers[0].resources.requests, list("2", "1Gi"));
        assert_eq!(defaulted.termination_grace, Some(30));
        let only_limits = pod(ResourceList::default(), list("2", "3Gi")).with_api_defaults();
        assert_eq!(requests::qos_class(&only_limits), QosClass::Guaranteed);
    }

    #[test]
    fn a_pods_own_requests_follow_its_containers_then_its_limits() {
        let with = |pod_resources| Workload {
            pod_resources: Some(pod_resources),
            termination_grace: Some(5),
            ..pod(list("", "1Gi"), ResourceList::default())
        };
        let limits = list("4", "8Gi");
        let defaulted = with(Resources {
            limits,
            ..Resources::default()
        })
        .with_api_defaults();
        assert_eq!(defaulted.pod_resources.unwrap().requests, list("4", "1Gi"));
        assert_eq!(defaulted.termination_grace, Some(5));
        let requests = list("", "2Gi");
        let without_limits = with(Resources {
            requests,
            ..Resources::default()
        });
        assert_eq!(without_limits.clone().with_api_defaults(), without_limits);
    }
}
