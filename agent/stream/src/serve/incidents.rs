//! Incidents by themselves: the newest as a list, and each one whole as it was told last.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Reply, Request, Service};
use crate::hub::{Line, Next, Past, PastError, Position};
use crate::model::API_VERSION;
use crate::model::event::{Event, Time};
use crate::model::incident::Cause;

/// Where the list is, and each one behind it.
pub(super) const PATH: &str = "/v1/incidents";
/// How many are listed where nobody asks for another number.
const FEW: usize = 50;
/// The most that are listed.
const MOST: usize = 500;
/// Events of the past that are read at a time.
const PAGE: usize = 256;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// The newest, of one namespace or pod alone if that is named.
    Newest {
        limit: usize,
        namespace: Option<String>,
        pod: Option<String>,
    },
    /// The one with an id.
    One(String),
}

impl Asked {
    /// Nothing if the path is another one.
    pub(super) fn read(request: &Request) -> Option<Result<Self, Reply>> {
        let behind = request.path.strip_prefix(PATH)?;
        let id = behind.strip_prefix('/').filter(|id| !id.is_empty());
        match (behind.is_empty(), id) {
            (true, _) => Some(Self::newest(request)),
            (false, Some(id)) => Some(match request.query.first() {
                Some((key, _)) => Err(unknown_key(key, "an incident is asked for by its id alone")),
                None => Ok(Self::One(id.to_owned())),
            }),
            (false, None) => None,
        }
    }

    fn newest(request: &Request) -> Result<Self, Reply> {
        let (mut limit, mut namespace, mut pod) = (None, None, None);
        for (key, value) in &request.query {
            let place = match key.as_str() {
                "limit" => &mut limit,
                "namespace" => &mut namespace,
                "pod" => &mut pod,
                _ => return Err(unknown_key(key, "the keys are limit, namespace, pod")),
            };
            if place.replace(value.clone()).is_some() {
                let problem = format!("{key} is given twice");
                return Err(Reply::refusal(400, &problem, "give each key once"));
            }
        }
        let limit = match limit.as_deref().map(str::parse) {
            None => FEW,
            Some(Ok(limit)) if (1..=MOST).contains(&limit) => limit,
            Some(_) => {
                let next = format!("limit is a number from 1 to {MOST}");
                return Err(Reply::refusal(400, "limit is out of range", &next));
            }
        };
        Ok(Self::Newest {
            limit,
            namespace,
            pod,
        })
    }
}

fn unknown_key(key: &str, next: &str) -> Reply {
    Reply::refusal(400, &format!("there is no key {key:?}"), next)
}

/// What is listed of each.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    #[serde(flatten)]
    told: Told,
    namespace: String,
    name: String,
    boot_id: String,
    /// The number of the event that told it last.
    seq: u64,
}

/// What a summary takes from an incident.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    id: String,
    cause: Cause,
    revision: u32,
    is_final: bool,
    at: Time,
    victims: Vec<VictimName>,
    more_victims: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct VictimName {
    pid: u32,
    comm: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List<'a> {
    api_version: &'static str,
    kind: &'static str,
    /// The newest first.
    items: Vec<&'a Summary>,
}

/// Goes through events from the oldest to the newest, and keeps what is asked for.
struct Search {
    asked: Asked,
    items: VecDeque<Summary>,
    found: Option<Arc<Line>>,
}

impl Search {
    const fn new(asked: Asked) -> Self {
        Self {
            asked,
            items: VecDeque::new(),
            found: None,
        }
    }

    fn see(&mut self, line: &Arc<Line>) {
        let Some(subject) = line.subject.as_ref().filter(|_| line.of.is_incident()) else {
            return;
        };
        match &self.asked {
            Asked::One(id) if subject.incident.as_ref() == Some(id) => {
                self.found = Some(Arc::clone(line));
            }
            Asked::One(_) => {}
            Asked::Newest {
                limit,
                namespace,
                pod,
            } => {
                let is = |wanted: &Option<String>, of: &String| {
                    wanted.as_ref().is_none_or(|wanted| wanted == of)
                };
                if is(namespace, &subject.namespace) && is(pod, &subject.name) {
                    let limit = *limit;
                    self.list(line, limit);
                }
            }
        }
    }

    fn list(&mut self, line: &Line, limit: usize) {
        let Some(summary) = Summary::of(line) else {
            return;
        };
        let mut known = self.items.iter_mut();
        if let Some(known) = known.find(|known| known.told.id == summary.told.id) {
            *known = summary;
            return;
        }
        if self.items.len() == limit {
            self.items.pop_front();
        }
        self.items.push_back(summary);
    }

    fn reply(&self) -> Reply {
        match &self.asked {
            Asked::Newest { .. } => Reply::json(
                200,
                &List {
                    api_version: API_VERSION,
                    kind: "IncidentList",
                    items: self.items.iter().rev().collect(),
                },
            ),
            Asked::One(id) => {
                let event = self.found.as_ref();
                let event = event.and_then(|line| serde_json::from_slice(&line.text).ok());
                event.map_or_else(
                    || {
                        let problem =
                            format!("there is no incident {id:?}, or it is no longer kept");
                        Reply::refusal(404, &problem, "GET /v1/incidents lists those that are kept")
                    },
                    |event: Event| Reply::json(200, &event.data),
                )
            }
        }
    }
}

impl Summary {
    fn of(line: &Line) -> Option<Self> {
        let event: Event = serde_json::from_slice(&line.text).ok()?;
        let subject = line.subject.clone().unwrap_or_default();
        Some(Self {
            told: serde_json::from_str(event.data.get()).ok()?,
            namespace: subject.namespace,
            name: subject.name,
            boot_id: event.boot_id,
            seq: line.seq,
        })
    }
}

impl Service {
    pub(super) async fn incidents(&self, asked: Asked) -> Reply {
        let start = self.start_of(&asked);
        let mut search = Search::new(asked);
        let Some(past) = self.past().await else {
            let after = start.map_or(0, |position| position.seq);
            let mut reader = self.hub.reader(Some(after));
            while let Some(next) = reader.next() {
                if let Next::Line(line) = next {
                    search.see(&line);
                }
            }
            return search.reply();
        };
        // All incidents are journalled, so the past has them all.
        let read = self.off_the_runtime(move || read(&*past, start, search));
        read.await.unwrap_or_else(|error| {
            let problem = format!("the journal cannot be read: {error}");
            let next = "GET /v1/events?since=now reads what is told from now on";
            Reply::refusal(500, &problem, next)
        })
    }

    /// The place before the one that is asked for, if it is of this boot: an id is the start of the boot's id and the number
    /// of the event that opens it.
    fn start_of(&self, asked: &Asked) -> Option<Position> {
        let Asked::One(id) = asked else {
            return None;
        };
        let (boot, number) = id.split_once('-')?;
        let number: u64 = number.parse().ok()?;
        let own = &self.hub.identity().boot_id;
        own.starts_with(boot).then(|| Position {
            boot: own.as_str().into(),
            seq: number.saturating_sub(1),
        })
    }
}

fn read(
    past: &dyn Past,
    mut position: Option<Position>,
    mut search: Search,
) -> Result<Reply, PastError> {
    loop {
        let page = past.after(position.as_ref(), PAGE)?;
        for line in &page.lines {
            search.see(line);
        }
        let Some(last) = page.lines.last() else {
            return Ok(search.reply());
        };
        position = Some(Position {
            boot: Arc::clone(&last.boot),
            seq: last.seq,
        });
    }
}
