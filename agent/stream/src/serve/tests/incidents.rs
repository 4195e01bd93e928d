//! Incidents by themselves.

use serde_json::json;

use super::resuming::Shared;
use super::*;
use crate::hub::Redacted;

/// Tells an incident; its id is that of the event that opens it.
fn incident(hub: &Hub, of: Kind, (id, revision): (&str, u32), pod: &str) {
    let data = json!({
        "id": id, "cause": "memcgOom", "revision": revision, "isFinal": revision > 1,
        "at": Time::new(START_US, 1), "moreVictims": 0, "more": "x".repeat(10),
        "victims": [{"pid": 7, "comm": "we\u{1b}b", "anon": {"value": 1}}],
    });
    let subject = Subject {
        namespace: "prod".to_owned(),
        name: pod.to_owned(),
        incident: Some(id.to_owned()),
        ..Subject::default()
    };
    let draft = Draft::new(of, Time::new(START_US, 1), Some(subject), &data).unwrap();
    hub.tell(draft);
}

fn told() -> (Hub, Shared) {
    let hub = hub_of(0, 6);
    let journal = Shared::default();
    hub.attach(Box::new(journal.clone()));
    incident(&hub, Kind::OomKill, ("3f2a-1", 1), "web");
    incident(&hub, Kind::OomKill, ("3f2a-2", 1), "db");
    incident(&hub, Kind::IncidentClosed, ("3f2a-1", 2), "web");
    for _ in 0..3 {
        tell(&hub, Kind::Pressure, None);
    }
    incident(&hub, Kind::EvictionOrdered, ("3f2a-7", 1), "web");
    (hub, journal)
}

