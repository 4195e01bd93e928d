//! Readers that come back with a filter: out of a real journal, whose segments come and go, into memory.

use std::collections::BTreeSet;
use std::time::Instant;

use super::*;
use crate::journal::{self, Journal, Surroundings};

/// Events in memory.
const MEMORY: u64 = 30;
/// Events of a kilobyte that are told before all of them must be written: what is written at once goes to one segment.
const PORTION: u64 = 20;

/// Four filters, each with whom it lets through.
const FILTERS: [(&str, Takes); 4] = [
    ("namespace=prod", |(namespace, _)| namespace == "prod"),
    ("pod=web", |(_, pod)| pod == "web"),
    ("namespace=prod&pod=web", |whom| whom == ("prod", "web")),
    ("namespace=none", |_| false),
];
type Takes = fn((&str, &str)) -> bool;

/// Whom a number is about; every fourth one is about nobody.
fn whom(seq: u64) -> Option<(&'static str, &'static str)> {
    match seq % 4 {
        0 => Some(("prod", "web")),
        1 => Some(("prod", "db")),
        2 => Some(("test", "web")),
        _ => None,
    }
}

/// The kind of a number: each comes about everybody.
fn kind(seq: u64) -> Kind {
    Kind::ALL[usize::try_from(seq).unwrap() % Kind::ALL.len()]
}

/// Tells so many, each portion once the one before it is written, and waits until all are.
fn tell_through(hub: &Hub, journal: &Journal, count: u64) {
    for _ in 0..count {
        let seq = hub.numbering().last + 1;
        let subject = whom(seq).map(|(namespace, name)| Subject {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..Subject::default()
        });
        let at = Time::new(START_US, 1);
        let filler = json!({"filler": "x".repeat(800)});
        hub.tell(Draft::new(kind(seq), at, subject, &filler).unwrap());
        if seq.is_multiple_of(PORTION) {
            all_is_written(journal);
        }
    }
    all_is_written(journal);
}

