//! The admission policies on sample requests: what an agent may write, and everything that it may not.

use serde_json::{Value, json};

use crate::manifests::{VARIANTS, all, documents, list, one, rendered, text, texts};
use crate::request::{Request, denial, put};

const NODE: &str = "worker-1";
const ACCOUNT: &str = "system:serviceaccount:brink-system:brink";
const NODE_CLAIM: &str = "authentication.kubernetes.io/node-name";

fn agent(node: &str) -> Value {
    json!({
        "username": ACCOUNT,
        "groups": ["system:serviceaccounts", "system:authenticated"],
        "extra": { NODE_CLAIM: [node], "authentication.kubernetes.io/pod-name": ["brink-x"] },
    })
}

/// An eviction as the agent writes it.
fn eviction() -> Request {
    let before = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "labels": { "app": "web" },
            "annotations": { "team": "shop" },
            "ownerReferences": [{ "kind": "ReplicaSet", "name": "web" }],
        },
        "spec": { "nodeName": NODE, "priority": 100 },
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.7",
            "qosClass": "Burstable",
            "conditions": [{ "type": "Ready", "status": "True" }],
            "containerStatuses": [{ "name": "web", "restartCount": 0, "state": { "running": {} } }],
        },
    });
    let mut after = before.clone();
    for (pointer, value) in [
        ("/status/phase", json!("Failed")),
        ("/status/reason", json!("Evicted")),
        (
            "/status/message",
            json!("The node was low on resource: memory. "),
        ),
        (
            "/status/conditions",
            json!([
                { "type": "Ready", "status": "True" },
                { "type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet" },
            ]),
        ),
    ] {
        put(&mut after, pointer, value);
    }
    Request {
        resource: "pods",
        sub_resource: "status",
        operation: "UPDATE",
        user: agent(NODE),
        before,
        after,
    }
}

#[track_caller]
fn check(request: &Request, expected: Option<&str>) {
    let denied = denial(request);
    match (denied.as_deref(), expected) {
        (Some(message), Some(part)) => assert!(message.contains(part), "{message}"),
        (found, expected) => assert_eq!(found, expected),
    }
}

#[test]
fn an_agent_marks_a_pod_of_its_node_as_evicted() {
    check(&eviction(), None);
    // A pod without a priority, and one that was marked already.
    let plain = eviction().with(|request| {
        for object in [&mut request.before, &mut request.after] {
            object["spec"].as_object_mut().unwrap().remove("priority");
        }
    });
    check(&plain, None);
    let again = eviction().with(|request| request.before = request.after.clone());
    check(&again, None);
    // One that bears nothing yet, for a limit of its own: the kubelet writes no condition for that.
    let bare = eviction().with(|request| {
        for object in [&mut request.before, &mut request.after] {
            object["metadata"] = json!({ "name": "web", "namespace": "shop" });
        }
        request.before["status"] = json!({ "phase": "Pending" });
        request.after["status"] = json!({ "phase": "Failed", "reason": "Evicted", "message": "x" });
    });
    check(&bare, None);
}

/// Each thing that is written, taken away, or new where there was none.
fn changed(request: &Request, pointer: &str, value: &Value) -> Vec<Request> {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let without = |object: &mut Value| {
        let parent = object.pointer_mut(parent).unwrap();
        parent.as_object_mut().unwrap().remove(key);
    };
    let new = request
        .clone()
        .with(|request| without(&mut request.before))
        .after(pointer, value.clone());
    let gone = request
        .clone()
        .with(|request| put(&mut request.before, pointer, value.clone()))
        .with(|request| without(&mut request.after));
    let other = request
        .clone()
        .with(|request| put(&mut request.before, pointer, json!({ "was": 1 })))
        .after(pointer, value.clone());
    let same = request.clone().always(pointer, value);
    check(&same, None);
    Vec::from([new, gone, other])
}

