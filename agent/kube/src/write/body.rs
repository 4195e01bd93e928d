//! What is sent to the API server, as pure functions: the kubelet's fields to the letter, under our own name where it is ours.

use brink_core::node::message::{DisruptionTarget, PHASE, REASON};
use serde_json::{Value, json};

use crate::outbox::{Entry, Eviction};

/// `source.component` of our events.
pub const COMPONENT: &str = "brink";

/// The patch of an evicted pod's status (strategic merge: conditions by their type). The uid in it keeps it from another pod of
/// the same name.
///
/// A server that does not know `observedGeneration` leaves it out.
pub fn evicted(uid: &str, eviction: &Eviction) -> Value {
    let mut condition = json!({
        "type": DisruptionTarget::TYPE,
        "status": DisruptionTarget::STATUS,
        "reason": DisruptionTarget::REASON,
        "message": eviction.message,
        "lastProbeTime": null,
        "lastTransitionTime": eviction.at,
    });
    if let Some(generation) = eviction.generation {
        condition["observedGeneration"] = generation.into();
    }
    let mut patch = json!({
        "metadata": { "uid": uid },
        "status": {
            "phase": PHASE,
            "reason": REASON,
            "message": eviction.message,
        },
    });
    // For a limit of its own the kubelet writes none.
    if !eviction.for_limit {
        patch["status"]["conditions"] = json!([condition]);
    }
    patch
}

/// The event about a pod, as the kubelet's recorder makes them; `node` is where it happened.
pub fn event(entry: &Entry, node: &str) -> Value {
    let pod = &entry.pod;
    let words = &entry.event;
    let mut metadata = json!({ "name": entry.event_name(), "namespace": pod.namespace });
    if !words.annotations.is_empty() {
        metadata["annotations"] = json!(words.annotations);
    }
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": metadata,
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
        },
        "reason": words.reason,
        "message": words.message,
        "source": { "component": COMPONENT, "host": node },
        "reportingComponent": COMPONENT,
        "reportingInstance": node,
        "firstTimestamp": words.first,
        "lastTimestamp": words.last,
        "count": words.count,
        "type": if words.warns { "Warning" } else { "Normal" },
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Event, Pod};

    use super::*;
    use crate::outbox::entry::tests::entry;

    #[test]
    fn the_status_is_the_kubelets() {
        let entry = entry(7);
        let eviction = entry.status.unwrap();
        let message = "The node was low on resource: memory. ";
        assert_eq!(
            evicted("uid-7", &eviction),
            json!({
                "metadata": { "uid": "uid-7" },
                "status": {
                    "phase": "Failed",
                    "reason": "Evicted",
                    "message": message,
                    "conditions": [{
                        "type": "DisruptionTarget",
                        "status": "True",
                        "reason": "TerminationByKubelet",
                        "message": message,
                        "lastProbeTime": null,
                        "lastTransitionTime": "2026-11-22T10:00:00Z",
                        "observedGeneration": 3,
                    }],
                },
            })
        );
        let limited = Eviction {
            for_limit: true,
            ..eviction.clone()
        };
        let patch = evicted("uid-7", &limited);
        assert_eq!(patch["status"].get("conditions"), None);
        assert_eq!(patch["status"]["reason"], "Evicted");
        let unknown = Eviction {
            generation: None,
            ..eviction
        };
        let patch = evicted("uid-7", &unknown);
        assert_eq!(
            patch["status"]["conditions"][0]["observedGeneration"],
            Value::Null
        );
    }

    /// Every field is one that the newest types know: what they do not know is gone after reading and writing.
    #[test]
    fn every_field_is_one_of_the_schema() {
        let entry = entry(7);
        let patch = evicted("uid-7", entry.status.as_ref().unwrap());
        let pod: Pod = serde_json::from_value(patch.clone()).unwrap();
        let mut again = serde_json::to_value(pod).unwrap();
        for added in ["apiVersion", "kind"] {
            again.as_object_mut().unwrap().remove(added);
        }
        let mut expected = patch;
        let condition = &mut expected["status"]["conditions"][0];
        condition.as_object_mut().unwrap().remove("lastProbeTime");
        assert_eq!(again, expected);
        let sent = event(&entry, "node-a");
        let read: Event = serde_json::from_value(sent.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), sent);
    }

    #[test]
    fn the_event_is_the_kubelets_but_for_its_source() {
        let entry = entry(7);
        let sent = event(&entry, "node-a");
        assert_eq!(sent["metadata"]["name"], entry.event_name());
        assert_eq!(sent["metadata"]["namespace"], "shop");
        assert_eq!(
            sent["metadata"]["annotations"]["starved_resource"],
            "memory"
        );
        assert_eq!(sent["involvedObject"]["uid"], "uid-7");
        assert_eq!(
            sent["source"],
            json!({ "component": "brink", "host": "node-a" })
        );
        assert_eq!(
            (&sent["type"], &sent["reason"]),
            (&json!("Warning"), &json!("Evicted"))
        );
        assert_eq!(
            (&sent["count"], &sent["message"]),
            (&json!(1), &json!(entry.event.message))
        );
        let mut without = entry;
        without.event.annotations.clear();
        without.event.warns = false;
        let sent = event(&without, "node-a");
        assert_eq!(sent["type"], "Normal");
        assert_eq!(sent["metadata"].get("annotations"), None);
    }
}
