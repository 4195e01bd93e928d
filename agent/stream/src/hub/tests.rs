//! Numbers, memory, loss and waiting of the hub.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;
use serde_json::value::RawValue;

use super::*;
use crate::model::event::{Event, Subject};

const PATIENCE: Duration = Duration::from_mins(1);

fn identity() -> Identity {
    Identity {
        node: "no\"de".to_owned(),
        boot_id: "3f2a0000-0000-4000-8000-000000000000".to_owned(),
    }
}

fn draft(bytes: usize) -> Draft {
    let at = Time::new(1_700_000_000_000_001, 17);
    Draft::new(
        Kind::Pressure,
        at,
        None,
        &json!({"filler": "x".repeat(bytes)}),
    )
    .unwrap()
}

fn tell(hub: &Hub, many: usize, size: usize) {
    for _ in 0..many {
        hub.tell(draft(size));
    }
}

fn hub(after: u64, limits: Limits) -> Hub {
    Hub::new(identity(), after, limits)
}

fn numbered(path: &Path, boot: &str) -> (Hub, Found) {
    let (numbers, found) = Numbers::open(path, boot, Duration::from_secs(3), || false);
    let hub = Hub::numbered(identity(), numbers, Limits::default()).unwrap();
    (hub, found)
}

/// Waits for what the thread that keeps the numbers tries again and again.
#[track_caller]
fn until(is_so: impl Fn() -> bool) {
    let end = std::time::Instant::now() + PATIENCE;
    while !is_so() {
        assert!(std::time::Instant::now() < end, "it is never tried again");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The numbers that a reader can have now, and those it is told it missed.
fn drain(reader: &mut Reader) -> (Vec<u64>, Vec<(u64, u64)>) {
    let (mut seen, mut lost) = (Vec::new(), Vec::new());
    while let Some(next) = reader.next() {
        match next {
            Next::Line(line) => seen.push(line.seq),
            Next::Lost { first, last, count } => {
                assert_eq!(count, last - first + 1);
                lost.push((first, last));
            }
        }
    }
    (seen, lost)
}

#[test]
fn a_line_is_the_event_as_the_model_writes_it() {
    let hub = hub(41, Limits::default());
    let mut reader = hub.reader(None);
    let subject = Subject {
        namespace: "prod\n".to_owned(),
        name: "web\u{1f600}".to_owned(),
        uid: "u".to_owned(),
        incident: None,
    };
    let draft = Draft {
        of: Kind::OomKill,
        at: Time::new(1_700_000_000_000_001, 17),
        subject: Some(subject.clone()),
        data: RawValue::from_string("{\n\"a\":\r\n[1]}".to_owned()).unwrap(),
    };
    assert_eq!(hub.tell(draft), 42);
    let Some(Next::Line(line)) = reader.next() else {
        panic!("the event is not there");
    };
    let text = std::str::from_utf8(&line.text).unwrap();
    assert_eq!(text.matches(['\n', '\r']).count(), 1, "{text}");
    let event: Event = serde_json::from_str(text).unwrap();
    let again = serde_json::to_string(&event).unwrap() + "\n";
    assert_eq!(text, again, "the order and form of the model");
    assert_eq!((event.seq, event.of), (42, Kind::OomKill));
    assert_eq!(event.at.wall, "2023-11-14T22:13:20.000001Z");
    assert_eq!(event.subject, Some(subject));
    assert_eq!(Line::parse(&line.text).unwrap(), *line);
    assert!(Line::parse(b"{}").is_err());
}

#[test]
fn a_reader_starts_where_it_is_told_to() {
    let hub = hub(100, Limits::default());
    for _ in 0..5 {
        hub.tell(draft(0));
    }
    for (after, expected) in [
        (None, vec![]),
        (Some(0), vec![101, 102, 103, 104, 105]),
        (Some(100), vec![101, 102, 103, 104, 105]),
        (Some(103), vec![104, 105]),
        (Some(105), vec![]),
        (Some(u64::MAX - 1), vec![]),
    ] {
        let found = drain(&mut hub.reader(after));
        assert_eq!(found, (expected, vec![]), "after {after:?}");
    }
}

#[test]
fn whoever_is_too_slow_is_told_exactly_what_it_missed() {
    let limits = Limits {
        events: 3,
        bytes: usize::MAX,
    };
    let hub = hub(0, limits);
    let mut slow = hub.reader(None);
    for _ in 0..10 {
        hub.tell(draft(0));
    }
    assert_eq!(drain(&mut slow), (vec![8, 9, 10], vec![(1, 7)]));
    assert_eq!(hub.oldest(), Some(8));
    let mut some = Vec::new();
    let mut reader = hub.reader(Some(5));
    assert_eq!(reader.take((2, usize::MAX), &mut some), 1);
    assert_eq!(reader.after(), 7, "a loss alone");
    assert_eq!(reader.take((1, usize::MAX), &mut some), 1);
    assert_eq!(reader.take((100, 1), &mut some), 1, "one is over the bytes");
    assert_eq!(reader.take((100, usize::MAX), &mut some), 1);
    assert_eq!(reader.take((100, usize::MAX), &mut some), 0);
}

#[test]
fn memory_is_bounded_and_the_newest_stays() {
    let limits = Limits {
        events: 1000,
        bytes: 10_000,
    };
    let hub = hub(0, limits);
    for _ in 0..200 {
        hub.tell(draft(100));
    }
    let kept = {
        let state = hub.owner.shared.lock();
        let weights: usize = state.lines.iter().map(|line| line.weight()).sum();
        assert_eq!(state.bytes, weights);
        assert!(weights <= 10_000, "{weights}");
        state.lines.len()
    };
    assert!(kept > 10, "{kept}");
    hub.tell(draft(50_000));
    assert_eq!(hub.oldest(), Some(201), "alone, and larger than the limit");
}

struct Numbered(Arc<Mutex<Vec<u64>>>);

impl Sink for Numbered {
    fn take(&mut self, line: &Arc<Line>) {
        self.0.lock().unwrap().push(line.seq);
    }
}

#[test]
fn sinks_and_waiting_readers_get_every_event_in_order() {
    const EACH: usize = 300;
    let hub = hub(0, Limits::default());
    let taken = Arc::new(Mutex::new(Vec::new()));
    hub.attach(Box::new(Numbered(Arc::clone(&taken))));
    let mut reader = hub.reader(None);
    let read = thread::spawn(move || {
        let mut seen = Vec::new();
        loop {
            assert!(reader.wait(PATIENCE), "an event or the end");
            let (mut new, lost) = drain(&mut reader);
            assert_eq!(lost, []);
            seen.append(&mut new);
            if reader.is_closed() && reader.after() == 4 * EACH as u64 {
                return seen;
            }
        }
    });
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| tell(&hub, EACH, 10));
        }
    });
    hub.close();
    let all: Vec<u64> = (1..=4 * EACH as u64).collect();
    assert_eq!(read.join().unwrap(), all);
    assert_eq!(*taken.lock().unwrap(), all);
}

