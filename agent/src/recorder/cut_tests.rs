//! Recordings cut from books that were filled by hand.

use super::super::book::{GROUP_POINTS, Into, NEAR, NEAR_POINTS, NODE_POINTS, Periods};
use super::super::point::{Counts, Reading};
use super::*;

fn cut(book: &Book, request: Request<'_>, sampled: Option<NodePart>) -> Recording {
    super::cut(book, request, sampled, Tells::default())
}

const MIB: u64 = 1 << 20;
const BOTH: Into = Into {
    near: true,
    all: true,
};
const NEAR_ALONE: Into = Into {
    near: true,
    all: false,
};

fn at(millis: u64) -> Stamp {
    Stamp::of(millis * 1_000_000)
}

fn request(millis: u64, cgroup: Option<&str>, form: Form) -> Request<'_> {
    Request {
        at: at(millis),
        cgroup: cgroup.map(|path| Wanted { path, id: None }),
        form,
    }
}

fn reading(usage: u64) -> Reading {
    Reading {
        usage,
        working_set: usage / 2,
        ..Reading::default()
    }
}

#[test]
fn an_empty_book_gives_an_empty_recording_with_the_reason() {
    let check = |cgroup, expected| {
        let expected = Recording {
            node_missing: Some(Missing::Lost),
            cgroup_missing: Some(expected),
            ..Recording::default()
        };
        assert_eq!(
            cut(&Book::default(), request(5, cgroup, FULL), None),
            expected
        );
    };
    check(Some("/a"), Missing::Lost);
    check(None, Missing::Lost);
    check(Some("/"), Missing::NotApplicable);
}

/// One that was admitted after the incident has an entry, and nothing in it that the incident could have.
#[test]
fn points_that_are_all_later_are_none() {
    let mut book = Book::default();
    book.admit(0, "/a".into(), None);
    book.note(0, at(5_000), &reading(MIB), BOTH);
    let missing = |millis| cut(&book, request(millis, Some("/a"), FULL), None).cgroup_missing;
    assert_eq!(missing(4_000), Some(Missing::Lost));
    assert_eq!(missing(6_000), None);
}

#[test]
fn what_is_later_than_the_incident_is_no_part_of_it() {
    let mut book = Book::default();
    book.admit(0, "/a".into(), None);
    for second in 1..=5 {
        book.note(0, at(second * 1_000), &reading(second * MIB), BOTH);
    }
    let recording = cut(&book, request(3_500, Some("/a"), FULL), None);
    let seen: Vec<(u32, u64)> = recording
        .cgroup
        .iter()
        .map(|point| (point.before_ms, point.usage / MIB))
        .collect();
    assert_eq!(seen, [(2_500, 1), (1_500, 2), (500, 3)]);
}

#[test]
fn counters_are_told_in_full() {
    let mut book = Book::default();
    book.admit(0, "/a".into(), None);
    let large = 1 << 33;
    for step in 0..3 {
        let reading = Reading {
            stall_us: Some(large + step),
            counts: Some(Counts {
                reclaims: Some(step),
                forks: Some(large * step),
            }),
            ..Reading::default()
        };
        book.note(0, at(1_000 * step), &reading, BOTH);
        book.note_stall(at(1_000 * step), large * 2 + step * 7);
        book.note_node(FilePoint {
            at: at(1_000 * step + 10),
            ..FilePoint::default()
        });
    }
    let recording = cut(&book, request(2_500, Some("/a"), FULL), None);
    let stalls: Vec<_> = recording
        .cgroup
        .iter()
        .map(|point| point.stall_us)
        .collect();
    assert_eq!(stalls, [Some(large), Some(large + 1), Some(large + 2)]);
    assert_eq!(
        recording.cgroup.last().and_then(|point| point.forks),
        Some(large * 2)
    );
    let node: Vec<_> = recording.node.iter().map(|point| point.stall_us).collect();
    let expected = [0, 7, 14].map(|more| Some(large * 2 + more));
    assert_eq!(node, expected);
}

