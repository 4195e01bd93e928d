//! The Kubernetes API: is it reached, and does it know pods of this node?

use super::count;
use crate::doctor::check::{Check, Subject};
use crate::doctor::facts::Facts;

pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    const SUBJECT: Subject = Subject("kubernetes.api", "pods from the Kubernetes API");
    let answered = match &facts.trials.api {
        None => return Vec::new(),
        Some(Ok(answered)) => answered,
        Some(Err(why)) => {
            let check = SUBJECT
                .failed(why.clone())
                .follows("an agent goes by the pods it knew last; without any nobody is evicted, and new ones are never known")
                .next("say how it is reached: kubernetes: {kubeconfig: FILE}, or run as a pod with a service account")
                .next("its role needs list and watch on pods");
            return Vec::from([check]);
        }
    };
    let pods = count(answered.pods.len(), "pod");
    let found = format!("{pods} of node {}, by {}", answered.node, answered.by);
    let check = if answered.pods.is_empty() {
        SUBJECT
            .warning(found)
            .follows(
                "a node almost always has some: this one may be called otherwise in the cluster",
            )
            .next("say what it is called: kubernetes: {nodeName: NAME}")
            .run("see what nodes are called", "kubectl get nodes")
    } else {
        SUBJECT.ok(found)
    };
    Vec::from([check])
}
