//! The envelope of `CloudEvents` 1.0, structured mode, for those who read nothing else.
//!
//! `data` is the whole event as everybody else gets it. `source` and `id` together are unique, as that standard demands: the
//! source is a node and a boot, and the id a number of it. What one reader alone is told in the place of numbers that it missed has the
//! last of them and its own time: the number is another event's.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::hub::Line;
use crate::model::data::Loss;
use crate::model::kind::Kind;

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
#[serde(rename_all = "camelCase")]
struct At<'a> {
    #[serde(borrow)]
    wall: Cow<'a, str>,
    monotonic_ns: i64,
}

/// Where something was lost.
#[derive(Deserialize)]
struct Lost<'a> {
    #[serde(borrow)]
    data: Place<'a>,
}

#[derive(Deserialize)]
struct Place<'a> {
    #[serde(borrow)]
    place: Cow<'a, str>,
}

/// An event in its envelope: one line of JSON, with its newline.
pub fn envelope(line: &Line) -> Vec<u8> {
    let text = line.text.trim_ascii_end();
    // The hub wrote it, or it was parsed as it came from the journal: it is an event.
    let told: Told<'_> = serde_json::from_slice(text).unwrap_or_default();
    let data: &RawValue = serde_json::from_slice(text).unwrap_or(RawValue::NULL);
    let envelope = Envelope {
        specversion: "1.0",
        id: if is_of_one_reader(line.of, text) {
            format!("{}-{}", line.seq, told.at.monotonic_ns)
        } else {
            line.seq.to_string()
        },
        source: format!("/brink/{}/{}", segment(&told.node), segment(&line.boot)),
        of: format!("{TYPE}{}", line.of.word()),
        subject: line.subject.as_ref().and_then(|subject| {
            let (namespace, name) = (segment(&subject.namespace), segment(&subject.name));
            let is_named = !(namespace.is_empty() && name.is_empty());
            is_named.then(|| format!("{namespace}/{name}"))
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

/// Whether it is the loss that a reader is told of, which nobody else gets.
fn is_of_one_reader(of: Kind, text: &[u8]) -> bool {
    of == Kind::Loss
        && serde_json::from_slice(text).is_ok_and(|lost: Lost<'_>| lost.data.place == Loss::READER)
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
    use crate::model::event::Time;
    use crate::outlet::samples::{hub, line, line_about, odd_line};

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

    /// Two sources of one id would be one event for whoever keeps them.
    #[test]
    fn what_a_reader_missed_has_no_other_events_id() {
        let hub = hub("node-1", 0);
        let missed = |count, last: Option<u64>| Loss {
            place: Loss::READER.to_owned(),
            count,
            total: count,
            uncounted: last.is_none(),
            first: last,
            last,
        };
        let id = |loss: &Loss, at| {
            let at = Time::new(1_700_000_000_000_001, at);
            let line = hub.loss_line(at, loss.last.unwrap_or(0), loss).unwrap();
            value(&line)["id"].as_str().unwrap().to_owned()
        };
        assert_eq!(id(&missed(3, Some(17)), 40), "17-40");
        assert_eq!(id(&missed(0, None), 41), "0-41");
        let of_all = Loss {
            place: "journal".to_owned(),
            ..missed(1, Some(18))
        };
        assert_eq!(id(&of_all, 42), "18");
    }

    #[test]
    fn what_is_about_nobody_has_no_subject() {
        let nobody = line_about(1, "", "");
        assert_eq!(value(&nobody).get("subject"), None);
        let named = line_about(2, "", "web");
        assert_eq!(value(&named)["subject"], "/web");
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
