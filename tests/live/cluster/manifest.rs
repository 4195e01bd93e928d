//! The manifests of the tests' pods: what all of them have in common.

use serde_json::{Value, json};

use crate::support::IMAGE;

/// A container that runs these words of the busybox on the node.
pub(crate) fn container(name: &str, words: &[&str], resources: &Value) -> Value {
    json!({
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "args": words,
        "resources": resources,
    })
}

/// A pod of these containers, with one second to end in.
pub(crate) fn pod_of(name: &str, containers: &[Value]) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": { "terminationGracePeriodSeconds": 1, "containers": containers },
    })
}
