//! The incidents of the list, and where in the stream each was told last: small, in memory, newest first.
//!
//! A record may have hundreds of kilobytes, most of them its recording. The list needs a line of it; whoever wants the whole
//! asks the stream for the event at its place.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brink_stream::hub::{Hub, Line, Next, Past, PastError, Position};
use brink_stream::model::event::{Event, Time};
use brink_stream::model::field::Field;
use brink_stream::model::incident::{Cause, Identity, Limit};
use serde::{Deserialize, Serialize};
use tracing::warn;

/// Incidents that are kept.
pub const MOST: usize = 500;
/// Events of the past that are read at a time.
const PIECE: usize = 64;

/// One incident in the list. The fields are those of the incident.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The boot that the number belongs to.
    #[serde(default)]
    pub boot_id: String,
    /// The number of the event that told it last.
    #[serde(default)]
    pub seq: u64,
    /// Unique on this node.
    pub id: String,
    /// What killed.
    pub cause: Cause,
    /// Which telling this is.
    pub revision: u32,
    /// Nothing more is to come.
    pub is_final: bool,
    /// When the first victim was chosen or signalled.
    pub at: Time,
    /// The first victim.
    pub victims: Vec<Killed>,
    /// How many more there were.
    pub more_victims: u32,
    /// The workload of the first victim.
    pub workload: Field<Identity>,
    /// The cgroup whose limit was hit.
    pub limit: Field<Limit>,
}

/// One victim in the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Killed {
    /// Its process id.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// Its cgroup.
    pub cgroup: Field<String>,
}

/// The list as it is answered.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IncidentList {
    /// `brink.dev/v1alpha1`.
    pub api_version: &'static str,
    /// Always `IncidentList`.
    pub kind: &'static str,
    /// Newest first.
    pub incidents: Vec<Entry>,
}

/// What is known of incidents.
#[derive(Debug, Default)]
pub struct Catalogue {
    /// Oldest first.
    entries: Mutex<VecDeque<Entry>>,
}

impl Entry {
    /// That of an event; none if it tells of no incident, or cannot be read.
    fn of(line: &Line) -> Option<Self> {
        if !line.of.is_incident() {
            return None;
        }
        let event: Event = serde_json::from_slice(&line.text).ok()?;
        let mut entry: Self = serde_json::from_str(event.data.get()).ok()?;
        entry.boot_id = event.boot_id;
        entry.seq = event.seq;
        let others = entry.victims.len().saturating_sub(1);
        entry.victims.truncate(1);
        let others = u32::try_from(others).unwrap_or(u32::MAX);
        entry.more_victims = entry.more_victims.saturating_add(others);
        Some(entry)
    }
}

impl Catalogue {
    /// Takes an event into the list; the last telling of an incident stays.
    pub fn take(&self, line: &Line) {
        let Some(entry) = Entry::of(line) else {
            return;
        };
        let mut entries = self.lock();
        // An incident is told anew soon after it was told first.
        let known = entries.iter_mut().rev().find(|known| known.id == entry.id);
        match known {
            Some(known) if known.revision <= entry.revision => *known = entry,
            Some(_) => {}
            None => {
                entries.push_back(entry);
                if entries.len() > MOST {
                    entries.pop_front();
                }
            }
        }
    }

    /// The list, newest first.
    pub fn list(&self) -> IncidentList {
        IncidentList {
            api_version: brink_stream::model::API_VERSION,
            kind: "IncidentList",
            incidents: self.lock().iter().rev().cloned().collect(),
        }
    }

    /// Takes what is kept of the past and then whatever is told, until the hub closes or the future is dropped.
    pub async fn follow(self: Arc<Self>, hub: Hub, past: Option<Arc<dyn Past>>) {
        let mut reader = hub.reader(Some(0));
        self.catch_up(past.clone(), None).await;
        loop {
            while let Some(next) = reader.next() {
                match next {
                    Next::Line(line) => self.take(&line),
                    Next::Lost { first, .. } => {
                        let seq = first.saturating_sub(1);
                        let boot = hub.identity().boot_id.as_str().into();
                        self.catch_up(past.clone(), Some(Position { boot, seq }))
                            .await;
                    }
                }
            }
            if reader.is_closed() {
                return;
            }
            reader.changed().await;
        }
    }

    /// Reads the past from a place on, on a thread that may block.
    async fn catch_up(self: &Arc<Self>, past: Option<Arc<dyn Past>>, from: Option<Position>) {
        let Some(past) = past else {
            return;
        };
        let own = Arc::clone(self);
        let read = tokio::task::spawn_blocking(move || own.read(&*past, from)).await;
        if let Ok(Err(error)) = read {
            warn!(%error, "the list of incidents begins with what is told from now on");
        }
    }

