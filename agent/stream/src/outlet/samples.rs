//! Lines for the tests of the ways out.

use std::sync::Arc;

use serde_json::json;

use crate::hub::{Hub, Identity, Limits, Line, Next};
use crate::model::event::{Draft, Subject, Time};
use crate::model::kind::Kind;

pub(crate) fn hub(node: &str, after: u64) -> Hub {
    let identity = Identity {
        node: node.to_owned(),
        boot_id: "3f2a0000-0000-4000-8000-000000000000".to_owned(),
    };
    let limits = Limits {
        events: 64,
        bytes: 8 << 20,
    };
    Hub::new(identity, after, limits)
}

pub(crate) fn draft(of: Kind, namespace: &str, name: &str, bytes: usize) -> Draft {
    let subject = Subject {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: "u-1".to_owned(),
        incident: Some("3f2a-17".to_owned()),
    };
    let at = Time::new(1_700_000_000_000_001, 17);
    let data = json!({"filler": "x".repeat(bytes)});
    Draft::new(of, at, Some(subject), &data).unwrap()
}

fn told(node: &str, seq: u64, draft: Draft) -> Arc<Line> {
    let hub = hub(node, seq - 1);
    let mut reader = hub.reader(None);
    hub.tell(draft);
    match reader.next() {
        Some(Next::Line(line)) => line,
        other => panic!("no event: {other:?}"),
    }
}

/// A kill with that number.
pub(crate) fn line(seq: u64) -> Arc<Line> {
    told("node-1", seq, draft(Kind::OomKill, "shop", "cart", 10))
}

/// One about somebody.
pub(crate) fn line_about(seq: u64, namespace: &str, name: &str) -> Arc<Line> {
    told("node-1", seq, draft(Kind::OomKill, namespace, name, 10))
}

/// One with so many bytes of data.
pub(crate) fn long_line(seq: u64, bytes: usize) -> Arc<Line> {
    told("node-1", seq, draft(Kind::OomKill, "shop", "cart", bytes))
}

/// One whose names are chosen to break out of whatever they are put into.
pub(crate) fn odd_line(seq: u64) -> Arc<Line> {
    let name = "\nMESSAGE=forged\u{1f600}";
    told("no\"de\n/", seq, draft(Kind::Pressure, "a/b", name, 10))
}
