//! Incidents of a run that ended in their middle: the next run closes them, for nobody else will.
//!
//! An order that it has taken up goes on in its own.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use brink_stream::hub::{Hub, Line, Look, Past, PastError};
use brink_stream::model::event::{Draft, Event, Subject, Time};
use brink_stream::model::incident::Incident;
use brink_stream::model::kind::Kind;
use serde::de::Error as _;
use serde_json::Value;
use tracing::error;

/// Incidents last for seconds, and orders for minutes: what is older than this by the end of its run was closed, or was left
/// open by a version that knew nothing of this. So was what is older than a run that lasted so long: that one closed it. In microseconds.
const LATELY: i64 = 3_600_000_000;
/// Why such an incident is over.
const END: &str = "the agent ended first; what came after is not known";
/// Why it is, where a part of the past that may have had its end is missing: readers may have been told another one.
const HIDDEN_END: &str =
    "its end is not in the journal: a part of that is missing or cannot be read";
/// How far beyond the last known revision such an end is: no incident is told nearly so often, so that it comes behind whatever else
/// was told of it.
const BEYOND: u32 = 1000;

/// Closes what runs before this one have left open, at `now`, but for the orders of this boot that go on. What is kept out of the past
/// that it is given is out of what it tells. The incidents of orders of this boot, with their numbers, as they were told last: one of
/// them may be taken up yet.
///
/// # Errors
/// When the past cannot be read.
pub(super) fn close(
    past: &dyn Past,
    hub: &Hub,
    now: impl Fn() -> Time,
    goes_on: impl Fn(u64) -> bool,
) -> Result<Vec<(u64, Incident)>, PastError> {
    let mut search = Search {
        boot: &hub.identity().boot_id,
        base: hub.base(),
        runs: Vec::new(),
        until_us: None,
        is_over: false,
        closed: HashSet::new(),
        open: HashMap::new(),
        part: 0,
        has_hole: false,
        is_cut: false,
    };
    past.back(&mut search)?;
    let mut open: Vec<Open> = search.open.into_values().collect();
    open.sort_by_key(|open| (open.line.wall_us, open.line.seq));
    let mut orders = Vec::new();
    for Open { line, is_cut, .. } in open {
        let order = ordered(&line, hub);
        if let Some((number, _)) = &order
            && goes_on(*number)
        {
            orders.extend(order);
            continue;
        }
        match closing(&line, is_cut, now()) {
            Ok(draft) => {
                hub.tell(draft);
                orders.extend(order.map(|(number, mut incident)| {
                    incident.revision = incident.revision.saturating_add(further(is_cut));
                    (number, incident)
                }));
            }
            Err(error) => error!(%error, "an incident of an earlier run cannot be closed"),
        }
    }
    Ok(orders)
}

/// The order of this boot that a line tells of, with its incident; none of a line that tells of none, or by a version that told
/// incidents in another way.
fn ordered(line: &Line, hub: &Hub) -> Option<(u64, Incident)> {
    if line.of != Kind::EvictionOrdered || *line.boot != *hub.identity().boot_id {
        return None;
    }
    let (_, incident) = told(line).ok()?;
    let number = incident.pointer("/decision/value/order")?.as_u64()?;
    Some((number, serde_json::from_value(incident).ok()?))
}

/// Goes back through the events to a run that lasted: those that were killed before they could close what others left open are
/// passed.
struct Search<'a> {
    boot: &'a str,
    /// The last number before this run's.
    base: u64,
    /// Earlier runs, as far as this part has them, the oldest first.
    runs: Vec<Run>,
    /// The end of the run in whose middle the part that was seen last begins.
    until_us: Option<i64>,
    is_over: bool,
    /// Incidents whose end was come by.
    closed: HashSet<String>,
    open: HashMap<String, Open>,
    /// How many parts were seen before this one.
    part: usize,
    /// Whether something of this part is missing.
    has_hole: bool,
    /// Whether something of the parts before it is, which came later.
    is_cut: bool,
}

/// An incident whose end was not come by.
struct Open {
    /// What was told of it last.
    line: Arc<Line>,
    /// The part that has this.
    part: usize,
    /// Whether something that came after it is missing: its end may be in that.
    is_cut: bool,
}

