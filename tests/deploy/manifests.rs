//! What the tests look at: the objects of each variant, as they are applied.

use std::fs;
use std::path::{Path, PathBuf};

use brink::config::document::{Limits, Origins, parse, to_json};
use serde_json::Value;

/// Each variant that is rendered, and the folder it is made from.
pub(crate) const VARIANTS: [(&str, &str); 3] = [
    ("observe", "base"),
    ("enforce", "overlays/enforce"),
    ("least-capability", "overlays/least-capability"),
];
/// Every component, in the order of their files of configuration.
pub(crate) const COMPONENTS: [&str; 7] = [
    "enforce",
    "least-capability",
    "kubelet-config",
    "kubelet-configz",
    "taint",
    "disks",
    "without-admission-policy",
];

/// The folder of all of it.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/kubernetes")
}

/// A file of that folder.
pub(crate) fn text(path: &str) -> String {
    let path = folder().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The documents of a text of YAML.
pub(crate) fn documents(text: &str) -> Vec<Value> {
    let nodes = parse(text.as_bytes(), Origins::DEFAULT, Limits::WRITTEN).unwrap();
    nodes.iter().map(to_json).collect()
}

/// The objects of a variant as they were rendered last.
pub(crate) fn rendered(variant: &str) -> Vec<Value> {
    documents(&text(&format!("rendered/{variant}.yaml")))
}

/// All objects of a kind.
pub(crate) fn all<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    let of_kind = |object: &&Value| object["kind"] == kind;
    objects.iter().filter(of_kind).collect()
}

/// The only object of a kind.
#[track_caller]
pub(crate) fn one<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let found = all(objects, kind);
    assert_eq!(found.len(), 1, "objects of kind {kind}");
    found[0]
}

/// The specification of the agent's pods.
pub(crate) fn pod(objects: &[Value]) -> &Value {
    &one(objects, "DaemonSet")["spec"]["template"]["spec"]
}

/// The agent's container, the only one.
pub(crate) fn container(objects: &[Value]) -> &Value {
    let containers = list(&pod(objects)["containers"]);
    assert_eq!(containers.len(), 1);
    &containers[0]
}

/// A list; an empty one where there is none.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The texts of a list.
pub(crate) fn texts(value: &Value) -> Vec<String> {
    let texts = list(value).iter().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}