    fn read(&self, past: &dyn Past, mut from: Option<Position>) -> Result<(), PastError> {
        loop {
            let page = past.after(from.as_ref(), PIECE)?;
            for line in &page.lines {
                self.take(line);
            }
            let Some(last) = page.lines.last() else {
                return Ok(());
            };
            from = Some(Position {
                boot: Arc::clone(&last.boot),
                seq: last.seq,
            });
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use brink_stream::hub::{Identity as Node, Limits, Page};
    use brink_stream::model::event::Draft;
    use brink_stream::model::incident::Incident;
    use brink_stream::model::kind::Kind;

    use super::*;

    const BOOT: &str = "3f2a0b1c-5d6e-4f70-8192-a3b4c5d6e7f8";

    fn hub() -> Hub {
        let identity = Node {
            node: "node-a".to_owned(),
            boot_id: BOOT.to_owned(),
        };
        Hub::new(identity, 0, Limits::default())
    }

    fn tell(hub: &Hub, kind: Kind, id: &str, revision: u32) -> u64 {
        let text = include_str!("../../tests/page/incident-full.json");
        let mut incident: Incident = serde_json::from_str(text).unwrap();
        id.clone_into(&mut incident.id);
        incident.revision = revision;
        hub.tell(Draft::new(kind, incident.at.clone(), None, &incident).unwrap())
    }

    fn lines(hub: &Hub) -> Vec<Arc<Line>> {
        let mut reader = hub.reader(Some(0));
        let next = std::iter::from_fn(|| reader.next());
        let line = |next| match next {
            Next::Line(line) => Some(line),
            Next::Lost { .. } => None,
        };
        next.filter_map(line).collect()
    }

    fn listed(catalogue: &Catalogue) -> Vec<(String, u32, u64)> {
        let entries = catalogue.list().incidents.into_iter();
        entries.map(|one| (one.id, one.revision, one.seq)).collect()
    }

    #[test]
    fn the_last_telling_of_each_incident_stays() {
        let (hub, catalogue) = (hub(), Catalogue::default());
        tell(&hub, Kind::OomKill, "3f2a-1", 1);
        tell(&hub, Kind::KillObserved, "3f2a-2", 1);
        tell(&hub, Kind::IncidentClosed, "3f2a-1", 2);
        let all = lines(&hub);
        for line in all.iter().chain(&all[..1]) {
            catalogue.take(line);
        }
        let expected = [("3f2a-2".to_owned(), 1, 2), ("3f2a-1".to_owned(), 2, 3)];
        assert_eq!(listed(&catalogue), expected);
        let first = &catalogue.list().incidents[0];
        assert_eq!((first.victims.len(), first.more_victims), (1, 1));
        assert_eq!(first.boot_id, BOOT);
    }

    #[test]
    fn the_list_is_bounded_and_what_is_no_incident_stays_out() {
        let (hub, catalogue) = (hub(), Catalogue::default());
        for number in 0..MOST + 3 {
            tell(&hub, Kind::OomKill, &format!("3f2a-{number}"), 1);
            catalogue.take(lines(&hub).last().unwrap());
        }
        let listed = listed(&catalogue);
        assert_eq!(listed.len(), MOST);
        assert_eq!(listed[0].0, format!("3f2a-{}", MOST + 2));
        let at = Time::new(0, 0);
        let loss = Draft::new(Kind::Loss, at, None, &serde_json::json!({})).unwrap();
        hub.tell(loss);
        let before = catalogue.list();
        catalogue.take(lines(&hub).last().unwrap());
        assert_eq!(catalogue.list(), before);
    }

    /// Everything that a hub still has.
    struct Kept(Vec<Arc<Line>>);

    impl Past for Kept {
        fn after(&self, position: Option<&Position>, limit: usize) -> Result<Page, PastError> {
            let after = position.map_or(0, |position| position.seq);
            let lines = self.0.iter().filter(|line| line.seq > after);
            let lines = lines.take(limit).cloned().collect();
            Ok(Page {
                lines,
                ..Page::default()
            })
        }
    }

    #[test]
    fn the_past_comes_first_and_what_is_told_follows() {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let before = hub();
        for number in 0..PIECE + 5 {
            tell(&before, Kind::OomKill, &format!("3f2a-{number}"), 1);
        }
        let past: Arc<dyn Past> = Arc::new(Kept(lines(&before)));
        let (now, catalogue) = (hub(), Arc::new(Catalogue::default()));
        tell(&now, Kind::OomKill, "3f2a-900", 1);
        now.close();
        let following = Arc::clone(&catalogue).follow(now, Some(past));
        runtime.unwrap().block_on(following);
        let listed = listed(&catalogue);
        assert_eq!(listed.len(), PIECE + 6);
        assert_eq!(listed[0].0, "3f2a-900");
    }
}
