//! Readers that come back: the journal first, then the memory, without a seam.

use std::sync::Mutex;

use proptest::prelude::*;

use super::*;
use crate::hub::{Look, Sink};

/// A journal in memory.
#[derive(Default)]
struct Journal {
    lines: Vec<Arc<Line>>,
    /// The oldest that are gone.
    cut: usize,
    fails: bool,
    /// Events that the last who went back has seen.
    shown: usize,
}

#[derive(Clone, Default)]
pub(super) struct Shared(Arc<Mutex<Journal>>);

impl Shared {
    /// Has no longer the oldest.
    pub(super) fn cut(&self, count: usize) {
        self.0.lock().unwrap().cut = count;
    }

    /// How many events the last who went back since the last call has seen.
    pub(super) fn shown(&self) -> usize {
        std::mem::take(&mut self.0.lock().unwrap().shown)
    }

    /// Can no longer be read from now on.
    pub(super) fn fail(&self) {
        self.0.lock().unwrap().fails = true;
    }
}

impl Sink for Shared {
    fn take(&mut self, line: &Arc<Line>) {
        let mut journal = self.0.lock().unwrap();
        if line.of.is_journalled() {
            journal.lines.push(Arc::clone(line));
        }
    }
}

impl Past for Shared {
    fn after(&self, position: Option<&Position>, limit: usize) -> Result<Page, PastError> {
        let journal = self.0.lock().unwrap();
        if journal.fails {
            return Err(PastError("a disk".to_owned()));
        }
        let known = &journal.lines[..];
        let start = position.map_or(0, |position| {
            let is_here = |line: &Arc<Line>| line.boot == position.boot;
            let had = known
                .iter()
                .rposition(|line| is_here(line) && line.seq <= position.seq);
            let first = known.iter().position(is_here).unwrap_or(known.len());
            had.map_or(first, |had| had + 1)
        });
        let cut = journal.cut;
        Ok(Page {
            lines: known[start.max(cut)..]
                .iter()
                .take(limit)
                .cloned()
                .collect(),
            is_cut: position.is_some() && start < cut,
        })
    }

    /// In parts of three events.
    fn back(&self, look: &mut dyn Look) -> Result<(), PastError> {
        let mut journal = self.0.lock().unwrap();
        if journal.fails {
            return Err(PastError("a disk".to_owned()));
        }
        let mut shown = 0;
        for boot in journal
            .lines
            .chunk_by(|one, next| one.boot == next.boot)
            .rev()
        {
            for part in boot.rchunks(3) {
                for line in part {
                    look.see(line);
                }
                shown += part.len();
                if !look.goes_on() {
                    journal.shown = shown;
                    return Ok(());
                }
            }
        }
        journal.shown = shown;
        Ok(())
    }
}

fn kind(at: usize) -> Kind {
    Kind::ALL[at % Kind::ALL.len()]
}

/// The kind of a number, where every kind is told in turn.
fn kind_of(seq: u64) -> Kind {
    kind(usize::try_from(seq - 1).unwrap())
}

#[test]
fn what_is_journalled_comes_without_loss_or_repetition() {
    run(async {
        let hub = hub_of(0, 7);
        let journal = Shared::default();
        hub.attach(Box::new(journal.clone()));
        for at in 0..1000 {
            tell(&hub, kind(at), None);
        }
        let served = Served::new(service(&hub).with_past(Arc::new(journal.clone())));
        let kept = |after: u64| {
            (after + 1..=1000).filter(|&seq| seq > 993 || kind_of(seq).is_journalled())
        };
        for since in [0, 1, 500, 988, 993, 999, 1000] {
            let answer = served.get(&format!("/v1/events?since={since}")).await;
            let expected: Vec<u64> = kept(since).collect();
            assert_eq!(answer.numbers(), expected, "since={since}");
        }
        let answer = served.get("/v1/events?since=100s").await;
        assert_eq!(answer.numbers(), kept(899).collect::<Vec<_>>());

        journal.cut(10);
        let answer = served.get("/v1/events?since=0&limit=1").await;
        let lines = answer.lines();
        assert_eq!(
            (&lines[0]["type"], &lines[0]["data"]["uncounted"]),
            (&json!("loss"), &json!(true))
        );
        assert_eq!(lines.len(), 2);

        journal.fail();
        let answer = served.get("/v1/events?since=0").await;
        let numbers = answer.numbers();
        assert_eq!(numbers[0], 0, "a loss that nobody can count");
        assert_eq!(answer.lines()[1]["data"]["count"], 993);
        assert_eq!(numbers[2..], [994, 995, 996, 997, 998, 999, 1000]);
    });
}

