//! A journal that goes on, has a gap, or meets what is none.

use brink_core::base::{Quantity, Span};
use brink_core::node::input::Recalled;
use brink_core::node::observe::Layout;
use brink_core::node::policy::Settings;
use brink_core::node::signal::Signal;
use brink_core::node::threshold::{Threshold, Value};

use super::*;

fn policy(mib: i64) -> Policy {
    let threshold = Threshold {
        signal: Signal::MemoryAvailable,
        grace: Span::ZERO,
        value: Value::Quantity(Quantity::from_bytes(mib << 20)),
        min_reclaim: None,
    };
    Policy::new(vec![threshold], Layout::Single, Settings::default())
}

fn lines(path: &Path) -> Vec<Line> {
    let text = fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// When a journal's engine was made, its threshold, and whether it continues an earlier one.
fn start(path: &Path) -> (Moment, String, bool) {
    match lines(path).into_iter().next() {
        Some(Line::Start {
            at,
            policy,
            continues,
            ..
        }) => (at, policy.thresholds()[0].value.to_string(), continues),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_journal_that_goes_on_begins_with_the_policy_of_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let (path, aside) = (
        folder.path().join("journal"),
        folder.path().join("journal.1"),
    );
    let live = LiveSettings::default();
    let mut journal = Journal::create(&path, Moment::START, policy(100), live).unwrap();
    let new = Reconfiguration {
        policy: policy(200),
        live,
    };
    journal.largest = 0;
    journal.reconfigure(new);
    assert!(!aside.exists(), "a configuration stays with its step");
    let step = Step {
        at: Moment::from_secs(5),
        kind: Kind::Reconfigure,
        ..Step::default()
    };
    journal.step(&step, None);
    assert_eq!(start(&aside), (Moment::START, "100Mi".to_owned(), false));
    assert!(matches!(
        lines(&aside)[1..],
        [Line::Reconfiguration(_), Line::Step(_)]
    ));
    assert_eq!(start(&path), (step.at, "200Mi".to_owned(), true));
    assert_eq!(lines(&path).len(), 1);
}

#[test]
fn a_gap_is_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let live = LiveSettings::default();
    let mut journal = Journal::create(&path, Moment::START, policy(100), live).unwrap();
    journal.lost(3);
    assert!(matches!(lines(&path)[1..], [Line::Lost { steps: 3 }]));
}

/// A journal with one step and then a file that takes nothing, as on a full disk.
fn full(path: &Path) -> Journal {
    let live = LiveSettings::default();
    let mut journal = Journal::create(path, Moment::START, policy(100), live).unwrap();
    journal.step(&Step::default(), None);
    let full = File::open(path).unwrap();
    journal.out = Some(full);
    journal
}

#[test]
fn a_full_disk_is_a_gap_that_is_told_once_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let (path, aside) = (
        folder.path().join("journal"),
        folder.path().join("journal.1"),
    );
    let mut journal = full(&path);
    let step = |millis, kind| Step {
        at: Moment::START + Span::from_millis(millis),
        kind,
        ..Step::default()
    };
    journal.step(&step(100, Kind::Tick), None);
    let new = Reconfiguration {
        policy: policy(200),
        live: LiveSettings::default(),
    };
    journal.reconfigure(new);
    journal.lost(5);
    for (millis, kind) in [
        (200, Kind::Tick),
        (900, Kind::Tick),
        (1250, Kind::Reconfigure),
    ] {
        journal.step(&step(millis, kind), None);
        assert!(journal.gap.is_some(), "{millis}");
    }
    journal.step(&step(1300, Kind::Tick), None);
    assert_eq!(lines(&aside).len(), 2, "whole lines only");
    let told = lines(&path);
    assert!(
        matches!(
            told[..],
            [
                Line::Start {
                    continues: true,
                    ..
                },
                Line::Lost { steps: 9 },
                Line::Step(_)
            ]
        ),
        "{told:?}"
    );
    let Line::Start { at, policy, .. } = &told[0] else {
        unreachable!("just matched");
    };
    assert_eq!(*at, Moment::START + Span::from_millis(1300));
    assert_eq!(policy.thresholds()[0].value.to_string(), "200Mi");
}

#[test]
fn what_is_no_journal_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let aside = folder.path().join("journal.1");
    let begin = || {
        let policy = Policy::new(Vec::new(), Layout::Single, Settings::default());
        Journal::create(&path, Moment::START, policy, LiveSettings::default()).map(drop)
    };
    fs::write(&path, "precious").unwrap();
    assert_eq!(begin().unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&aside).unwrap();
    assert!(begin().is_err() && aside.is_dir());
    fs::remove_dir(&aside).unwrap();
    begin().unwrap();
    begin().unwrap();
    assert!(path.is_file() && aside.is_file());
}

/// Builds before this one did not tell how many process ids a kill brings back.
#[test]
fn kills_that_an_older_build_recalled_are_read() {
    let kind: Kind = serde_json::from_str(r#"{"recall": {"kill": {"at": 5}}}"#).unwrap();
    let (at, ids) = (Moment::from_nanos(5), 0);
    assert_eq!(kind, Kind::Recall(Recalled::Kill { at, ids }));
}