fn ids(answer: &Answer) -> Vec<(String, u64)> {
    let items = answer.json()["items"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let one = |item: &Value| {
        let id = item["id"].as_str().unwrap_or_default().to_owned();
        (id, item["revision"].as_u64().unwrap_or(0))
    };
    items.iter().map(one).collect()
}

#[test]
fn the_newest_revision_of_each_is_listed_and_shown() {
    run(async {
        let (hub, journal) = told();
        let with_past = Served::new(service(&hub).with_past(Arc::new(journal)));
        let of = |id: &str, revision| (id.to_owned(), revision);
        for (query, expected) in [
            ("", vec![of("3f2a-7", 1), of("3f2a-2", 1), of("3f2a-1", 2)]),
            ("?limit=1", vec![of("3f2a-7", 1)]),
            (
                "?pod=web&namespace=prod",
                vec![of("3f2a-7", 1), of("3f2a-1", 2)],
            ),
            ("?namespace=test", vec![]),
        ] {
            let answer = with_past.get(&format!("/v1/incidents{query}")).await;
            assert_eq!((answer.status, ids(&answer)), (200, expected), "{query}");
        }
        for (id, revision) in [("3f2a-1", 2), ("3f2a-2", 1), ("3f2a-7", 1)] {
            let answer = with_past.get(&format!("/v1/incidents/{id}")).await;
            let incident = answer.json();
            assert_eq!(
                (&incident["id"], &incident["revision"]),
                (&json!(id), &json!(revision))
            );
            assert_eq!(incident["victims"][0]["anon"]["value"], 1, "whole");
        }

        // Without a journal, memory has six events.
        let served = Served::new(service(&hub));
        let answer = served.get("/v1/incidents").await;
        assert_eq!(
            ids(&answer),
            [of("3f2a-7", 1), of("3f2a-2", 1), of("3f2a-1", 2)]
        );
        assert_eq!(served.get("/v1/incidents/3f2a-2").await.status, 200);
    });
}

#[test]
fn what_is_closed_in_a_later_boot_stays_where_it_began() {
    run(async {
        let journal = Shared::default();
        let earlier = Identity {
            node: "node".to_owned(),
            boot_id: "ea71".to_owned(),
        };
        let earlier = Hub::new(earlier, 0, Limits::default());
        earlier.attach(Box::new(journal.clone()));
        tell(&earlier, Kind::Pressure, None);
        tell(&earlier, Kind::Pressure, None);
        incident(&earlier, Kind::OomKill, ("ea71-3", 1), "web");
        let hub = hub_of(0, 6);
        hub.attach(Box::new(journal.clone()));
        incident(&hub, Kind::OomKill, ("3f2a-1", 1), "db");
        incident(&hub, Kind::IncidentClosed, ("ea71-3", 2), "web");
        let served = Served::new(service(&hub).with_past(Arc::new(journal)));
        let listed = ids(&served.get("/v1/incidents").await);
        let of = |id: &str, revision| (id.to_owned(), revision);
        assert_eq!(listed, [of("3f2a-1", 1), of("ea71-3", 2)]);
        let one = served.get("/v1/incidents/ea71-3").await;
        assert_eq!(one.json()["revision"], 2);
    });
}

#[test]
fn arguments_that_an_earlier_run_told_are_served_to_nobody_where_they_are_left_out() {
    run(async {
        let journal = Shared::default();
        let boot_id = "ea710000-0000-4000-8000-000000000000";
        let earlier = Identity {
            node: "node".to_owned(),
            boot_id: boot_id.to_owned(),
        };
        let earlier = Hub::new(earlier, 0, Limits::default());
        earlier.attach(Box::new(journal.clone()));
        let at = Time::new(START_US, 1);
        let data = json!({
            "id": "ea71-1", "cause": "memcgOom", "revision": 1, "isFinal": true, "at": at, "moreVictims": 0,
            "victims": [{"pid": 7, "comm": "web", "argv": {"value": ["web", "--password=secret"]}}],
        });
        let subject = Subject {
            incident: Some("ea71-1".to_owned()),
            ..Subject::default()
        };
        earlier.tell(Draft::new(Kind::OomKill, at, Some(subject), &data).unwrap());
        let whole: Arc<dyn Past> = Arc::new(journal);
        let redacted: Arc<dyn Past> = Arc::new(Redacted::new(Arc::clone(&whole)));
        for (past, is_told) in [(whole, true), (redacted, false)] {
            let service = service(&hub_of(0, 6)).with_past(past);
            let served = Served::new(service.with_cloud_events(crate::cloud_event::envelope));
            for target in [
                "/v1/events",
                "/v1/events?format=cloudevents",
                &format!("/v1/events?since={boot_id}:0"),
                "/v1/incidents/ea71-1",
            ] {
                let answer = served.get(target).await;
                assert_eq!(answer.status, 200, "{target}");
                assert_eq!(
                    answer.body.contains("secret"),
                    is_told,
                    "{target}: {answer:?}"
                );
                assert!(answer.body.contains("memcgOom"), "{target}: {answer:?}");
            }
            let one = served.get("/v1/incidents/ea71-1").await.json();
            let argv = &one["victims"][0]["argv"];
            assert_eq!(argv["missing"] == "redacted", !is_told, "{argv}");
        }
    });
}

#[test]
fn what_is_no_incident_is_refused_with_what_to_do() {
    run(async {
        let (hub, journal) = told();
        let served = Served::new(service(&hub).with_past(Arc::new(journal.clone())));
        for (target, status) in [
            ("/v1/incidents/3f2a-3", 404),
            ("/v1/incidents/3f2a-x", 404),
            ("/v1/incidents/%1f", 400),
            ("/v1/incidents/", 404),
            ("/v1/incidents/3f2a-1?full=1", 400),
            ("/v1/incidents?limit=0", 400),
            ("/v1/incidents?limit=501", 400),
            ("/v1/incidents?kind=loss", 400),
            ("/v1/incidents?pod=a&pod=b", 400),
        ] {
            let answer = served.get(target).await;
            assert_eq!(answer.status, status, "{target}: {answer:?}");
            assert!(answer.json()["next"].is_string(), "{target}");
        }
        journal.fail();
        assert_eq!(served.get("/v1/incidents").await.status, 500);
    });
}

#[test]
fn what_the_journal_had_no_room_for_is_known_from_memory() {
    run(async {
        let (hub, full) = (hub_of(0, 6), Shared::default());
        incident(&hub, Kind::OomKill, ("3f2a-1", 1), "web");
        hub.attach(Box::new(full.clone()));
        incident(&hub, Kind::OomKill, ("3f2a-2", 1), "db");
        let served = Served::new(service(&hub).with_past(Arc::new(full)));
        let listed = ids(&served.get("/v1/incidents").await);
        let of = |id: &str| (id.to_owned(), 1);
        assert_eq!(listed, [of("3f2a-2"), of("3f2a-1")]);
        for id in ["3f2a-1", "3f2a-2"] {
            let one = served.get(&format!("/v1/incidents/{id}")).await;
            assert_eq!((one.status, &one.json()["id"]), (200, &json!(id)));
        }
    });
}

#[test]
fn no_more_of_the_past_is_read_than_the_newest_need() {
    run(async {
        let journal = Shared::default();
        let boot_id = "aaaa0000".to_owned();
        let node = "node".to_owned();
        let earlier = Hub::new(Identity { node, boot_id }, 0, Limits::default());
        earlier.attach(Box::new(journal.clone()));
        incident(&earlier, Kind::OomKill, ("aaaa-1", 1), "web");
        let hub = hub_of(0, 6);
        hub.attach(Box::new(journal.clone()));
        // Number 1 is closed by number 300, behind all others.
        for seq in 1..300 {
            incident(&hub, Kind::OomKill, (&format!("3f2a-{seq}"), 1), "web");
        }
        incident(&hub, Kind::IncidentClosed, ("3f2a-1", 2), "web");
        let served = Served::new(service(&hub).with_past(Arc::new(journal.clone())));
        let newest = |many: u64, from: u64| {
            let numbers = (0..many).map(move |back| from - back);
            numbers
                .map(|seq| (format!("3f2a-{seq}"), 1))
                .collect::<Vec<_>>()
        };
        for (query, expected, most) in [
            ("?limit=1", newest(1, 299), 0),
            ("?limit=10", newest(10, 299), 12),
            ("?limit=10&pod=other", vec![], 301),
        ] {
            let answer = served.get(&format!("/v1/incidents{query}")).await;
            assert_eq!(ids(&answer), expected, "{query}");
            assert_eq!(journal.shown(), most, "{query}");
        }
        let mut all = newest(299, 299);
        all[298].1 = 2;
        all.push(("aaaa-1".to_owned(), 1));
        let answer = served.get("/v1/incidents?limit=500").await;
        assert_eq!(ids(&answer), all, "in the order in which they began");
        assert_eq!(journal.shown(), 301);
        for (id, status, most) in [
            ("3f2a-1", 200, 0),
            ("3f2a-290", 200, 12),
            ("aaaa-1", 200, 301),
            ("3f2a-0", 404, 301),
            ("3f2a-299999", 404, 0),
            ("nobody-7", 404, 301),
        ] {
            let answer = served.get(&format!("/v1/incidents/{id}")).await;
            assert_eq!((answer.status, journal.shown()), (status, most), "{id}");
        }
    });
}
