//! The hub: numbers events, keeps the newest in memory, and hands them to readers and sinks.
//!
//! Any thread but the guard may tell. Numbers rise by one within a run; what a reader was too slow for is told to it as an
//! exact range, so that nothing is ever missed in silence.

mod keeper;
pub mod line;
pub mod numbers;
pub mod past;
pub mod reader;
pub mod redacted;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::Notify;

pub use self::line::Line;
use self::line::{Envelope, Parts};
pub use self::numbers::{Found, Numbers, NumbersError};
pub use self::past::{LatePast, Look, Page, Past, PastError, Position};
pub use self::reader::{Next, Reader};
pub use self::redacted::Redacted;
use crate::model::data::Loss;
use crate::model::event::{Draft, Time};
use crate::model::kind::Kind;

/// Who tells: the node's name, and the id of the boot that numbers and monotonic times belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The node's name.
    pub node: String,
    /// `/proc/sys/kernel/random/boot_id`, as it is written there.
    pub boot_id: String,
}

/// How much the hub keeps in memory. The newest event stays in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Events.
    pub events: usize,
    /// Bytes of all of them, with what keeping one costs.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            events: 4096,
            bytes: 2 << 20,
        }
    }
}

/// Where every event goes as it is told.
pub trait Sink: Send {
    /// Takes one event. Called in the order of the numbers, with the hub locked: it must neither block nor tell.
    fn take(&mut self, line: &Arc<Line>);
}

/// Numbers events and keeps the newest. Clones are the same hub; with the last of them it closes.
#[derive(Clone)]
pub struct Hub {
    owner: Arc<Owner>,
}

/// Ends what the hub has started; readers hold only what is shared.
struct Owner {
    shared: Arc<Shared>,
    keeper: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    identity: Identity,
    envelope: Envelope,
    limits: Limits,
    /// The highest number before this run's first.
    base: u64,
    state: Mutex<State>,
    /// Events that readers of the sockets were told they have missed.
    missed: AtomicU64,
    /// For threads that wait for an event.
    news: Condvar,
    /// For tasks that do.
    bell: Notify,
    /// For the thread that reserves numbers.
    reserve: Condvar,
}

struct State {
    last: u64,
    lines: VecDeque<Arc<Line>>,
    bytes: usize,
    /// Events of journalled kinds that are no longer in memory.
    journalled_gone: u64,
    sinks: Vec<Box<dyn Sink>>,
    /// Threads in [`Reader::wait`].
    waiting: usize,
    is_closed: bool,
    numbers: Option<Reserved>,
}

/// Numbers that are on the disk as given.
struct Reserved {
    numbers: Numbers,
    /// Why no more could be reserved; tried again by the keeper.
    failed: Option<String>,
}

/// How the numbering stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbering {
    /// The last number given.
    pub last: u64,
    /// Why numbers are no longer reserved in the state file: after a crash they might be given again.
    pub failed: Option<String>,
}

impl Hub {
    /// A hub whose first event has the number after `last_seq`; nothing about it outlives the process.
    pub fn new(identity: Identity, last_seq: u64, limits: Limits) -> Self {
        Self::with(identity, limits, last_seq, None)
    }

