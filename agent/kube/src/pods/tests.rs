//! What the list is after one change and another.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

/// A list that counts how often it rang.
struct Scene {
    pods: Pods,
    rings: Arc<AtomicU64>,
}

impl Scene {
    fn new() -> Self {
        let rings = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&rings);
        let ring = move || {
            counted.fetch_add(1, Ordering::Relaxed);
        };
        Self {
            pods: Pods::new(ring),
            rings,
        }
    }

    /// Takes changes, and tells the uids there are and how often it rang so far.
    fn take<const N: usize>(&self, changes: [Change<Pod>; N]) -> (Vec<String>, u64) {
        for change in changes {
            self.pods.take(change, at(1));
        }
        let uids = self
            .pods
            .snapshot()
            .1
            .iter()
            .map(|pod| pod.uid.to_string())
            .collect();
        (uids, self.rings.load(Ordering::Relaxed))
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn pod(uid: &str, version: u32, phase: &str) -> Pod {
    let text = format!(
        r#"{{"metadata":{{"name":"n","uid":"{uid}","resourceVersion":"{version}"}},"status":{{"phase":"{phase}"}}}}"#
    );
    serde_json::from_str(&text).unwrap()
}

fn running(uid: &str) -> Pod {
    pod(uid, 1, "Running")
}

fn uids(uids: &[&str]) -> Vec<String> {
    uids.iter().map(|&uid| uid.to_owned()).collect()
}

#[test]
fn a_list_counts_once_it_is_complete_and_changes_at_once() {
    use Change::{Applied, Began, Complete, Deleted, Found};

    let scene = Scene::new();
    scene
        .pods
        .recall(Vec::from([running("old"), running("b")]), at(0));
    let part = scene.take([Began, Found(running("a")), Found(running("b"))]);
    assert_eq!(part, (uids(&["b", "old"]), 0));
    assert_eq!(scene.take([Complete]), (uids(&["a", "b"]), 1));
    assert_eq!(
        scene.take([Applied(running("c"))]),
        (uids(&["a", "b", "c"]), 2)
    );
    let same = Applied(pod("c", 2, "Running"));
    assert_eq!(scene.take([same]).1, 2, "only its version is another");
    assert_eq!(scene.take([Applied(pod("c", 3, "Failed"))]).1, 3);
    assert_eq!(scene.pods.is_running("c"), Some(false));
    assert_eq!(scene.take([Deleted(running("a"))]), (uids(&["b", "c"]), 4));
    assert_eq!(scene.take([Deleted(running("a"))]).1, 4);
    assert_eq!(
        (scene.pods.is_running("a"), scene.pods.is_running("b")),
        (None, Some(true))
    );
    // The same list once more is no news, and nobody has to read it again.
    let before = scene.pods.snapshot();
    let again = [
        Began,
        Found(pod("b", 9, "Running")),
        Found(pod("c", 9, "Failed")),
        Complete,
    ];
    assert_eq!(scene.take(again).1, 4);
    let after = scene.pods.snapshot();
    assert_eq!(before.0, after.0);
    assert!(
        before
            .1
            .iter()
            .zip(&after.1)
            .all(|(a, b)| Arc::ptr_eq(&a.json, &b.json))
    );
}

#[test]
fn what_was_known_stands_while_the_server_is_away() {
    let scene = Scene::new();
    assert_eq!(scene.pods.standing(at(5)), Standing::default());
    scene.pods.recall(Vec::from([running("a")]), at(2));
    scene.pods.lost("refused".to_owned(), at(5));
    scene.pods.lost("refused again".to_owned(), at(6));
    let standing = scene.pods.standing(at(7));
    let expected = Standing {
        connected: false,
        since: Some(at(5)),
        why: Some("refused again".to_owned()),
        pods: 1,
        as_of: Some(at(2)),
        left_out: 0,
        failures: 2,
    };
    assert_eq!(standing, expected);
    // A list that breaks off changes nothing.
    scene.take([Change::Began, Change::Found(running("b"))]);
    scene.pods.lost("cut".to_owned(), at(8));
    assert_eq!(scene.take([]).0, uids(&["a"]));
    scene.pods.take(Change::Opened, at(9));
    let standing = scene.pods.standing(at(12));
    assert_eq!(
        (standing.connected, standing.since, standing.as_of),
        (true, Some(at(9)), Some(at(12)))
    );
    scene.pods.lost("gone".to_owned(), at(20));
    let standing = scene.pods.standing(at(30));
    assert_eq!(
        (standing.connected, standing.since, standing.as_of),
        (false, Some(at(20)), Some(at(20)))
    );
    scene.pods.take(Change::Opened, at(31));
    assert_eq!(scene.pods.standing(at(31)).why, None);
}

#[test]
fn there_is_room_for_so_many_and_those_that_have_ended_make_it() {
    let scene = Scene::new();
    scene
        .pods
        .take(Change::Applied(pod("over", 1, "Succeeded")), at(1));
    for number in 1..MOST_PODS {
        scene
            .pods
            .take(Change::Applied(running(&format!("u{number}"))), at(1));
    }
    assert_eq!(scene.pods.standing(at(1)).left_out, 0);
    scene.pods.take(Change::Applied(running("late")), at(1));
    assert_eq!(
        (scene.pods.is_running("over"), scene.pods.is_running("late")),
        (None, Some(true))
    );
    scene.pods.take(Change::Applied(running("later")), at(1));
    scene
        .pods
        .take(Change::Applied(pod("ended", 1, "Failed")), at(1));
    scene.pods.take(Change::Applied(running("")), at(1));
    let counts = || {
        let standing = scene.pods.standing(at(1));
        (standing.pods, standing.left_out)
    };
    assert_eq!(counts(), (MOST_PODS, 4));
    // The same pod again is no other, and one that is gone is not left out.
    scene.pods.take(Change::Applied(running("later")), at(1));
    assert_eq!(counts(), (MOST_PODS, 4));
    scene.pods.take(Change::Deleted(running("later")), at(1));
    scene.pods.take(Change::Deleted(running("u1")), at(1));
    assert_eq!(counts(), (MOST_PODS - 1, 3));
    scene.take([Change::Began, Change::Found(running("a")), Change::Complete]);
    assert_eq!(counts(), (1, 0), "a new list tells who is there now");
}

#[test]
fn of_a_pod_that_is_too_large_little_is_kept() {
    let read = |length: usize| -> Pod {
        let mirror = "m".repeat(length);
        let text = format!(
            r#"{{"metadata":{{"name":"n","namespace":"s","uid":"u","resourceVersion":"7",
                "annotations":{{"kubernetes.io/config.mirror":"{mirror}"}}}},
                "spec":{{"priority":5,"containers":[{{"name":"c"}}]}},"status":{{"phase":"Failed"}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    };
    let whole = read(LARGEST_POD - 500);
    assert!(!whole.is_stub && whole.json.len() > LARGEST_POD - 500);
    let stub = read(LARGEST_POD);
    assert!(stub.is_stub && stub.is_over);
    assert_eq!((&*stub.uid, stub.resource_version()), ("u", "7"));
    let json = r#"{"metadata":{"name":"n","namespace":"s","uid":"u"},"spec":{"priority":5},"status":{"phase":"Failed"}}"#;
    assert_eq!(std::str::from_utf8(&stub.json).unwrap(), json);
    // As many as are kept are read again at the next start.
    let most = u64::try_from(MOST_PODS * LARGEST_POD).unwrap();
    assert!(most + (1 << 20) < kept::LARGEST);
}

#[test]
fn a_pod_is_read_without_its_version() {
    let read = pod("u", 7, "Pending");
    assert_eq!(
        (&*read.uid, read.resource_version(), read.is_over),
        ("u", "7", false)
    );
    let json = r#"{"metadata":{"name":"n","uid":"u"},"status":{"phase":"Pending"}}"#;
    assert_eq!(std::str::from_utf8(&read.json).unwrap(), json);
    assert!(serde_json::from_str::<Pod>("7").is_err());
}

#[test]
fn what_is_seen_of_a_pod_is_its_newest_version_and_gone_only_while_the_server_is_reached() {
    let scene = Scene::new();
    let heard = scene.pods.heard();
    let there = |is_terminal, keeps_reason, version| Seen::There {
        is_terminal,
        keeps_reason,
        version: Some(version),
    };
    assert_eq!(scene.pods.seen("a"), Seen::Unknown);
    scene.take([Change::Began, Change::Found(running("a")), Change::Complete]);
    assert!(heard.has_changed().unwrap(), "the server is heard of");
    assert_eq!(scene.pods.seen("a"), there(false, true, 1));
    assert_eq!(scene.pods.seen("b"), Seen::Gone);
    // Nothing has changed but its version.
    scene.take([Change::Applied(pod("a", 7, "Running"))]);
    assert_eq!(scene.pods.seen("a"), there(false, true, 7));
    scene.take([
        Change::Began,
        Change::Found(pod("a", 8, "Running")),
        Change::Complete,
    ]);
    assert_eq!(scene.pods.seen("a"), there(false, true, 8));
    scene.take([Change::Applied(pod("a", 9, "Failed"))]);
    assert_eq!(scene.pods.seen("a"), there(true, false, 9));
    let text = r#"{"metadata":{"uid":"a","resourceVersion":"10"},"status":{"phase":"Failed","reason":"Evicted"}}"#;
    scene.take([Change::Applied(serde_json::from_str(text).unwrap())]);
    assert_eq!(scene.pods.seen("a"), there(true, true, 10));
    scene.take([Change::Applied(pod("a", 11, "Succeeded"))]);
    assert_eq!(scene.pods.seen("a"), there(true, true, 11));
    assert_eq!(scene.pods.get("a").map(|pod| pod.is_over), Some(true));
    scene.pods.lost("away".to_owned(), at(3));
    assert_eq!(scene.pods.seen("b"), Seen::Unknown);
    let mut heard = heard;
    heard.mark_unchanged();
    scene.take([Change::Opened]);
    assert!(heard.has_changed().unwrap(), "it is back");
}
