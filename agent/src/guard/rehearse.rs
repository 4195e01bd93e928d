//! The decision rehearsed while a threshold comes near.
//!
//! What it will read is read, whom it would choose is ranked, and what it will touch is touched, so that caches, and the host
//! of a virtual machine, have all of it at hand when it counts.

use brink_core::base::{Moment, Span};
use brink_core::node::decision::Decision;
use brink_core::node::gate::thresholds_met;
use brink_core::node::input::Sample;
use brink_core::node::signal::Signal;

use super::{Guard, now};
use crate::ledger::Record;
use crate::ledger::entry::Stages;

/// Bytes to a threshold from which on it is near.
const NEAR: i64 = 64 << 20;
/// Bytes that count as having come nearer.
const STEP: i64 = 1 << 20;
/// Between two rehearsals; one takes a tenth of it.
const PACE: Span = Span::from_millis(2);
/// A threshold that has come no nearer for so long is not being approached.
const PATIENCE: Span = Span::from_millis(100);

/// How a threshold comes nearer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Approach {
    /// The least that was left, and since when.
    least: i64,
    since: Moment,
}

impl Approach {
    pub(super) const fn new() -> Self {
        Self {
            least: i64::MAX,
            since: Moment::START,
        }
    }

    /// Takes in what is left at `now`, and tells when to rehearse next.
    fn next(&mut self, now: Moment, left: Option<i64>) -> Option<Moment> {
        let Some(left) = left.filter(|&left| left <= NEAR) else {
            *self = Self::new();
            return None;
        };
        if left <= self.least.saturating_sub(STEP) {
            *self = Self {
                least: left,
                since: now,
            };
        } else if now.since(self.since) >= PATIENCE {
            // It stays, or goes away: what comes nearer from here on counts.
            self.least = left;
            return None;
        }
        Some(now + PACE)
    }
}

impl Guard {
    /// Sets the next rehearsal by the bytes that are left to a threshold.
    pub(super) fn plan_rehearsal(&mut self, now: Moment, left: Option<i64>) {
        self.times.rehearse = self.approach.next(now, left);
    }

    /// Rehearses, and decides at once if it has become earnest.
    pub(super) fn rehearse(&mut self, at: Moment) {
        let Ok(figures) = self.files.read(at) else {
            self.look(at);
            return;
        };
        let slow = self.files.slow();
        let observations = figures.observations(slow);
        let confirmation = figures.confirmation(slow);
        let met = thresholds_met(self.engine.policy(), &observations, true);
        if self.engine.is_pressing(met, &observations, &confirmation) {
            self.look(at);
            return;
        }
        self.gather_usage(false);
        self.verify_first(Signal::MemoryAvailable);
        let usage = std::mem::take(&mut self.usage);
        let sample = Sample {
            observations,
            confirmation,
            usage: &usage,
        };
        if let Some(decision) = self.engine.rehearse(at, &sample) {
            self.rehearse_record(&decision);
            for (_, group) in self.roster.of(decision.victim.workload as usize) {
                self.killer.rehearse(&group.target);
            }
        }
        self.usage = usage;
        self.usage.clear();
        let left = self.slack(&observations, &confirmation);
        self.plan_rehearsal(now(), left);
    }

    /// Writes the record of a decision that nobody will read.
    fn rehearse_record(&mut self, decision: &Decision) {
        let record = Record::of(
            &self.author,
            decision,
            Stages::default(),
            self.engine.table(),
        );
        if let Some(mut page) = self.ports.pages.pop() {
            page.write(&record, None);
            self.ports.recycle_page(page);
        }
        if let Some(ledger) = &self.ledger {
            ledger.touch_next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_nearer_is_rehearsed_and_what_stays_is_not() {
        let at = |millis| Moment::START + Span::from_millis(millis);
        let mut approach = Approach::new();
        assert_eq!(approach.next(at(0), None), None);
        assert_eq!(approach.next(at(1), Some(NEAR + 1)), None);
        assert_eq!(approach.next(at(2), Some(NEAR)), Some(at(4)));
        assert_eq!(approach.next(at(101), Some(NEAR)), Some(at(103)));
        assert_eq!(approach.next(at(102), Some(NEAR - STEP + 1)), None);
        assert_eq!(approach.next(at(103), Some(NEAR - 2 * STEP)), Some(at(105)));
        assert_eq!(approach.next(at(300), Some(NEAR / 2)), Some(at(302)));
        assert_eq!(approach.next(at(500), Some(NEAR - STEP)), None);
        let falls_again = Some(NEAR - 2 * STEP);
        assert_eq!(approach.next(at(501), falls_again), Some(at(503)));
        assert_eq!(approach.next(at(502), Some(NEAR + 1)), None, "it went away");
        assert_eq!(approach.next(at(503), Some(NEAR)), Some(at(505)));
    }
}
