//! What is older than the hub's memory: the journal, as those who resume see it.

use std::fmt;
use std::sync::Arc;

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
    /// Whether events between the position and the first line were removed, to keep within size and age, or the position's
    /// boot is not known any more. How many cannot be told.
    pub is_cut: bool,
}

/// Events of kinds that are journalled, of this boot and of earlier ones: all that were told before the call, whether or not
/// they are on a disk by then.
pub trait Past: Send + Sync {
    /// At most `limit` events after a position, or the oldest there are. May block: it is called where that harms nobody.
    ///
    /// # Errors
    /// When they cannot be read.
    fn after(&self, position: Option<&Position>, limit: usize) -> Result<Page, PastError>;

    /// A position before which everything was told earlier than that moment, in microseconds since 1970; none to begin with the
    /// oldest.
    ///
    /// # Errors
    /// When it cannot be read.
    fn before(&self, _wall_us: i64) -> Result<Option<Position>, PastError> {
        Ok(None)
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