#[test]
fn with_an_eviction_nothing_else_of_a_pod_is_written() {
    for (pointer, value) in [
        ("/metadata/labels", json!({ "app": "other" })),
        ("/metadata/annotations", json!({ "other": "x" })),
        ("/metadata/finalizers", json!(["example.com/hold"])),
        ("/metadata/ownerReferences", json!([{ "kind": "Job" }])),
    ] {
        for request in changed(&eviction(), pointer, &value) {
            check(&request, Some("owners of pods"));
        }
    }
    for (pointer, value) in [
        ("/status/podIP", json!("10.0.0.8")),
        ("/status/hostIP", json!("10.0.0.1")),
        ("/status/startTime", json!("2026-01-01T00:00:00Z")),
        ("/status/containerStatuses", json!([{ "name": "web" }])),
        ("/status/somethingNewer", json!(7)),
    ] {
        for request in changed(&eviction(), pointer, &value) {
            check(&request, Some("of a pod's status"));
        }
    }
    for conditions in [
        json!([]),
        json!([{ "type": "Ready", "status": "False" }]),
        json!([{ "type": "Ready", "status": "True" }, { "type": "Other", "status": "True" }]),
    ] {
        let request = eviction().after("/status/conditions", conditions);
        check(&request, Some("DisruptionTarget"));
    }
}

#[test]
fn pods_elsewhere_critical_ones_and_other_words_are_denied() {
    let elsewhere = json!("worker-2");
    check(
        &eviction().always("/spec/nodeName", &elsewhere),
        Some("own node"),
    );
    let pending = eviction().with(|request| {
        for object in [&mut request.before, &mut request.after] {
            object["spec"].as_object_mut().unwrap().remove("nodeName");
        }
    });
    check(&pending, Some("own node"));
    // What the request says of the node does not count: it is what was there.
    let moved = eviction().with(|request| put(&mut request.before, "/spec/nodeName", elsewhere));
    check(&moved, Some("own node"));
    for priority in [2_000_000_000_i64, 2_000_001_000] {
        check(
            &eviction().always("/spec/priority", &json!(priority)),
            Some("critical"),
        );
    }
    check(
        &eviction().always("/spec/priority", &json!(1_999_999_999)),
        None,
    );
    check(&eviction().always("/spec/priority", &json!(-10)), None);
    for (pointer, word) in [
        ("/status/phase", "Succeeded"),
        ("/status/reason", "Preempted"),
    ] {
        check(
            &eviction().after(pointer, json!(word)),
            Some("nothing else"),
        );
    }
    let silent = eviction().with(|request| {
        request.after["status"]
            .as_object_mut()
            .unwrap()
            .remove("reason");
    });
    check(&silent, Some("nothing else"));
}

#[test]
fn of_a_pod_nothing_but_the_status_is_written() {
    let nothing = Value::Null;
    for (operation, sub_resource) in [
        ("UPDATE", ""),
        ("UPDATE", "ephemeralcontainers"),
        ("CREATE", ""),
        ("CREATE", "eviction"),
        ("DELETE", ""),
    ] {
        let request = eviction().with(|request| {
            (request.operation, request.sub_resource) = (operation, sub_resource);
            match operation {
                "CREATE" => request.before = nothing.clone(),
                "DELETE" => request.after = nothing.clone(),
                _ => {}
            }
        });
        check(&request, Some("status alone"));
    }
}

/// Before Kubernetes 1.30, or of a token that was not made for a pod.
#[test]
fn a_token_without_a_node_writes_nothing() {
    for request in [eviction(), condition(), event()] {
        let without = [json!({}), json!({ "other": ["x"] })];
        for extra in without {
            let request = request
                .clone()
                .with(|request| request.user["extra"] = extra);
            check(&request, Some("names no node"));
        }
        let bare = request.clone().with(|request| {
            request.user.as_object_mut().unwrap().remove("extra");
        });
        check(&bare, Some("names no node"));
    }
}

#[test]
fn nobody_else_is_looked_at() {
    for user in [
        "system:node:worker-2",
        "system:serviceaccount:kube-system:brink",
        "system:serviceaccount:brink-system:default",
        "kubernetes-admin",
    ] {
        let request = eviction().always("/spec/nodeName", &json!("worker-2"));
        check(
            &request.with(|request| request.user = json!({ "username": user })),
            None,
        );
    }
}

/// A condition of ours on the agent's node.
fn condition() -> Request {
    let before = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": NODE,
            "labels": { "zone": "a" },
            "annotations": { "node.alpha.kubernetes.io/ttl": "0" },
        },
        "spec": {
            "podCIDR": "10.0.0.0/24",
            "taints": [{ "key": "dedicated", "effect": "NoSchedule" }],
        },
        "status": {
            "capacity": { "cpu": "4", "memory": "16310676Ki" },
            "addresses": [{ "type": "InternalIP", "address": "192.0.2.1" }],
            "images": [{ "names": ["a"], "sizeBytes": 7 }],
            "conditions": [{ "type": "Ready", "status": "True" }],
        },
    });
    let mut after = before.clone();
    after["status"]["conditions"] = json!([
        { "type": "Ready", "status": "True" },
        { "type": "brink.dev/MemoryPressure", "status": "True", "reason": "BrinkHasInsufficientMemory" },
    ]);
    Request {
        resource: "nodes",
        sub_resource: "status",
        operation: "UPDATE",
        user: agent(NODE),
        before,
        after,
    }
}

