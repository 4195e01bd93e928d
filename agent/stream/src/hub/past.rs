//! What is older than the hub's memory: the journal, as those who resume see it.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use super::Line;

/// A place in the order of a node's events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The boot that the number belongs to.
    pub boot: Arc<str>,
    /// The number of the last event before it.
    pub seq: u64,
}

/// Some events, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// At most as many as were asked for; empty when there are no more.
    pub lines: Vec<Arc<Line>>,
    /// Whether events between the position and the last line were removed, to keep within size and age, or cannot be read, or the
    /// position's boot is not known any more. How many cannot be told.
    pub is_cut: bool,
}

/// Who goes back through the past, part by part.
pub trait Look {
    /// An event. Those of one part come oldest first.
    fn see(&mut self, line: &Arc<Line>);

    /// Events may be missing here: behind those of this part that were seen so far, and before the next. They cannot be read, or
    /// somebody has removed them. A part may be nothing but this.
    fn misses(&mut self) {}

    /// A part is over: whether the one before it is wanted too.
    fn goes_on(&mut self) -> bool;
}

/// Events of kinds that are journalled, of this boot and of earlier ones: all that were told before the call, whether or not
/// they are on a disk by then.
pub trait Past: Send + Sync {
    /// At most `limit` events after a position, or the oldest there are. May block: it is called where that harms nobody.
    ///
    /// # Errors
    /// When they cannot be read.
    fn after(&self, position: Option<&Position>, limit: usize) -> Result<Page, PastError>;

    /// Shows the newest part, then the one before it, and so on, as long as more is wanted. A part is of one boot; an event may be
    /// shown in two parts. May block, as the other.
    ///
    /// # Errors
    /// When they cannot be read.
    fn back(&self, look: &mut dyn Look) -> Result<(), PastError>;

    /// A position before which everything was told earlier than that moment, in microseconds since 1970; none to begin with the
    /// oldest.
    ///
    /// # Errors
    /// When it cannot be read.
    fn before(&self, _wall_us: i64) -> Result<Option<Position>, PastError> {
        Ok(None)
    }
}

/// A past that is opened while others run already.
#[derive(Default)]
pub struct LatePast {
    past: OnceLock<Arc<dyn Past>>,
    is_settled: AtomicBool,
    bell: Notify,
}

impl LatePast {
    /// There is none, and there will be none.
    pub fn none() -> Self {
        let none = Self::default();
        none.settle();
        none
    }

    /// This is it, from now on.
    pub fn open(&self, past: Arc<dyn Past>) {
        let _only_one = self.past.set(past);
        self.settle();
    }

    /// There is none for now: nobody needs to wait any longer.
    pub fn settle(&self) {
        self.is_settled.store(true, Ordering::Release);
        self.bell.notify_waiters();
    }

    /// It is looked for once more: until that has an end, who asks waits again.
    pub fn unsettle(&self) {
        self.is_settled
            .store(self.past.get().is_some(), Ordering::Release);
    }

    /// The past, if there is one. Who asks before that is known waits, at most so long.
    pub async fn get(&self, at_most: Duration) -> Option<Arc<dyn Past>> {
        let mut rung = pin!(self.bell.notified());
        // In the queue before the look: who settles it after that rings.
        rung.as_mut().enable();
        if !self.is_settled.load(Ordering::Acquire) {
            let _too_long = timeout(at_most, rung).await;
        }
        self.past.get().cloned()
    }
}

/// Why the past cannot be read, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastError(pub String);

impl fmt::Display for PastError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PastError {}
