//! What the next agent makes of a ledger: who is dying, who was asked, and which kills count.

use brink_core::base::Span;
use brink_core::node::decision::Standing;
use brink_core::node::engine::MemoryPolicy;
use brink_core::node::input::Confirmation;
use brink_core::node::order::End;
use brink_core::node::rank::Excess;
use brink_core::node::signal::{PerSignal, Signal};
use brink_core::node::workload::{Preference, PreferenceBy};
use brink_host::ledger::SlotId;

use super::*;
use crate::ledger::entry::{Crossed, Kill, Place, Seen, Stages};
use crate::ledger::{Completion, Rung};

const MIB: u64 = 1 << 20;

fn ms(value: i64) -> Moment {
    Moment::START + Span::from_millis(value)
}

/// A ledger in a folder of its own.
struct Book {
    ledger: Ledger,
    folder: tempfile::TempDir,
}

impl Book {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ledger = open(&folder);
        Self { ledger, folder }
    }

    /// As the next agent finds it.
    fn reopened(self) -> Self {
        let Self { ledger, folder } = self;
        drop(ledger);
        let ledger = open(&folder);
        Self { ledger, folder }
    }

    fn record(&mut self, record: &Record<'_>) -> SlotId {
        self.ledger.record(|bytes| {
            postcard::to_slice(record, bytes).unwrap();
        })
    }

    fn mark(&mut self, slot: SlotId, mark: Mark, at: Moment) {
        let at = u64::try_from(at.as_nanos()).unwrap();
        assert!(self.ledger.mark(slot, mark as usize, at));
    }

    fn complete(&mut self, slot: SlotId, completion: &Completion) {
        let is_there = self.ledger.complete(slot, |bytes| {
            postcard::to_slice(completion, bytes).unwrap();
        });
        assert!(is_there);
    }

    /// An agent that dies while it writes a completion.
    fn tear(&mut self, slot: SlotId) {
        let torn = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            self.ledger
                .complete(slot, |_| panic!("dies while completing"));
        }));
        assert!(torn.is_err());
    }

    /// The order that is to be gone on with, and how far it had come.
    fn interrupted(&self, at: i64) -> Option<(u64, Phase, bool)> {
        let found = interrupted(&self.ledger, ms(at))?;
        Some((found.order, found.phase, found.is_sent))
    }
}

fn open(folder: &tempfile::TempDir) -> Ledger {
    let path = folder.path().join(ledger::FILE);
    Ledger::open(&path, DECISIONS, BootId([7; 16])).unwrap().0
}

/// A hard order on memory, decided at a millisecond.
fn hard(order: u64, decided: i64) -> Record<'static> {
    let seen = Seen {
        available: 80 << 20,
        capacity: 4 << 30,
        at: Some(ms(decided)),
    };
    let standing = Standing {
        preference: Preference::Normal,
        preference_by: PreferenceBy::Node,
        excess: Excess::Over,
        priority: 0,
        usage: Some(300 << 20),
        request: 0,
    };
    Record {
        order,
        boot: [7; 16],
        wall_of_zero: 0,
        rung: Rung::Poll,
        reason: Reason::Hard,
        mode: Mode::Enforcing,
        policy: MemoryPolicy::Kubelet,
        crossed: Crossed {
            signal: Signal::MemoryAvailable,
            grace: 0,
            quantity: 100 << 20,
            seen,
        },
        limit: None,
        signals: PerSignal::from_fn(|_| None),
        confirmation: Confirmation::default(),
        credit: 0,
        candidates: 1,
        victim: Place {
            namespace: "test",
            name: "leaker",
            uid: "uid-leaker",
            standing,
            refusal: None,
        },
        ranking: [None; _],
        stages: Stages {
            decided: Some(ms(decided)),
            ..Stages::default()
        },
        until: None,
    }
}

/// A soft one with a pod grace of 30 s.
fn soft(order: u64, decided: i64) -> Record<'static> {
    let mut record = hard(order, decided);
    record.reason = Reason::Soft;
    record.crossed.grace = 60_000_000_000;
    record.until = Some(ms(decided + 30_000));
    record
}

