//! The survey on a real kernel: what it says of a cgroup's usage is what its file says, and of one that is gone it says nothing.

use std::fs;
use std::os::fd::AsFd as _;
use std::time::Duration;

use brink::recorder::NODE_PERIOD_NS;
use brink_host::probe::abi::flight::UNIT_SHIFT;
use brink_host::probe::abi::survey::{MAX_SURVEYED, PAGE_TRACES, TRACE_PAGES, Trace, UNTRACED};
use brink_host::probe::survey::Places;
use brink_host::probe::{ProbeError, Refusal, Survey, Wishes};
use brink_tests::{lacks, wait_until};
use probe_support::{Group, MIB, sampling};
use rustix::event::{PollFd, PollFlags, poll};

mod probe_support;

fn survey() -> Result<Survey, String> {
    let mut probe = sampling(Wishes::default().recording(NODE_PERIOD_NS))?;
    let why = "the programs came without a survey";
    probe.take_survey().ok_or_else(|| why.to_owned())
}

fn places(of: &[usize]) -> Places {
    let mut places = Places::default();
    for place in of {
        places.add(*place);
    }
    places
}

/// The kernel keeps up to 64 pages a CPU charged in advance.
fn close(a: u64, b: u64) -> bool {
    a.abs_diff(b) <= 2 * MIB
}

#[test]
fn usage_is_that_of_the_file_and_none_of_who_is_not_asked_for() {
    let (mut survey, group) = match (survey(), Group::new("survey")) {
        (Ok(survey), Ok(group)) => (survey, group),
        (Err(why), _) | (_, Err(why)) => lacks!("{why}"),
    };
    group.set_limit(128 * MIB);
    let inner = group.child("inner");
    let last = MAX_SURVEYED - 1;
    survey.seat(3, group.open().as_fd()).unwrap();
    survey.seat(last, inner.open().as_fd()).unwrap();
    let both = places(&[3, last]);
    assert_eq!(survey.usage(both, 3), None, "nobody has looked yet");
    let mut look = |wanted: Places| {
        survey.look(wanted).unwrap();
        [3, last, 4].map(|place| survey.usage(wanted, place))
    };
    let [before, ..] = look(both);
    assert!(before.unwrap() < 16 * MIB, "{before:?}");
    let held = inner.charge(64 * MIB);
    let [outer_usage, inner_usage, empty] = look(both);
    for (found, group) in [(outer_usage, &group), (inner_usage, &inner)] {
        let (found, file) = (found.unwrap(), group.usage());
        assert!(close(found, file), "{found}, and {file} by the file");
        assert!(found >= 63 * MIB, "{found}");
    }
    assert_eq!(empty, None);
    // Nothing has changed: the same is said without another reading of the table.
    assert_eq!(look(both), [outer_usage, inner_usage, None]);
    assert_eq!(look(places(&[last])), [None, inner_usage, None]);
    drop(held);
    let [after, ..] = look(both);
    assert!(after.unwrap() < 16 * MIB, "{after:?}");
}

#[test]
fn limits_are_those_of_the_files() {
    let (mut survey, group) = match (survey(), Group::new("limits")) {
        (Ok(survey), Ok(group)) => (survey, group),
        (Err(why), _) | (_, Err(why)) => lacks!("{why}"),
    };
    let (inner, gone) = (group.child("inner"), group.child("gone"));
    group.set_limit(48 * MIB);
    for (place, group) in [(0, &group), (1, &inner), (2, &gone)] {
        survey.seat(place, group.open().as_fd()).unwrap();
    }
    gone.remove();
    let limits = survey.limits().unwrap();
    let of = [0, 1, 2, 3].map(|place| limits.of(place));
    assert_eq!(of, [Some(Some(48 * MIB)), Some(None), None, None]);
    group.set_limit(64 * MIB);
    assert_eq!(survey.limits().unwrap().of(0), Some(Some(64 * MIB)));
}

#[test]
fn one_that_is_removed_is_unknown_and_so_is_one_that_was_let_go() {
    let (mut survey, group) = match (survey(), Group::new("surveyed")) {
        (Ok(survey), Ok(group)) => (survey, group),
        (Err(why), _) | (_, Err(why)) => lacks!("{why}"),
    };
    let inner = group.child("inner");
    survey.seat(0, group.open().as_fd()).unwrap();
    survey.seat(1, inner.open().as_fd()).unwrap();
    let both = places(&[0, 1]);
    survey.look(both).unwrap();
    assert!(survey.usage(both, 0).is_some() && survey.usage(both, 1).is_some());
    inner.remove();
    survey.look(both).unwrap();
    assert!(survey.usage(both, 0).is_some());
    assert_eq!(survey.usage(both, 1), None);
    survey.leave(0).unwrap();
    survey.look(both).unwrap();
    assert_eq!(survey.usage(both, 0), None);
    // Who takes its place is asked anew.
    survey.seat(1, group.open().as_fd()).unwrap();
    survey.look(both).unwrap();
    assert!(survey.usage(both, 1).is_some());
}

