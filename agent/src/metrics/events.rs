//! Events that were told, by kind; incidents by cause; and what readers and outlets were told they missed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use brink_stream::hub::{Hub, Line, Next, Sink};
use brink_stream::model::data::Loss;
use brink_stream::model::event::Event;
use brink_stream::model::incident::Cause;
use brink_stream::model::kind::Kind;

use crate::record::words::word_of;

/// Every cause of an incident.
pub const CAUSES: [Cause; 7] = [
    Cause::MemcgOom,
    Cause::GroupOom,
    Cause::GlobalOom,
    Cause::KernelOom,
    Cause::Eviction,
    Cause::WouldEvict,
    Cause::ForeignKill,
];
/// Where events, or what they are made from, can be lost; what is none of the others is an outlet. All but `reader` are told to
/// everybody by the hub.
pub const PLACES: [&str; 6] = [
    "kernel-ring",
    "guard-queue",
    "journal",
    Loss::READER,
    "collector",
    "outlet",
];
/// An incident names its cause and its revision among its first fields, behind the subject.
const WITHIN: usize = 8192;

/// Counts of what was told; each is touched by the hub alone.
#[derive(Debug, Default)]
pub struct EventCounts {
    is_fed: AtomicBool,
    kinds: [AtomicU64; Kind::ALL.len()],
    causes: [AtomicU64; CAUSES.len()],
    losses: [AtomicU64; PLACES.len()],
}

/// The counts as they are now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventTally {
    /// Events of each kind, in the order of [`Kind::ALL`].
    pub kinds: [u64; Kind::ALL.len()],
    /// Incidents of each of the [`CAUSES`].
    pub causes: [u64; CAUSES.len()],
    /// Losses at each of the [`PLACES`].
    pub losses: [u64; PLACES.len()],
}

/// What the hub hands every event to.
struct Tap(Arc<EventCounts>);

impl EventCounts {
    /// Counts what a hub tells from now on, and what it has told since its start. Nobody else may be telling yet.
    pub fn attach(self: &Arc<Self>, hub: &Hub) {
        let mut told = hub.reader(Some(0));
        while let Some(next) = told.next() {
            if let Next::Line(line) = next {
                self.count(&line);
            }
        }
        self.is_fed.store(true, Ordering::Relaxed);
        hub.attach(Box::new(Tap(Arc::clone(self))));
    }

    /// The counts, with what the hub's readers have missed; none where events are switched off.
    pub fn read(&self, hub: Option<&Hub>) -> Option<EventTally> {
        let value = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let hub = hub.filter(|_| self.is_fed.load(Ordering::Relaxed))?;
        let mut losses = self.losses.each_ref().map(value);
        for (place, count) in PLACES.iter().zip(&mut losses) {
            if *place == Loss::READER {
                *count = hub.missed();
            }
        }
        Some(EventTally {
            kinds: self.kinds.each_ref().map(value),
            causes: self.causes.each_ref().map(value),
            losses,
        })
    }

    fn count(&self, line: &Line) {
        let kind = Kind::ALL.iter().position(|kind| *kind == line.of);
        add(kind.and_then(|place| self.kinds.get(place)), 1);
        match line.of {
            of if of.is_incident() && is_first(&line.text) => {
                let cause = cause_of(&line.text);
                add(cause.and_then(|place| self.causes.get(place)), 1);
            }
            Kind::Loss => {
                if let Some((place, count)) = loss_of(&line.text) {
                    add(self.losses.get(place), count);
                }
            }
            _ => {}
        }
    }
}

impl Sink for Tap {
    fn take(&mut self, line: &Arc<Line>) {
        self.0.count(line);
    }
}

fn add(count: Option<&AtomicU64>, more: u64) {
    if let Some(count) = count {
        count.fetch_add(more, Ordering::Relaxed);
    }
}

/// Which of [`CAUSES`] an incident has.
fn cause_of(text: &[u8]) -> Option<usize> {
    let rest = behind(b"\"cause\":\"", text)?;
    let word = &rest[..rest.iter().position(|byte| *byte == b'"')?];
    CAUSES
        .iter()
        .position(|cause| word_of(cause).as_bytes() == word)
}