#[test]
fn what_is_not_journalled_comes_as_far_as_memory_reaches() {
    run(async {
        let hub = hub_of(0, 20);
        let journal = Shared::default();
        hub.attach(Box::new(journal.clone()));
        for at in 0..45 {
            tell(&hub, kind(at), None);
        }
        let served = Served::new(service(&hub).with_past(Arc::new(journal)));
        let kept = |seq: &u64| *seq > 25 || kind_of(*seq).is_journalled();
        let all: Vec<u64> = (1..=45).filter(kept).collect();
        for query in ["", "?since=0", "?since=1h"] {
            let answer = served.get(&format!("/v1/events{query}")).await;
            assert_eq!(answer.numbers(), all, "{query}");
        }
        let answer = served.get("/v1/events?since=36s").await;
        let recent: Vec<u64> = (9..=45).filter(kept).collect();
        assert_eq!(answer.numbers(), recent);
        let answer = served
            .get("/v1/events?kind=limit-imminent,workload-started")
            .await;
        let asked = [Kind::LimitImminent, Kind::WorkloadStarted];
        let is_asked = |seq: &u64| kept(seq) && asked.contains(&kind_of(*seq));
        let two: Vec<u64> = (1..=45).filter(is_asked).collect();
        assert_eq!(answer.numbers(), two);
        assert!(two.len() > 2, "{two:?}");
    });
}

const EARLIER: &str = "2e1f0000-0000-4000-8000-000000000000";

#[test]
fn an_earlier_boot_is_read_before_this_one() {
    run(async {
        let journal = Shared::default();
        let earlier = Hub::new(
            Identity {
                node: "node".to_owned(),
                boot_id: EARLIER.to_owned(),
            },
            0,
            Limits::default(),
        );
        earlier.attach(Box::new(journal.clone()));
        for _ in 0..5 {
            tell(&earlier, Kind::Pressure, None);
        }
        let hub = hub_of(0, 2);
        hub.attach(Box::new(journal.clone()));
        for _ in 0..4 {
            tell(&hub, Kind::Pressure, None);
        }
        let served = Served::new(service(&hub).with_past(Arc::new(journal)));
        for (since, expected) in [
            (format!("{EARLIER}:3"), vec![4, 5, 1, 2, 3, 4]),
            (format!("{EARLIER}:5"), vec![1, 2, 3, 4]),
            ("2".to_owned(), vec![3, 4]),
        ] {
            let answer = served.get(&format!("/v1/events?since={since}")).await;
            assert_eq!(answer.numbers(), expected, "{since}");
        }
        let all = served.get("/v1/events").await;
        assert_eq!(all.numbers(), [1, 2, 3, 4, 5, 1, 2, 3, 4]);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// However small the memory: whoever resumes gets every journalled event after its
    /// place once and in order, while others are told.
    #[test]
    fn resuming_has_no_seam(
        before in prop::collection::vec(0..Kind::ALL.len(), 0..120),
        meanwhile in prop::collection::vec(0..Kind::ALL.len(), 1..60),
        events in 1..40_usize,
        since in 0..120_u64,
        base in 0..3_u64,
    ) {
        run(async {
            let hub = hub_of(base, events);
            let journal = Shared::default();
            hub.attach(Box::new(journal.clone()));
            for at in &before {
                tell(&hub, kind(*at), None);
            }
            let since = since.min(hub.numbering().last);
            let served = Served::new(service(&hub).with_past(Arc::new(journal.clone())));
            let target = format!("/v1/events?follow=1&since={since}");
            let mut following = served.follow(&target, "").await;
            for at in &meanwhile {
                tell(&hub, kind(*at), None);
                tokio::task::yield_now().await;
            }
            // It marks the end.
            let last = tell(&hub, Kind::AgentStarted, None);
            following.until(&format!("\"seq\":{last},")).await;
            hub.close();
            let answer = following.rest().await;
            let mut numbers = Vec::new();
            let mut lost = Vec::new();
            for line in answer.lines() {
                let seq = line["seq"].as_u64().unwrap();
                match line["data"]["first"].as_u64() {
                    Some(first) => lost.extend(first..=seq),
                    None => numbers.push(seq),
                }
            }
            assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
            let journal = journal.0.lock().unwrap();
            let journalled = journal.lines.iter().map(|line| line.seq);
            for seq in journalled.filter(|&seq| seq > since) {
                assert!(numbers.contains(&seq), "{seq}: {numbers:?}, lost {lost:?}");
            }
            assert!(lost.is_sorted_by(|one, next| one < next), "{lost:?}");
            assert!(lost.iter().all(|seq| !numbers.contains(seq)), "{numbers:?}, lost {lost:?}");
        });
    }
}
