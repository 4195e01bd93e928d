//! A pod as it arrives, trimmed to what eviction looks at: everything else is dropped while it is read.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// How much of a value is kept.
#[derive(Debug)]
pub(super) enum Keep {
    /// All of it.
    Whole,
    /// That it is there.
    Emptied,
    /// Of a list, so much of each item.
    Each(&'static Keep),
    /// Of a map, these keys.
    Fields(&'static [(&'static str, Keep)]),
    /// Of a map, these keys, and that the others are there.
    Named(&'static [(&'static str, Keep)]),
    /// Of a map, the keys that pass.
    Keys(fn(&str) -> bool),
}

use Keep::{Each, Emptied, Fields, Keys, Named, Whole};

/// The annotations of ours, and those by which the kubelet says where a pod comes from: one by one, as anybody may write
/// others that are called like them.
fn is_annotation(key: &str) -> bool {
    matches!(
        key,
        "brink.dev/cgroup"
            | "brink.dev/eviction"
            | "kubernetes.io/config.source"
            | "kubernetes.io/config.mirror"
    )
}

const RESOURCES: Keep = Fields(&[("requests", Whole), ("limits", Whole)]);
const OWNER: Keep = Fields(&[("kind", Whole), ("name", Whole), ("controller", Whole)]);
const CONTAINER: Keep = Fields(&[
    ("name", Whole),
    ("restartPolicy", Whole),
    ("resources", RESOURCES),
]);
const VOLUME: Keep = Named(&[
    ("name", Whole),
    (
        "emptyDir",
        Fields(&[("medium", Whole), ("sizeLimit", Whole)]),
    ),
]);
const TOLERATION: Keep = Fields(&[
    ("key", Whole),
    ("operator", Whole),
    ("value", Whole),
    ("effect", Whole),
]);
const CONTAINER_STATUS: Keep = Fields(&[("name", Whole), ("containerID", Whole)]);
const METADATA: Keep = Fields(&[
    ("name", Whole),
    ("namespace", Whole),
    ("uid", Whole),
    ("resourceVersion", Whole),
    ("generation", Whole),
    ("deletionTimestamp", Whole),
    ("annotations", Keys(is_annotation)),
    ("ownerReferences", Each(&OWNER)),
]);
const SPEC: Keep = Fields(&[
    ("priority", Whole),
    ("priorityClassName", Whole),
    ("terminationGracePeriodSeconds", Whole),
    ("hostUsers", Whole),
    ("containers", Each(&CONTAINER)),
    ("initContainers", Each(&CONTAINER)),
    ("resources", RESOURCES),
    ("overhead", Whole),
    ("volumes", Each(&VOLUME)),
    ("tolerations", Each(&TOLERATION)),
]);
const STATUS: Keep = Fields(&[
    ("phase", Whole),
    ("reason", Whole),
    ("qosClass", Whole),
    ("containerStatuses", Each(&CONTAINER_STATUS)),
    ("initContainerStatuses", Each(&CONTAINER_STATUS)),
    ("ephemeralContainerStatuses", Each(&CONTAINER_STATUS)),
]);

/// What is kept of a pod.
const POD: Keep = Fields(&[("metadata", METADATA), ("spec", SPEC), ("status", STATUS)]);

/// What is kept of a pod that is too large: who it is, and what the API server lets nobody make long.
const STUB: Keep = Fields(&[
    (
        "metadata",
        Fields(&[
            ("name", Whole),
            ("namespace", Whole),
            ("uid", Whole),
            ("generation", Whole),
            ("deletionTimestamp", Whole),
        ]),
    ),
    (
        "spec",
        Fields(&[
            ("priority", Whole),
            ("terminationGracePeriodSeconds", Whole),
        ]),
    ),
    ("status", Fields(&[("phase", Whole), ("qosClass", Whole)])),
]);

/// Reads a pod and keeps what is wanted of it. What has another type than the API gives it stays as it is: whoever reads it
/// next says so.
///
/// # Errors
/// Those of the deserializer.
pub(super) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    Trim(&POD).deserialize(deserializer)
}

/// Keeps of a pod what is kept of one that is too large.
///
/// # Errors
/// Those of the deserializer; a value that was read has none.
pub(super) fn stub(pod: Value) -> Result<Value, serde_json::Error> {
    Trim(&STUB).deserialize(pod)
}