    /// A hub whose numbers go on over restarts. A thread keeps some reserved ahead.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn numbered(identity: Identity, mut numbers: Numbers, limits: Limits) -> io::Result<Self> {
        let last = numbers.last();
        let reserved = Reserved {
            failed: numbers.take_failed(),
            numbers,
        };
        let hub = Self::with(identity, limits, last, Some(reserved));
        let keeper = keeper::start(Arc::clone(&hub.owner.shared))?;
        *lock(&hub.owner.keeper) = Some(keeper);
        Ok(hub)
    }

    fn with(identity: Identity, limits: Limits, last: u64, numbers: Option<Reserved>) -> Self {
        let shared = Shared {
            envelope: Envelope::new(&identity),
            identity,
            limits,
            base: last,
            state: Mutex::new(State {
                last,
                lines: VecDeque::new(),
                bytes: 0,
                journalled_gone: 0,
                sinks: Vec::new(),
                waiting: 0,
                is_closed: false,
                numbers,
            }),
            missed: AtomicU64::new(0),
            news: Condvar::new(),
            bell: Notify::new(),
            reserve: Condvar::new(),
        };
        Self {
            owner: Arc::new(Owner {
                shared: Arc::new(shared),
                keeper: Mutex::new(None),
            }),
        }
    }

    /// Numbers an event, keeps it, and hands it on; returns its number. Takes a mutex for moments, and does not wait for
    /// readers, sinks or a file; but for that of the numbers, where its keeper has fallen behind by thousands, or the hub is closed.
    pub fn tell(&self, draft: Draft) -> u64 {
        let shared = &*self.owner.shared;
        let parts = Parts::of(draft);
        shared.give(shared.lock(), parts)
    }

    /// The same with what is told made from its number, which an incident's id comes from. `make` is called with the hub
    /// locked: it must neither block nor tell. Without a draft no number is given.
    pub fn tell_with(&self, make: impl FnOnce(u64) -> Option<Draft>) -> Option<u64> {
        let shared = &*self.owner.shared;
        let state = shared.lock();
        let parts = Parts::of(make(state.last + 1)?);
        Some(shared.give(state, parts))
    }

    /// Reads what comes after the number `after`, or from now on. Of what an earlier run told, the hub knows nothing: such a
    /// reader begins with this run's first event.
    pub fn reader(&self, after: Option<u64>) -> Reader {
        let shared = Arc::clone(&self.owner.shared);
        let after = after.unwrap_or_else(|| shared.lock().last);
        let after = after.max(shared.base);
        Reader::new(shared, after)
    }

    /// Hands every event from now on to a sink too.
    pub fn attach(&self, sink: Box<dyn Sink>) {
        self.owner.shared.lock().sinks.push(sink);
    }

    /// The same with what is still in memory before it. Returns how many events of journalled kinds were told and no longer are.
    pub fn attach_from_start(&self, mut sink: Box<dyn Sink>) -> u64 {
        let mut state = self.owner.shared.lock();
        for line in &state.lines {
            sink.take(line);
        }
        state.sinks.push(sink);
        state.journalled_gone
    }

    /// A loss that one reader is told of, in the place of the numbers that it missed; nobody else gets it.
    pub(crate) fn loss_line(&self, at: Time, seq: u64, loss: &Loss) -> serde_json::Result<Line> {
        let draft = Draft::new(Kind::Loss, at, None, loss)?;
        Ok(self.owner.shared.envelope.line(Parts::of(draft), seq))
    }

    /// Takes note that a reader was told it has missed so many events.
    pub(crate) fn count_missed(&self, count: u64) {
        self.owner.shared.missed.fetch_add(count, Ordering::Relaxed);
    }

    /// How many events readers of the sockets were told they have missed, all of them together.
    pub fn missed(&self) -> u64 {
        self.owner.shared.missed.load(Ordering::Relaxed)
    }

    /// Who tells.
    pub fn identity(&self) -> &Identity {
        &self.owner.shared.identity
    }

    /// The highest number before this run's first event; 0 for the first run of a boot.
    pub fn base(&self) -> u64 {
        self.owner.shared.base
    }

    /// The number of the oldest event in memory.
    pub fn oldest(&self) -> Option<u64> {
        self.oldest_line().map(|line| line.seq)
    }

    /// The oldest event in memory.
    pub(crate) fn oldest_line(&self) -> Option<Arc<Line>> {
        let state = self.owner.shared.lock();
        state.lines.front().map(Arc::clone)
    }

    /// How the numbering stands.
    pub fn numbering(&self) -> Numbering {
        let state = self.owner.shared.lock();
        let reserved = state.numbers.as_ref();
        Numbering {
            last: state.last,
            failed: reserved.and_then(|reserved| reserved.failed.clone()),
        }
    }

    /// Says that nothing more is to come: readers end with what is there, and the state file holds the exact last number. What is
    /// told all the same goes on with the numbers; no other agent has the file before the last clone of the hub is gone.
    pub fn close(&self) {
        self.owner.close();
    }
}

impl Owner {
    fn close(&self) {
        self.shared.lock().is_closed = true;
        self.shared.news.notify_all();
        self.shared.bell.notify_waiters();
        self.shared.reserve.notify_all();
        if let Some(keeper) = lock(&self.keeper).take()
            && keeper.join().is_err()
        {
            tracing::warn!("the thread that reserves numbers of events had died");
        }
        self.shared.settle();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.close();
        if let Some(reserved) = &self.shared.lock().numbers {
            reserved.numbers.let_go();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Leaves the last number that was given for the next run.
    fn settle(&self) {
        let mut state = self.lock();
        let last = state.last;
        if let Some(reserved) = &mut state.numbers
            && let Err(error) = reserved.numbers.settle(last)
        {
            tracing::debug!(%error, "the next run's numbers begin further on");
        }
    }

    fn give(&self, mut state: MutexGuard<'_, State>, parts: Parts) -> u64 {
        let seq = state.next_number(&self.reserve);
        let line = Arc::new(self.envelope.line(parts, seq));
        for sink in &mut state.sinks {
            sink.take(&line);
        }
        state.keep(line, self.limits);
        let is_awaited = state.waiting > 0;
        drop(state);
        if is_awaited {
            self.news.notify_all();
        }
        self.bell.notify_waiters();
        seq
    }
}

/// What a thread that died has left behind is whole: every change is made before anything in it can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn next_number(&mut self, keeper: &Condvar) -> u64 {
        self.last += 1;
        if let Some(reserved) = &mut self.numbers
            && reserved.numbers.is_kept()
            && reserved.failed.is_none()
        {
            if reserved.numbers.reserved() < self.last {
                reserved.extend(self.last);
            }
            if reserved.numbers.is_low(self.last) {
                keeper.notify_one();
            }
        }
        self.last
    }

    fn keep(&mut self, line: Arc<Line>, limits: Limits) {
        self.bytes += line.weight();
        self.lines.push_back(line);
        while self.lines.len() > 1
            && (self.lines.len() > limits.events || self.bytes > limits.bytes)
        {
            if let Some(oldest) = self.lines.pop_front() {
                self.bytes -= oldest.weight();
                self.journalled_gone += u64::from(oldest.of.is_journalled());
            }
        }
    }
}

impl Reserved {
    fn extend(&mut self, last: u64) {
        match self.numbers.store().reserve_after(last) {
            Ok(until) => self.numbers.take_over(until),
            Err(error) => self.failed = Some(error.to_string()),
        }
    }
}
