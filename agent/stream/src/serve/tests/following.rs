//! Readers that stay: news, heartbeats, the end, and what happens to the slow.

use super::resuming::Shared;
use super::*;

#[test]
fn whoever_follows_gets_what_is_told_and_a_whole_end() {
    run(async {
        let hub = hub_of(6, 100);
        tell(&hub, Kind::AgentStarted, None);
        let served = Served::new(service(&hub));
        let mut following = served.follow("/v1/events?follow=1", "").await;
        tell(&hub, Kind::Pressure, None);
        following.until("\"seq\":8").await;
        tell(&hub, Kind::Pressure, None);
        tell(&hub, Kind::Loss, None);
        following.until("\"seq\":10").await;
        hub.close();
        let answer = following.rest().await;
        assert!(answer.is_whole, "{answer:?}");
        assert_eq!(answer.numbers(), [8, 9, 10], "from now on");
    });
}

#[test]
fn server_sent_events_name_their_place_and_go_on_after_it() {
    run(async {
        let hub = hub_of(0, 100);
        for _ in 0..3 {
            tell(&hub, Kind::Pressure, None);
        }
        let bounds = Bounds {
            heartbeat: Duration::from_millis(20),
            ..Bounds::default()
        };
        let served = Served::new(service(&hub).with_bounds(bounds));
        let headers =
            format!("Accept: text/html, text/event-stream;q=0.9\r\nLast-Event-ID: {BOOT}:1\r\n");
        let mut following = served.follow("/v1/events?since=0", &headers).await;
        following.until("\n: still here\n\n").await;
        tell(&hub, Kind::OomKill, None);
        let answer = following.until("event: oom-kill\n").await;
        assert!(answer.head.contains("Content-Type: text/event-stream"));
        let answer = following.until("\"seq\":4").await;
        let events: Vec<_> = answer.body.split("\n\n").collect();
        for (at, number, kind) in [(0, 2, "pressure"), (1, 3, "pressure")] {
            let start = format!("id: {BOOT}:{number}\nevent: {kind}\ndata: {{");
            assert!(events[at].starts_with(&start), "{:?}", events[at]);
        }

        let answer = served
            .get_with("/v1/events?follow=0", "Accept: text/event-stream\r\n")
            .await;
        assert!(answer.is_whole && answer.body.starts_with(&format!("id: {BOOT}:1\n")));
        let refused = "Accept: text/event-stream;q=0, */*\r\n";
        let lines = served.get_with("/v1/events", refused).await;
        assert!(
            lines.head.contains("application/x-ndjson"),
            "{}",
            lines.head
        );
        let refused = served.get_with("/v1/events", "Last-Event-ID: x\r\n").await;
        assert_eq!(refused.status, 400);
    });
}

#[test]
fn the_slow_are_told_exactly_what_they_missed() {
    run(async {
        let hub = hub_of(0, 10);
        let served = Served::new(service(&hub));
        let mut slow = served.follow("/v1/events?since=0&follow=1", "").await;
        // More than the socket takes while nobody reads.
        let filler = "x".repeat(10_000);
        for _ in 0..400 {
            let at = Time::new(START_US, 0);
            hub.tell(Draft::new(Kind::Pressure, at, None, &json!({"filler": filler})).unwrap());
            tokio::task::yield_now().await;
        }
        slow.until("\"place\":\"reader\"").await;
        hub.close();
        let lost = each_once(&slow.rest().await, 400);
        assert!(!lost.is_empty());
    });
}

/// Every number comes once, in order: as an event, or inside a loss that counts it. Returns those inside losses.
fn each_once(answer: &Answer, last: u64) -> Vec<u64> {
    assert!(answer.is_whole);
    let (mut next, mut missed) = (1, Vec::new());
    for line in answer.lines() {
        let (seq, data) = (line["seq"].as_u64().unwrap(), &line["data"]);
        if data["place"] == "reader" {
            assert_eq!((&data["first"], &data["last"]), (&json!(next), &json!(seq)));
            missed.extend(next..=seq);
            assert_eq!(data["count"], seq + 1 - next);
            assert_eq!(data["total"], missed.len());
        } else {
            assert_eq!(seq, next);
        }
        next = seq + 1;
    }
    assert_eq!(next, last + 1, "every number once");
    missed
}

/// Tells events of about 10 kB, one in three of a kind that is not journalled: more than a socket takes while nobody reads.
async fn tell_much(hub: &Hub, count: u64) {
    let filler = "x".repeat(10_000);
    for _ in 0..count {
        let seq = hub.numbering().last + 1;
        let of = match seq % 3 {
            0 => Kind::WorkloadStarted,
            _ => Kind::OomKill,
        };
        let at = Time::new(START_US, 0);
        hub.tell(Draft::new(of, at, None, &json!({"filler": filler})).unwrap());
        tokio::task::yield_now().await;
    }
}

/// What a reader gets that takes nothing while 600 events are told, with room for five in memory.
async fn slow_reader_of(hub: &Hub, served: &Served, meanwhile: impl FnOnce()) -> Answer {
    let slow = served.follow("/v1/events?follow=1", "").await;
    tell_much(hub, 600).await;
    meanwhile();
    hub.close();
    slow.rest().await
}