/// A counter that was not told at a point is unknown there, whatever came later, and the reason stands beside the points.
#[test]
fn where_waits_were_not_read_it_is_said_why() {
    let check = |tells_stalls, is_near, stalls: [Option<u64>; 3], expected| {
        let mut book = Book::default();
        book.tells_stalls = tells_stalls;
        book.admit(0, "/a".into(), Some(1));
        book.admit(1, "/a/b".into(), Some(1));
        for (slot, step) in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)] {
            let reading = Reading {
                stall_us: stalls[usize::try_from(step).unwrap()],
                ..Reading::default()
            };
            book.note(slot, at(1_000 * step), &reading, BOTH);
        }
        if is_near {
            book.move_near(0, Some(0));
            book.move_near(1, Some(1));
        }
        let recording = cut(&book, request(2_500, Some("/a/b"), FULL), None);
        let told = recording.cgroup.iter().map(|point| point.stall_us);
        assert_eq!(told.collect::<Vec<_>>(), stalls);
        assert_eq!(recording.stall_missing, expected);
        let other = &recording.others[0];
        // Of others there are fewer points.
        let is_short = other.points.iter().any(|point| point.stall_us.is_none());
        let expected = expected.filter(|_| is_short);
        assert_eq!(other.stall_missing, expected, "{other:?}");
        assert!(recording.cgroup.iter().all(|point| point.forks.is_none()));
    };
    check(true, true, [Some(0), Some(5), Some(9)], None);
    check(true, true, [None, Some(5), Some(9)], Some(Missing::Lost));
    check(true, false, [Some(4), Some(5), None], Some(Missing::Lost));
    check(true, false, [None; 3], Some(Missing::Lost));
    check(true, true, [None; 3], Some(Missing::Lost));
    check(false, false, [None; 3], Some(Missing::KernelLacksIt));
    check(false, true, [None; 3], Some(Missing::KernelLacksIt));
}

/// What one hook counts is told where another does not run, and what was counted by none yet is no zero.
#[test]
fn where_reclaims_and_forks_were_not_counted_it_is_said_why() {
    let check = |counts: [Option<Counts>; 3], expected: [Option<Missing>; 2]| {
        let mut book = Book::default();
        for (slot, path) in [(0, "/a"), (1, "/a/b")] {
            book.admit(slot, path.into(), Some(1));
            book.move_near(slot, Some(slot));
            for (step, counts) in (0..).zip(counts) {
                let reading = Reading {
                    counts,
                    ..Reading::default()
                };
                book.note(slot, at(2_500 * step), &reading, BOTH);
            }
        }
        let recording = cut(&book, request(6_000, Some("/a/b"), FULL), None);
        let told = recording.cgroup.iter().map(|point| point.forks);
        let forks = counts.map(|counts| counts.and_then(|counts| counts.forks));
        assert_eq!(told.collect::<Vec<_>>(), forks);
        let other = &recording.others[0];
        let found = [recording.reclaims_missing, recording.forks_missing];
        assert_eq!(found, expected, "{recording:?}");
        assert_eq!([other.reclaims_missing, other.forks_missing], expected);
    };
    let counts = |reclaims, forks| Some(Counts { reclaims, forks });
    let both = counts(Some(0), Some(7));
    let unloaded = Some(Missing::ProgramNotLoaded);
    check([both; 3], [None; 2]);
    check([counts(None, Some(7)); 3], [unloaded, None]);
    check([None; 3], [unloaded; 2]);
    check([None, both, both], [unloaded; 2]);
    check([both, None, both], [Some(Missing::Lost); 2]);
    let mut book = Book::default();
    assert_eq!(of_node(&book, false, [None].into_iter()), unloaded);
    book.node_is_cgroup = true;
    let none = Some(Missing::NotApplicable);
    assert_eq!(of_node(&book, true, [None].into_iter()), none);
    // Where they are counted now, somebody could have asked.
    let lost = Some(Missing::Lost);
    for (tells, counted, expected) in [
        (true, [None; 3], lost),
        (true, [None, Some(1), Some(2)], unloaded),
        (true, [Some(1); 3], None),
        (false, [None; 3], unloaded),
    ] {
        assert_eq!(
            uncounted(tells, counted.into_iter()),
            expected,
            "{counted:?}"
        );
    }
}

/// A minute of files every 100 ms, and of the sampler every 10 ms between these two moments, in milliseconds before the incident.
fn between(from: u32, to: u32) -> (Book, NodePart) {
    let mut book = Book::default();
    book.periods.node_ms = 100;
    for step in 0..NODE_POINTS as u64 {
        book.note_stall(at(step * 100), step);
        book.note_node(FilePoint {
            at: at(step * 100),
            ..FilePoint::default()
        });
    }
    let point = |before_ms| NodePoint {
        before_ms,
        reclaims: Some(5),
        forks: Some(7),
        ..NodePoint::default()
    };
    let points = (to..=from).rev().filter(|before| before.is_multiple_of(10));
    let sampled = NodePart {
        points: points.map(point).collect(),
        period_ms: 10,
    };
    (book, sampled)
}

