//! Incidents by themselves: the newest as a list, and each one whole as it was told last.

use std::cmp::Reverse;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Reply, Request, Service};
use crate::hub::{Line, Look, Next, Reader};
use crate::model::API_VERSION;
use crate::model::event::{Event, Time};
use crate::model::incident::Cause;

/// Where the list is, and each one behind it.
pub(super) const PATH: &str = "/v1/incidents";
/// How many are listed where nobody asks for another number.
const FEW: usize = 50;
/// The most that are listed.
const MOST: usize = 500;

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
            (false, Some(id)) => {
                let alone = "an incident is asked for by its id alone";
                let only = request.only(&[], alone, alone);
                Some(only.map(|()| Self::One(id.to_owned())))
            }
            (false, None) => None,
        }
    }

    fn newest(request: &Request) -> Result<Self, Reply> {
        request.only(
            &["limit", "namespace", "pod"],
            "the keys are limit, namespace, pod",
            "give each key once",
        )?;
        let limit = match request.value("limit").map(str::parse) {
            None => FEW,
            Some(Ok(limit)) if (1..=MOST).contains(&limit) => limit,
            Some(_) => {
                let next = format!("limit is a number from 1 to {MOST}");
                return Err(Reply::refusal(400, "limit is out of range", &next));
            }
        };
        let owned = |key: &str| request.value(key).map(str::to_owned);
        Ok(Self::Newest {
            limit,
            namespace: owned("namespace"),
            pod: owned("pod"),
        })
    }
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

/// How old something is, the newest first: how many boots ago, and its number in that boot.
type Age = (usize, Reverse<u64>);

/// Goes through events, the newest part first, and keeps what is asked for.
struct Search {
    asked: Asked,
    /// The newest that were found, by when they began.
    items: Vec<(Age, Summary)>,
    found: Option<Arc<Line>>,
    /// Those that were come by, the newest first.
    boots: Vec<Arc<str>>,
    /// The first event of the part that is seen.
    oldest: Option<Age>,
}

impl Search {
    const fn new(asked: Asked) -> Self {
        Self {
            asked,
            items: Vec::new(),
            found: None,
            boots: Vec::new(),
            oldest: None,
        }
    }

    /// How many boots ago.
    fn boot(&mut self, boot: &Arc<str>) -> usize {
        let known = self.boots.iter().position(|known| known == boot);
        known.unwrap_or_else(|| {
            self.boots.push(Arc::clone(boot));
            self.boots.len() - 1
        })
    }

    /// How many boots ago an incident began whose id begins so; none where that boot was not come by yet.
    fn boot_of(&self, start: &str) -> Option<usize> {
        self.boots.iter().position(|boot| boot.starts_with(start))
    }

    fn told_at(&self, item: &Summary) -> Age {
        let mut boots = self.boots.iter();
        let boot = boots.position(|boot| **boot == *item.boot_id);
        (boot.unwrap_or(self.boots.len()), Reverse(item.seq))
    }

    fn list(&mut self, line: &Line, boot: usize, limit: usize) {
        let subject = line.subject.as_ref();
        let Some(id) = subject.and_then(|subject| subject.incident.as_ref()) else {
            return;
        };
        let age = opening(id).map_or((boot, Reverse(line.seq)), |(start, seq)| {
            // What a boot before has left open is closed in the next one, and that is come by first.
            let boot = self.boot_of(start).unwrap_or(self.boots.len());
            (boot, Reverse(seq))
        });
        let known = self.items.iter().position(|(_, item)| item.told.id == *id);
        let is_old = match known {
            Some(known) => self.told_at(&self.items[known].1) <= (boot, Reverse(line.seq)),
            None => self.items.len() == limit && self.items.last().is_some_and(|last| last.0 < age),
        };
        if is_old {
            return;
        }
        let Some(summary) = Summary::of(line) else {
            return;
        };
        if let Some(known) = known {
            self.items[known].1 = summary;
            return;
        }
        let place = self.items.partition_point(|item| item.0 < age);
        self.items.insert(place, (age, summary));
        self.items.truncate(limit);
    }

    /// Goes through what memory has.
    fn remember(&mut self, mut memory: Reader) {
        while let Some(next) = memory.next() {
            if let Next::Line(line) = next {
                self.see(&line);
            }
        }
    }

    fn reply(&self) -> Reply {
        match &self.asked {
            Asked::Newest { .. } => Reply::json(
                200,
                &List {
                    api_version: API_VERSION,
                    kind: "IncidentList",
                    items: self.items.iter().map(|(_, item)| item).collect(),
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

impl Look for Search {
    fn see(&mut self, line: &Arc<Line>) {
        let boot = self.boot(&line.boot);
        self.oldest.get_or_insert((boot, Reverse(line.seq)));
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
                let is_pods = pod.as_deref().is_none_or(|pod| subject.is_named(pod));
                if is(namespace, &subject.namespace) && is_pods {
                    let limit = *limit;
                    self.list(line, boot, limit);
                }
            }
        }
    }

    fn goes_on(&mut self) -> bool {
        let Some(oldest) = self.oldest.take() else {
            return true;
        };
        match &self.asked {
            // What was not seen yet began before all of this part, and so before all that is listed.
            Asked::Newest { limit, .. } => {
                let last = self.items.get(limit - 1);
                last.is_none_or(|(age, _)| *age > oldest)
            }
            Asked::One(id) => {
                let began =
                    opening(id).and_then(|(start, seq)| Some((self.boot_of(start)?, Reverse(seq))));
                self.found.is_none() && began.is_none_or(|began| oldest < began)
            }
        }
    }
}

/// What an id says of the event that opens its incident: the start of the boot's id, and the number.
fn opening(id: &str) -> Option<(&str, u64)> {
    let (boot, number) = id.rsplit_once('-')?;
    Some((boot, number.parse().ok()?))
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
        let memory = self.hub.reader(Some(0));
        let mut search = Search::new(asked);
        let Some(past) = self.past().await else {
            search.remember(memory);
            return search.reply();
        };
        let read = self.off_the_runtime(move || {
            // The newest part: what a full disk has had no room for is nowhere else.
            search.remember(memory);
            if search.goes_on() {
                past.back(&mut search)?;
            }
            Ok(search.reply())
        });
        read.await.unwrap_or_else(|error| {
            let problem = format!("the journal cannot be read: {error}");
            let next = "GET /v1/events?since=now reads what is told from now on";
            Reply::refusal(500, &problem, next)
        })
    }
}