#[test]
fn the_slow_get_what_is_journalled_from_the_journal() {
    run(async {
        let hub = hub_of(0, 5);
        let journal = Shared::default();
        hub.attach(Box::new(journal.clone()));
        let served = Served::new(service(&hub).with_past(Arc::new(journal)));
        let answer = slow_reader_of(&hub, &served, || {}).await;
        let lost = each_once(&answer, 600);
        assert!(!lost.is_empty(), "it was too slow");
        assert!(lost.iter().all(|seq| seq % 3 == 0), "{lost:?}");
    });
}

#[test]
fn what_the_journal_no_longer_has_is_lost_to_the_slow_and_counted() {
    run(async {
        for fails in [false, true] {
            let hub = hub_of(0, 5);
            let journal = Shared::default();
            hub.attach(Box::new(journal.clone()));
            let served = Served::new(service(&hub).with_past(Arc::new(journal.clone())));
            let harm = || {
                if fails {
                    journal.fail();
                } else {
                    journal.cut(380);
                }
            };
            let lost = each_once(&slow_reader_of(&hub, &served, harm).await, 600);
            assert!(lost.iter().any(|seq| seq % 3 != 0), "{lost:?}");
            // Of each three numbers two are in the journal: 381 begin behind number 570.
            assert_eq!(lost.contains(&574), fails, "{lost:?}");
        }
    });
}

#[test]
fn the_next_of_a_kind_is_waited_for() {
    run(async {
        let hub = hub_of(0, 100);
        let served = Served::new(service(&hub));
        let mut one = served
            .follow("/v1/events?follow=1&kind=oom-kill&limit=1", "")
            .await;
        for _ in 0..50 {
            tell(&hub, Kind::Pressure, None);
            tokio::task::yield_now().await;
        }
        tell(&hub, Kind::OomKill, None);
        one.until("oom-kill").await;
        let answer = one.rest().await;
        assert!(answer.is_whole && answer.numbers() == [51], "{answer:?}");
    });
}

#[test]
fn what_left_memory_before_the_reader_came_is_a_loss_too() {
    run(async {
        let hub = hub_of(100, 3);
        for _ in 0..10 {
            tell(&hub, Kind::Pressure, None);
        }
        let served = Served::new(service(&hub));
        let answer = served.get("/v1/events?since=103").await;
        assert_eq!(answer.numbers(), [107, 108, 109, 110]);
        assert_eq!(answer.lines()[0]["data"]["first"], 104);
        for query in ["since=40", "since=2f2a0000-0000-4000-8000-000000000000:7"] {
            let answer = served.get(&format!("/v1/events?{query}")).await;
            let lines = answer.lines();
            assert_eq!(lines[0]["data"]["uncounted"], true, "{query}: {answer:?}");
            assert_eq!(lines[1]["data"]["first"], 101, "{query}");
            assert_eq!(lines.len(), 5, "{query}");
        }
    });
}

#[test]
fn what_left_memory_before_what_is_asked_for_is_no_loss() {
    run(async {
        let hub = hub_of(100, 5);
        for _ in 0..20 {
            tell(&hub, Kind::Pressure, None);
        }
        let served = Served::new(service(&hub));
        // In memory are those of the last four seconds.
        for (query, expected) in [
            ("", vec![116, 117, 118, 119, 120]),
            ("?since=4s", vec![116, 117, 118, 119, 120]),
            ("?since=4s&follow=1&limit=5", vec![116, 117, 118, 119, 120]),
            ("?since=1s", vec![119, 120]),
            // Nobody knows how many are missing, if any.
            ("?since=5s", vec![0, 116, 117, 118, 119, 120]),
        ] {
            let answer = served.get(&format!("/v1/events{query}")).await;
            assert_eq!(answer.numbers(), expected, "{query}");
        }
        let cut = served.get("/v1/events?since=5s&kind=oom-kill").await;
        let (lines, is_cut) = (cut.lines(), json!(true));
        assert_eq!((lines.len(), &lines[0]["data"]["uncounted"]), (1, &is_cut));
        assert_eq!(hub.missed(), 0);
        // Of a run that still has all it has told nothing is missing.
        let whole = hub_of(100, 50);
        for _ in 0..20 {
            tell(&whole, Kind::Pressure, None);
        }
        let answer = Served::new(service(&whole))
            .get("/v1/events?since=1h")
            .await;
        assert_eq!(answer.numbers(), (101..=120).collect::<Vec<_>>());
    });
}

#[test]
fn what_readers_have_missed_is_added_up() {
    run(async {
        let hub = hub_of(0, 5);
        for _ in 0..20 {
            tell(&hub, Kind::Pressure, None);
        }
        let served = Served::new(service(&hub));
        assert_eq!(hub.missed(), 0);
        for total in [12, 24] {
            let answer = served.get("/v1/events?since=3").await;
            assert_eq!(answer.lines()[0]["data"]["count"], 12);
            assert_eq!(hub.missed(), total);
        }
    });
}