#[test]
fn what_the_sampler_left_and_what_files_told_are_one_minute() {
    let check = |(from, to), period, counted: Option<Missing>| {
        let (book, sampled) = between(from, to);
        let recording = cut(&book, request(60_000, None, FULL), Some(sampled));
        assert_eq!(recording.node_period_ms, period, "{from} {to}");
        let points = &recording.node;
        assert!(points.is_sorted_by(|one, other| one.before_ms > other.before_ms));
        let apart = |two: &[NodePoint]| two[0].before_ms - two[1].before_ms;
        assert!(points.windows(2).all(|two| apart(two) < 500));
        assert!(points[0].before_ms > 59_500 && points[points.len() - 1].before_ms <= 110);
        let of_sampler = points.iter().filter(|point| point.forks.is_some());
        assert!(
            of_sampler
                .clone()
                .all(|point| (to..=from).contains(&point.before_ms))
        );
        // Files are no second opinion of what the sampler has seen.
        let within = points
            .iter()
            .filter(|point| (to..=from).contains(&point.before_ms));
        assert_eq!(of_sampler.count(), within.count());
        let missing = [
            recording.node_reclaims_missing,
            recording.node_forks_missing,
        ];
        assert_eq!(missing, [counted; 2]);
        let others = [recording.node_missing, recording.node_stall_missing];
        assert_eq!(others, [None; 2]);
    };
    check((59_990, 0), 10, None);
    // It began within the minute, fell silent within it, or both.
    check((20_000, 0), 10, Some(Missing::ProgramNotLoaded));
    check((59_990, 20_000), 100, Some(Missing::Lost));
    check((40_000, 20_000), 100, Some(Missing::Lost));
}

#[test]
fn of_a_node_without_points_it_is_said_why() {
    let mut book = Book::default();
    book.periods.node_ms = 100;
    book.node_missing = Some(Missing::NotPermitted);
    // One of an hour ago is none of the minute.
    book.note_node(FilePoint::default());
    let recording = cut(
        &book,
        request(3_600_000, None, FULL),
        Some(NodePart::default()),
    );
    assert_eq!(recording.node_missing, Some(Missing::NotPermitted));
    assert_eq!((recording.node.len(), recording.node_period_ms), (0, 0));
    assert_eq!(
        recording.node_forks_missing, None,
        "that is the lesser of it"
    );

    book.stalls_missing = Some(Missing::KernelLacksIt);
    book.note_node(FilePoint {
        at: at(3_599_000),
        ..FilePoint::default()
    });
    let recording = cut(&book, request(3_600_000, None, FULL), None);
    assert_eq!(recording.node_missing, None);
    assert_eq!(recording.node_stall_missing, Some(Missing::KernelLacksIt));
    assert_eq!(
        recording.node_forks_missing,
        Some(Missing::ProgramNotLoaded)
    );
}

#[test]
fn the_victims_ancestors_come_before_the_nearest() {
    let mut book = Book::default();
    let groups = [
        ("/a/b/c", Some(1), 990, Some(0)),
        ("/a/b", Some(1), 5, None),
        ("/a", None, 5, None),
        ("/ab", Some(1), 700, Some(1)),
        ("/far", Some(1), 800, None),
        ("/near", Some(1), 900, Some(2)),
    ];
    for (slot, (path, limit, nearness, near)) in groups.into_iter().enumerate() {
        book.admit(slot, path.into(), limit);
        book.move_near(slot, near);
        if let Some(entry) = book.entry_mut(slot) {
            entry.nearness = nearness;
        }
        book.note(slot, at(1), &reading(MIB), BOTH);
    }
    let paths = |cgroup, form| {
        let recording = cut(&book, request(2, cgroup, form), None);
        let others = recording.others.into_iter();
        others.map(|track| track.path).collect::<Vec<_>>()
    };
    assert_eq!(paths(Some("/a/b/c"), FULL), ["/a/b", "/near", "/ab"]);
    assert_eq!(paths(None, FULL), ["/a/b/c", "/near", "/ab"]);
    assert_eq!(paths(Some("/a/b/c"), BRIEF), [""; 0]);
}

#[test]
fn of_two_with_one_path_the_living_one_counts() {
    let mut book = Book::default();
    for (slot, gone) in [(0, Some(at(5))), (1, None)] {
        book.admit(slot, "/a".into(), None);
        if let Some(entry) = book.entry_mut(slot) {
            entry.gone = gone;
        }
        book.note(slot, at(1), &reading((slot as u64 + 1) * MIB), BOTH);
    }
    let recording = cut(&book, request(9, Some("/a"), FULL), None);
    assert_eq!(
        recording.cgroup.first().map(|point| point.usage),
        Some(2 * MIB)
    );
    book.forget(1);
    let recording = cut(&book, request(9, Some("/a"), FULL), None);
    assert_eq!(recording.cgroup.first().map(|point| point.usage), Some(MIB));
}

