//! The other ways out: a rotated file, standard output, journald, and OTLP. Each is a thread with a reader of its own.
//!
//! A way out that fails is tried again, and nothing is kept for it meanwhile but what the hub keeps for everybody: what it then
//! misses, its reader is told by exact numbers, and so is everybody else. What it has not handed out at the end is told in the log.

#[cfg(test)]
mod ending_tests;
pub mod file;
pub mod journald;
mod losses;
#[cfg(any(test, feature = "otlp"))]
pub mod otlp;
mod progress;
#[cfg(test)]
pub(crate) mod samples;
pub mod stdout;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tracing::{info, warn};

use self::losses::Losses;
use self::progress::{Left, Progress, lock};
use crate::cloud_event;
use crate::hub::{Line, Next, Reader};
use crate::model::kind::Kind;

/// Events that are handed over at once.
const AT_ONCE: (usize, usize) = (256, 1 << 20);
/// How long the thread waits for an event before it looks whether it should end.
const LOOK: Duration = Duration::from_secs(1);
/// What is over is given so long to hand out what there is; a pipe that nobody reads would hold it for ever.
const LAST: Duration = Duration::from_secs(2);
const STACK: usize = 128 << 10;

/// How events are written, where a way out has the choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// As they are.
    #[default]
    Json,
    /// In the envelope of `CloudEvents` 1.0.
    CloudEvents,
}

impl Format {
    /// One line, with its newline.
    pub fn write(self, line: &Line, out: &mut Vec<u8>) {
        match self {
            Self::Json => out.extend_from_slice(&line.text),
            Self::CloudEvents => out.append(&mut cloud_event::envelope(line)),
        }
    }
}

/// Where events go.
pub trait Outlet: Send {
    /// Its name, for messages and losses: `file`, `stdout`, `journald`, `otlp`.
    fn name(&self) -> &'static str;

    /// Hands out events, in their order. May block, for seconds at most where it can help it.
    ///
    /// # Errors
    /// When not all of them could be handed out.
    fn put(&mut self, lines: &[Arc<Line>]) -> Result<(), Failure>;
}

/// Why not all were handed out.
#[derive(Debug)]
pub struct Failure {
    /// How many from the front are done with.
    pub done: usize,
    /// How many of those were refused, and are lost.
    pub lost: u64,
    /// Why, in words.
    pub why: String,
    /// When to try the others again.
    pub again: Duration,
}

impl Failure {
    /// After an error of the system: everything behind the first `done` is tried again in a second.
    pub fn io(done: usize, error: &io::Error) -> Self {
        Self {
            done,
            lost: 0,
            why: error.to_string(),
            again: Duration::from_secs(1),
        }
    }
}

/// How a way out stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutletStatus {
    /// Why it fails; none while it works.
    pub failed: Option<String>,
    /// Events that it has handed out.
    pub sent: u64,
    /// Events that it has missed or that were refused.
    pub lost: u64,
}

/// Told of what a way out has lost, by its thread.
pub type OnLoss = Box<dyn Fn(Lost) + Send>;

/// A way out that runs. It ends with it: what is left is handed out first, if that is possible soon, and told in the log if not.
pub struct Running {
    name: &'static str,
    progress: Arc<Mutex<Progress>>,
    /// Reads nothing: it knows what was told last.
    hub: Reader,
    /// Dropped to end it.
    end: Option<Sender<()>>,
    ended: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Starts a thread that hands out what a reader gets; kinds alone that `is_wanted` names.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(
        outlet: Box<dyn Outlet>,
        reader: Reader,
        is_wanted: fn(Kind) -> bool,
        on_loss: OnLoss,
    ) -> io::Result<Self> {
        let hub = reader.clone();
        let progress = Arc::new(Mutex::new(Progress::of(&reader)));
        let (end, over) = channel();
        let (over_now, ended) = channel();
        let name = outlet.name();
        let work = Work {
            outlet,
            reader,
            is_wanted,
            losses: Losses::new(name, on_loss),
            progress: Arc::clone(&progress),
            over,
            batch: VecDeque::new(),
        };
        let thread = std::thread::Builder::new()
            .name(format!("brink-{name}"))
            .stack_size(STACK)
            .spawn(move || {
                work.run();
                drop(over_now);
            })?;
        Ok(Self {
            name,
            progress,
            hub,
            end: Some(end),
            ended,
            thread: Some(thread),
        })
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// How it stands.
    pub fn status(&self) -> OutletStatus {
        self.status_at(Instant::now())
    }

    fn status_at(&self, now: Instant) -> OutletStatus {
        lock(&self.progress).status_at(now)
    }

    /// Ends it within that time if it can be had; what it has not handed out.
    fn end_within(&mut self, span: Duration) -> Option<Left> {
        drop(self.end.take());
        let is_over = self.ended.recv_timeout(span) == Err(RecvTimeoutError::Disconnected);
        if is_over && let Some(thread) = self.thread.take() {
            // A panic of it was printed.
            let _ = thread.join();
        }
        let last = self.hub.told();
        lock(&self.progress).left(last, !is_over)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(left) = self.end_within(LAST) else {
            return;
        };
        let (outlet, count) = (self.name, left.count);
        let (first, last) = (left.first, left.last);
        if left.is_hung {
            warn!(
                outlet,
                count,
                first,
                last,
                "the end is not waited for: of these events none was handed out, or only the first ones"
            );
        } else {
            warn!(
                outlet,
                count, first, last, "these events were not handed out before the end"
            );
        }
    }
}

struct Work {
    outlet: Box<dyn Outlet>,
    reader: Reader,
    is_wanted: fn(Kind) -> bool,
    losses: Losses,
    progress: Arc<Mutex<Progress>>,
    over: Receiver<()>,
    batch: VecDeque<Arc<Line>>,
}

impl Work {
    fn run(mut self) {
        self.work();
        self.losses.tell_rest();
    }

