//! Requests as they go over the wire.
//!
//! Of an object that was written only the metadata come back: the rest would be kilobytes that nobody reads.

use http::Request;
use http::header::{ACCEPT, CONTENT_TYPE};
use serde_json::Value;

use crate::outbox::PodRef;

const JSON: &str = "application/json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const METADATA: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// A request, ready to be sent.
pub type Ready = Result<Request<Vec<u8>>, http::Error>;

/// Writes into a pod's status.
///
/// # Errors
/// When the pod's name is none.
pub fn pod_status(pod: &PodRef, patch: &Value) -> Ready {
    strategic(&format!("{}/status", pod_path(pod)), patch)
}

/// Asks for a pod's metadata.
///
/// # Errors
/// As [`pod_status`].
pub fn pod_metadata(pod: &PodRef) -> Ready {
    get(&pod_path(pod), METADATA)
}

/// Makes an event in a namespace.
///
/// # Errors
/// As [`pod_status`].
pub fn event(namespace: &str, event: &Value) -> Ready {
    let path = format!("/api/v1/namespaces/{namespace}/events");
    Request::post(path)
        .header(ACCEPT, METADATA)
        .header(CONTENT_TYPE, JSON)
        .body(event.to_string().into_bytes())
}

/// Writes into a node's status.
///
/// # Errors
/// When the node's name is none.
pub fn node_status(node: &str, patch: &Value) -> Ready {
    strategic(&format!("{}/status", node_path(node)), patch)
}

/// Asks for a node, whole.
///
/// # Errors
/// As [`node_status`].
pub fn node(node: &str) -> Ready {
    get(&node_path(node), JSON)
}

/// Asks the kubelet of a node what it goes by; the API server hands the question on.
///
/// # Errors
/// As [`node_status`].
pub fn node_configz(node: &str) -> Ready {
    get(&format!("{}/proxy/configz", node_path(node)), JSON)
}

/// Changes a node by a list of steps, all of them or none.
///
/// # Errors
/// As [`node_status`].
pub fn node_steps(node: &str, steps: &Value) -> Ready {
    Request::patch(node_path(node))
        .header(ACCEPT, METADATA)
        .header(CONTENT_TYPE, JSON_PATCH)
        .body(steps.to_string().into_bytes())
}

fn get(path: &str, accept: &str) -> Ready {
    Request::get(path).header(ACCEPT, accept).body(Vec::new())
}

fn strategic(path: &str, change: &Value) -> Ready {
    Request::patch(path)
        .header(ACCEPT, METADATA)
        .header(CONTENT_TYPE, STRATEGIC)
        .body(change.to_string().into_bytes())
}

fn pod_path(pod: &PodRef) -> String {
    let PodRef {
        namespace, name, ..
    } = pod;
    format!("/api/v1/namespaces/{namespace}/pods/{name}")
}

fn node_path(node: &str) -> String {
    format!("/api/v1/nodes/{node}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(ready: Ready, method: &str, path: &str, kind: Option<&str>, body: &str) {
        let request = ready.unwrap();
        let found = request.headers().get(CONTENT_TYPE);
        let found = found.map(|kind| kind.to_str().unwrap());
        assert_eq!(
            (request.method().as_str(), request.uri().path(), found),
            (method, path, kind)
        );
        assert_eq!(request.into_body(), body.as_bytes());
    }

    #[test]
    fn each_goes_where_it_belongs() {
        let pod = PodRef {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            uid: "u".to_owned(),
        };
        let (body, text) = (json!({ "a": 1 }), r#"{"a":1}"#);
        let path = "/api/v1/namespaces/shop/pods/web";
        let status = "/api/v1/namespaces/shop/pods/web/status";
        check(
            pod_status(&pod, &body),
            "PATCH",
            status,
            Some(STRATEGIC),
            text,
        );
        check(pod_metadata(&pod), "GET", path, None, "");
        let events = "/api/v1/namespaces/shop/events";
        check(event("shop", &body), "POST", events, Some(JSON), text);
        let status = "/api/v1/nodes/n/status";
        check(
            node_status("n", &body),
            "PATCH",
            status,
            Some(STRATEGIC),
            text,
        );
        check(node("n"), "GET", "/api/v1/nodes/n", None, "");
        let configz = "/api/v1/nodes/n/proxy/configz";
        check(node_configz("n"), "GET", configz, None, "");
        check(
            node_steps("n", &body),
            "PATCH",
            "/api/v1/nodes/n",
            Some(JSON_PATCH),
            text,
        );
    }

    #[test]
    fn a_name_that_is_none_is_no_request() {
        assert!(node("a b").is_err());
    }
}
