//! A cgroup that is recorded: its files, the last reading, and its way to its limit.

use std::sync::{Arc, Mutex};

use super::approach::{Approach, Forecast};
use super::book::{Book, Into, lock};
use super::group::GroupReader;
use super::point::{Reading, Stamp};

/// A limit that will soon be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The cgroup whose limit it is.
    pub cgroup: Arc<str>,
    /// What it uses, in bytes.
    pub usage: u64,
    /// Its limit, in bytes.
    pub limit: u64,
    /// When it is reached.
    pub forecast: Forecast,
}

/// One that is, or lately was, recorded.
pub(super) struct Group {
    pub(super) path: Arc<str>,
    /// Its files; none once it is gone: held open, they would keep what the kernel has of it.
    pub(super) reader: Option<GroupReader>,
    pub(super) limit: Option<u64>,
    pub(super) approach: Approach,
    pub(super) latest: Reading,
    pub(super) lane: Option<usize>,
    pub(super) gone: Option<Stamp>,
    /// Its usage came from the kernel's program the last time.
    pub(super) is_surveyed: bool,
}

/// A point between two rounds.
const NEAR_ALONE: Into = Into {
    near: true,
    all: false,
};

/// Whether so much of a limit is no cause to look closely: less than three quarters.
pub(super) fn is_calm(usage: u64, limit: Option<u64>) -> bool {
    limit.is_none_or(|limit| usage < limit - limit / 4)
}

impl Group {
    /// It is gone: what is known of it stays for a while, and its files are closed.
    pub(super) fn leave(&mut self, at: Stamp) {
        self.gone = Some(at);
        self.reader = None;
        self.is_surveyed = false;
    }

    /// Keeps what the kernel's timer left of it: all but the last, which comes with a look at the rest, and is returned. Nothing but
    /// usage is known of those, so nothing is foretold from them: it may be page cache that they grew by.
    pub(super) fn trace(
        &self,
        slot: usize,
        traces: impl Iterator<Item = (Stamp, Option<u64>)>,
        book: &Mutex<Book>,
    ) -> Option<(Stamp, Option<u64>)> {
        let mut latest = None;
        for trace in traces {
            if let Some((at, Some(usage))) = latest.replace(trace)
                && let Some(reading) = self
                    .reader
                    .as_ref()
                    .and_then(|reader| reader.assumed(usage))
            {
                lock(book).note(slot, at, &reading, NEAR_ALONE);
            }
        }
        latest
    }

    /// Takes a reading, and warns if the limit is near.
    pub(super) fn note(
        &mut self,
        slot: usize,
        (at, reading): (Stamp, Reading),
        into: Into,
        book: &Mutex<Book>,
        warn: &mut impl FnMut(Warning),
    ) {
        self.latest = reading;
        lock(book).note(slot, at, &reading, into);
        if let Some(warning) = self.look_ahead(at) {
            warn(warning);
        }
    }

    /// A warning, if the limit is near. The limit is read again first: it may just have been raised.
    fn look_ahead(&mut self, at: Stamp) -> Option<Warning> {
        let forecast = self.approach.note(at, self.latest.held, self.limit)?;
        let limit = self.reader.as_ref()?.limit()?;
        if self.limit.replace(limit) != Some(limit) {
            self.approach = Approach::default();
            return None;
        }
        Some(Warning {
            cgroup: Arc::clone(&self.path),
            usage: self.latest.usage,
            limit,
            forecast,
        })
    }
}
