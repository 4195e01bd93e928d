//! The envelope of `CloudEvents` 1.0, structured mode, for those who read nothing else.
//!
//! `data` is the whole event as everybody else gets it. `source` and `id` together are unique, as that standard demands: the
//! source is a node and a boot, and the id a number of it.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::hub::Line;

/// What types of events begin with.
const TYPE: &str = "dev.brink.";
/// The type of its content, for a way out that tells it.
pub const CONTENT_TYPE: &str = "application/cloudevents+json";

#[derive(Serialize)]
struct Envelope<'a> {
    specversion: &'static str,
    id: String,
    source: String,
    #[serde(rename = "type")]
    of: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    #[serde(skip_serializing_if = "str::is_empty")]
    time: &'a str,
    datacontenttype: &'static str,
    /// The standard's extension for order: texts that sort as their numbers do.
    sequence: String,
    data: &'a RawValue,
}

/// What of an event is not in its line already.
#[derive(Default, Deserialize)]
struct Told<'a> {
    #[serde(borrow)]
    node: Cow<'a, str>,
    #[serde(borrow)]
    at: At<'a>,
}

#[derive(Default, Deserialize)]
struct At<'a> {
    #[serde(borrow)]
    wall: Cow<'a, str>,
}

/// An event in its envelope: one line of JSON, with its newline.
pub fn envelope(line: &Line) -> Vec<u8> {
    let text = line.text.trim_ascii_end();
    // The hub wrote it, or it was parsed as it came from the journal: it is an event.
    let told: Told<'_> = serde_json::from_slice(text).unwrap_or_default();
    let data: &RawValue = serde_json::from_slice(text).unwrap_or(RawValue::NULL);
    let envelope = Envelope {
        specversion: "1.0",
        id: line.seq.to_string(),
        source: format!("/brink/{}/{}", segment(&told.node), segment(&line.boot)),
        of: format!("{TYPE}{}", line.of.word()),
        subject: line.subject.as_ref().map(|subject| {
            let (namespace, name) = (segment(&subject.namespace), segment(&subject.name));
            format!("{namespace}/{name}")
        }),
        time: &told.at.wall,
        datacontenttype: "application/json",
        sequence: format!("{:020}", line.seq),
        data,
    };
    // Texts, and JSON that was parsed: it can always be written.
    let mut text = serde_json::to_vec(&envelope).unwrap_or_default();
    text.push(b'\n');
    text
}

/// A text as one segment of a path in a URI.
fn segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // A String takes everything.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::outlet::samples::{line, odd_line};

    fn value(line: &Line) -> Value {
        let text = envelope(line);
        let (last, json) = text.split_last().unwrap();
        assert!(*last == b'\n' && !json.contains(&b'\n'));
        serde_json::from_slice(json).unwrap()
    }

    #[test]
    fn it_has_what_the_standard_requires_and_the_event_whole() {
        let line = line(17);
        let told: Value = serde_json::from_slice(&line.text).unwrap();
        assert_eq!(
            value(&line),
            json!({
                "specversion": "1.0",
                "id": "17",
                "source": "/brink/node-1/3f2a0000-0000-4000-8000-000000000000",
                "type": "dev.brink.oom-kill",
                "subject": "shop/cart",
                "time": "2023-11-14T22:13:20.000001Z",
                "datacontenttype": "application/json",
                "sequence": "00000000000000000017",
                "data": told,
            })
        );
    }

    #[test]
    fn hostile_names_stay_inside_their_place() {
        let value = value(&odd_line(1));
        let source = value["source"].as_str().unwrap();
        assert!(source.starts_with("/brink/no%22de%0A%2F/"), "{source}");
        let subject = value["subject"].as_str().unwrap();
        assert_eq!(subject, "a%2Fb/%0AMESSAGE%3Dforged%F0%9F%98%80");
    }
}