/// Reads so much of a value.
#[derive(Clone, Copy)]
struct Trim(&'static Keep);

impl Trim {
    /// How much of a key's value is kept, if anything.
    fn of(self, key: &str) -> Option<Self> {
        let known = |fields: &'static [(&'static str, Keep)]| {
            let found = fields.iter().find(|(name, _)| *name == key);
            found.map(|(_, keep)| Self(keep))
        };
        match self.0 {
            Whole | Each(_) => Some(Self(&Whole)),
            Emptied => None,
            Fields(fields) => known(fields),
            Named(fields) => Some(known(fields).unwrap_or(Self(&Emptied))),
            Keys(passes) => passes(key).then_some(Self(&Whole)),
        }
    }

    /// How much of an item of a list is kept.
    const fn of_item(self) -> Self {
        match self.0 {
            Each(keep) => Self(keep),
            Emptied => self,
            _ => Self(&Whole),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Trim {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Trim {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut kept = Vec::new();
        if matches!(self.0, Emptied) {
            while items.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(kept.into());
        }
        while let Some(item) = items.next_element_seed(self.of_item())? {
            kept.push(item);
        }
        Ok(kept.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut kept = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            match self.of(&key) {
                Some(trim) => drop(kept.insert(key, entries.next_value_seed(trim)?)),
                None => drop(entries.next_value::<IgnoredAny>()?),
            }
        }
        Ok(kept.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(written: &Value, expected: &Value) {
        let text = written.to_string();
        let kept = read(&mut serde_json::Deserializer::from_str(&text)).unwrap();
        assert_eq!(kept, *expected, "{text}");
        // What was trimmed once is not trimmed again.
        let text = kept.to_string();
        let again = read(&mut serde_json::Deserializer::from_str(&text)).unwrap();
        assert_eq!(again, kept);
    }

    #[test]
    fn only_what_eviction_looks_at_is_kept() {
        let written = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"},
                "managedFields": [{"fieldsV1": {"f:spec": {}}}],
                "annotations": {
                    "brink.dev/cgroup": "/g", "brink.dev/eviction": "last", "brink.dev/x": "1", "kubernetes.io/config.mirror": "h",
                    "kubernetes.io/config.seen": "s",
                    "kubectl.kubernetes.io/last-applied-configuration": "{}",
                },
                "ownerReferences": [{"kind": "Job", "name": "j", "controller": true, "uid": "o"}],
            },
            "spec": {
                "priority": -5, "hostUsers": false, "nodeName": "n", "affinity": {"podAffinity": {}},
                "containers": [{
                    "name": "c", "image": "i", "env": [{"name": "PASSWORD", "value": "secret"}],
                    "resources": {"requests": {"memory": "1Gi"}, "claims": []},
                }],
                "volumes": [
                    {"name": "m", "emptyDir": {"medium": "Memory"}},
                    {"name": "s", "secret": {"secretName": "s", "items": [1]}},
                    {"name": "p", "projected": null},
                ],
                "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 300}],
            },
            "status": {
                "phase": "Failed", "reason": "Evicted", "message": "m", "qosClass": "Burstable", "conditions": [{"type": "Ready"}], "podIP": "10.0.0.1",
                "containerStatuses": [{"name": "c", "containerID": "containerd://1", "ready": true, "state": {}}],
            },
        });
        let expected = json!({
            "metadata": {
                "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7",
                "annotations": {"brink.dev/cgroup": "/g", "brink.dev/eviction": "last", "kubernetes.io/config.mirror": "h"},
                "ownerReferences": [{"kind": "Job", "name": "j", "controller": true}],
            },
            "spec": {
                "priority": -5, "hostUsers": false,
                "containers": [{"name": "c", "resources": {"requests": {"memory": "1Gi"}}}],
                "volumes": [
                    {"name": "m", "emptyDir": {"medium": "Memory"}},
                    {"name": "s", "secret": {}},
                    {"name": "p", "projected": null},
                ],
                "tolerations": [{"key": "k", "operator": "Exists"}],
            },
            "status": {
                "phase": "Failed", "reason": "Evicted", "qosClass": "Burstable",
                "containerStatuses": [{"name": "c", "containerID": "containerd://1"}],
            },
        });
        check(&written, &expected);
    }

    #[test]
    fn what_has_another_type_stays_for_whoever_reads_it() {
        let odd = json!({"metadata": [1, {"a": true}], "spec": {"containers": {"x": 1.5}, "volumes": ["v"]}, "status": "s"});
        check(&odd, &odd);
        check(&json!("text"), &json!("text"));
        check(&json!({"spec": null}), &json!({"spec": null}));
    }
}