/// A service that is started again has the path of the one before it, and its incident not the minute of that one.
#[test]
fn of_several_with_one_path_the_one_with_the_id_counts_and_else_the_last() {
    let mut book = Book::default();
    for (slot, gone) in [(0, Some(at(5))), (1, Some(at(7))), (2, None)] {
        book.admit(slot, "/a".into(), None);
        if let Some(entry) = book.entry_mut(slot) {
            entry.gone = gone;
            entry.id = Some(slot as u64 + 10);
        }
        book.note(slot, at(1), &reading((slot as u64 + 1) * MIB), BOTH);
    }
    let check = |book: &Book, id, expected: Option<u64>| {
        let path = "/a";
        let request = Request {
            cgroup: Some(Wanted { path, id }),
            ..request(9, None, FULL)
        };
        let recording = cut(book, request, None);
        let seen = recording.cgroup.first().map(|point| point.usage / MIB);
        assert_eq!(seen, expected, "{id:?}");
        let missing = expected.is_none().then_some(Missing::Lost);
        assert_eq!(recording.cgroup_missing, missing);
    };
    check(&book, Some(10), Some(1));
    check(&book, Some(11), Some(2));
    check(&book, Some(12), Some(3));
    check(&book, Some(13), None);
    check(&book, None, Some(3));
    book.forget(2);
    check(&book, Some(12), None);
    check(&book, None, Some(2));
    assert_eq!(book.working_set("/a", at(9)), Some(MIB));
}

/// A book as full as it can be, at the end of a minute; amounts as long as they come.
fn full(form: Form) -> (Book, NodePart) {
    let mut book = Book::default();
    book.periods = Periods {
        node_ms: 100,
        near_ms: 100,
        others_ms: 1_000,
    };
    let large = Reading {
        usage: u64::MAX,
        working_set: u64::MAX,
        anon: u64::MAX,
        file: u64::MAX,
        held: 0,
        stall_us: Some(u64::MAX),
        counts: Some(Counts {
            reclaims: Some(1 << 40),
            forks: Some(1 << 40),
        }),
    };
    for slot in 0..NEAR {
        book.admit(
            slot,
            format!("/kubepods/burstable/{}/{slot}", "x".repeat(100)).into(),
            Some(1),
        );
        book.move_near(slot, Some(slot));
        for step in 0..GROUP_POINTS as u64 {
            book.note(slot, at(step), &large, BOTH);
        }
        for step in 0..NEAR_POINTS as u64 {
            book.note(slot, at(step * 100), &large, NEAR_ALONE);
        }
    }
    for step in 0..NODE_POINTS as u64 {
        book.note_stall(at(step * 100), u64::MAX);
    }
    let point = |step: u32| NodePoint {
        before_ms: (5_999 - step) * 10,
        available: i64::MIN / 4096,
        headroom: i64::MIN / 4096,
        anon: u64::MAX / 4096,
        file: u64::MAX / 4096,
        stall_us: None,
        reclaims: Some(1 << 32),
        forks: Some(1 << 32),
    };
    let mut kept = form.node();
    for point in (0..6_000).map(point) {
        kept.push(point.before_ms, point);
    }
    let node = NodePart {
        points: kept.finish(),
        period_ms: 10,
    };
    (book, node)
}

#[test]
fn a_recording_stays_within_its_size() {
    let check = |form: Form, most: usize| {
        let (book, node) = full(form);
        let own = format!("/kubepods/burstable/{}/7", "x".repeat(100));
        let recording = cut(&book, request(59_900, Some(&own), form), Some(node));
        let text = serde_json::to_vec(&recording).expect("JSON");
        assert!(text.len() <= most, "{} bytes", text.len());
        assert!(
            text.len() > most / 2,
            "{} bytes: the documented bound is far off",
            text.len()
        );
        recording
    };
    let recording = check(FULL, 200 << 10);
    assert_eq!((recording.node_period_ms, recording.others.len()), (10, 8));
    assert!(!recording.is_brief);
    // The last three seconds are all there.
    assert_eq!(
        recording
            .node
            .iter()
            .filter(|point| point.before_ms < 3_000)
            .count(),
        300
    );
    assert_eq!(
        recording
            .cgroup
            .iter()
            .filter(|point| point.before_ms < 10_000)
            .count(),
        100
    );
    assert!(check(BRIEF, 40 << 10).is_brief);
}