#[test]
fn a_sink_that_comes_late_has_what_is_in_memory_and_is_told_what_is_not() {
    let hub = hub(
        0,
        Limits {
            events: 3,
            bytes: 1 << 20,
        },
    );
    tell(&hub, 4, 0);
    let of = Kind::WorkloadStarted;
    hub.tell(Draft { of, ..draft(0) });
    tell(&hub, 2, 0);
    let seen = Arc::<Mutex<Vec<u64>>>::default();
    // Of seven, the first four are gone; the fifth of another kind is not.
    assert_eq!(
        hub.attach_from_start(Box::new(Numbered(Arc::clone(&seen)))),
        4
    );
    hub.tell(draft(0));
    assert_eq!(*seen.lock().unwrap(), [5, 6, 7, 8]);
    tell(&hub, 3, 0);
    assert_eq!(hub.attach_from_start(Box::new(Numbered(seen))), 7);
}

#[test]
fn who_asks_for_a_past_that_is_being_opened_waits_for_it() {
    struct Empty;
    impl Past for Empty {
        fn after(&self, _: Option<&Position>, _: usize) -> Result<Page, PastError> {
            Ok(Page::default())
        }

        fn back(&self, _: &mut dyn Look) -> Result<(), PastError> {
            Ok(())
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let is_there =
        |past: &LatePast, at_most: Duration| runtime.block_on(past.get(at_most)).is_some();
    assert!(!is_there(&LatePast::none(), PATIENCE));
    let past = Arc::new(LatePast::default());
    assert!(
        !is_there(&past, Duration::from_millis(1)),
        "nobody waits for ever"
    );
    let later = Arc::clone(&past);
    let opener = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        later.open(Arc::new(Empty));
    });
    assert!(is_there(&past, PATIENCE));
    opener.join().unwrap();
    let busy = LatePast::default();
    busy.settle();
    assert!(!is_there(&busy, PATIENCE));
    busy.unsettle();
    assert!(!is_there(&busy, Duration::from_millis(1)));
    busy.open(Arc::new(Empty));
    busy.unsettle();
    assert!(is_there(&busy, PATIENCE), "what is open stays open");
}

