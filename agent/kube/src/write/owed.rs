//! One entry that is owed: what of it comes next, when, and when it is over.

use std::time::Duration;

use brink_core::base::{Moment, Span};

use super::answer::{Act, Scope};
use super::plan::{Seen, Told};
use crate::outbox::{End, Entry, Part};
use crate::retry::Backoff;

/// What is owed for longer is not told any more: the server keeps an event for an hour, and a pod is long gone.
pub(super) const LONGEST: Span = Span::from_secs(24 * 3600);
/// A kubelet that had not seen the status may write its own over it: it is looked at for so long after it was written last,
/// three times the time from one look of the kubelet at a pod to the next.
pub(super) const SETTLING: Span = Span::from_secs(30);
/// The same where nothing is seen of the pod.
pub(super) const SETTLING_UNSEEN: Span = Span::from_secs(300);
/// How often a status is written again over another's word.
pub(super) const REPEATS: u32 = 50;
/// How often where only the reason is gone: a kubelet of 1.20 takes it away each time it looks, and the phase stays.
pub(super) const REASONS: u32 = 3;
/// The first wait before that, in nanoseconds: a watch may tell of what was before our own word.
const REPEAT: i64 = 5_000_000;
/// How often the server may refuse to write the status of the very pod that is meant.
pub(super) const REFUSALS: u32 = 5;

/// An entry, and how it stands.
#[derive(Debug)]
pub(super) struct Owed {
    pub(super) entry: Entry,
    /// Its status not before then.
    status_due: Moment,
    /// Its event not before then.
    event_due: Moment,
    /// Since when it is owed.
    since: Moment,
    backoff: Backoff,
    /// Why the pod is to be looked at first; none where it is not.
    doubt: Option<String>,
    refusals: u32,
    /// When its status was written last, and as which version.
    written: Option<(Moment, Option<u64>)>,
    repeats: u32,
    reasons: u32,
    /// How often nobody could be heard while it was told.
    misses: u32,
    /// How often the account was refused while it was told.
    refused: u32,
    /// Of what a right is missing, where that is what was told last of why it waits.
    pub(super) refusal_told: Option<Scope>,
}

impl Owed {
    pub(super) fn new(entry: Entry, now: Moment) -> Self {
        // Of one that was written in the last run it is not known when.
        let written = entry.is_status_written().then_some((now, None));
        Self {
            backoff: Backoff::new(&entry.key.text(), 0),
            entry,
            status_due: now,
            event_due: now,
            since: now,
            doubt: None,
            refusals: 0,
            written,
            repeats: 0,
            reasons: 0,
            misses: 0,
            refused: 0,
            refusal_told: None,
        }
    }

    /// What is told of it when it was like `before`.
    pub(super) fn told(&self, before: &Entry, waits: Option<String>) -> Told {
        Told {
            is_changed: self.entry != *before,
            is_over: false,
            entry: self.entry.clone(),
            waits,
        }
    }

    /// What is owed of it, and from when on. The event comes after the status was written for the first time: a kubelet starts
    /// again what has died.
    pub(super) fn wanted(&self) -> impl Iterator<Item = (Act, Moment)> + Clone {
        let status = match self.doubt {
            Some(_) => Act::Look,
            None => Act::Status,
        };
        let is_status = self.entry.status_part == Part::Owed;
        let is_event = self.entry.event_part == Part::Owed && (!is_status || self.is_written());
        let wanted = [
            is_status.then_some((status, self.status_due)),
            is_event.then_some((Act::Event, self.event_due)),
        ];
        wanted.into_iter().flatten()
    }

    /// That was told.
    pub(super) fn done(&mut self, act: Act, version: Option<u64>, now: Moment) {
        self.backoff.succeeded();
        (self.misses, self.refused) = (0, 0);
        match act {
            Act::Status | Act::Look => {
                self.entry.status_part = Part::Done;
                self.written = Some((now, version));
            }
            Act::Event => self.entry.event_part = Part::Done,
        }
    }

    /// Something speaks against it: the pod is to be looked at.
    pub(super) fn doubt(&mut self, why: String, now: Moment) {
        self.doubt = Some(why);
        self.status_due = now;
    }