/// The taint, which stands in the node's specification.
fn taint() -> Request {
    let plain = condition().with(|request| {
        request.sub_resource = "";
        request.after = request.before.clone();
    });
    plain.after(
        "/spec/taints",
        json!([
            { "key": "dedicated", "effect": "NoSchedule" },
            { "key": "brink.dev/memory-pressure", "effect": "NoSchedule" },
        ]),
    )
}

#[test]
fn an_agent_writes_its_own_conditions_and_taints() {
    check(&condition(), None);
    check(&taint(), None);
    // And takes them back, the last of them too.
    let back = |request: Request| {
        request.with(|request| std::mem::swap(&mut request.before, &mut request.after))
    };
    check(&back(condition()), None);
    check(&back(taint()), None);
    let first = taint().with(|request| {
        request.before["spec"]
            .as_object_mut()
            .unwrap()
            .remove("taints");
        put(
            &mut request.after,
            "/spec/taints",
            json!([{ "key": "brink.dev/memory-pressure", "effect": "NoSchedule" }]),
        );
    });
    check(&first, None);
    let fresh = condition()
        .with(|request| {
            for object in [&mut request.before, &mut request.after] {
                object["status"] = json!({});
            }
        })
        .after(
            "/status/conditions",
            json!([
                { "type": "brink.dev/PIDPressure", "status": "False" },
                { "type": "brink.dev/DiskPressure", "status": "True" },
            ]),
        );
    check(&fresh, None);
}

#[test]
fn everything_else_of_a_node_is_somebody_elses() {
    let other = condition().always("/metadata/name", &json!("worker-2"));
    check(&other, Some("own node"));
    let ready = json!([{ "type": "Ready", "status": "False" }]);
    check(
        &condition().after("/status/conditions", ready),
        Some("conditions"),
    );
    let kubelets = json!([
        { "type": "Ready", "status": "True" },
        { "type": "MemoryPressure", "status": "True" },
    ]);
    check(
        &condition().after("/status/conditions", kubelets),
        Some("conditions"),
    );
    check(
        &condition().after("/status/conditions", json!([])),
        Some("conditions"),
    );
    check(&taint().after("/spec/taints", json!([])), Some("taints"));
    let theirs = json!([
        { "key": "dedicated", "effect": "NoSchedule" },
        { "key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule" },
    ]);
    check(&taint().after("/spec/taints", theirs), Some("taints"));
    check(
        &taint().after("/spec/unschedulable", json!(true)),
        Some("cordon"),
    );
    check(
        &taint().after("/metadata/labels", json!({ "zone": "b" })),
        Some("labels"),
    );
    check(
        &taint().with(|request| put(&mut request.before, "/spec/unschedulable", json!(true))),
        Some("cordon"),
    );
    for operation in ["CREATE", "DELETE"] {
        let request = taint().with(|request| request.operation = operation);
        check(&request, Some("no node"));
    }
}

#[test]
fn with_a_condition_or_a_taint_nothing_else_of_a_node_is_written() {
    for request in [condition(), taint()] {
        for (pointer, value) in [
            ("/metadata/labels", json!({ "zone": "b" })),
            ("/metadata/annotations", json!({ "brink.dev/pause": "" })),
            ("/metadata/finalizers", json!(["example.com/hold"])),
            ("/metadata/ownerReferences", json!([{ "kind": "Machine" }])),
        ] {
            for request in changed(&request, pointer, &value) {
                check(&request, Some("owners of nodes"));
            }
        }
        for (pointer, value) in [
            ("/status/capacity", json!({ "cpu": "400" })),
            ("/status/allocatable", json!({ "cpu": "400" })),
            ("/status/addresses", json!([])),
            ("/status/images", json!([])),
            ("/status/nodeInfo", json!({ "kernelVersion": "x" })),
            ("/status/volumesAttached", json!([{ "name": "x" }])),
            ("/status/somethingNewer", json!(7)),
        ] {
            for request in changed(&request, pointer, &value) {
                check(&request, Some("of a node's status"));
            }
        }
        for (pointer, value) in [
            ("/spec/podCIDR", json!("10.0.1.0/24")),
            ("/spec/providerID", json!("other")),
        ] {
            for request in changed(&request, pointer, &value) {
                check(&request, Some("of a node's specification"));
            }
        }
    }
}

