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
        "metadata": { "name": "web", "namespace": "shop" },
        "spec": { "nodeName": NODE, "priority": 100 },
        "status": { "phase": "Running" },
    });
    let mut after = before.clone();
    after["status"] = json!({ "phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory. " });
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
        "metadata": { "name": NODE, "labels": { "zone": "a" } },
        "spec": { "taints": [{ "key": "dedicated", "effect": "NoSchedule" }] },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
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
        .with(|request| request.before["status"] = json!({}))
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
    for operation in ["CREATE", "DELETE"] {
        let request = taint().with(|request| request.operation = operation);
        check(&request, Some("no node"));
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