#[test]
fn only_a_cgroup_is_taken_in_and_only_where_there_is_a_place() {
    let (mut survey, group) = match (survey(), Group::new("refused")) {
        (Ok(survey), Ok(group)) => (survey, group),
        (Err(why), _) | (_, Err(why)) => lacks!("{why}"),
    };
    let mut seat = |place, file: &fs::File| match survey.seat(place, file.as_fd()) {
        Ok(()) => None,
        Err(ProbeError::Refused { why, .. }) => Some(why),
        Err(other) => panic!("{other}"),
    };
    let (folder, device) = (fs::File::open("/tmp"), fs::File::open("/dev/null"));
    assert_eq!(seat(0, &folder.unwrap()), Some(Refusal::NotACgroup));
    assert_eq!(seat(0, &device.unwrap()), Some(Refusal::NotACgroup));
    assert_eq!(seat(MAX_SURVEYED, &group.open()), Some(Refusal::Invalid));
    assert_eq!(seat(0, &group.open()), None);
    // Who is refused leaves the place empty, whoever had it.
    assert_eq!(
        seat(0, &fs::File::open("/tmp").unwrap()),
        Some(Refusal::NotACgroup)
    );
    survey.look(places(&[0])).unwrap();
    assert_eq!(survey.usage(places(&[0]), 0), None);
}

const PATIENCE: Duration = Duration::from_secs(20);
/// From one trace to the next.
const PERIOD: Duration = Duration::from_millis(20);

/// Whether somebody moves within so long.
#[expect(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed"
)]
fn moves(survey: &Survey, within: Duration) -> bool {
    let fd = survey.moved().expect("it follows");
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    poll(&mut fds, Some(&within.try_into().unwrap())).unwrap() > 0
}

/// What was left since the last time: when, and what lane 2 used, in bytes.
#[expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
fn traces(survey: &mut Survey) -> Vec<(u64, Option<u64>)> {
    let mut found = Vec::new();
    let each = |trace: &Trace| {
        let nobody = trace
            .units
            .iter()
            .enumerate()
            .filter(|(lane, _)| *lane != 2);
        assert!(nobody.into_iter().all(|(_, units)| *units == UNTRACED));
        let units = trace.units[2];
        let usage = (units != UNTRACED).then_some(u64::from(units) << UNIT_SHIFT);
        found.push((trace.at_ns, usage));
    };
    survey.traces(each).unwrap();
    found
}

#[test]
fn who_is_followed_leaves_traces_and_wakes_only_when_it_moves() {
    let (mut survey, group) = match (survey(), Group::new("followed")) {
        (Ok(survey), Ok(group)) => (survey, group),
        (Err(why), _) | (_, Err(why)) => lacks!("{why}"),
    };
    if survey.moved().is_none() {
        lacks!("the survey came without its timer");
    }
    group.set_limit(128 * MIB);
    let inner = group.child("inner");
    survey.seat(MAX_SURVEYED - 1, inner.open().as_fd()).unwrap();
    survey.follow(2, Some(MAX_SURVEYED - 1), false).unwrap();
    survey.follow_every(PERIOD).unwrap();
    assert!(moves(&survey, PATIENCE), "it was not known before");
    traces(&mut survey);
    // One that stands still is looked at all the same, and nobody is woken for it.
    assert!(!moves(&survey, 10 * PERIOD));
    let still = traces(&mut survey);
    assert!(still.len() >= 3, "{still:?}");
    assert!(
        still
            .iter()
            .all(|(_, usage)| *usage == still[0].1 && usage.is_some()),
        "{still:?}"
    );
    for pair in still.windows(2) {
        let apart = Duration::from_nanos(pair[1].0 - pair[0].0);
        assert!(apart >= PERIOD, "{apart:?} apart");
    }
    let held = inner.charge(64 * MIB);
    assert!(moves(&survey, PATIENCE));
    let grown = wait_until(PATIENCE, || {
        let (_, usage) = *traces(&mut survey).last()?;
        usage.filter(|usage| *usage >= 63 * MIB)
    });
    assert!(close(grown.expect("it is followed"), inner.usage()));
    let last = traces(&mut survey).last().map_or(0, |(at, _)| *at);
    let next = wait_until(PATIENCE, || traces(&mut survey).first().copied());
    assert!(
        next.expect("it goes on").0 > last,
        "each is handed over once"
    );
    drop(held);
    assert!(moves(&survey, PATIENCE));
    traces(&mut survey);
    inner.remove();
    let gone = wait_until(PATIENCE, || {
        let last = traces(&mut survey).last().copied()?;
        last.1.is_none().then_some(last)
    });
    gone.expect("of one that is gone nothing is known");
    let counted = survey.followed().unwrap().counted;
    assert!((3..counted.traces).contains(&counted.told), "{counted:?}");
    assert!(counted.cost_ns > 0 && counted.cost_max_ns <= counted.cost_ns);
}

#[test]
fn traces_that_nobody_read_in_time_are_overwritten_and_the_others_are_whole() {
    let mut survey = match survey() {
        Ok(survey) => survey,
        Err(why) => lacks!("{why}"),
    };
    if survey.moved().is_none() {
        lacks!("the survey came without its timer");
    }
    survey.follow_every(Duration::from_millis(5)).unwrap();
    let length = PAGE_TRACES * TRACE_PAGES as usize;
    let (mut at, mut handed) = (0, 0);
    for _ in 0..2 {
        // Three times as many as there is room for.
        std::thread::sleep(Duration::from_millis(15 * length as u64));
        let mut count = 0;
        survey
            .traces(|trace| {
                assert!(trace.at_ns > at, "{} after {at}", trace.at_ns);
                at = trace.at_ns;
                count += 1;
            })
            .unwrap();
        assert!((1..=length).contains(&count), "{count} traces");
        handed += count as u64;
        let followed = survey.followed().unwrap();
        assert_eq!(handed + followed.overwritten, followed.counted.traces);
        assert!(followed.overwritten > 0);
    }
}