/// When a run told what one part has of it.
struct Run {
    /// Whether its start is there.
    is_whole: bool,
    from_us: i64,
    until_us: i64,
}

impl Search<'_> {
    fn note(&mut self, id: &str, line: &Arc<Line>, is_ours: bool) {
        if line.of.closes_incident() {
            self.open.remove(id);
            self.closed.insert(id.to_owned());
        } else if line.of.is_incident() && !is_ours && !self.closed.contains(id) {
            let open = Open {
                line: Arc::clone(line),
                part: self.part,
                is_cut: self.is_cut,
            };
            self.open.insert(id.to_owned(), open);
        }
    }

    fn follow(&mut self, line: &Line) {
        let is_start = line.of == Kind::AgentStarted;
        let at_us = line.wall_us;
        match self.runs.last_mut().filter(|_| !is_start) {
            Some(run) => {
                run.from_us = run.from_us.min(at_us);
                run.until_us = run.until_us.max(at_us);
            }
            None => self.runs.push(Run {
                is_whole: is_start,
                from_us: at_us,
                until_us: at_us,
            }),
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
            self.follow(line);
        }
    }

    fn misses(&mut self) {
        self.has_hole = true;
        let here = self.part;
        // What comes behind this in the same part knows nothing of it.
        for open in self.open.values_mut().filter(|open| open.part == here) {
            open.is_cut = true;
        }
    }

    fn goes_on(&mut self) -> bool {
        self.is_cut |= std::mem::take(&mut self.has_hole);
        self.part += 1;
        for run in self.runs.drain(..).rev() {
            let until_us = run.until_us.max(self.until_us.unwrap_or(run.until_us));
            self.is_over |= until_us.saturating_sub(run.from_us) > LATELY;
            self.until_us = (!run.is_whole).then_some(until_us);
        }
        !self.is_over
    }
}

/// How much higher the revision is by which an incident is closed.
const fn further(is_cut: bool) -> u32 {
    if is_cut { BEYOND } else { 1 }
}

/// The same incident once more, with nothing still to come. `is_cut`: another end may have been told, and is not to be seen.
fn closing(line: &Line, is_cut: bool, at: Time) -> serde_json::Result<Draft> {
    let (subject, mut incident) = told(line)?;
    settle_all(&mut incident);
    let fields = incident.as_object_mut();
    let fields =
        fields.ok_or_else(|| serde_json::Error::custom("an incident that is no object"))?;
    let revision = fields.get("revision").and_then(Value::as_u64).unwrap_or(1);
    let revision = revision.saturating_add(further(is_cut).into());
    fields.insert("revision".to_owned(), revision.into());
    fields.insert("isFinal".to_owned(), true.into());
    if let Some(Value::Object(course)) = fields.get_mut("course") {
        let end = if is_cut { HIDDEN_END } else { END };
        course.insert("end".to_owned(), end.into());
    }
    let of = match line.of {
        Kind::EvictionOrdered => Kind::EvictionCompleted,
        _ => Kind::IncidentClosed,
    };
    Draft::new(of, at, subject, &incident)
}

/// The subject and the incident of a line, as it was written: another version may have told more than this one knows.
fn told(line: &Line) -> serde_json::Result<(Option<Subject>, Value)> {
    let event: Event = serde_json::from_slice(&line.text)?;
    let incident = serde_json::from_str(event.data.get())?;
    Ok((event.subject, incident))
}

