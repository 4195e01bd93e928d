//! One reader of the hub: its place, what it missed, and how it waits.

use std::pin::pin;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::{Line, Shared, State};

/// What a reader gets next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// An event.
    Line(Arc<Line>),
    /// Events that were no longer in memory when the reader came for them.
    Lost {
        /// The first number it missed.
        first: u64,
        /// The last one.
        last: u64,
        /// How many.
        count: u64,
    },
}

/// Reads events in the order of their numbers; each number comes once, as an event or inside a loss. A clone reads on from the same
/// place by itself.
#[derive(Clone)]
pub struct Reader {
    shared: Arc<Shared>,
    /// The last number that it has had.
    after: u64,
}

impl Reader {
    pub(super) const fn new(shared: Arc<Shared>, after: u64) -> Self {
        Self { shared, after }
    }

    /// What comes next, if it is there already.
    #[expect(
        clippy::should_implement_trait,
        reason = "nothing now is not the end, which an iterator would make of it"
    )]
    pub fn next(&mut self) -> Option<Next> {
        let shared = Arc::clone(&self.shared);
        self.step(&shared.lock())
    }

    /// Appends up to `events` of what comes next, and stops once their texts have `bytes` bytes or more, and behind a loss: who
    /// knows another way to what was lost goes there first. Returns how many it has appended. The hub is locked once for all.
    pub fn take(&mut self, (events, bytes): (usize, usize), into: &mut Vec<Next>) -> usize {
        let shared = Arc::clone(&self.shared);
        let state = shared.lock();
        let (mut taken, mut sum) = (0, 0);
        while taken < events
            && sum < bytes
            && let Some(next) = self.step(&state)
        {
            sum = match &next {
                Next::Line(line) => sum + line.text.len(),
                Next::Lost { .. } => usize::MAX,
            };
            into.push(next);
            taken += 1;
        }
        taken
    }

    fn step(&mut self, state: &State) -> Option<Next> {
        let oldest = state.lines.front()?.seq;
        let wanted = self.after + 1;
        if wanted < oldest {
            self.after = oldest - 1;
            return Some(Next::Lost {
                first: wanted,
                last: self.after,
                count: oldest - wanted,
            });
        }
        let place = usize::try_from(wanted - oldest).ok()?;
        let line = state.lines.get(place)?;
        self.after = wanted;
        Some(Next::Line(Arc::clone(line)))
    }

    /// The last number that it has had, as an event or inside a loss.
    pub const fn after(&self) -> u64 {
        self.after
    }

    /// The last number that was told.
    pub fn told(&self) -> u64 {
        self.shared.lock().last
    }

    /// Whether the hub is closed. What is still there can be read all the same.
    pub fn is_closed(&self) -> bool {
        self.shared.lock().is_closed
    }

    fn has_news(&self, state: &State) -> bool {
        state.is_closed || state.last > self.after
    }

    /// Waits until there is something to read, the hub is closed or `timeout` is over; blocks the thread. Says whether it
    /// was one of the first two.
    pub fn wait(&self, timeout: Duration) -> bool {
        let end = Instant::now().checked_add(timeout);
        let mut state = self.shared.lock();
        while !self.has_news(&state) {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let left = left.unwrap_or(Duration::MAX);
            if left.is_zero() {
                return false;
            }
            state.waiting += 1;
            let woken = self.shared.news.wait_timeout(state, left);
            (state, _) = woken.unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        true
    }

    /// The same for a task, without an end.
    pub async fn changed(&mut self) {
        loop {
            let mut rung = pin!(self.shared.bell.notified());
            // In the queue before the look: what is told after it rings.
            rung.as_mut().enable();
            if self.has_news(&self.shared.lock()) {
                return;
            }
            rung.await;
        }
    }
}
