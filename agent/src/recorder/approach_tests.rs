//! Courses of memory, and whether they are warned of.
use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

/// The course of a cgroup, in MiB every `step_ms`, against a limit in MiB: the numbers of the points that are warned of.
fn warned(step_ms: u64, limit: u64, course: impl IntoIterator<Item = u64>) -> Vec<usize> {
    let mut approach = Approach::default();
    let warns = |(index, held): (usize, u64)| {
        let at = Stamp::of((index as u64 + 7) * step_ms * 1_000_000);
        approach
            .note(at, held * MIB, Some(limit * MIB))
            .map(|_| index)
    };
    course.into_iter().enumerate().filter_map(warns).collect()
}

fn check(what: &str, step_ms: u64, course: &[u64], expected: &[usize]) {
    assert_eq!(
        warned(step_ms, 1_000, course.iter().copied()),
        expected,
        "{what}"
    );
}

#[test]
fn steady_growth_is_told_once_before_the_limit() {
    check(
        "100 MiB a second from 100",
        1_000,
        &[100, 200, 300, 400, 500, 600, 700, 800, 900, 1_000],
        &[4],
    );
    check(
        "20 MiB a second",
        1_000,
        &[740, 760, 780, 800, 820, 840, 860, 880],
        &[3],
    );
    check(
        "not within ten seconds",
        1_000,
        &[500, 510, 520, 530, 540, 550, 560, 570],
        &[],
    );
    check(
        "under half of the limit",
        1_000,
        &[10, 90, 170, 250, 330, 410, 490],
        &[],
    );
    check(
        "at a fifth of a second",
        200,
        &[600, 610, 620, 630, 640],
        &[3],
    );
}

#[test]
fn what_is_no_growth_is_not_told() {
    check(
        "one large allocation",
        200,
        &[400, 400, 400, 900, 900, 900, 900],
        &[],
    );
    check(
        "a large one and noise",
        200,
        &[400, 401, 400, 900, 901, 902, 903, 904],
        &[],
    );
    check(
        "up and down",
        1_000,
        &[900, 950, 900, 950, 900, 950, 900, 950, 900],
        &[],
    );
    check(
        "growth that has ended",
        1_000,
        &[500, 600, 700, 700, 700, 700, 700, 700],
        &[],
    );
    check(
        "a crawl at the limit",
        1_000,
        &[990, 990, 991, 991, 992, 992, 993, 993],
        &[],
    );
    check("shrinking", 1_000, &[990, 980, 970, 960, 950, 940], &[]);
    check("too few points", 1_000, &[700, 800, 900], &[]);
}

#[test]
fn lumps_are_growth_too() {
    let lumps = (0..40).map(|index| 600 + index / 3 * 25);
    assert_eq!(warned(200, 1_000, lumps).len(), 1);
}

#[test]
fn every_approach_is_told_again() {
    let climb = || (500..1_000).step_by(50);
    let crash_loop: Vec<u64> = climb().chain(climb()).chain(climb()).collect();
    assert_eq!(warned(1_000, 1_000, crash_loop).len(), 3);
    // A rest of half a minute in the middle parts an approach in two, a shorter one does not.
    let with_rest = |seconds: usize| {
        let rest = std::iter::repeat_n(800, seconds);
        let course: Vec<u64> = (500..800)
            .step_by(50)
            .chain(rest)
            .chain((800..1_000).step_by(25))
            .collect();
        warned(1_000, 1_000, course).len()
    };
    assert_eq!(with_rest(10), 1);
    assert_eq!(with_rest(40), 2);
}

#[test]
fn the_forecast_says_when() {
    let notes: Vec<Note> = (0..6_u32)
        .map(|index| Note {
            at: Stamp::of(u64::from(index) * 1_000_000_000),
            held: units(600 * MIB + u64::from(index) * 50 * MIB),
        })
        .collect();
    let forecast = imminent(&notes, 1_000 * MIB);
    let expected = Forecast {
        growth: 50 * MIB,
        time_to_limit_ms: 3_000,
    };
    assert_eq!(forecast, Some(expected));
    // Beyond the limit already: v1 charges some in advance.
    assert_eq!(
        imminent(&notes, 800 * MIB).map(|found| found.time_to_limit_ms),
        Some(0)
    );
    assert_eq!(imminent(&[], MIB), None);
}

#[test]
fn a_clock_that_comes_round_or_goes_back_begins_anew() {
    let mut approach = Approach::default();
    for (second, held) in [
        (100_u64, 500_u64),
        (101, 600),
        (102, 700),
        (50, 800),
        (51, 900),
    ] {
        let at = Stamp::of(second * 1_000_000_000);
        assert_eq!(
            approach.note(at, held * MIB, Some(1_000 * MIB)),
            None,
            "{second}"
        );
    }
}

proptest! {
    /// Whatever the course: a warning is of a cgroup at half of its limit or more that has grown, and comes at most once
    /// while it does not rest.
    #[test]
    fn warnings_are_of_growth_towards_the_limit(
        course in proptest::collection::vec(0..2_000_u64, 0..60),
        step_ms in 200..3_000_u64,
    ) {
        let warned = warned(step_ms, 1_000, course.iter().copied());
        for &index in &warned {
            prop_assert!(course[index] >= 500);
            prop_assert!(course[..index].iter().any(|held| *held < course[index]));
        }
        let fell = |from: usize, to: usize| {
            let most = |until: usize| course[from..=until].iter().max().copied().unwrap_or(0);
            (from..to).any(|index| course[index] < most(index) * 3 / 4 + 1)
        };
        let rested = |from: usize, to: usize| (to - from) as u64 * step_ms >= u64::from(REST_MS);
        for pair in warned.windows(2) {
            prop_assert!(fell(pair[0], pair[1]) || rested(pair[0], pair[1]), "{warned:?}");
        }
    }

    /// A leak at a pace between a hundredth and a fifth of the limit a second is told in time: before the limit, and with
    /// eight tenths of what the pace allows at least where that is less than the horizon.
    #[test]
    fn a_steady_leak_is_told_before_the_limit(pace in 10..200_u64, start in 0..300_u64) {
        let course: Vec<u64> = (0..2_000).map(|index| start + index * pace / 5).take_while(|held| *held < 1_000).collect();
        let warned = warned(200, 1_000, course.iter().copied());
        prop_assert_eq!(warned.len(), 1);
        let left = (1_000 - course[warned[0]]) * 1_000 / pace;
        prop_assert!((1_000..=HORIZON_MS + 1_000).contains(&left), "{left}");
    }

    #[test]
    fn any_course_is_borne(notes in proptest::collection::vec((any::<u64>(), any::<u64>()), 0..40), limit: u64) {
        let mut approach = Approach::default();
        for (at, held) in notes {
            let _ = approach.note(Stamp::of(at), held, Some(limit));
            let _ = approach.growth();
        }
    }
}