/// What was still to come is lost, wherever it stands.
fn settle_all(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(settle_all),
        Value::Object(fields) => {
            for (key, inner) in fields {
                let is_reason = key == "missing" || key.ends_with("Missing");
                if is_reason && inner == "pending" {
                    *inner = "lost".into();
                } else {
                    settle_all(inner);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use brink_stream::hub::{Identity, Limits, Next, Page, Position, Redacted, Sink};
    use brink_stream::model::field::{Field, Missing};

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
        let hub = hub_of(boot, base, kept);
        tell(&hub, Kind::AgentStarted, "none");
        hub
    }

    fn hub_of(boot: &str, base: u64, kept: &Kept) -> Hub {
        let identity = Identity {
            node: "here".to_owned(),
            boot_id: boot.to_owned(),
        };
        let hub = Hub::new(identity, base, Limits::default());
        hub.attach(Box::new(kept.clone()));
        hub
    }

    /// A run that starts at such an hour.
    fn run_at(hour: i64, (boot, base): (&str, u64), kept: &Kept) -> Hub {
        let hub = hub_of(boot, base, kept);
        tell_at(&hub, Kind::AgentStarted, "none", Some(at(hour)));
        hub
    }

    fn at(hour: i64) -> Time {
        Time::new(1_700_000_000_000_000 + hour * LATELY, hour)
    }

    /// Tells the committed sample of a kind, of an incident with that id.
    fn tell(hub: &Hub, of: Kind, id: &str) {
        tell_at(hub, of, id, None);
    }

    /// The same at another time than the sample's.
    fn tell_at(hub: &Hub, of: Kind, id: &str, at: Option<Time>) {
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
        let at = at.unwrap_or(event.at);
        hub.tell(Draft::new(of, at, subject, &data).unwrap());
    }

    /// The incidents that a run closes at such an hour.
    fn ids_closed_by(hub: &Hub, kept: &Kept, hour: i64) -> Vec<String> {
        let before = kept.0.lock().unwrap().len();
        close(kept, hub, || at(hour), |_| false).unwrap();
        let lines = kept.0.lock().unwrap();
        let told = lines[before..].iter();
        told.filter_map(|line| line.subject.as_ref()?.incident.clone())
            .collect()
    }

    fn closed_by(hub: &Hub, past: &dyn Past) -> Vec<(Kind, Incident)> {
        let before = hub.numbering().last;
        let now = || Time {
            wall: "2026-11-21T10:00:00.000000Z".to_owned(),
            monotonic_ns: 1,
        };
        close(past, hub, now, |_| false).unwrap();
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

    /// The same with something missing behind so many events, counted from the oldest.
    struct Holed(Kept, usize);

    impl Past for Holed {
        fn after(&self, position: Option<&Position>, limit: usize) -> Result<Page, PastError> {
            self.0.after(position, limit)
        }

        fn back(&self, look: &mut dyn Look) -> Result<(), PastError> {
            let lines = self.0.0.lock().unwrap().clone();
            for part in (0..lines.len()).step_by(3).rev() {
                let until = lines.len().min(part + 3);
                for (at, line) in (part..until).zip(&lines[part..until]) {
                    if at == self.1 {
                        look.misses();
                    }
                    look.see(line);
                }
                if !look.goes_on() {
                    break;
                }
            }
            Ok(())
        }
    }

    #[test]
    fn where_the_end_may_be_in_what_is_missing_that_is_said_and_the_revision_is_beyond_any() {
        let check = |hole: usize, expected: (u32, &str)| {
            let kept = Kept::default();
            let first = run_of("3f2a", 0, &kept);
            tell(&first, Kind::OomKill, "3f2a-2");
            for _ in 0..3 {
                tell(&first, Kind::Pressure, "");
            }
            let second = run_of("3f2a", 9, &kept);
            let closed = closed_by(&second, &Holed(kept.clone(), hole));
            let [(Kind::IncidentClosed, incident)] = &closed[..] else {
                panic!("one is closed: {closed:?}");
            };
            let end = incident.course.end.as_deref();
            let found = (incident.revision, end.unwrap_or_default());
            assert_eq!(found, expected, "behind {hole} events");
            assert!(incident.is_final);
            // And told once, whatever is missing.
            assert_eq!(closed_by(&second, &Holed(kept, hole)), []);
        };
        // In front of everything, and just in front of it.
        check(0, (2, END));
        check(1, (2, END));
        // Behind it in the same part, and at both ends of the next one.
        check(2, (1 + BEYOND, HIDDEN_END));
        check(3, (1 + BEYOND, HIDDEN_END));
        check(5, (1 + BEYOND, HIDDEN_END));
    }

    /// The order of the committed sample, which an earlier run of that boot has left open.
    fn left_open(boot: &str, goes_on: bool) -> (Vec<u32>, u64, Vec<(u64, u32)>) {
        let kept = Kept::default();
        tell(&run_of(boot, 0, &kept), Kind::EvictionOrdered, "3f2a-2");
        let sample: Value = serde_json::from_slice(&kept.0.lock().unwrap()[1].text).unwrap();
        let number = sample.pointer("/data/decision/value/order").unwrap();
        let number = number.as_u64().unwrap();
        let second = run_of("3f2a", 9, &kept);
        let before = second.numbering().last;
        let asked = |order| goes_on && order == number;
        let left = close(&kept, &second, || at(0), asked).unwrap();
        let mut reader = second.reader(Some(before));
        let told = std::iter::from_fn(|| match reader.next()? {
            Next::Line(line) => {
                let event: Event = serde_json::from_slice(&line.text).unwrap();
                let incident: Incident = serde_json::from_str(event.data.get()).unwrap();
                Some(incident.revision)
            }
            lost @ Next::Lost { .. } => panic!("{lost:?}"),
        });
        let left = left.iter().map(|(order, one)| (*order, one.revision));
        (told.collect(), number, left.collect())
    }

    #[test]
    fn an_order_that_goes_on_is_left_open_and_one_that_may_is_known() {
        let (told, order, left) = left_open("3f2a", true);
        assert_eq!((told, left), (vec![], vec![(order, 1)]));
        let (told, order, left) = left_open("3f2a", false);
        assert_eq!((told, left), (vec![2], vec![(order, 2)]));
        // Orders are counted anew with every boot.
        let (told, _, left) = left_open("b007", true);
        assert_eq!((told, left), (vec![2], vec![]));
    }

    #[test]
    fn who_tells_no_arguments_passes_none_on_that_another_run_told() {
        for tells_arguments in [true, false] {
            let kept = Kept::default();
            tell(&run_of("3f2a", 0, &kept), Kind::OomKill, "3f2a-2");
            let second = run_of("b007", 0, &kept);
            let past: Arc<dyn Past> = Arc::new(kept.clone());
            let redacted = Redacted::new(Arc::clone(&past));
            let past: &dyn Past = if tells_arguments { &*past } else { &redacted };
            let closed = closed_by(&second, past);
            let argv = &closed[0].1.victims[0].argv;
            assert_eq!(argv.value().is_some(), tells_arguments, "{argv:?}");
            let is_redacted = *argv == Field::Missing(Missing::Redacted);
            assert_eq!(is_redacted, !tells_arguments, "{argv:?}");
        }
    }

    #[test]
    fn what_a_run_had_no_time_to_close_is_closed_by_one_after_it_and_once() {
        let kept = Kept::default();
        let first = run_at(0, ("3f2a", 0), &kept);
        tell_at(&first, Kind::OomKill, "3f2a-2", Some(at(0)));
        // Each is killed as it has told its start.
        drop(run_at(30, ("3f2a", 9), &kept));
        drop(run_at(50, ("b007", 0), &kept));
        let fourth = run_at(51, ("b007", 9), &kept);
        assert_eq!(ids_closed_by(&fourth, &kept, 51), ["3f2a-2"]);
        for base in [20, 30] {
            let next = run_at(52, ("b007", base), &kept);
            assert_eq!(ids_closed_by(&next, &kept, 52), Vec::<String>::new());
        }
    }

    #[test]
    fn nobody_looks_further_back_than_a_run_that_lasted() {
        let kept = Kept::default();
        let first = run_at(0, ("3f2a", 0), &kept);
        tell_at(&first, Kind::OomKill, "3f2a-2", Some(at(0)));
        let second = run_at(1, ("3f2a", 9), &kept);
        for hour in 1..5 {
            tell_at(&second, Kind::Pressure, "", Some(at(hour)));
        }
        drop(run_at(7, ("3f2a", 20), &kept));
        let fourth = run_at(8, ("3f2a", 30), &kept);
        assert_eq!(ids_closed_by(&fourth, &kept, 8), Vec::<String>::new());
    }
}