/// An Event on a pod, of an eviction.
fn event() -> Request {
    Request {
        resource: "events",
        sub_resource: "",
        operation: "CREATE",
        user: agent(NODE),
        before: Value::Null,
        after: json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "name": "web.0123456789abcdef", "namespace": "shop" },
            "involvedObject": { "kind": "Pod", "name": "web", "namespace": "shop" },
            "reason": "Evicted",
            "source": { "component": "brink", "host": NODE },
        }),
    }
}

#[test]
fn an_agent_tells_of_pods_and_of_its_own_node() {
    check(&event(), None);
    let node = json!({ "kind": "Node", "name": NODE });
    check(&event().after("/involvedObject", node), None);
    for about in [
        json!({ "kind": "Node", "name": "worker-2" }),
        json!({ "kind": "Secret", "name": "x" }),
        json!({}),
    ] {
        check(&event().after("/involvedObject", about), Some("about pods"));
    }
    for source in [
        json!({ "component": "kubelet", "host": NODE }),
        json!({ "component": "brink", "host": "worker-2" }),
        json!({ "component": "brink" }),
        json!({}),
    ] {
        check(&event().after("/source", source), Some("speaks for itself"));
    }
    for operation in ["UPDATE", "DELETE"] {
        let request = event().with(|request| request.operation = operation);
        check(&request, Some("changes none"));
    }
}

#[test]
fn the_policies_are_bound_deny_and_name_the_account_that_is_made() {
    for (variant, _) in VARIANTS {
        let objects = rendered(variant);
        let account = &one(&objects, "ServiceAccount")["metadata"];
        let [namespace, name] = ["namespace", "name"].map(|key| account[key].as_str().unwrap());
        let expected =
            format!("request.userInfo.username == 'system:serviceaccount:{namespace}:{name}'");
        let policies = all(&objects, "ValidatingAdmissionPolicy");
        let bindings = all(&objects, "ValidatingAdmissionPolicyBinding");
        assert_eq!((policies.len(), bindings.len()), (3, 3), "{variant}");
        for policy in policies {
            assert_eq!(policy["spec"]["failurePolicy"], "Fail");
            let conditions = list(&policy["spec"]["matchConditions"]);
            assert_eq!(conditions.len(), 1);
            assert_eq!(conditions[0]["expression"], expected.as_str());
            let bound = bindings
                .iter()
                .filter(|binding| binding["spec"]["policyName"] == policy["metadata"]["name"]);
            let actions: Vec<&Value> = bound
                .map(|binding| &binding["spec"]["validationActions"])
                .collect();
            assert_eq!(
                actions,
                [&json!(["Deny"])],
                "{}",
                policy["metadata"]["name"]
            );
        }
    }
}

/// Whatever the roles let the account write goes through a policy.
#[test]
fn every_right_to_write_meets_a_policy() {
    let mut objects = rendered("enforce");
    objects.extend(documents(&text("components/taint/rights.yaml")));
    let policies = all(&objects, "ValidatingAdmissionPolicy");
    let mut writes = 0;
    for role in all(&objects, "ClusterRole") {
        for rule in list(&role["rules"]) {
            for verb in texts(&rule["verbs"]) {
                let operation = match verb.as_str() {
                    "create" => "CREATE",
                    "patch" | "update" => "UPDATE",
                    "delete" => "DELETE",
                    _ => continue,
                };
                for resource in texts(&rule["resources"]) {
                    let resource: &'static str = resource.leak();
                    let (resource, sub_resource) =
                        resource.split_once('/').unwrap_or((resource, ""));
                    let request = Request {
                        resource,
                        sub_resource,
                        operation,
                        ..event()
                    };
                    let met = policies.iter().any(|policy| request.is_met_by(policy));
                    assert!(met, "{verb} {resource}/{sub_resource}");
                    writes += 1;
                }
            }
        }
    }
    assert!(writes >= 4, "{writes}");
}
