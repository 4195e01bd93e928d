//! What a kubelet sets as `oom_score_adj` of a container: by it the kernel's own killer takes first what Kubernetes would.
//!
//! Node-critical pods and the class Guaranteed have −997, `BestEffort` 1000. A container of the class Burstable has a thousand
//! less the thousandths of the node's memory it requests, 3 to 999: what uses more than its request comes out above what does not.
//! A part of the pod's own request that no container has counts in equal shares; a sidecar never goes before the regular
//! containers beside it. Kubelets with the gate `KubeletOOMScoreAdjTieBreak`, off by default, take some points more off, so
//! that requests of less than a thousandth differ too; from outside the gate is not to be seen, so both values are right.

use super::requests;
use super::workload::{Container, ContainerKind, QosClass, Workload};

/// Of node-critical pods and the class Guaranteed.
const KEPT: i64 = -997;
/// Of the class `BestEffort`.
const FIRST: i64 = 1000;
/// The least of the class Burstable: above what a guaranteed pod that fills the node comes to.
const LEAST: i64 = FIRST + KEPT;
/// The most of it: below `BestEffort`.
const MOST: i64 = FIRST - 1;
/// The smallest request that the tie-break tells from a smaller one, bytes.
const FLOOR: i128 = 64 << 20;

/// The `oom_score_adj` of a container, as the two ways of kubelets to work it out come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Score {
    /// As every kubelet does by default.
    pub plain: i64,
    /// As one does with the gate `KubeletOOMScoreAdjTieBreak`.
    pub tie_break: i64,
}

impl Score {
    const fn both(value: i64) -> Self {
        Self {
            plain: value,
            tie_break: value,
        }
    }

    /// Whether a kubelet may have set this.
    pub const fn admits(self, value: i64) -> bool {
        value == self.plain || value == self.tie_break
    }
}

/// The score of one container of a pod, on a node with so many bytes of memory; `name` is none where it is not known which
/// container it is. None where that makes a difference, and where the node has no memory.
///
/// Memory that a container has by a claim of dynamic resource allocation is not known here.
pub fn of_container(pod: &Workload, name: Option<&str>, capacity: i64) -> Option<Score> {
    if let Some(score) = by_class(pod) {
        return Some(score);
    }
    let node = Node::of(pod, capacity)?;
    let Some(name) = name else {
        let mut scores = pod.containers.iter().map(|one| node.score(one));
        let first = scores.next()?;
        return scores.all(|score| score == first).then_some(first);
    };
    let known = pod.containers.iter().find(|known| known.name == name);
    // What is not in the manifest is an ephemeral container, which requests nothing.
    let ephemeral = Container::default();
    Some(node.score(known.unwrap_or(&ephemeral)))
}

/// The score of a workload that is one whole without a kubelet: as of a pod whose only container requests what all of
/// them do together. None where the node has no memory.
pub fn of_whole(workload: &Workload, capacity: i64) -> Option<Score> {
    if let Some(score) = by_class(workload) {
        return Some(score);
    }
    let node = Node {
        pod: workload,
        capacity: positive(capacity)?,
        share: 0,
    };
    let request = i128::from(requests::memory_request(workload).value());
    Some(Score::both(clamp(node.linear(request))))
}

fn positive(capacity: i64) -> Option<i128> {
    (capacity > 0).then(|| i128::from(capacity))
}

/// What the class alone decides.
fn by_class(pod: &Workload) -> Option<Score> {
    if pod.node_critical && pod.is_critical() {
        return Some(Score::both(KEPT));
    }
    match requests::qos_class(pod) {
        QosClass::Guaranteed => Some(Score::both(KEPT)),
        QosClass::BestEffort => Some(Score::both(FIRST)),
        QosClass::Burstable => None,
    }
}

fn clamp(score: i128) -> i64 {
    let score = score.clamp(i128::from(LEAST), i128::from(MOST));
    i64::try_from(score).unwrap_or(MOST)
}

/// A pod on a node.
struct Node<'a> {
    pod: &'a Workload,
    /// Bytes of memory, never 0.
    capacity: i128,
    /// The part of the pod's own request that each container has on top of its own.
    share: i128,
}

impl<'a> Node<'a> {
    fn of(pod: &'a Workload, capacity: i64) -> Option<Self> {
        Some(Self {
            pod,
            capacity: positive(capacity)?,
            share: share(pod),
        })
    }

    fn score(&self, container: &Container) -> Score {
        let request = self.request(container);
        let (mut plain, mut tie_break) = (self.linear(request), self.nudged(container));
        if container.kind == ContainerKind::Sidecar {
            let regular = || {
                let all = self.pod.containers.iter();
                all.filter(|one| one.kind == ContainerKind::Regular)
            };
            // No request reaches as high as the smallest one, by the plain rule; by the other the highest has to be looked for.
            let smallest = regular().map(|one| self.request(one)).min();
            plain = smallest.map_or(plain, |request| plain.min(self.linear(request)));
            let highest = regular().map(|one| self.nudged(one)).max();
            tie_break = highest.map_or(tie_break, |highest| tie_break.min(highest));
        }
        Score {
            plain: clamp(plain),
            tie_break: clamp(tie_break),
        }
    }

    fn request(&self, container: &Container) -> i128 {
        let own = container.resources.requests.memory.unwrap_or_default();
        i128::from(own.value()) + self.share
    }

    /// Whole thousandths, as integers divide.
    const fn linear(&self, request: i128) -> i128 {
        1000 - 1000 * request / self.capacity
    }

    /// A point for each doubling of a request within a thousandth of the node, and some more where the container
    /// cannot use more than it requests.
    fn nudged(&self, container: &Container) -> i128 {
        let request = self.request(container);
        let most = doublings(self.capacity / 1000 / FLOOR);
        let nudged = self.linear(request) - doublings(request / FLOOR).min(most);
        let limit = self.limit(container);
        if limit > 0 && limit <= request {
            nudged - most - 1
        } else {
            nudged
        }
    }

    /// The container's memory limit, the pod's where it has none; 0 for none at all.
    fn limit(&self, container: &Container) -> i128 {
        let own = container.resources.limits.memory;
        let pods = || self.pod.pod_resources?.limits.memory;
        i128::from(own.or_else(pods).unwrap_or_default().value())
    }
}

/// What the pod requests beyond its containers, divided among them, init containers too.
fn share(pod: &Workload) -> i128 {
    let request = pod.pod_resources.and_then(|own| own.requests.memory);
    let request = request.filter(|request| !request.is_zero());
    let (Some(request), Ok(count)) = (request, i128::try_from(pod.containers.len())) else {
        return 0;
    };
    let together = requests::of_containers(&pod.containers, |list| list.memory);
    let together = together.unwrap_or_default();
    let rest = i128::from(request.value()) - i128::from(together.value());
    rest.checked_div(count).unwrap_or(0)
}

/// How often something doubles from 1 on; 0 below that.
fn doublings(amount: i128) -> i128 {
    amount.checked_ilog2().map_or(0, i128::from)
}

#[cfg(test)]
#[path = "oom_score_tests.rs"]
mod tests;