    /// It is the pod that is meant: what the server said passes, or is its last word.
    pub(super) fn same(&mut self, now: Moment) {
        self.refusals += 1;
        let why = self.doubt.take().unwrap_or_default();
        if self.refusals >= REFUSALS {
            self.end(Act::Status, End::Refused(why));
        } else {
            self.later(Act::Status, now, None);
        }
    }

    /// That is never told.
    pub(super) fn end(&mut self, act: Act, end: End) {
        let (part, was_told) = match act {
            Act::Status | Act::Look => (&mut self.entry.status_part, self.written.is_some()),
            Act::Event => (&mut self.entry.event_part, false),
        };
        if *part != Part::Owed {
            return;
        }
        // Of a pod that is gone nobody asks for the same once more.
        *part = match end {
            End::Gone | End::Replaced if was_told => Part::Done,
            end => Part::Ended(end),
        };
    }

    /// Nobody was heard while it was told.
    pub(super) const fn missed(&mut self) {
        self.misses = self.misses.saturating_add(1);
    }

    /// The account may not do that.
    pub(super) const fn refuse(&mut self) {
        self.refused = self.refused.saturating_add(1);
    }

    /// How often that was so since it was told of last.
    pub(super) const fn refused(&self) -> u32 {
        self.refused
    }

    /// Somebody is heard again: what was missed is due.
    pub(super) fn hurry(&mut self) {
        if self.misses > 0 {
            (self.status_due, self.event_due) = (Moment::START, Moment::START);
        }
    }

    /// How often that was so since it was told of last.
    pub(super) const fn misses(&self) -> u32 {
        self.misses
    }

    /// Not now.
    pub(super) fn later(&mut self, act: Act, now: Moment, after: Option<Duration>) {
        let wait = span(self.backoff.failed(after));
        let due = match act {
            Act::Status | Act::Look => &mut self.status_due,
            Act::Event => &mut self.event_due,
        };
        *due = now + wait;
    }

    /// Ends what has been owed for too long; whether that was so.
    pub(super) fn expire(&mut self, now: Moment) -> bool {
        let is_expired = now.since(self.since) >= LONGEST && !self.entry.is_settled();
        if is_expired {
            self.end(Act::Status, End::Expired);
            self.end(Act::Event, End::Expired);
        }
        is_expired
    }

    /// Whether its status was written, and others may write over it.
    pub(super) const fn is_written(&self) -> bool {
        self.written.is_some()
    }

    /// Has the status written again if somebody has written over it: what is seen is newer than our own word, and the pod is
    /// not over, or not for our reason.
    pub(super) fn insist(&mut self, seen: Seen) {
        let (
            Some((at, ours)),
            Seen::There {
                is_terminal,
                keeps_reason,
                version,
            },
        ) = (self.written, seen)
        else {
            return;
        };
        let is_newer = match (ours, version) {
            (Some(ours), Some(version)) => version > ours,
            // Without numbers to compare: to write the same once more does no harm.
            _ => true,
        };
        let is_undone = is_newer && !(is_terminal && keeps_reason);
        let (repeats, most) = if is_terminal {
            (&mut self.reasons, REASONS)
        } else {
            (&mut self.repeats, REPEATS)
        };
        if is_undone && self.entry.status_part == Part::Done && *repeats < most {
            self.entry.status_part = Part::Owed;
            self.status_due = at + Span::from_nanos(REPEAT << (*repeats).min(8));
            *repeats += 1;
        }
    }

    /// Whether nothing is to be done for it any more.
    pub(super) fn is_over(&self, seen: Seen, now: Moment) -> bool {
        if !self.entry.is_settled() {
            return false;
        }
        let Some((written, _)) = self.written else {
            return true;
        };
        let since = now.since(written);
        match seen {
            Seen::Gone => true,
            Seen::There {
                is_terminal: true, ..
            } => since >= SETTLING,
            Seen::There { .. } | Seen::Unknown => since >= SETTLING_UNSEEN,
        }
    }

    /// When it is to be looked at again, if nobody tells of its pod before.
    pub(super) fn look_at(&self, now: Moment) -> Option<Moment> {
        if !self.entry.is_settled() {
            return Some(self.since + LONGEST);
        }
        let (written, _) = self.written?;
        let settled = written + SETTLING;
        Some(if now < settled {
            settled
        } else {
            written + SETTLING_UNSEEN
        })
    }
}

/// A stretch of time as the core has it.
pub(super) fn span(duration: Duration) -> Span {
    Span::from_nanos(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
}
