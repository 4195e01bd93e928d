//! What waits between the hub and the journal's thread: bounded, counted, and readable.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::hub::{Line, Sink};

/// Events that may wait.
const MOST_LINES: usize = 4096;
/// Bytes of their texts. Most of them are in the hub's memory as well.
const MOST_BYTES: usize = 8 << 20;
/// Bytes that are written at once, or one event.
const AT_ONCE: usize = 256 << 10;
/// A disk that has not answered for so long counts as one that fails.
pub(super) const HUNG: Duration = Duration::from_secs(5);

/// How the journal stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum JournalState {
    /// It is written.
    #[default]
    Writing,
    /// The disk is full, in the system's words. It is tried again every second; meanwhile events wait in memory.
    Full(String),
    /// It cannot be written for another reason, in the system's words, and the same is done; or its disk does not answer, and is waited
    /// for.
    Failed(String),
    /// It is not open yet, for this reason. It is tried again every second; meanwhile events wait in the hub's memory.
    Unopened(String),
}

impl JournalState {
    pub(super) fn of(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::Full(error.to_string())
            }
            _ => Self::Failed(error.to_string()),
        }
    }
}

/// How the journal stands, with its figures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalStatus {
    /// Whether it is written.
    pub state: JournalState,
    /// Bytes of its files.
    pub size: u64,
    /// Events written by this run.
    pub written: u64,
    /// Events that wait.
    pub waiting: usize,
    /// Events of this run that are not in it, and never will be.
    pub lost: u64,
}

/// The queue; shared by whoever has to do with it.
#[derive(Debug, Default)]
pub(super) struct Queue {
    inside: Mutex<Inside>,
    /// For the journal's thread.
    news: Condvar,
}

#[derive(Debug, Default)]
struct Inside {
    /// Those that are being written are still in front.
    lines: VecDeque<Arc<Line>>,
    bytes: usize,
    /// Lines in front that the thread has, and has not written yet.
    in_hand: usize,
    /// Lost since it was told last.
    untold: u64,
    is_awaited: bool,
    is_closed: bool,
    /// When the thread asked the disk for what it has no answer to yet.
    since: Option<Instant>,
    /// Whether something came since `written` that it took no more.
    has_refused: bool,
    status: JournalStatus,
}

/// The journal's place at the hub.
#[derive(Debug)]
pub(super) struct JournalSink(pub(super) Arc<Queue>);

impl Sink for JournalSink {
    fn take(&mut self, line: &Arc<Line>) {
        if line.of.is_journalled() {
            self.0.put(line);
        }
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        // Whoever panicked with it in hand left figures at worst a little behind.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, line: &Arc<Line>) {
        let mut inside = self.lock();
        let bytes = inside.bytes + line.text.len();
        if inside.lines.len() >= MOST_LINES || bytes > MOST_BYTES || inside.is_closed {
            inside.has_refused |= inside.is_closed;
            inside.lose(1);
            return;
        }
        inside.bytes = bytes;
        inside.lines.push_back(Arc::clone(line));
        if inside.is_awaited {
            inside.is_awaited = false;
            self.news.notify_one();
        }
    }

    /// Takes some more in hand; waits for them, at most so long. `true` as the second: there will be no more.
    pub(super) fn take_in_hand(&self, at_most: Duration) -> (Vec<Arc<Line>>, bool) {
        let mut inside = self.lock();
        if inside.lines.len() == inside.in_hand && !inside.is_closed {
            inside.is_awaited = true;
            let woken = self.news.wait_timeout(inside, at_most);
            inside = woken.unwrap_or_else(PoisonError::into_inner).0;
            inside.is_awaited = false;
        }
        let mut taken = Vec::new();
        let mut bytes = 0;
        for line in inside.lines.iter().skip(inside.in_hand) {
            bytes += line.text.len();
            if bytes > AT_ONCE && !taken.is_empty() {
                break;
            }
            taken.push(Arc::clone(line));
        }
        inside.in_hand += taken.len();
        (taken, inside.is_closed)
    }

