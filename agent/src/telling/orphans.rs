//! Incidents of a run that ended in their middle: the next run closes them, for nobody else will.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use brink_stream::hub::{Hub, Line, Look, Past, PastError};
use brink_stream::model::event::{Draft, Event, Time};
use brink_stream::model::kind::Kind;
use serde::de::Error as _;
use serde_json::Value;
use tracing::error;

/// Incidents last for seconds, and orders for minutes: what is older than this by the end of its run was closed, or was left
/// open by a version that knew nothing of this. In microseconds.
const LATELY: i64 = 3_600_000_000;
/// Why such an incident is over.
const END: &str = "the agent ended first; what came after is not known";

/// Closes what runs before this one have left open, at `now`.
///
/// # Errors
/// When the past cannot be read.
pub(super) fn close(past: &dyn Past, hub: &Hub, now: impl Fn() -> Time) -> Result<(), PastError> {
    let mut search = Search {
        boot: &hub.identity().boot_id,
        base: hub.base(),
        newest_us: None,
        is_over: false,
        closed: HashSet::new(),
        open: HashMap::new(),
    };
    past.back(&mut search)?;
    let mut open: Vec<Arc<Line>> = search.open.into_values().collect();
    open.sort_by_key(|line| (line.wall_us, line.seq));
    for line in open {
        match closing(&line, now()) {
            Ok(draft) => {
                hub.tell(draft);
            }
            Err(error) => error!(%error, "an incident of an earlier run cannot be closed"),
        }
    }
    Ok(())
}

/// Goes back through the events to the start of the run before this one.
struct Search<'a> {
    boot: &'a str,
    /// The last number before this run's.
    base: u64,
    /// When the last event before this run was told.
    newest_us: Option<i64>,
    is_over: bool,
    /// Incidents whose end was come by, and not yet their beginning.
    closed: HashSet<String>,
    open: HashMap<String, Arc<Line>>,
}

impl Search<'_> {
    fn note(&mut self, id: &str, line: &Arc<Line>, is_ours: bool) {
        if line.of.closes_incident() {
            if self.open.remove(id).is_none() {
                self.closed.insert(id.to_owned());
            }
        } else if line.of.is_incident() && !is_ours && !self.closed.remove(id) {
            self.open.insert(id.to_owned(), Arc::clone(line));
        }
    }
}

impl Look for Search<'_> {
    fn see(&mut self, line: &Arc<Line>) {
        let is_ours = *line.boot == *self.boot && line.seq > self.base;
        if let Some(id) = line.subject.as_ref().and_then(|of| of.incident.as_ref()) {
            self.note(id, line, is_ours);
        }
        if !is_ours {
            let newest = *self.newest_us.get_or_insert(line.wall_us);
            let newest = newest.max(line.wall_us);
            self.newest_us = Some(newest);
            self.is_over |= line.of == Kind::AgentStarted || newest - line.wall_us > LATELY;
        }
    }

    fn goes_on(&mut self) -> bool {
        !self.is_over
    }
}

/// The same incident once more, with nothing still to come.
fn closing(line: &Line, at: Time) -> serde_json::Result<Draft> {
    let event: Event = serde_json::from_slice(&line.text)?;
    // As it was written: another version may have told more than this one knows.
    let mut incident: Value = serde_json::from_str(event.data.get())?;
    settle(&mut incident);
    let fields = incident.as_object_mut();
    let fields =
        fields.ok_or_else(|| serde_json::Error::custom("an incident that is no object"))?;
    let revision = fields.get("revision").and_then(Value::as_u64).unwrap_or(1);
    fields.insert("revision".to_owned(), revision.saturating_add(1).into());
    fields.insert("isFinal".to_owned(), true.into());
    if let Some(Value::Object(course)) = fields.get_mut("course") {
        course.insert("end".to_owned(), END.into());
    }
    let of = match line.of {
        Kind::EvictionOrdered => Kind::EvictionCompleted,
        _ => Kind::IncidentClosed,
    };
    Draft::new(of, at, event.subject, &incident)
}