    fn work(&mut self) {
        loop {
            self.losses.tell(Instant::now());
            if self.batch.is_empty() && self.reader.wait(LOOK) {
                self.gather();
            }
            match self.hand_out() {
                Some(again) if self.is_over_within(again) => return,
                Some(_) => {}
                None if !self.batch.is_empty() || self.gather() > 0 => {}
                None => {
                    // Of a hub that is closed nothing is waited for, but something may be told until this is over.
                    let is_closed = self.reader.is_closed();
                    let span = if is_closed { LOOK } else { Duration::ZERO };
                    if self.is_over_within(span) && self.gather() == 0 {
                        return;
                    }
                }
            }
        }
    }

    /// Whether it should end by then.
    fn is_over_within(&self, span: Duration) -> bool {
        self.over.recv_timeout(span) == Err(RecvTimeoutError::Disconnected)
    }

    /// Takes the events there are. Returns how many came, losses included.
    fn gather(&mut self) -> usize {
        let mut new = Vec::new();
        let count = self.reader.take(AT_ONCE, &mut new);
        for next in new {
            match next {
                Next::Line(line) if (self.is_wanted)(line.of) => self.batch.push_back(line),
                Next::Line(_) => {}
                Next::Lost { first, last, count } => self.lose(count, Some((first, last))),
            }
        }
        count
    }

    /// Hands out what there is; when to try again, if not all of it went.
    fn hand_out(&mut self) -> Option<Duration> {
        if self.batch.is_empty() {
            self.note(None);
            return None;
        }
        self.note(Some(Instant::now()));
        let lines = self.batch.make_contiguous();
        let count = lines.len();
        match self.outlet.put(lines) {
            Ok(()) => {
                self.batch.clear();
                self.note(None);
                self.show(count as u64, None);
                self.losses.settle();
                None
            }
            Err(failure) => {
                let done = failure.done.min(count);
                self.batch.drain(..done);
                self.note(None);
                let sent = (done as u64).saturating_sub(failure.lost);
                self.show(sent, Some(failure.why));
                if sent > 0 {
                    self.losses.settle();
                }
                if failure.lost > 0 {
                    self.lose(failure.lost, None);
                }
                // Whoever has taken anything is asked for more at once.
                (sent == 0).then_some(failure.again)
            }
        }
    }

    /// Leaves word of what was read and is not done with, and since when the way out has it in hand.
    fn note(&self, since: Option<Instant>) {
        let first = self.batch.front().map(|line| line.seq);
        let mut progress = lock(&self.progress);
        progress.since = since;
        progress.read = self.reader.after();
        progress.held = first.map(|first| (self.batch.len() as u64, first));
    }

    fn show(&self, sent: u64, failed: Option<String>) {
        let mut progress = lock(&self.progress);
        progress.status.sent += sent;
        let before = std::mem::replace(&mut progress.status.failed, failed);
        let now = progress.status.failed.clone();
        drop(progress);
        let outlet = self.outlet.name();
        match (before, now) {
            (None, Some(why)) => {
                warn!(
                    outlet,
                    why, "events cannot be handed out; it is tried again"
                );
            }
            (Some(_), None) => info!(outlet, "events are handed out again"),
            (None, None) | (Some(_), Some(_)) => {}
        }
    }

    fn lose(&mut self, count: u64, numbers: Option<(u64, u64)>) {
        lock(&self.progress).status.lost = self.losses.add(count, numbers);
        self.losses.tell(Instant::now());
    }
}

/// What a way out has lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Its name.
    pub place: &'static str,
    /// Events, this time.
    pub count: u64,
    /// Events in this run.
    pub total: u64,
    /// The first and the last of them, where they left the hub's memory before it could hand them out.
    pub numbers: Option<(u64, u64)>,
}