fn of(signal: Signal, record: Record<'static>) -> Record<'static> {
    let mut record = record;
    record.crossed.signal = signal;
    record
}

#[test]
fn a_hard_order_is_waited_for_since_its_kill() {
    let mut book = Book::new();
    let slot = book.record(&hard(1, 1000));
    assert_eq!(book.interrupted(1001), None, "it is decided anew");
    book.mark(slot, Mark::Hardened, ms(1010));
    let begun = Some((1, Phase::Asked { until: ms(1010) }, true));
    assert_eq!(book.interrupted(1011), begun, "the rest is killed at once");
    assert_eq!(book.interrupted(6010), None);
    book.mark(slot, Mark::Signalled, ms(1020));
    let killed = Some((1, Phase::Killed { at: ms(1020) }, true));
    let book = book.reopened();
    assert_eq!(book.interrupted(1021), killed);
    assert_eq!(book.interrupted(6019), killed);
    assert_eq!(book.interrupted(6020), None);
    let found = interrupted(&book.ledger, ms(1021)).unwrap();
    assert_eq!(
        (found.uid.as_str(), found.charged),
        ("uid-leaker", Some(300 * MIB))
    );
}

#[test]
fn an_asked_victim_is_remembered_until_some_time_after_its_deadline() {
    let mut book = Book::new();
    let slot = book.record(&soft(4, 1000));
    let phase = Phase::Asked { until: ms(31_000) };
    assert_eq!(book.interrupted(1001), Some((4, phase, false)));
    book.mark(slot, Mark::Asked, ms(1002));
    let book = book.reopened();
    for at in [1003, 31_000, 40_999] {
        assert_eq!(book.interrupted(at), Some((4, phase, true)), "{at}");
    }
    assert_eq!(book.interrupted(41_000), None);
}

#[test]
fn a_soft_order_that_turned_hard_is_waited_for_since_its_kill() {
    let mut book = Book::new();
    let slot = book.record(&soft(4, 1000));
    book.mark(slot, Mark::Asked, ms(1002));
    book.mark(slot, Mark::Hardened, ms(20_000));
    let until = ms(20_000);
    let begun = Some((4, Phase::Asked { until }, true));
    assert_eq!(book.interrupted(20_001), begun);
    book.mark(slot, Mark::Signalled, ms(20_001));
    let at = ms(20_001);
    let killed = Some((4, Phase::Killed { at }, true));
    assert_eq!(
        (book.interrupted(25_000), book.interrupted(25_001)),
        (killed, None)
    );
}

#[test]
fn only_the_latest_order_can_be_open() {
    let mut book = Book::new();
    book.record(&soft(1, 1000));
    book.record(&soft(2, 1100));
    assert_eq!(book.interrupted(1200).map(|found| found.0), Some(2));
    let mut dry = hard(3, 1300);
    dry.mode = Mode::Observing(Reason::Observing);
    book.record(&dry);
    assert_eq!(book.interrupted(1301), None, "nobody was killed");
}

#[test]
fn what_is_over_is_not_gone_on_with_although_its_completion_is_torn() {
    let mut book = Book::new();
    let slot = book.record(&soft(1, 1000));
    book.mark(slot, Mark::Asked, ms(1001));
    book.tear(slot);
    let asked = Phase::Asked { until: ms(31_000) };
    assert_eq!(book.interrupted(1100), Some((1, asked, true)));
    book.mark(slot, Mark::Ended, ms(1200));
    book.tear(slot);
    assert_eq!(book.reopened().interrupted(1300), None);
    let mut book = Book::new();
    let slot = book.record(&hard(1, 1000));
    let end = Some(End::MemoryBack);
    book.complete(
        slot,
        &Completion {
            end,
            ..Completion::default()
        },
    );
    assert_eq!(book.interrupted(1001), None);
}

#[test]
fn what_had_been_marked_is_told_of_a_decision_without_a_completion() {
    let mut book = Book::new();
    let slot = book.record(&soft(1, 1000));
    let told = |book: &Book| {
        let entry = book.ledger.entries().next().unwrap();
        let (_, completion) = Record::read(&entry).unwrap();
        completion.map(|completion| (completion.stages.asked, completion.stages.last_signal))
    };
    assert_eq!(told(&book), None);
    book.mark(slot, Mark::Asked, ms(1001));
    book.mark(slot, Mark::Signalled, ms(2000));
    assert_eq!(told(&book), Some((Some(ms(1001)), Some(ms(2000)))));
}

#[test]
fn an_order_on_process_ids_is_waited_for_too() {
    let mut book = Book::new();
    let slot = book.record(&of(Signal::PidAvailable, hard(1, 1000)));
    book.mark(slot, Mark::Signalled, ms(1000));
    let found = interrupted(&book.ledger, ms(1001)).unwrap();
    assert_eq!(found.crossed.signal, Signal::PidAvailable);
}

/// An order on process ids whose victim had so many, and what became of it: how many were signalled.
fn bomb(book: &mut Book, decided: i64, had: i64, signalled: Option<u32>) -> SlotId {
    let mut record = of(Signal::PidAvailable, hard(1, decided));
    record.victim.standing.usage = Some(had);
    let slot = book.record(&record);
    if let Some(signalled) = signalled {
        book.mark(slot, Mark::Signalled, ms(decided));
        let kill = Some(Kill {
            signalled,
            ..Kill::default()
        });
        let completion = Completion {
            kill,
            ..Completion::default()
        };
        book.complete(slot, &completion);
    }
    slot
}

/// The kills that count at a millisecond, and the ids they bring back while so many processes are not reaped.
fn counted(book: &Book, at: i64, unreaped: Option<u64>) -> Vec<(i64, u32)> {
    let recalled = kills(&book.ledger, ms(at), || unreaped);
    let kill = |recalled: Recalled| match recalled {
        Recalled::Kill { at, ids } => (at.as_nanos() / 1_000_000, ids),
        other => panic!("{other:?}"),
    };
    recalled.into_iter().map(kill).collect()
}

#[test]
fn only_the_latest_bombs_hold_ids_and_no_more_than_there_are_dead() {
    let mut book = Book::new();
    bomb(&mut book, 1_000, 600, Some(650));
    bomb(&mut book, 90_000, 400, Some(500));
    bomb(&mut book, 92_000, 300, None);
    for (unreaped, expected) in [
        (None, [0, 0, 0]),
        (Some(2000), [0, 500, 300]),
        (Some(350), [0, 50, 300]),
        (Some(20), [0, 0, 20]),
        (Some(0), [0, 0, 0]),
    ] {
        let kills = counted(&book, 92_500, unreaped);
        let ids: Vec<_> = kills.iter().map(|kill| kill.1).collect();
        assert_eq!(ids, expected, "{unreaped:?}");
    }
    let late = counted(&book, 121_999, Some(2000));
    assert_eq!(late, [(1_000, 0), (90_000, 0), (92_000, 300)]);
    let kills = kills(&book.ledger, ms(122_000), || panic!("nobody waits"));
    assert_eq!(kills.len(), 3, "they count for the limits all the same");
}

#[test]
fn what_was_no_kill_is_not_counted() {
    let mut book = Book::new();
    let mut dry = hard(1, 1_000);
    dry.mode = Mode::Observing(Reason::Paused);
    book.record(&dry);
    let slot = bomb(&mut book, 2_000, 600, None);
    let kill = Some(Kill::default());
    book.complete(
        slot,
        &Completion {
            kill,
            ..Completion::default()
        },
    );
    assert_eq!(counted(&book, 2_001, None), [], "there was nobody");
    book.record(&hard(3, 3_000));
    assert_eq!(counted(&book, 3_001, None), [(3_000, 0)]);
}

#[test]
fn a_torn_completion_leaves_what_was_seen() {
    let mut book = Book::new();
    let slot = bomb(&mut book, 1_000, 600, Some(650));
    book.tear(slot);
    let dead = Some(2_000);
    assert_eq!(counted(&book.reopened(), 1_001, dead), [(1_000, 600)]);
}

#[test]
fn ids_of_a_soft_order_come_back_after_its_kill_only() {
    let mut book = Book::new();
    let mut record = of(Signal::PidAvailable, soft(1, 1_000));
    record.victim.standing.usage = Some(600);
    let slot = book.record(&record);
    book.mark(slot, Mark::Asked, ms(1_001));
    assert_eq!(counted(&book, 1_100, None), [(1_000, 0)]);
    book.mark(slot, Mark::Hardened, ms(31_000));
    assert_eq!(counted(&book, 31_001, Some(2_000)), [(31_000, 600)]);
}

#[test]
fn evictions_of_the_last_minutes_are_known_to_the_next_agent() {
    let mut book = Book::new();
    let mut over = |order, decided, end| {
        let slot = book.record(&hard(order, decided));
        book.complete(
            slot,
            &Completion {
                end,
                ..Completion::default()
            },
        );
    };
    over(1, 1_000, Some(End::Gone));
    over(2, 200_000, Some(End::MemoryBack));
    over(3, 201_000, Some(End::Failed));
    over(4, 202_000, Some(End::Stopped));
    let slot = book.record(&hard(5, 203_000));
    book.mark(slot, Mark::Hardened, ms(203_001));
    let slot = book.record(&soft(6, 204_000));
    book.mark(slot, Mark::Asked, ms(204_001));
    let mut dry = hard(7, 205_000);
    dry.mode = Mode::Observing(Reason::Observing);
    book.record(&dry);
    let orders = |at| -> Vec<u64> {
        let found = evicted(&book.ledger, ms(at));
        assert!(found.iter().all(|one| one.uid == "uid-leaker"));
        found.iter().map(|one| one.order).collect()
    };
    assert_eq!(orders(300_999), [1, 2, 5]);
    assert_eq!(orders(301_000), [2, 5], "too long ago");
}

#[test]
fn an_eviction_that_began_with_a_grace_is_known_as_of_its_kill() {
    let mut book = Book::new();
    let slot = book.record(&soft(1, 1_000));
    book.mark(slot, Mark::Asked, ms(1_001));
    book.mark(slot, Mark::Hardened, ms(31_000));
    let at = |now| -> Vec<Moment> {
        let found = evicted(&book.ledger, ms(now));
        found.iter().map(|one| one.at).collect()
    };
    assert_eq!(at(330_999), [ms(31_000)]);
    assert_eq!(at(331_000), [], "too long ago");
}

#[test]
fn who_lets_go_of_the_right_has_it_no_more_and_is_followed_at_once_with_the_ledger() {
    let folder = tempfile::tempdir().unwrap();
    let begin = || Enforcement::begin(Path::new("/"), folder.path(), BootId([1; 16])).unwrap();
    let (first, ledger) = begin();
    let (second, none) = begin();
    assert!(ledger.is_some() && none.is_none());
    assert!(second.take_over().unwrap().is_none());
    first.let_go();
    assert!(first.is_elsewhere() && second.is_elsewhere());
    assert!(second.take_over().unwrap().is_some());
    assert!(!second.is_elsewhere());
    assert!(first.take_over().unwrap().is_none());
}