/// Whether an incident is told for the first time, whichever kind tells it.
fn is_first(text: &[u8]) -> bool {
    let rest = behind(b"\"revision\":", text).unwrap_or_default();
    rest.starts_with(b"1") && !rest.get(1).is_some_and(u8::is_ascii_digit)
}

/// What stands behind a key. It is looked for as bytes, for the hub waits: inside a text of JSON its quotes would be escaped, so
/// nobody can write it into a name.
fn behind<'a>(key: &[u8], text: &'a [u8]) -> Option<&'a [u8]> {
    let start = &text[..text.len().min(WITHIN)];
    let at = start.windows(key.len()).position(|bytes| bytes == key)?;
    start.get(at + key.len()..)
}

/// Which of [`PLACES`] has lost how many.
fn loss_of(text: &[u8]) -> Option<(usize, u64)> {
    let event: Event = serde_json::from_slice(text).ok()?;
    let loss: Loss = serde_json::from_str(event.data.get()).ok()?;
    // `kernel-ring/oom` is a part of `kernel-ring`; `journald` is none of `journal`.
    let whole = loss.place.split('/').next().unwrap_or_default();
    let place = PLACES.iter().position(|place| *place == whole);
    Some((place.unwrap_or(PLACES.len() - 1), loss.count))
}

#[cfg(test)]
mod tests {
    use brink_stream::hub::{Identity, Limits};
    use brink_stream::model::event::{Draft, Subject, Time};
    use serde_json::{Value, json};

    use super::*;

    fn tell(hub: &Hub, of: Kind, data: &Value) {
        let at = Time {
            wall: "2026-11-20T10:00:00.000000Z".to_owned(),
            monotonic_ns: 1,
        };
        // A name that would like to be a cause.
        let subject = Subject {
            name: "\"cause\":\"eviction\"".to_owned(),
            ..Subject::default()
        };
        hub.tell(Draft::new(of, at, Some(subject), data).unwrap());
    }

    #[test]
    fn events_are_counted_from_the_first_by_kind_cause_and_place() {
        let identity = Identity {
            node: "n1".to_owned(),
            boot_id: "b".to_owned(),
        };
        let hub = Hub::new(identity, 40, Limits::default());
        let counts = Arc::new(EventCounts::default());
        assert_eq!(counts.read(Some(&hub)), None);
        tell(&hub, Kind::AgentStarted, &json!({}));
        counts.attach(&hub);
        let incident = |cause: &str, revision: u32| json!({"cause": cause, "evidence": ["\"revision\":1,"], "revision": revision});
        tell(&hub, Kind::OomKill, &incident("memcgOom", 1));
        tell(&hub, Kind::EvictionOrdered, &incident("wouldEvict", 1));
        // The same incident once more.
        tell(&hub, Kind::EvictionCompleted, &incident("wouldEvict", 2));
        tell(&hub, Kind::IncidentClosed, &incident("memcgOom", 12));
        // One whose order found no room opens as it closes.
        tell(&hub, Kind::EvictionCompleted, &incident("eviction", 1));
        tell(
            &hub,
            Kind::OomKill,
            &json!({"name": "\"cause\":\"memcgOom\""}),
        );
        for (place, count) in [
            ("journal", 5),
            ("kernel-ring/oom", 2),
            ("file", 1),
            ("journald", 3),
        ] {
            tell(
                &hub,
                Kind::Loss,
                &json!({"place": place, "count": count, "total": 9}),
            );
        }
        let told = counts.read(Some(&hub)).unwrap();
        let of = |kind| told.kinds[Kind::ALL.iter().position(|one| *one == kind).unwrap()];
        assert_eq!(
            (of(Kind::AgentStarted), of(Kind::OomKill), of(Kind::Loss)),
            (1, 2, 4)
        );
        assert_eq!(told.causes, [1, 0, 0, 0, 1, 1, 0]);
        assert_eq!(told.losses, [2, 0, 5, 0, 0, 4]);
        assert_eq!(counts.read(None), None);
    }
}
