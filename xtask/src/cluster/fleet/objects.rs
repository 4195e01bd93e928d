//! The objects of a fleet: nodes without a kubelet, and pods that nobody runs.
use serde_json::{Value, json};

/// The account of the agents.
pub(super) const ACCOUNT: &str = "agent";
/// Marks the nodes.
pub(super) const LABEL: &str = "brink.dev/fleet";

/// A node of which no kubelet speaks, as a controller has it that has given up waiting for one: it finds nothing to change in its
/// conditions.
pub(super) fn node(name: &str) -> Value {
    let unknown = |kind: &str| json!({ "type": kind, "status": "Unknown", "reason": "NodeStatusNeverUpdated", "message": "Kubelet never posted node status." });
    let kinds = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];
    let taint = |effect: &str| json!({ "key": "node.kubernetes.io/unreachable", "effect": effect });
    json!({
        "metadata": { "name": name, "labels": { (LABEL): "true", "kubernetes.io/hostname": name } },
        "spec": { "taints": [taint("NoSchedule"), taint("NoExecute")] },
        "status": {
            "capacity": { "cpu": "4", "memory": "16Gi", "pods": "110" },
            "allocatable": { "cpu": "4", "memory": "15Gi", "pods": "110" },
            "conditions": kinds.map(unknown),
        },
    })
}

/// A pod that nobody runs and nobody evicts from a node that is silent.
pub(super) fn pod_of(name: &str, node: &str) -> Value {
    let container = |name: &str| {
        json!({
            "name": name,
            "image": "localhost/brink-test:1",
            "args": ["sleep", "3600"],
            "env": [{ "name": "A_SETTING", "value": "with a value of some length" }],
            "resources": {
                "requests": { "cpu": "10m", "memory": "16Mi" },
                "limits": { "memory": "400Mi" },
            },
        })
    };
    json!({
        "metadata": { "name": name, "labels": { "app": "fleet" } },
        "spec": {
            "nodeName": node,
            "serviceAccountName": ACCOUNT,
            "automountServiceAccountToken": false,
            "tolerations": [{ "operator": "Exists" }],
            "containers": [container("app"), container("beside")],
        },
    })
}

/// How a kubelet says that it runs. Not that it is ready: a controller would take that back on a silent node.
pub(super) fn running(name: &str) -> Value {
    let since = "2026-01-01T00:00:00Z";
    let container = |of: &str| {
        json!({
            "name": of,
            "ready": true,
            "started": true,
            "restartCount": 0,
            "image": "localhost/brink-test:1",
            "imageID": "sha256:0000000000000000000000000000000000000000000000000000000000000000",
            "containerID": format!("containerd://{name}-{of}"),
            "state": { "running": { "startedAt": since } },
        })
    };
    json!({ "status": {
        "phase": "Running",
        "startTime": since,
        "hostIP": "198.18.0.1",
        "conditions": [{ "type": "PodScheduled", "status": "True", "lastTransitionTime": since }],
        "containerStatuses": [container("app"), container("beside")],
    } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_stays_on_a_silent_node_and_is_its_nodes() {
        let pod = pod_of("sim-0001-0", "sim-0001");
        assert_eq!(pod["spec"]["nodeName"], "sim-0001");
        assert_eq!(
            pod["spec"]["tolerations"],
            json!([{ "operator": "Exists" }])
        );
        let conditions = &running("a")["status"]["conditions"];
        let mut conditions = conditions.as_array().unwrap().iter();
        assert!(conditions.all(|each| each["type"] != "Ready"));
    }
}
