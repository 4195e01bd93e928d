//! How far a way out has come, as its thread leaves word of it: a thread that hangs cannot be asked.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::OutletStatus;
use crate::hub::Reader;

/// Whoever has not come back with what it was given for so long counts as one that fails.
pub(super) const HUNG: Duration = Duration::from_secs(5);

/// How far it has come.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) status: OutletStatus,
    /// When it was given what it has not come back with yet.
    pub(super) since: Option<Instant>,
    /// The last number that was read.
    pub(super) read: u64,
    /// How many events were read and are not done with, and the number of the first of them.
    pub(super) held: Option<(u64, u64)>,
}

/// What has not been handed out at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left {
    /// Events.
    pub(super) count: u64,
    /// The number of the first of them.
    pub(super) first: u64,
    /// The number of the last.
    pub(super) last: u64,
    /// Whether it has not come back, so that some of what it was given may be out.
    pub(super) is_hung: bool,
}

impl Progress {
    pub(super) fn of(reader: &Reader) -> Self {
        Self {
            status: OutletStatus::default(),
            since: None,
            read: reader.after(),
            held: None,
        }
    }

    /// How it stands; one that hangs has had no occasion to say so itself.
    pub(super) fn status_at(&self, now: Instant) -> OutletStatus {
        let mut status = self.status.clone();
        if let Some(since) = self.since {
            let span = now.saturating_duration_since(since);
            if span >= HUNG && status.failed.is_none() {
                status.failed = Some(format!("has taken nothing for {} s", span.as_secs()));
            }
        }
        status
    }

    /// What is left of all up to the number `last`. What was not read counts whatever kind it is of.
    pub(super) fn left(&self, last: u64, is_hung: bool) -> Option<Left> {
        let (held, first) = self.held.unwrap_or((0, self.read + 1));
        let count = held + last.saturating_sub(self.read);
        (count > 0).then_some(Left {
            count,
            first,
            last,
            is_hung,
        })
    }
}

/// What a thread that died has left behind is whole: nothing panics within a change.
pub(super) fn lock(progress: &Mutex<Progress>) -> MutexGuard<'_, Progress> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}