#[test]
fn a_task_is_woken_by_news_and_by_the_end() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let hub = hub(0, Limits::default());
    let mut reader = hub.reader(None);
    assert!(!reader.wait(Duration::ZERO), "nothing is there");
    let told = hub.clone();
    let teller = thread::spawn(move || told.tell(draft(0)));
    let woken = runtime.block_on(async {
        let woken = tokio::time::timeout(PATIENCE, reader.changed()).await;
        assert_eq!(drain(&mut reader).0, [1]);
        woken
    });
    assert!(woken.is_ok());
    assert_eq!(teller.join().unwrap(), 1);
    drop(hub);
    let ended = runtime.block_on(async { tokio::time::timeout(PATIENCE, reader.changed()).await });
    assert!(ended.is_ok() && reader.is_closed());
}

#[test]
fn numbers_go_on_over_a_restart_and_begin_anew_with_a_boot() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.seq");
    let (hub, found) = numbered(&path, "one");
    assert_eq!((hub.tell(draft(0)), found), (1, Found::Nothing));
    hub.tell(draft(0));
    hub.close();
    drop(hub);
    let (hub, found) = numbered(&path, "one");
    assert_eq!((hub.base(), found), (2, Found::Continued));
    assert_eq!(hub.tell(draft(0)), 3, "no gap after an orderly end");
    drop(hub);
    let (hub, found) = numbered(&path, "two");
    assert_eq!((hub.tell(draft(0)), found), (1, Found::OtherBoot));
    assert_eq!(
        hub.numbering(),
        Numbering {
            last: 1,
            failed: None
        }
    );
}

#[test]
fn an_agent_beside_another_has_numbers_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.seq");
    let (first, _) = numbered(&path, "one");
    let (second, found) = numbered(&path, "one");
    assert_eq!(
        (second.tell(draft(0)), found),
        (3_000_001, Found::Elsewhere)
    );
    tell(&second, 10_000, 0);
    drop(second);
    assert_eq!(first.tell(draft(0)), 1);
    drop(first);
    let (next, found) = numbered(&path, "one");
    assert_eq!((next.tell(draft(0)), found), (2, Found::Continued));
}

#[test]
fn an_agent_whose_neighbour_has_gone_keeps_its_own_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.seq");
    let (first, _) = numbered(&path, "one");
    let (second, _) = numbered(&path, "one");
    tell(&second, 7, 0);
    drop(first);
    let kept = || {
        let text = fs::read(&path).unwrap();
        numbers::parse(&text).is_ok_and(|(_, reserved)| reserved > 3_000_007)
    };
    until(kept);
    drop(second);
    let (next, found) = numbered(&path, "one");
    assert_eq!((next.tell(draft(0)), found), (3_000_008, Found::Continued));
}

/// The last events of a run are told after its streams were closed.
#[test]
fn no_other_agent_has_the_file_before_the_last_event_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.seq");
    let (ending, _) = numbered(&path, "one");
    ending.tell(draft(0));
    ending.close();
    let (other, found) = numbered(&path, "one");
    assert_eq!((other.tell(draft(0)), found), (3_000_001, Found::Elsewhere));
    assert_eq!(ending.tell(draft(0)), 2);
    let text = fs::read(&path).unwrap();
    let (_, reserved) = numbers::parse(&text).unwrap();
    assert!(reserved >= 2, "it was reserved before it was given");
    drop(other);
    drop(ending);
    let (next, found) = numbered(&path, "one");
    assert_eq!((next.tell(draft(0)), found), (3, Found::Continued));
}

