//! The journal's thread: takes events from the queue, writes them, and flushes them at once.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::disk::Disk;
use super::queue::{JournalState, Queue};
use super::store::Store;
use super::unwritten::Unwritten;

/// What cannot be written is tried again after so long.
const RETRY: Duration = Duration::from_secs(1);
/// What is too old is looked for so often.
const UPKEEP: Duration = Duration::from_mins(1);

/// Told that so many events are not in the journal: this time, and in all.
pub type OnLoss = Box<dyn Fn(u64, u64) + Send>;
/// The wall clock: microseconds since 1970.
pub type WallClock = fn() -> i64;

/// What the thread works with.
pub(super) struct Writer<D: Disk> {
    pub(super) store: Store<D>,
    pub(super) unwritten: Unwritten<D::File>,
    pub(super) queue: Arc<Queue>,
    pub(super) clock: WallClock,
    pub(super) on_loss: OnLoss,
}

impl<D: Disk> Writer<D> {
    /// Writes until the queue is closed and empty.
    pub(super) fn run(mut self) {
        let mut left_out = 0;
        let mut is_failing = false;
        loop {
            let wait = if is_failing { Duration::ZERO } else { UPKEEP };
            let mut is_closed = false;
            // What failed is tried alone: more of it would only take more memory.
            if self.store.waiting_events() == 0 {
                is_closed = self.take(wait, &mut left_out);
            }
            if is_closed {
                self.leave_word();
            }
            let outcome = self.write(&mut left_out);
            is_failing = outcome.is_err();
            self.show(outcome);
            self.keep(is_failing);
            if is_failing && !self.queue.stays_open(RETRY) {
                self.give_up();
                return;
            }
            if is_closed && self.queue.status().waiting == 0 {
                self.finish();
                return;
            }
        }
    }

    fn take(&mut self, wait: Duration, left_out: &mut u64) -> bool {
        let (lines, is_closed) = self.queue.take_in_hand(wait);
        let now = (self.clock)();
        for line in lines {
            let is_taken = self.store.push(line.seq, &line.text, now);
            *left_out += u64::from(!is_taken);
        }
        is_closed
    }

    /// Asks the disk for something. It may not answer, and whoever looks meanwhile sees for how long.
    fn ask<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> T {
        self.queue.asks(Instant::now());
        let answer = act(self);
        if let Some(span) = self.queue.answered(Instant::now()) {
            tracing::warn!(
                seconds = span.as_secs(),
                "the event journal's disk had not answered for so long: events waited in memory, and were dropped and counted when it was full"
            );
        }
        answer
    }

    /// Writes what is in hand, and waits until it is safe; what comes meanwhile is written and flushed together after that.
    fn write(&mut self, left_out: &mut u64) -> io::Result<()> {
        let now = (self.clock)();
        let written = self.ask(|this| this.store.write(now));
        self.queue.lose(self.store.take_doubtful());
        written?;
        let left_out = std::mem::take(left_out);
        let lost = self.queue.written(self.store.size(), left_out);
        if lost > 0 {
            (self.on_loss)(lost, self.queue.status().lost);
            self.queue.told(lost);
        }
        if self.store.unsafe_events() == 0 {
            return Ok(());
        }
        self.sync()
    }

    fn sync(&mut self) -> io::Result<()> {
        let outcome = self.ask(|this| this.store.sync());
        self.queue.lose(self.store.take_doubtful());
        outcome
    }

    /// The run ends, and nobody waits for its disk for ever: of what is not written by the time the process is gone, the next run tells.
    fn leave_word(&mut self) {
        let waiting = self.queue.status().waiting as u64;
        if waiting > 0 {
            self.ask(|this| this.unwritten.wait(waiting));
        }
    }

    /// Keeps how many events wait for the disk, for the run that comes after this one.
    fn keep(&mut self, is_failing: bool) {
        let status = self.queue.status();
        self.ask(|this| {
            this.unwritten.follow(this.store.disk());
            if is_failing {
                this.unwritten.wait(status.waiting as u64);
            } else if status.waiting == 0 && status.written > 0 {
                this.unwritten.settle();
            }
        });
    }

    /// The run ends, and all that was told is written. What cannot be made safe, and what was lost so late that nobody could be
    /// told, is left to the next run.
    pub(super) fn finish(&mut self) {
        let outcome = self.sync();
        let lost = self.queue.untold();
        if lost > 0 {
            self.unwritten.follow(self.store.disk());
            self.unwritten.wait(lost);
            tracing::error!(
                lost,
                "events are not in the event journal, or may not be safe there; the next run tells of them"
            );
        }
        self.show(outcome);
    }

    /// The run ends, and the disk takes nothing.
    fn give_up(&mut self) {
        let lost = self.queue.lose_all();
        self.unwritten.wait(lost);
        tracing::error!(
            lost,
            "events were never written to the event journal: its disk took none until the end; the next run tells of them"
        );
    }

    /// Shows a change of state to whoever asks, and in the log.
    fn show(&self, outcome: io::Result<()>) {
        let state =
            outcome.map_or_else(|error| JournalState::of(&error), |()| JournalState::Writing);
        let before = self.queue.set(state.clone());
        if before == state {
            return;
        }
        match state {
            JournalState::Writing => tracing::info!("the event journal is written again"),
            JournalState::Full(error)
            | JournalState::Failed(error)
            | JournalState::Unopened(error) => tracing::warn!(
                error,
                "the event journal cannot be written: events wait in memory, and are dropped and counted when it is full"
            ),
        }
    }
}
