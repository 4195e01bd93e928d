//! A tree as YAML for readers, each value with a remark if wanted, or as JSON for programs.

use std::fmt::Write as _;

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::{Map, Number};

use super::{Node, Value, scalar};

/// What is remarked at a value, if anything.
pub type Annotate<'a> = &'a dyn Fn(&Node) -> Option<String>;

/// The tree as YAML. Remarks stand in comments, one column for all.
pub fn to_yaml(node: &Node, annotate: Annotate<'_>) -> String {
    let mut writer = Writer {
        lines: Vec::new(),
        annotate,
    };
    writer.node(node, 0, String::new());
    writer.finish()
}

/// The tree as JSON. A number that JSON cannot carry becomes a text.
pub fn to_json(node: &Node) -> serde_json::Value {
    match &node.value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(value, _) => serde_json::Value::Bool(*value),
        Value::Number(text) => number(text).unwrap_or(serde_json::Value::String(text.clone())),
        Value::Text(text) => serde_json::Value::String(text.clone()),
        Value::List(items) => items.iter().map(to_json).collect(),
        Value::Map(entries) => {
            let pairs = entries
                .iter()
                .map(|entry| (entry.key.clone(), to_json(&entry.node)));
            serde_json::Value::Object(pairs.collect::<Map<_, _>>())
        }
    }
}

impl Serialize for Node {
    /// As [`to_json`] has it, with the keys in their order.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.value {
            Value::List(items) => serializer.collect_seq(items),
            Value::Map(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for entry in entries {
                    map.serialize_entry(&entry.key, &entry.node)?;
                }
                map.end()
            }
            _ => to_json(self).serialize(serializer),
        }
    }
}

/// Whole numbers exactly, all others as the nearest double, which serde's own parser can miss.
fn number(text: &str) -> Option<serde_json::Value> {
    let whole = text
        .parse::<i64>()
        .map(Number::from)
        .or_else(|_| text.parse::<u64>().map(Number::from));
    let number = whole
        .ok()
        .or_else(|| Number::from_f64(text.parse().ok()?))?;
    Some(serde_json::Value::Number(number))
}

/// YAML looks so many characters ahead for the colon behind a key.
const LONGEST_KEY: usize = 1000;

struct Writer<'a> {
    lines: Vec<(String, Option<String>)>,
    annotate: Annotate<'a>,
}

impl Writer<'_> {
    /// Writes a node after `head`: nothing, or a key or dash that is indented already.
    fn node(&mut self, node: &Node, indent: usize, head: String) {
        match &node.value {
            Value::Map(entries) if !entries.is_empty() => {
                self.head(head, node);
                for entry in entries {
                    let key = self.key(&entry.key, indent, "");
                    self.node(&entry.node, indent + 2, key);
                }
            }
            Value::List(items) if !items.is_empty() => {
                self.head(head, node);
                for item in items {
                    self.item(item, indent);
                }
            }
            _ => {
                let value = scalar_text(node);
                let line = if head.is_empty() {
                    value
                } else {
                    format!("{head} {value}")
                };
                self.lines.push((line, (self.annotate)(node)));
            }
        }
    }

    /// Writes an item of a list; a map begins on the line of its dash.
    fn item(&mut self, item: &Node, indent: usize) {
        let [first, rest @ ..] = item.entries() else {
            return self.node(item, indent + 2, format!("{:indent$}-", ""));
        };
        let deeper = indent + 2;
        let key = self.key(&first.key, deeper, "- ");
        self.node(&first.node, deeper + 2, key);
        for entry in rest {
            let key = self.key(&entry.key, deeper, "");
            self.node(&entry.node, deeper + 2, key);
        }
    }

    /// What stands before the value of a key, which begins in the column `indent`, behind a dash if there is one. A key
    /// that is too long to be followed by its colon has a line of its own.
    fn key(&mut self, key: &str, indent: usize, dash: &str) -> String {
        let key = quoted(key);
        let before = indent.saturating_sub(dash.len());
        if key.chars().count() <= LONGEST_KEY {
            return format!("{:before$}{dash}{key}:", "");
        }
        self.lines
            .push((format!("{:before$}{dash}? {key}", ""), None));
        format!("{:indent$}:", "")
    }

    fn head(&mut self, head: String, node: &Node) {
        if !head.is_empty() {
            self.lines.push((head, (self.annotate)(node)));
        }
    }

    fn finish(self) -> String {
        let remarked = self.lines.iter().filter(|(_, remark)| remark.is_some());
        let column = remarked.map(|(line, _)| line.chars().count()).max();
        let column = column.unwrap_or(0).min(56);
        let mut text = String::new();
        for (line, remark) in &self.lines {
            text.push_str(line);
            if let Some(remark) = remark {
                let gap = column.saturating_sub(line.chars().count()) + 2;
                text.extend(std::iter::repeat_n(' ', gap));
                text.push_str("# ");
                text.push_str(remark);
            }
            text.push('\n');
        }
        text
    }
}

fn scalar_text(node: &Node) -> String {
    match &node.value {
        Value::Null => "null".to_string(),
        // As it was written: where a text is wanted, the word counts.
        Value::Bool(_, word) => word.clone(),
        Value::Number(text) => text.clone(),
        Value::Text(text) => quoted(text),
        Value::List(_) => "[]".to_string(),
        Value::Map(_) => "{}".to_string(),
    }
}

/// A text as it may stand in YAML: bare where it cannot be taken for anything else.
fn quoted(text: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || b"._/%<=+@$^\\()".contains(&byte);
    let is_bare = text.bytes().all(|byte| bare(byte) || byte == b'-')
        && text.bytes().next().is_some_and(|first| {
            first.is_ascii_alphanumeric() || matches!(first, b'/' | b'.' | b'_' | b'^')
        })
        // Alone in its line this ends a document.
        && !text.starts_with("...")
        && matches!(scalar::resolve(text, false), Value::Text(_));
    if is_bare {
        text.to_string()
    } else {
        escaped(text)
    }
}

/// A text in double quotes as JSON has it, with those letters escaped too that JSON allows as they are and YAML does not,
/// or takes for something else.
fn escaped(text: &str) -> String {
    let json = serde_json::Value::String(text.to_string()).to_string();
    let mut quoted = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter {
            '\u{7f}'..='\u{9f}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{feff}'
            | '\u{fffe}'
            | '\u{ffff}' => {
                // Writing to a text does not fail.
                let _written = write!(quoted, "\\u{:04x}", u32::from(letter));
            }
            letter => quoted.push(letter),
        }
    }
    quoted
}
