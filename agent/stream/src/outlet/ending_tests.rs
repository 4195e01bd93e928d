//! How a way out stands that takes nothing, and what is told of what it has not handed out at the end.

use std::fmt::{Debug, Write as _};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::progress::{HUNG, Left};
use super::samples::{draft, hub};
use super::tests::{Gate, PATIENCE, until};
use super::{Failure, Outlet, Running};
use crate::hub::{Hub, Line};
use crate::model::kind::Kind;

/// Keeps the warnings of the thread that it is the default of.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut words = Words::default();
        event.record(&mut words);
        self.0.lock().unwrap().push(words.0);
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

/// The fields of a warning, one after the other.
#[derive(Default)]
struct Words(String);

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}

fn start(outlet: impl Outlet + 'static, hub: &Hub) -> Running {
    let reader = hub.reader(None);
    Running::start(Box::new(outlet), reader, |_| true, Box::new(|_| ())).unwrap()
}

fn tell(hub: &Hub, count: usize) {
    for _ in 0..count {
        hub.tell(draft(Kind::Pressure, "a", "b", 1));
    }
}

#[test]
fn what_a_way_out_that_fails_has_not_handed_out_at_the_end_is_told() {
    let hub = hub("node-1", 20);
    let running = start(Gate::default(), &hub);
    tell(&hub, 2);
    until("the failure is shown", || running.status().failed.is_some());
    // These are not even read.
    tell(&hub, 3);
    let log = Log::default();
    tracing::subscriber::with_default(log.clone(), || drop(running));
    let said = log.0.lock().unwrap().clone();
    let [said] = &*said else {
        panic!("one warning: {said:?}");
    };
    for part in ["outlet=\"file\"", "count=5", "first=21", "last=25"] {
        assert!(said.contains(part), "{part} in {said}");
    }
}

#[test]
fn what_is_told_to_a_closed_hub_is_handed_out_and_then_nothing_is_left() {
    let hub = hub("node-1", 0);
    let gate = Gate::default();
    *gate.is_open.lock().unwrap() = true;
    let mut running = start(gate.clone(), &hub);
    tell(&hub, 2);
    hub.close();
    until("those before are out", || {
        *gate.seen.lock().unwrap() == [1, 2]
    });
    // As what the guard tells at its end.
    tell(&hub, 1);
    assert_eq!(running.end_within(PATIENCE), None);
    assert_eq!(*gate.seen.lock().unwrap(), [1, 2, 3]);
}

/// Does not come back before it is told to, as a write to a pipe that nobody reads.
struct Hung {
    entered: Sender<()>,
    release: Receiver<()>,
}

impl Outlet for Hung {
    fn name(&self) -> &'static str {
        "stdout"
    }

    fn put(&mut self, _lines: &[Arc<Line>]) -> Result<(), Failure> {
        // Whoever has seen enough no longer listens.
        let _ended = self.entered.send(());
        let _ended = self.release.recv();
        Ok(())
    }
}

#[test]
fn a_way_out_that_does_not_come_back_fails_meanwhile_and_is_not_waited_for_at_the_end() {
    let hub = hub("node-1", 0);
    let (entered, has_entered) = channel();
    let (release, released) = channel();
    let hung = Hung {
        entered,
        release: released,
    };
    let mut running = start(hung, &hub);
    let before = Instant::now();
    tell(&hub, 1);
    has_entered.recv_timeout(PATIENCE).unwrap();
    let given = Instant::now();
    let why = |at: Instant| running.status_at(at).failed;
    assert_eq!(why(before + HUNG / 2), None);
    let late = why(given + HUNG + Duration::from_secs(2)).unwrap_or_default();
    assert!(late.starts_with("has taken nothing for "), "{late}");
    release.send(()).unwrap();
    until("it has come back", || running.status().sent == 1);
    assert_eq!(why(Instant::now() + HUNG * 2), None);

    tell(&hub, 1);
    has_entered.recv_timeout(PATIENCE).unwrap();
    tell(&hub, 2);
    let left = Left {
        count: 3,
        first: 2,
        last: 4,
        is_hung: true,
    };
    assert_eq!(running.end_within(Duration::from_millis(10)), Some(left));
    // It comes back after all, and the rest goes too.
    drop(release);
    until("the rest is out", || running.status().sent == 4);
}
