//! The way from the root of a document to one of its nodes, in words.

use super::{Node, Value};

/// The path of `wanted`, which must be a node under `root`: `pods[1].spec.containers[0].name`.
/// Empty for the root itself and for strangers.
pub fn path_to(root: &Node, wanted: &Node) -> String {
    let mut path = Vec::new();
    if !find(root, wanted, &mut path) {
        return String::new();
    }
    let mut text = String::new();
    for step in path {
        step.push_to(&mut text);
    }
    text
}

enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

impl Step<'_> {
    fn push_to(&self, text: &mut String) {
        match self {
            Self::Key(key) if text.is_empty() => text.push_str(key),
            Self::Key(key) => {
                text.push('.');
                text.push_str(key);
            }
            Self::Index(index) => {
                text.push('[');
                text.push_str(&index.to_string());
                text.push(']');
            }
        }
    }
}

fn find<'a>(node: &'a Node, wanted: &Node, path: &mut Vec<Step<'a>>) -> bool {
    if std::ptr::eq(node, wanted) {
        return true;
    }
    match &node.value {
        Value::List(items) => items.iter().enumerate().any(|(index, item)| {
            path.push(Step::Index(index));
            find(item, wanted, path) || path.pop().is_none()
        }),
        Value::Map(entries) => entries.iter().any(|entry| {
            path.push(Step::Key(&entry.key));
            find(&entry.node, wanted, path) || path.pop().is_none()
        }),
        _ => false,
    }
}