    /// What is in hand is in the files. Returns what was lost since it was told last; nothing once it is closed: that it is told
    /// could not be written any more.
    pub(super) fn written(&self, size: u64, left_out: u64) -> u64 {
        let mut inside = self.lock();
        let count = std::mem::take(&mut inside.in_hand);
        let gone: usize = inside
            .lines
            .drain(..count)
            .map(|line| line.text.len())
            .sum();
        inside.bytes -= gone;
        inside.status.size = size;
        inside.status.written += (count as u64).saturating_sub(left_out);
        inside.lose(left_out);
        if inside.is_closed {
            return 0;
        }
        inside.has_refused = false;
        std::mem::take(&mut inside.untold)
    }

    /// So much was told as lost. Where it was closed before it took that, nobody has heard of it; where anything at all was refused since,
    /// it counts as that: told twice is better than never.
    pub(super) fn told(&self, lost: u64) {
        let mut inside = self.lock();
        if inside.has_refused {
            inside.untold += lost;
        }
    }

    /// What was lost and is not told.
    pub(super) fn untold(&self) -> u64 {
        self.lock().untold
    }

    /// Events were lost although they were written, or could not be.
    pub(super) fn lose(&self, count: u64) {
        self.lock().lose(count);
    }

    /// Everything that waits is lost; returns how much that is, with what was lost and never told.
    pub(super) fn lose_all(&self) -> u64 {
        let mut inside = self.lock();
        let count = inside.lines.len() as u64;
        inside.lines.clear();
        inside.bytes = 0;
        inside.in_hand = 0;
        inside.lose(count);
        inside.untold
    }

    /// Sets the state; returns the one before.
    pub(super) fn set(&self, state: JournalState) -> JournalState {
        std::mem::replace(&mut self.lock().status.state, state)
    }

    /// How it stood when the thread last said so.
    pub(super) fn status(&self) -> JournalStatus {
        self.lock().status()
    }

    /// How it stands; a disk that hangs has given the thread no occasion to say so.
    pub(super) fn status_at(&self, now: Instant) -> JournalStatus {
        let inside = self.lock();
        let mut status = inside.status();
        let span = inside.unanswered_at(now);
        if span >= HUNG && status.state == JournalState::Writing {
            status.state = JournalState::Failed(format!("no answer for {} s", span.as_secs()));
        }
        status
    }

    /// The thread asks the disk for something.
    pub(super) fn asks(&self, now: Instant) {
        self.lock().since = Some(now);
    }

    /// The disk has answered. Returns after how long, if it counted as one that fails by then.
    pub(super) fn answered(&self, now: Instant) -> Option<Duration> {
        let mut inside = self.lock();
        let span = inside.unanswered_at(now);
        inside.since = None;
        (span >= HUNG).then_some(span)
    }

    /// What waits, oldest first.
    pub(super) fn waiting(&self) -> Vec<Arc<Line>> {
        self.lock().lines.iter().map(Arc::clone).collect()
    }

    /// Waits so long. `false` when it was closed before that.
    pub(super) fn stays_open(&self, span: Duration) -> bool {
        let inside = self.lock();
        let woken = self
            .news
            .wait_timeout_while(inside, span, |inside| !inside.is_closed);
        !woken.unwrap_or_else(PoisonError::into_inner).0.is_closed
    }

    /// Takes no more, and has the thread end when all is written.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.news.notify_one();
    }
}

impl Inside {
    fn status(&self) -> JournalStatus {
        JournalStatus {
            waiting: self.lines.len(),
            ..self.status.clone()
        }
    }

    /// For how long the disk has not answered.
    fn unanswered_at(&self, now: Instant) -> Duration {
        let span = |since| now.saturating_duration_since(since);
        self.since.map_or(Duration::ZERO, span)
    }

    fn lose(&mut self, count: u64) {
        self.untold += count;
        self.status.lost += count;
    }
}
