//! The journal's thread: takes events from the queue, writes them, and flushes them soon.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::disk::Disk;
use super::queue::{JournalState, Queue};
use super::store::Store;
use super::unwritten::Unwritten;

/// An event waits at most so long to be safe. Incidents never wait, and others only where too many came before.
const FLUSH: Duration = Duration::from_millis(200);
/// So many flushes for others than incidents may come one right after the other, and one more in each [`FLUSH`].
const AT_ONCE: u32 = 32;
/// So many are made safe at once.
const FLUSH_EVENTS: u64 = 64;
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

/// Flushes that are left for others than incidents.
#[derive(Debug)]
struct Allowance {
    left: u32,
    /// When the latest of them came back.
    since: Instant,
}

impl Allowance {
    const fn new(now: Instant) -> Self {
        Self {
            left: AT_ONCE,
            since: now,
        }
    }

    /// Takes one; false where none is left.
    fn take(&mut self, now: Instant) -> bool {
        let back = now.saturating_duration_since(self.since).as_nanos() / FLUSH.as_nanos();
        let back = u32::try_from(back).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(back).min(AT_ONCE);
        self.since = if self.left == AT_ONCE {
            now
        } else {
            self.since + FLUSH * back
        };
        let is_left = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_left
    }
}

/// What of the events in hand matters for when they are flushed.
#[derive(Default)]
struct InHand {
    left_out: u64,
    is_urgent: bool,
    /// When the first of them was written.
    since: Option<Instant>,
}

impl<D: Disk> Writer<D> {
    /// Writes until the queue is closed and empty.
    pub(super) fn run(mut self) {
        let mut hand = InHand::default();
        let mut allowance = Allowance::new(Instant::now());
        let mut is_failing = false;
        loop {
            let wait = if is_failing {
                Duration::ZERO
            } else {
                hand.since
                    .map_or(UPKEEP, |since| FLUSH.saturating_sub(since.elapsed()))
            };
            let mut is_closed = false;
            // What failed is tried alone: more of it would only take more memory.
            if self.store.waiting_events() == 0 {
                is_closed = self.take(wait, &mut hand);
            }
            let outcome = self.write(&mut hand, &mut allowance);
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

    fn take(&mut self, wait: Duration, hand: &mut InHand) -> bool {
        let (lines, is_closed) = self.queue.take_in_hand(wait);
        let now = (self.clock)();
        for line in lines {
            hand.is_urgent |= line.of.is_incident();
            if !self.store.push(line.seq, &line.text, now) {
                hand.left_out += 1;
            }
        }
        is_closed
    }

    fn write(&mut self, hand: &mut InHand, allowance: &mut Allowance) -> io::Result<()> {
        let written = self.store.write((self.clock)());
        self.queue.lose(self.store.take_doubtful());
        written?;
        let left_out = std::mem::take(&mut hand.left_out);
        let lost = self.queue.written(self.store.size(), left_out);
        if lost > 0 {
            (self.on_loss)(lost, self.queue.status().lost);
            self.queue.told(lost);
        }
        let count = self.store.unsafe_events();
        if count == 0 {
            *hand = InHand::default();
            return Ok(());
        }
        let since = *hand.since.get_or_insert_with(Instant::now);
        let is_due = hand.is_urgent || count >= FLUSH_EVENTS || since.elapsed() >= FLUSH;
        if is_due || allowance.take(Instant::now()) {
            *hand = InHand::default();
            let outcome = self.store.sync();
            self.queue.lose(self.store.take_doubtful());
            outcome?;
        }
        Ok(())
    }

    /// Keeps how many events wait for the disk, for the run that comes after this one.
    fn keep(&mut self, is_failing: bool) {
        let status = self.queue.status();
        if is_failing {
            self.unwritten.wait(status.waiting as u64);
        } else if status.waiting == 0 && status.written > 0 {
            self.unwritten.settle();
        }
    }

    /// The run ends, and all that was told is written. What cannot be made safe, and what was lost so late that nobody could be
    /// told, is left to the next run.
    pub(super) fn finish(&mut self) {
        let outcome = self.store.sync();
        self.queue.lose(self.store.take_doubtful());
        let lost = self.queue.untold();
        if lost > 0 {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushes_for_others_than_incidents_are_bounded_in_rate() {
        let start = Instant::now();
        let mut allowance = Allowance::new(start);
        let mut taken = |millis: u64, times: u32| {
            let now = start + Duration::from_millis(millis);
            (0..times).filter(|_| allowance.take(now)).count()
        };
        assert_eq!(taken(0, 40), 32);
        assert_eq!(taken(199, 1), 0);
        assert_eq!(taken(200, 2), 1);
        assert_eq!(
            taken(399, 1),
            0,
            "it counts from when the last one came back"
        );
        assert_eq!(taken(1_000, 10), 4);
        assert_eq!(taken(3_600_000, 40), 32);
        assert_eq!(taken(3_600_100, 1), 0);
    }
}
