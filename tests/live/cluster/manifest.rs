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

/// A pod that takes more than there is room for once it is told to, also when it is started again.
pub(crate) fn leaking(name: &str) -> Value {
    let resources = json!({ "limits": { "memory": "400Mi" }, "requests": { "memory": "16Mi" } });
    let name = format!("{name}-{}", std::process::id());
    waiting(
        &name,
        &["exec dd if=/dev/zero of=/dev/null bs=250M"],
        &resources,
    )
}

/// The file that a pod of [`waiting`] waits for.
pub(crate) const GO: &str = "/m/go";

/// A pod whose containers each run a script as soon as there is that file. It lies in a volume in memory, which outlives
/// containers: one that is started again does not wait.
pub(crate) fn waiting(name: &str, scripts: &[&str], resources: &Value) -> Value {
    let one = |(at, script): (usize, &&str)| {
        let script = format!("until [ -e {GO} ]; do sleep 0.1; done; {script}");
        let mut one = container(&format!("c{at}"), &["sh", "-c", &script], resources);
        one["volumeMounts"] = json!([{ "name": "m", "mountPath": "/m" }]);
        one
    };
    let containers: Vec<Value> = scripts.iter().enumerate().map(one).collect();
    let mut pod = pod_of(name, &containers);
    pod["spec"]["volumes"] = json!([{ "name": "m", "emptyDir": { "medium": "Memory" } }]);
    pod
}
