//! What a simulated fleet came to: a part after the other, the books of what was told, and the figures that must be reached.
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::bench::machine::Machine;

/// The form of the file; it grows by one when a reader would have to know.
pub const SCHEMA: u32 = 1;
/// Everything.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Where.
    pub machine: Machine,
    /// Load average of the last minute, before and after.
    pub load: [Option<f64>; 2],
    /// The server's version.
    pub server: String,
    /// What was simulated.
    pub setting: Setting,
    /// Its parts, in their order.
    pub phases: Vec<Phase>,
    /// Memory of our own process, in bytes: before the first agent, and when all had rested.
    pub own: [u64; 2],
    /// Memory of the server's, likewise.
    pub servers: [Option<f64>; 2],
    /// Descriptors of the server's, likewise.
    pub connections: [Option<f64>; 2],
    /// How often watches are opened again at rest.
    pub reopened: Reopened,
    /// What the server has of the evictions.
    pub books: Books,
    /// Nodes that said something of Brink's when all agents had stopped.
    pub left_conditions: usize,
    /// What agents warned of, and how often.
    pub warnings: BTreeMap<String, u64>,
}

/// What was simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Setting {
    /// How many agents, each with a node.
    pub agents: usize,
    /// Of each node.
    pub pods: usize,
    /// Agents that evict at once.
    pub evicting: usize,
    /// Seed of the agents' waits.
    pub seed: u64,
    /// How long the server was away, in seconds; none where it is somebody else's.
    pub away: Option<u64>,
}

/// The parts, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Part {
    /// All are started at once.
    Start,
    /// Nothing happens.
    Rest,
    /// Some evict, and all nodes are short of memory.
    Storm,
    /// Every node's annotation is set.
    Annotation,
    /// The server is killed while some evict, and comes back.
    Outage,
    /// All stop at once.
    End,
}

/// What was asked in one of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Phase {
    /// Which part.
    pub part: Part,
    /// How long it took.
    pub seconds: f64,
    /// Requests of the fleet, by kind, those that met nobody too.
    pub asked: BTreeMap<String, u64>,
    /// Answers to the fleet, by kind and code.
    pub answered: BTreeMap<String, BTreeMap<u16, u64>>,
    /// Answers to the fleet in the busiest second.
    pub busiest: u64,
    /// Requests of the fleet but for watches, as the server counts them; none where it does not tell flows apart.
    pub dispatched: Option<f64>,
    /// Those of the busiest second, of looks a second apart.
    pub busiest_dispatched: Option<f64>,
    /// Those that it refused for now.
    pub rejected: Option<f64>,
    /// Requests to pods, nodes and events by everybody, as the server counts them.
    pub everybodys: BTreeMap<String, f64>,
    /// Watches of pods and of nodes that are open at the end, without those that were before the fleet.
    pub watches: [f64; 2],
    /// Time of the server's on processors, in seconds.
    pub processor: Option<f64>,
    /// Memory of the server's at the end, in bytes.
    pub resident: Option<f64>,
    /// From an eviction to both status and event told, in seconds; after an outage from the server's return.
    pub delays: Vec<f64>,
    /// Of each agent: from the start, or from the server's return, until its pods were known and followed, in seconds.
    pub reached: Vec<f64>,
}

/// How often watches are opened again at rest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reopened {
    /// Of both watches of an agent, an hour: by how long each of these agents has its watches kept open.
    pub an_hour: f64,
    /// Of all, in the busiest second of an hour after they have begun at once.
    pub busiest: u64,
}

impl Reopened {
    /// Of agents whose watches are kept open for so long, in seconds; each has two.
    pub fn of(lasts: &[f64]) -> Self {
        const HOUR: f64 = 3600.0;
        let mut seconds: BTreeMap<u64, u64> = BTreeMap::new();
        for length in lasts.iter().copied().filter(|length| *length >= 1.0) {
            let mut at = length;
            while at < HOUR {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a second of one hour"
                )]
                let second = at as u64;
                *seconds.entry(second).or_default() += 2;
                at += length;
            }
        }
        let each = lasts.iter().map(|length| 2.0 * HOUR / length);
        Self {
            an_hour: each.sum::<f64>() / count(lasts.len()),
            busiest: seconds.into_values().max().unwrap_or_default(),
        }
    }
}

/// What the server has of the evictions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Books {
    /// Pods that were evicted.
    pub evicted: usize,
    /// Those without an event, or that are not `Failed` and `Evicted`.
    pub lost: usize,
    /// Those with more than one event, or one that counts more than one.
    pub twice: usize,
    /// Pods that nobody evicted and that have an event, or are `Failed`.
    pub strange: usize,
}

impl Books {
    /// By uid: who was evicted, how often an event counts, and who is marked as evicted.
    pub fn of(
        evicted: &BTreeSet<String>,
        told: &BTreeMap<String, u64>,
        failed: &BTreeSet<String>,
    ) -> Self {
        let is_lost = |uid: &&String| !told.contains_key(*uid) || !failed.contains(*uid);
        let known: BTreeSet<&String> = told.keys().chain(failed).collect();
        Self {
            evicted: evicted.len(),
            lost: evicted.iter().filter(is_lost).count(),
            twice: told.values().filter(|count| **count > 1).count(),
            strange: known
                .into_iter()
                .filter(|uid| !evicted.contains(*uid))
                .count(),
        }
    }
}

impl Phase {
    /// All requests of the fleet.
    pub fn all(&self) -> u64 {
        self.asked.values().sum()
    }