fn all_is_written(journal: &Journal) {
    let end = Instant::now() + PATIENCE;
    while journal.status().waiting > 0 {
        assert!(Instant::now() < end, "{:?}", journal.status());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A hub with a journal of so many bytes, in a folder that goes with it.
struct Scene {
    hub: Hub,
    journal: Journal,
    served: Served,
    /// Gone after the journal: one whose folder has gone makes another.
    folder: tempfile::TempDir,
}

impl Scene {
    fn new(size: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let hub = hub_of(0, usize::try_from(MEMORY).unwrap());
        let limits = journal::Limits {
            size,
            ..journal::Limits::default()
        };
        let around = Surroundings {
            boot_id: BOOT,
            clock: || START_US,
            on_loss: Box::new(|_, _| ()),
        };
        let opened = Journal::open(&folder.path().join("events"), limits, around);
        let (journal, _) = opened.unwrap();
        journal.attach(&hub);
        let served = Served::new(service(&hub).with_past(journal.past()));
        Self {
            hub,
            journal,
            served,
            folder,
        }
    }

    fn tell(&self, count: u64) {
        tell_through(&self.hub, &self.journal, count);
    }

    /// The numbers of its segments.
    fn segments(&self) -> BTreeSet<u64> {
        let entries = std::fs::read_dir(self.folder.path().join("events")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let number = |name: String| {
            let digits = name.strip_prefix("events-")?.strip_suffix(".log")?;
            digits.parse().ok()
        };
        names.filter_map(number).collect()
    }

    /// The first number that the journal still has.
    fn first_kept(&self) -> u64 {
        self.journal.past().after(None, 1).unwrap().lines[0].seq
    }
}

/// What a reader gets after a number: of what has left the memory what is journalled, and of both what the filter takes.
fn expected(after: u64, last: u64, takes: Takes) -> Vec<u64> {
    let kept = |seq: &u64| *seq > last - MEMORY || kind(*seq).is_journalled();
    let wanted = |seq: &u64| whom(*seq).is_some_and(takes);
    (after + 1..=last).filter(kept).filter(wanted).collect()
}

#[test]
fn who_resumes_with_a_filter_gets_what_is_kept_over_every_seam() {
    run(async {
        const LAST: u64 = 300;
        let scene = Scene::new(1 << 20);
        scene.tell(LAST);
        let segments = scene.segments();
        assert!(segments.len() > 3 && segments.contains(&1), "{segments:?}");
        let seam = LAST - MEMORY;
        for since in [0, 1, 77, 150, seam - 1, seam, seam + 1, LAST - 1, LAST] {
            for (filter, takes) in FILTERS {
                let target = format!("/v1/events?since={since}&{filter}");
                let answer = scene.served.get(&target).await;
                assert_eq!(answer.numbers(), expected(since, LAST, takes), "{target}");
            }
        }
    });
}

#[test]
fn who_resumes_with_a_filter_where_segments_have_gone_is_told_and_gets_the_rest() {
    run(async {
        const LAST: u64 = 600;
        let scene = Scene::new(256 << 10);
        scene.tell(LAST);
        let first = scene.first_kept();
        assert!((20..570).contains(&first), "{first}");
        assert!(!scene.segments().contains(&1));
        for (filter, takes) in FILTERS {
            let target = format!("/v1/events?since=5&{filter}");
            let answer = scene.served.get(&target).await;
            assert_eq!(answer.lines()[0]["data"]["uncounted"], true, "{target}");
            let rest = expected(first - 1, LAST, takes);
            assert_eq!(answer.numbers()[1..], rest, "{target}");
        }
    });
}

/// However slow: what is journalled comes once and in order, and nobody says that more than the rest is missing.
#[test]
fn who_follows_with_a_filter_while_segments_come_misses_nothing_that_is_journalled() {
    run(async {
        let scene = Scene::new(1 << 20);
        scene.tell(200);
        for (filter, takes) in FILTERS.into_iter().take(3) {
            let since = scene.hub.numbering().last - 150;
            let target = format!("/v1/events?follow=1&since={since}&{filter}");
            let mut following = scene.served.follow(&target, "").await;
            for _ in 0..10 {
                scene.tell(20);
                tokio::task::yield_now().await;
            }
            // All three filters take the last one: it marks the end.
            let end = scene.hub.numbering().last;
            assert_eq!(whom(end), Some(("prod", "web")));
            let answer = following.until(&format!("\"seq\":{end},")).await;
            let (numbers, lost) = told(&answer);
            assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
            let is_wanted = |seq: &u64| whom(*seq).is_some_and(takes);
            assert!(numbers.iter().all(is_wanted), "{target}: {numbers:?}");
            let mut wanted = (since + 1..end).filter(is_wanted);
            let missing = wanted.find(|seq| kind(*seq).is_journalled() && !numbers.contains(seq));
            assert_eq!(missing, None, "{target}: {numbers:?}, lost {lost:?}");
            let mut lost = lost.into_iter();
            assert_eq!(lost.find(|seq| kind(*seq).is_journalled()), None);
        }
        assert!(scene.segments().len() > 6);
    });
}

/// The numbers of the events that have come so far, and those that are told as missing.
fn told(answer: &Answer) -> (Vec<u64>, BTreeSet<u64>) {
    let (mut numbers, mut lost) = (Vec::new(), BTreeSet::new());
    for line in answer.body.lines() {
        // Of the last one there may be a part.
        let Ok(line) = serde_json::from_str::<Value>(line) else {
            break;
        };
        let (seq, data) = (line["seq"].as_u64().unwrap(), &line["data"]);
        assert_eq!(data["uncounted"], Value::Null, "{line}");
        match data["first"].as_u64() {
            Some(first) => lost.extend(first..=seq),
            None => numbers.push(seq),
        }
    }
    (numbers, lost)
}