#[test]
fn a_run_that_has_lost_the_file_goes_on_beyond_those_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.seq");
    let uptime = Duration::from_secs(3);
    let nothing_yet = path.clone();
    let was_before = move || {
        assert!(
            !nothing_yet.exists(),
            "nothing is reserved before it is asked"
        );
        true
    };
    let (numbers, found) = Numbers::open(&path, "one", uptime, was_before);
    assert_eq!((numbers.last(), found), (3_000_000, Found::Lost));
    let text = fs::read(&path).unwrap();
    assert!(numbers::parse(&text).is_ok_and(|(_, reserved)| reserved > 3_000_000));
    let hub = Hub::numbered(identity(), numbers, Limits::default()).unwrap();
    assert_eq!((hub.base(), hub.tell(draft(0))), (3_000_000, 3_000_001));
    drop(hub);
    let never = || unreachable!("there is a number of this boot");
    let (numbers, found) = Numbers::open(&path, "one", uptime, never);
    assert_eq!((numbers.last(), found), (3_000_001, Found::Continued));
}

#[test]
fn a_run_that_is_killed_leaves_a_gap_and_no_repetition() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.seq");
    let (hub, _) = numbered(&path, "one");
    for _ in 0..20_000 {
        let given = hub.tell(draft(0));
        if given % 512 == 0 {
            let now = fs::read(&path).unwrap();
            let (boot, reserved) = numbers::parse(&now).unwrap();
            assert!(boot == "one" && reserved >= given, "{reserved} < {given}");
        }
    }
    // What a kill at this moment would leave: the next run reads it.
    let left = folder.path().join("left");
    fs::copy(&path, &left).unwrap();
    let (next, _) = Numbers::open(&left, "one", Duration::ZERO, || false);
    assert!(
        (20_000..=20_000 + 2 * 4096).contains(&next.last()),
        "{}",
        next.last()
    );
}

#[test]
fn nobody_waits_for_the_other_end_of_a_pipe_in_the_place_of_numbers() {
    for name in ["numbers", "numbers.lock"] {
        let folder = tempfile::tempdir().unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, folder.path().join(name), mode).unwrap();
        let path = folder.path().join("numbers");
        let (numbers, found) = Numbers::open(&path, "one", Duration::from_secs(3), || false);
        assert!(matches!(found, Found::NotKept(_)), "{name}: {found:?}");
        assert_eq!(numbers.last(), 3_000_000, "{name}");
    }
}

#[test]
fn a_foreign_or_damaged_file_is_put_aside_and_no_number_comes_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.seq");
    let (hub, _) = numbered(&path, "one");
    drop(hub);
    let good = fs::read(&path).unwrap();
    let flipped = |at: usize| {
        let mut text = good.clone();
        text[at] ^= 1;
        text
    };
    let damaged = (0..good.len()).map(flipped);
    let torn = (0..good.len()).map(|end| good[..end].to_vec());
    for text in damaged.chain(torn).chain([vec![b'x'; 9999]]) {
        fs::write(&path, &text).unwrap();
        let (hub, found) = numbered(&path, "one");
        let Found::PutAside { aside, why } = found else {
            panic!("{found:?} of {text:?}");
        };
        assert!(!why.is_empty() && fs::read(aside).unwrap() == text);
        assert_eq!(
            hub.tell(draft(0)),
            3_000_001,
            "beyond the uptime in microseconds"
        );
    }
}

