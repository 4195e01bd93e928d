//! One event as the line that everybody gets: written once, then only passed on.

use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;

use super::Identity;
use crate::model::API_VERSION;
use crate::model::event::{Draft, Event, Subject, Time};
use crate::model::kind::Kind;

/// One event that was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The boot that its number belongs to.
    pub boot: Arc<str>,
    /// Its number.
    pub seq: u64,
    /// What it tells.
    pub of: Kind,
    /// Microseconds since 1970 on the wall clock, when it happened.
    pub wall_us: i64,
    /// Whom it is about.
    pub subject: Option<Subject>,
    /// The event as one line of JSON, with its newline.
    pub text: Box<[u8]>,
}

impl Line {
    /// A line that was kept somewhere else.
    ///
    /// # Errors
    /// When it is no event of this version.
    pub fn parse(text: &[u8]) -> Result<Self, serde_json::Error> {
        let event: Event = serde_json::from_slice(text)?;
        let mut text = text.trim_ascii_end().to_vec();
        text.push(b'\n');
        Ok(Self {
            boot: event.boot_id.into(),
            seq: event.seq,
            of: event.of,
            wall_us: event.at.wall_us().unwrap_or(0),
            subject: event.subject,
            text: text.into(),
        })
    }

    /// What keeping it costs, in bytes.
    pub fn weight(&self) -> usize {
        let subject = self.subject.as_ref().map_or(0, |subject| {
            let incident = subject.incident.as_ref().map_or(0, String::len);
            subject.namespace.len() + subject.name.len() + subject.uid.len() + incident
        });
        size_of::<Self>() + self.text.len() + subject
    }
}

/// What is the same in every event of a run, as JSON.
pub(super) struct Envelope {
    boot: Arc<str>,
    /// Up to the kind.
    head: String,
    /// Between kind and number.
    middle: String,
}

/// What is written before the hub is locked.
pub(super) struct Parts {
    of: Kind,
    wall_us: i64,
    subject: Option<Subject>,
    /// From behind the number to the end of the line.
    tail: String,
}

impl Envelope {
    pub(super) fn new(identity: &Identity) -> Self {
        let (node, boot) = (json(&identity.node), json(&identity.boot_id));
        Self {
            boot: identity.boot_id.as_str().into(),
            head: format!("{{\"apiVersion\":\"{API_VERSION}\",\"kind\":\"Event\",\"type\":\""),
            middle: format!("\",\"node\":{node},\"bootId\":{boot},\"seq\":"),
        }
    }

    pub(super) fn line(&self, parts: Parts, seq: u64) -> Line {
        const LONGEST_NUMBER: usize = 20;
        let mut text = String::with_capacity(
            self.head.len()
                + parts.of.word().len()
                + self.middle.len()
                + LONGEST_NUMBER
                + parts.tail.len(),
        );
        text.push_str(&self.head);
        text.push_str(parts.of.word());
        text.push_str(&self.middle);
        text.push_str(&seq.to_string());
        text.push_str(&parts.tail);
        Line {
            boot: Arc::clone(&self.boot),
            seq,
            of: parts.of,
            wall_us: parts.wall_us,
            subject: parts.subject,
            text: text.into_bytes().into(),
        }
    }
}

impl Parts {
    pub(super) fn of(draft: Draft) -> Self {
        let Draft {
            of,
            at,
            subject,
            data,
        } = draft;
        let mut tail = String::with_capacity(128 + data.get().len());
        tail.push_str(",\"at\":");
        tail.push_str(&json(&at));
        if let Some(subject) = &subject {
            tail.push_str(",\"subject\":");
            tail.push_str(&json(subject));
        }
        tail.push_str(",\"data\":");
        push_on_one_line(&mut tail, &data);
        tail.push_str("}\n");
        Self {
            of,
            wall_us: at.wall_us().unwrap_or(0),
            subject,
            tail,
        }
    }
}

/// Line feeds in JSON stand only between its parts, never inside a text: a space says the same there.
fn push_on_one_line(text: &mut String, data: &RawValue) {
    let mut parts = data.get().split(['\n', '\r']);
    text.push_str(parts.next().unwrap_or_default());
    for part in parts {
        text.push(' ');
        text.push_str(part);
    }
}

/// Texts and structs of texts and numbers, which can always be written.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
}

impl Time {
    /// A moment from `wall_us` microseconds since 1970 and `monotonic_ns` nanoseconds of `CLOCK_MONOTONIC`.
    pub fn new(wall_us: i64, monotonic_ns: i64) -> Self {
        let wall = jiff::Timestamp::from_microsecond(wall_us).unwrap_or_default();
        Self {
            wall: format!("{wall:.6}"),
            monotonic_ns,
        }
    }

    /// The wall clock as microseconds since 1970; none if it is not written as RFC 3339.
    pub fn wall_us(&self) -> Option<i64> {
        let wall: jiff::Timestamp = self.wall.parse().ok()?;
        Some(wall.as_microsecond())
    }
}
