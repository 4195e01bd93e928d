//! Each object as the types of Kubernetes 1.37 have it: what they do not know, or know otherwise, is a fault.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ResourceQuota, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::manifests::{VARIANTS, one, rendered};

/// Stops where an object is not what its kind knows.
#[track_caller]
pub(crate) fn check(object: &Value) {
    let found = faults(object);
    assert!(
        found.is_empty(),
        "{}: {found:#?}",
        object["metadata"]["name"]
    );
}

fn faults(object: &Value) -> Vec<String> {
    match object["kind"].as_str().unwrap_or_default() {
        "ClusterRole" => of::<ClusterRole>(object),
        "ClusterRoleBinding" => of::<ClusterRoleBinding>(object),
        "ConfigMap" => of::<ConfigMap>(object),
        "DaemonSet" => of::<DaemonSet>(object),
        "Namespace" => of::<Namespace>(object),
        "ResourceQuota" => of::<ResourceQuota>(object),
        "ServiceAccount" => of::<ServiceAccount>(object),
        "ValidatingAdmissionPolicy" => of::<ValidatingAdmissionPolicy>(object),
        "ValidatingAdmissionPolicyBinding" => of::<ValidatingAdmissionPolicyBinding>(object),
        kind => vec![format!("nobody looks at objects of kind {kind:?} here")],
    }
}

/// The types leave out what they do not know, and fill in what must be there: neither may change the object.
fn of<T: DeserializeOwned + Serialize>(object: &Value) -> Vec<String> {
    let typed: T = match serde_json::from_value(object.clone()) {
        Ok(typed) => typed,
        Err(error) => return vec![error.to_string()],
    };
    let mut found = Vec::new();
    compare(
        object,
        &serde_json::to_value(typed).unwrap(),
        "",
        &mut found,
    );
    found
}

fn compare(own: &Value, known: &Value, at: &str, found: &mut Vec<String>) {
    match (own, known) {
        (Value::Object(own), Value::Object(known)) => {
            for (key, value) in own {
                match known.get(key) {
                    Some(known) => compare(value, known, &format!("{at}.{key}"), found),
                    None => found.push(format!("{at}.{key}: no such field")),
                }
            }
            let missing = known.keys().filter(|key| !own.contains_key(*key));
            found.extend(missing.map(|key| format!("{at}.{key}: missing")));
        }
        (Value::Array(own), Value::Array(known)) if own.len() == known.len() => {
            for (index, (own, known)) in own.iter().zip(known).enumerate() {
                compare(own, known, &format!("{at}[{index}]"), found);
            }
        }
        _ if own == known => {}
        _ => found.push(format!("{at}: {own} is read as {known}")),
    }
}

#[test]
fn every_object_is_what_kubernetes_knows() {
    for (variant, _) in VARIANTS {
        let objects = rendered(variant);
        assert!(objects.len() >= 12, "{variant}: {}", objects.len());
        objects.iter().for_each(check);
    }
}

#[test]
fn what_kubernetes_does_not_know_is_found() {
    let objects = rendered("observe");
    let with = |pointer: &str, key: &str, value: Value| {
        let mut object = one(&objects, "DaemonSet").clone();
        let place = object.pointer_mut(pointer).unwrap();
        place.as_object_mut().unwrap().insert(key.to_owned(), value);
        faults(&object)
    };
    assert_eq!(with("/spec", "minReadySeconds", json!(5)), [""; 0]);
    let found = with("/spec/template/spec", "hostPid", json!(true));
    assert_eq!(found, [".spec.template.spec.hostPid: no such field"]);
    let probe = "/spec/template/spec/containers/0/livenessProbe";
    let found = with(probe, "periodSeconds", json!("20"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("invalid type"), "{found:?}");
    assert_eq!(faults(&json!({ "kind": "Secret" })).len(), 1);
}
