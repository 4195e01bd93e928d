//! YAML and JSON as a tree: what is read can be written, and is read back alike.

use brink::config::document::{Limits, Node, Origins, Value, parse, path_to, to_json, to_yaml};
use serde_json::Value as Json;

use crate::Taken;

/// A text of any number of documents.
pub(crate) fn documents(bytes: &[u8]) -> Taken {
    let documents = match parse(bytes, Origins::DEFAULT, Limits::WRITTEN) {
        Ok(documents) => documents,
        Err(error) => {
            assert!(!error.message.is_empty());
            return Taken::Refused;
        }
    };
    for document in &documents {
        check(document);
    }
    Taken::from_accepted(!documents.is_empty())
}

fn check(document: &Node) {
    let json = to_json(document);
    let yaml = to_yaml(document, &|_| None);
    // What was written in few letters may be long when everything stands for itself.
    if yaml.len() < Limits::WRITTEN.bytes / 2 {
        let again = parse(yaml.as_bytes(), Origins::DEFAULT, Limits::WRITTEN);
        let again = again.map(|documents| documents.first().map(to_json));
        let is_same = matches!(&again, Ok(Some(again)) if same(again, &json));
        assert!(
            is_same,
            "{json}\nis written\n{yaml}\nand read as\n{again:?}"
        );
    }
    let remarked = to_yaml(document, &|node| Some(node.kind().to_owned()));
    assert!(remarked.len() >= yaml.len());
    let mut left = 40;
    visit(document, document, false, &mut left);
}

/// Some nodes find their way from the root; what stands only under empty keys has no name.
fn visit(root: &Node, node: &Node, is_named: bool, left: &mut usize) {
    let Some(fewer) = left.checked_sub(1) else {
        return;
    };
    *left = fewer;
    assert_eq!(path_to(root, node).is_empty(), !is_named);
    assert!(node.preview().is_none_or(|preview| preview.len() <= 1000));
    match &node.value {
        Value::List(items) => {
            for item in items {
                visit(root, item, true, left);
            }
        }
        Value::Map(entries) => {
            for entry in entries {
                visit(root, &entry.node, is_named || !entry.key.is_empty(), left);
            }
        }
        _ => {}
    }
}

/// Whether two are the same to a reader: 1E5 and 100000 are one number.
fn same(one: &Json, other: &Json) -> bool {
    match (one, other) {
        (Json::Number(one), Json::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Json::Array(one), Json::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Json::Object(one), Json::Object(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .all(|(key, one)| other.get(key).is_some_and(|other| same(one, other)))
        }
        _ => one == other,
    }
}
