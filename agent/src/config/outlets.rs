//! `events.journal` and the other ways out of events.

use std::path::{Path, PathBuf};
use std::time::Duration;

use brink_core::base::Span;
use brink_stream::journal::Limits;
use brink_stream::outlet::Format;
use brink_stream::outlet::file::Rotation;

use super::document::{Fields, Node, Reader};
use super::schema::{absolute, section};
use super::settings::Paths;

/// Where the journal is, where nothing else is written.
const JOURNAL: &str = "/var/lib/brink/events";
/// The state directory that goes with it.
const STATE_DIR: &str = "/run/brink";
/// The least that a journal or a file may have, in bytes.
const LEAST_SIZE: i64 = 1 << 20;
/// Files that rotation keeps.
const MOST_FILES: i64 = 1000;

/// The event journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventJournal {
    /// Whether there is one.
    pub enabled: bool,
    /// Its folder.
    pub path: PathBuf,
    /// How much it keeps.
    pub limits: Limits,
}

/// The other ways out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outlets {
    /// A file of lines.
    pub file: Option<EventFile>,
    /// Lines on standard output.
    pub stdout: Option<Format>,
    /// The machine's journald.
    pub journald: bool,
    /// A collector of OpenTelemetry, as it is written.
    pub otlp: Option<String>,
}

/// A file of lines, rotated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventFile {
    /// The file.
    pub path: PathBuf,
    /// When it is left for a new one.
    pub rotation: Rotation,
    /// How its lines are written.
    pub format: Format,
}

pub(super) fn read_journal<'a>(
    reader: &mut Reader<'a>,
    events: Fields<'a>,
    paths: &Paths,
) -> EventJournal {
    let known = ["enabled", "path", "maxSize", "maxAge"];
    let fields = section(reader, events, "journal", &known);
    let default = Limits::default();
    let folder = if paths.state_dir == Path::new(STATE_DIR) {
        PathBuf::from(JOURNAL)
    } else {
        paths.state_dir.join("events")
    };
    let age = fields
        .get("maxAge")
        .and_then(|node| reader.span(node, Span::from_secs(60)))
        .and_then(|span| u64::try_from(span.as_nanos()).ok());
    EventJournal {
        enabled: fields
            .get("enabled")
            .and_then(|node| reader.boolean(node))
            .unwrap_or(true),
        path: absolute(reader, fields, "path").unwrap_or(folder),
        limits: Limits {
            size: size(reader, fields, "maxSize").unwrap_or(default.size),
            age: age.map_or(default.age, Duration::from_nanos),
        },
    }
}

pub(super) fn read_outlets<'a>(reader: &mut Reader<'a>, events: Fields<'a>) -> Outlets {
    Outlets {
        file: read_file(reader, events),
        stdout: events.get("stdout").and_then(|node| {
            let words = [
                ("none", None),
                ("json", Some(Format::Json)),
                ("cloudevents", Some(Format::CloudEvents)),
            ];
            reader.word(node, &words).flatten()
        }),
        journald: events
            .get("journald")
            .and_then(|node| reader.boolean(node))
            .unwrap_or(false),
        otlp: events
            .get("otlp")
            .and_then(|node| read_endpoint(reader, node)),
    }
}

fn read_file<'a>(reader: &mut Reader<'a>, events: Fields<'a>) -> Option<EventFile> {
    let node = events.get("file")?;
    if node.scalar() == Some("none") {
        return None;
    }
    let known = ["path", "maxSize", "maxFiles", "format"];
    let fields = section(reader, events, "file", &known);
    if fields.get("path").and_then(Node::scalar).is_none() {
        reader.fault(node, "path is missing", "none, or {path: FILE}");
        return None;
    }
    let path = absolute(reader, fields, "path");
    let size = size(reader, fields, "maxSize");
    let count = fields
        .get("maxFiles")
        .and_then(|node| reader.integer(node, 0, MOST_FILES))
        .and_then(|count| u32::try_from(count).ok());
    let formats = [("json", Format::Json), ("cloudevents", Format::CloudEvents)];
    let format = fields
        .get("format")
        .and_then(|node| reader.word(node, &formats));
    Some(EventFile {
        path: path?,
        rotation: Rotation {
            size: size.unwrap_or(64 << 20),
            count: count.unwrap_or(4),
        },
        format: format.unwrap_or_default(),
    })
}

fn size<'a>(reader: &mut Reader<'a>, fields: Fields<'a>, key: &str) -> Option<u64> {
    let node = fields.get(key)?;
    let bytes = reader.quantity(node)?.value();
    if bytes < LEAST_SIZE {
        reader.fault(node, "too small", "1Mi or more");
        return None;
    }
    u64::try_from(bytes).ok()
}

#[cfg(feature = "otlp")]
fn read_endpoint<'a>(reader: &mut Reader<'a>, node: &'a Node) -> Option<String> {
    const ACCEPTED: &str = "none, or http://HOST[:PORT][/PATH]; port 4318 and /v1/logs go without saying. \
                            For TLS run a collector on this machine and let it send on";
    let text = reader.name(node)?;
    if text == "none" {
        return None;
    }
    if brink_stream::outlet::otlp::Endpoint::parse(text).is_none() {
        reader.fault(node, "no address of a collector", ACCEPTED);
        return None;
    }
    Some(text.to_owned())
}

#[cfg(not(feature = "otlp"))]
fn read_endpoint<'a>(reader: &mut Reader<'a>, node: &'a Node) -> Option<String> {
    if reader.name(node)? != "none" {
        let problem = "this build has no OTLP";
        reader.fault(node, problem, "none; or build with --features otlp");
    }
    None
}