#[test]
fn numbers_are_given_although_the_file_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state").join("events.seq");
    let (hub, found) = numbered(&path, "one");
    let Found::NotKept(why) = found else {
        panic!("{found:?}");
    };
    assert!(why.contains("events.seq"), "{why}");
    assert_eq!(hub.numbering().failed, Some(why));
    assert_eq!(hub.tell(draft(0)), 3_000_001, "beyond the uptime");
    drop(hub);

    fs::create_dir(folder.path().join("state")).unwrap();
    let (hub, _) = numbered(&path, "one");
    fs::remove_dir_all(folder.path().join("state")).unwrap();
    let given: Vec<u64> = (0..10_000).map(|_| hub.tell(draft(0))).collect();
    assert_eq!(given, (1..=10_000).collect::<Vec<_>>());
    assert!(hub.numbering().failed.is_some(), "and it is told");

    fs::create_dir(folder.path().join("state")).unwrap();
    until(|| hub.numbering().failed.is_none());
    drop(hub);
    let (next, _) = Numbers::open(&path, "one", Duration::ZERO, || false);
    assert_eq!(next.last(), 10_000);
}

/// The device that is always full, in the place of the file that is written beside.
#[test]
fn on_a_full_disk_numbers_go_on_in_the_file_that_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.seq");
    let full = || std::os::unix::fs::symlink("/dev/full", folder.path().join("events.seq.new"));
    full().unwrap();
    let (hub, found) = numbered(&path, "one");
    assert!(matches!(found, Found::NotKept(_)), "{found:?}");
    assert_eq!(hub.tell(draft(0)), 3_000_001, "there is none to go on in");
    until(|| hub.numbering().failed.is_none());
    drop(hub);
    full().unwrap();
    let (hub, found) = numbered(&path, "one");
    assert_eq!((hub.tell(draft(0)), found), (3_000_002, Found::Continued));
    assert_eq!(hub.numbering().failed, None);
    let text = fs::read(&path).unwrap();
    let (_, reserved) = numbers::parse(&text).unwrap();
    assert!(reserved >= 3_000_002, "{reserved}");
}

#[test]
fn an_event_may_be_made_from_its_number() {
    let hub = hub(16, Limits::default());
    let mut reader = hub.reader(None);
    assert_eq!(
        hub.tell_with(|_| None),
        None,
        "nothing is told, and no number given"
    );
    assert_eq!(
        hub.tell_with(|number| Some(draft(usize::try_from(number).unwrap()))),
        Some(17)
    );
    assert_eq!(hub.tell(draft(0)), 18);
    let Some(Next::Line(line)) = reader.next() else {
        panic!("it was told");
    };
    let event: Event = serde_json::from_slice(&line.text).unwrap();
    assert_eq!(event.seq, 17);
    assert!(
        event
            .data
            .get()
            .contains(&format!("\"{}\"", "x".repeat(17)))
    );
}

proptest! {
    /// However telling and reading alternate: every number comes once, in order, as an event or inside a loss, and only what
    /// had to leave the memory is lost.
    #[test]
    fn every_number_comes_once(
        base in 0..1_000_u64,
        events in 1..20_usize,
        bytes in 1..4_000_usize,
        steps in prop::collection::vec((0..3_usize, 0..40_usize, 0..300_usize), 1..80),
    ) {
        let hub = hub(base, Limits { events, bytes });
        let mut readers = [hub.reader(None), hub.reader(Some(0)), hub.reader(Some(base))];
        let mut after = [base; 3];
        for (what, many, size) in steps {
            if what < 2 {
                tell(&hub, many, size);
                continue;
            }
            let at = many % 3;
            let oldest = hub.oldest();
            let mut some = Vec::new();
            readers[at].take((many, size), &mut some);
            for next in some {
                let (first, last) = match next {
                    Next::Line(line) => (line.seq, line.seq),
                    Next::Lost { first, last, count } => {
                        prop_assert_eq!(count, last - first + 1);
                        prop_assert!(Some(last + 1) == oldest);
                        (first, last)
                    }
                };
                prop_assert_eq!(first, after[at] + 1);
                after[at] = last;
            }
            prop_assert_eq!(readers[at].after(), after[at]);
            let state = hub.owner.shared.lock();
            prop_assert!(state.lines.len() <= events);
            prop_assert!(state.lines.len() == 1 || state.bytes <= bytes || state.lines.is_empty());
        }
        let last = hub.numbering().last;
        for reader in &mut readers {
            drain(reader);
            prop_assert_eq!(reader.after(), last);
        }
    }
}