/// What was still to come is lost.
fn settle(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(settle),
        Value::Object(fields) => {
            for (key, inner) in fields {
                let is_reason = key == "missing" || key.ends_with("Missing");
                if is_reason && inner == "pending" {
                    *inner = "lost".into();
                } else {
                    settle(inner);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use brink_stream::hub::{Identity, Limits, Next, Page, Position, Sink};
    use brink_stream::model::incident::Incident;

    use super::*;

    /// A journal in memory, in parts of three events.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<Arc<Line>>>>);

    impl Sink for Kept {
        fn take(&mut self, line: &Arc<Line>) {
            self.0.lock().unwrap().push(Arc::clone(line));
        }
    }

    impl Past for Kept {
        fn after(&self, _: Option<&Position>, _: usize) -> Result<Page, PastError> {
            Ok(Page::default())
        }

        fn back(&self, look: &mut dyn Look) -> Result<(), PastError> {
            for part in self.0.lock().unwrap().clone().rchunks(3) {
                for line in part {
                    look.see(line);
                }
                if !look.goes_on() {
                    break;
                }
            }
            Ok(())
        }
    }

    fn run_of(boot: &str, base: u64, kept: &Kept) -> Hub {
        let identity = Identity {
            node: "here".to_owned(),
            boot_id: boot.to_owned(),
        };
        let hub = Hub::new(identity, base, Limits::default());
        hub.attach(Box::new(kept.clone()));
        tell(&hub, Kind::AgentStarted, "none");
        hub
    }

    /// Tells the committed sample of a kind, of an incident with that id.
    fn tell(hub: &Hub, of: Kind, id: &str) {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let path = folder.join(format!("../tests/events/v1alpha1/{}.json", of.word()));
        let text = std::fs::read_to_string(path).unwrap();
        let event: Event = serde_json::from_str(&text).unwrap();
        let mut subject = event.subject.clone();
        let own = subject.as_ref().and_then(|of| of.incident.clone());
        if let Some(subject) = &mut subject {
            subject.incident = Some(id.to_owned());
        }
        let own = own.map(|own| format!("\"id\":\"{own}\""));
        let data = own.map_or_else(
            || event.data.get().to_owned(),
            |own| event.data.get().replace(&own, &format!("\"id\":\"{id}\"")),
        );
        let data: Value = serde_json::from_str(&data).unwrap();
        hub.tell(Draft::new(of, event.at, subject, &data).unwrap());
    }

    fn closed_by(hub: &Hub, kept: &Kept) -> Vec<(Kind, Incident)> {
        let before = hub.numbering().last;
        let now = || Time {
            wall: "2026-11-21T10:00:00.000000Z".to_owned(),
            monotonic_ns: 1,
        };
        close(kept, hub, now).unwrap();
        let mut reader = hub.reader(Some(before));
        let lines = std::iter::from_fn(|| match reader.next()? {
            Next::Line(line) => Some(line),
            lost @ Next::Lost { .. } => panic!("{lost:?}"),
        });
        let told = lines.map(|line| {
            assert!(!String::from_utf8_lossy(&line.text).contains("\"pending\""));
            let event: Event = serde_json::from_slice(&line.text).unwrap();
            assert_eq!(event.at, now());
            (event.of, serde_json::from_str(event.data.get()).unwrap())
        });
        told.collect()
    }

    #[test]
    fn what_an_ended_run_left_open_is_closed_once() {
        for (boot, base) in [("3f2a", 9), ("b007", 0)] {
            let kept = Kept::default();
            let first = run_of("3f2a", 0, &kept);
            for (of, id) in [
                (Kind::OomKill, "3f2a-2"),
                (Kind::EvictionOrdered, "3f2a-3"),
                (Kind::KillObserved, "3f2a-4"),
                (Kind::IncidentClosed, "3f2a-4"),
                (Kind::Pressure, ""),
            ] {
                tell(&first, of, id);
            }
            let second = run_of(boot, base, &kept);
            tell(&second, Kind::OomKill, "its own");
            let closed = closed_by(&second, &kept);
            let told = closed
                .iter()
                .map(|(of, incident)| (*of, incident.id.as_str()));
            assert_eq!(
                told.collect::<HashSet<_>>(),
                HashSet::from([
                    (Kind::IncidentClosed, "3f2a-2"),
                    (Kind::EvictionCompleted, "3f2a-3"),
                ])
            );
            for (_, incident) in &closed {
                assert_eq!((incident.revision, incident.is_final), (2, true));
                assert_eq!(incident.course.end.as_deref(), Some(END));
            }
            assert_eq!(closed_by(&second, &kept), []);
            // Its own is left to the run after it.
            let third = run_of("later", 0, &kept);
            let closed = closed_by(&third, &kept);
            assert_eq!(closed.len(), 1, "{closed:?}");
            assert_eq!(closed[0].1.id, "its own");
        }
    }
}