    /// Requests of these kinds.
    pub fn asked_of(&self, kinds: &[&str]) -> u64 {
        let each = self.asked.iter();
        let those = each.filter(|(kind, _)| kinds.contains(&kind.as_str()));
        those.map(|(_, count)| count).sum()
    }

    /// Answers of a kind that took it.
    pub fn taken(&self, kind: &str) -> u64 {
        let codes = self.answered.get(kind).into_iter().flatten();
        codes
            .filter(|(code, _)| (200..300).contains(*code))
            .map(|(_, count)| count)
            .sum()
    }

    /// Events that the server had already when they were sent: the answer to the first was lost.
    pub fn found_there(&self) -> u64 {
        let codes = self.answered.get(EVENT).into_iter().flatten();
        codes
            .filter(|(code, _)| **code == 409)
            .map(|(_, count)| count)
            .sum()
    }

    /// Answers that refuse for now.
    pub fn put_off(&self) -> u64 {
        let codes = self.answered.values().flatten();
        codes
            .filter(|(code, _)| **code == 429)
            .map(|(_, count)| count)
            .sum()
    }
}

/// The request that makes an event, and the one that writes a pod's status.
pub(super) const EVENT: &str = "POST events";
pub(super) const STATUS: &str = "PATCH pods/status";
/// The requests that open a watch.
pub const WATCHES: [&str; 2] = ["WATCH pods", "WATCH nodes"];

impl Report {
    /// A part of it; none if it was left out.
    pub fn phase(&self, part: Part) -> Option<&Phase> {
        self.phases.iter().find(|phase| phase.part == part)
    }

    /// Memory that one agent has added to our process, in bytes.
    pub fn memory_of_one(&self) -> f64 {
        let [before, after] = self.own.map(whole);
        (after - before) / count(self.setting.agents)
    }

    /// How many statuses, and how many events, were taken for each eviction; an event of which that was known only later too.
    pub fn taken_an_eviction(&self) -> [f64; 2] {
        let sum = |of: &dyn Fn(&Phase) -> u64| self.phases.iter().map(of).sum::<u64>();
        let statuses = sum(&|phase| phase.taken(STATUS));
        let events = sum(&|phase| phase.taken(EVENT) + phase.found_there());
        [statuses, events].map(|all| whole(all) / count(self.books.evicted))
    }
}

/// A count as a number to reckon with.
pub fn count(count: usize) -> f64 {
    whole(u64::try_from(count).unwrap_or(u64::MAX))
}

/// The same.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts and bytes far below 2^52"
)]
pub fn whole(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;

    use super::*;

    pub(in super::super) fn phase(part: Part) -> Phase {
        Phase {
            part,
            seconds: 10.0,
            asked: BTreeMap::new(),
            answered: BTreeMap::new(),
            busiest: 0,
            dispatched: None,
            busiest_dispatched: None,
            rejected: None,
            everybodys: BTreeMap::new(),
            watches: [10.0, 10.0],
            processor: Some(1.0),
            resident: None,
            delays: Vec::new(),
            reached: vec![1.0, 2.0],
        }
    }

    /// Ten agents, of whom three evicted one pod each and nothing went wrong.
    pub(in super::super) fn report() -> Report {
        let mut storm = phase(Part::Storm);
        for (kind, code) in [("PATCH pods/status", 200), ("POST events", 201)] {
            storm.asked.insert(kind.to_owned(), 4);
            storm
                .answered
                .insert(kind.to_owned(), [(code, 3), (429, 1)].into());
        }
        Report {
            schema: SCHEMA,
            machine: Machine::read(Path::new("/nonexistent")),
            load: [None; 2],
            server: "v1.20.2".to_owned(),
            setting: Setting {
                agents: 10,
                pods: 3,
                evicting: 3,
                seed: 1,
                away: Some(60),
            },
            phases: [Part::Start, Part::Rest]
                .map(phase)
                .into_iter()
                .chain([storm, phase(Part::Outage)])
                .collect(),
            own: [1 << 20, 2 << 20],
            servers: [None; 2],
            connections: [None; 2],
            reopened: Reopened::default(),
            books: Books {
                evicted: 3,
                ..Books::default()
            },
            left_conditions: 0,
            warnings: BTreeMap::new(),
        }
    }

    #[test]
    fn the_books_tell_what_is_missing_from_what_is_too_much() {
        let set = |uids: &[&str]| {
            uids.iter()
                .map(|&uid| uid.to_owned())
                .collect::<BTreeSet<_>>()
        };
        let told = |counts: &[(&str, u64)]| {
            counts
                .iter()
                .map(|&(uid, count)| (uid.to_owned(), count))
                .collect::<BTreeMap<_, _>>()
        };
        let evicted = set(&["a", "b", "c"]);
        let found = Books::of(
            &evicted,
            &told(&[("a", 1), ("b", 2), ("x", 1)]),
            &set(&["a", "b", "c"]),
        );
        let expected = Books {
            evicted: 3,
            lost: 1,
            twice: 1,
            strange: 1,
        };
        assert_eq!(found, expected);
        let all = told(&[("a", 1), ("b", 1), ("c", 1)]);
        assert_eq!(Books::of(&evicted, &all, &set(&["a"])).lost, 2);
    }

    #[test]
    fn watches_are_opened_again_as_often_as_their_length_says() {
        let found = Reopened::of(&[300.0, 600.0]);
        // Twelve and six an hour, of two watches each; both at 600 s and so on.
        assert!((found.an_hour - 18.0).abs() < 1e-9, "{found:?}");
        assert_eq!(found.busiest, 4);
        assert_eq!(Reopened::of(&[900.0]).busiest, 2);
    }
}
