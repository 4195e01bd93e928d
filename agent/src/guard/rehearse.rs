//! The decision rehearsed while a threshold comes near.
//!
//! What it will read is read, whom it would choose is ranked, and what it will touch is touched, so that caches, and the host
//! of a virtual machine, have all of it at hand when it counts.

use brink_core::base::{Moment, Span};
use brink_core::node::decision::Decision;
use brink_core::node::gate::thresholds_met;
use brink_core::node::input::{Confirmation, Sample};
use brink_core::node::observe::Observations;
use brink_core::node::signal::Signal;

use super::kernel::Kernel;
use super::turn::Awake;
use super::{Guard, now};
use crate::ledger::Record;
use crate::ledger::entry::Stages;

/// Bytes to a threshold from which on it is near.
const NEAR: i64 = 64 << 20;
/// It is near too if it will be met within so long, at the pace since the last look.
const SOON: Span = Span::from_millis(50);
/// Bytes that count as having come nearer.
const STEP: i64 = 1 << 20;
/// Between two rehearsals at least, and so many times what the last one took.
const PACE: Span = Span::from_millis(1);
const REST: i64 = 4;
/// A threshold that has come no nearer for so long is not being approached.
const PATIENCE: Span = Span::from_millis(100);

/// How a threshold comes nearer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Approach {
    /// The least that was left, and since when.
    least: i64,
    since: Moment,
    /// What was left at the last look, and when.
    last: Option<(i64, Moment)>,
}

impl Approach {
    pub(super) const fn new() -> Self {
        Self {
            least: i64::MAX,
            since: Moment::START,
            last: None,
        }
    }

    /// Takes in what is left at `now`, and tells when to rehearse: at once if the threshold has just come near.
    fn next(&mut self, now: Moment, left: Option<i64>) -> Option<Moment> {
        let before = std::mem::replace(&mut self.last, left.map(|left| (left, now)));
        let is_soon = |left: i64| {
            before.is_some_and(|(before, at)| {
                left <= lost_soon(before.saturating_sub(left), now.since(at))
            })
        };
        let Some(left) = left.filter(|&left| left <= NEAR || is_soon(left)) else {
            self.least = i64::MAX;
            return None;
        };
        let is_new = self.least == i64::MAX;
        if left <= self.least.saturating_sub(STEP) {
            (self.least, self.since) = (left, now);
        } else if now.since(self.since) >= PATIENCE {
            // It stays, or goes away: what comes nearer from here on counts.
            self.least = left;
            return None;
        }
        Some(if is_new { now } else { now + PACE })
    }
}

/// What is lost in [`SOON`] if `lost` was in `elapsed`.
fn lost_soon(lost: i64, elapsed: Span) -> i64 {
    let lost = i128::from(lost.max(0)) * i128::from(SOON.as_nanos());
    i64::try_from(lost / i128::from(elapsed.as_nanos().max(1))).unwrap_or(i64::MAX)
}

impl Guard {
    /// Sets the next rehearsal by the bytes that are left to a threshold. One that is due stays due: looks come as often.
    pub(super) fn plan_rehearsal(&mut self, now: Moment, left: Option<i64>) {
        let next = self.approach.next(now, left);
        let due = self.times.rehearse;
        self.times.rehearse = next.map(|next| due.map_or(next, |due| due.min(next)));
        if next.is_none() {
            self.attaches = None;
            self.killer.let_go();
        }
    }

    /// Rehearses, and decides at once if it has become earnest.
    pub(super) fn rehearse(&mut self, at: Moment) {
        self.times.rehearse = None;
        let Ok(figures) = self.files.read(at) else {
            self.look(at);
            return;
        };
        let slow = self.files.slow();
        let observations = figures.observations(slow);
        let confirmation = figures.confirmation(slow);
        let met = thresholds_met(self.engine.policy(), &observations, false);
        if self.engine.is_pressing(met, &observations, &confirmation) {
            let stages = Stages {
                sampled: Some(at),
                woke: Some(at),
                ..Stages::default()
            };
            self.assess(figures, stages, false);
            return;
        }
        let sample = (observations, confirmation);
        if self.rehearse_decision(at, sample) {
            let left = self.slack(&observations, &confirmation);
            let done = now();
            let rested = done + Span::from_nanos(done.since(at).as_nanos() * REST);
            self.plan_rehearsal(done, left);
            self.times.rehearse = self.times.rehearse.map(|next| next.max(rested));
        }
    }

    /// From the usage of every workload to the processes of who would go; false if it was interrupted.
    fn rehearse_decision(
        &mut self,
        at: Moment,
        (observations, confirmation): (Observations, Confirmation),
    ) -> bool {
        self.gather_usage(false);
        if self.is_interrupted() {
            return false;
        }
        self.verify_first(Signal::MemoryAvailable);
        if self.is_interrupted() {
            return false;
        }
        let usage = std::mem::take(&mut self.usage);
        let sample = Sample {
            observations,
            confirmation,
            usage: &usage,
        };
        let decision = self.engine.rehearse(at, &sample);
        self.usage = usage;
        self.usage.clear();
        let Some(decision) = decision else {
            return true;
        };
        self.rehearse_record(&decision);
        if self.is_interrupted() {
            return false;
        }
        self.prepare_kill(decision.victim.workload as usize);
        true
    }

    /// Hears what the kernel's programs said meanwhile; true if it was evaluated, and the rehearsal is over.
    fn is_interrupted(&mut self) -> bool {
        let before = self.last_evaluated;
        self.awake = Awake::now();
        self.hear(self.awake.at);
        self.last_evaluated != before
    }

    /// Takes hold of the first processes of who would go.
    fn prepare_kill(&mut self, workload: usize) {
        self.attaches = self.kernel.as_ref().and_then(Kernel::attaches);
        if let Some(target) = self.roster.victims_of(workload).next() {
            self.killer.prepare(target);
        }
    }

    /// Whether nobody has come into another cgroup since a kill was prepared: who was held is where he was. The kernel tells of
    /// a move right after it, so that a process on its way out at this very moment is still taken as its old cgroup's, as it
    /// is between a list and its signal.
    pub(super) fn is_unmoved(&mut self) -> bool {
        let before = self.attaches.take();
        before.is_some() && self.kernel.as_ref().and_then(Kernel::attaches) == before
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

    fn at(millis: i64) -> Moment {
        Moment::START + Span::from_millis(millis)
    }

    #[test]
    fn what_comes_nearer_is_rehearsed_and_what_stays_is_not() {
        let mut approach = Approach::new();
        let mut next = |millis, left| approach.next(at(millis), left);
        assert_eq!(next(0, None), None);
        assert_eq!(next(1000, Some(NEAR + 1)), None);
        assert_eq!(next(2000, Some(NEAR)), Some(at(2000)), "at once");
        assert_eq!(next(2099, Some(NEAR)), Some(at(2100)));
        assert_eq!(next(2100, Some(NEAR - STEP + 1)), None);
        assert_eq!(next(2101, Some(NEAR - 2 * STEP)), Some(at(2102)));
        assert_eq!(next(2300, Some(NEAR / 2)), Some(at(2301)));
        assert_eq!(next(2500, Some(NEAR - STEP)), None);
        assert_eq!(next(2501, Some(NEAR - 2 * STEP)), Some(at(2502)));
        assert_eq!(next(2502, Some(NEAR + 1)), None, "it went away");
        assert_eq!(next(3503, Some(NEAR)), Some(at(3503)));
    }

    #[test]
    fn what_comes_fast_is_near_from_further_away() {
        let mut approach = Approach::new();
        assert_eq!(approach.next(at(0), Some(12 * NEAR)), None);
        assert_eq!(approach.next(at(10), Some(10 * NEAR)), Some(at(10)));
        assert_eq!(approach.next(at(11), Some(10 * NEAR)), None, "it stopped");
        let mut approach = Approach::new();
        assert_eq!(approach.next(at(0), Some(12 * NEAR)), None);
        assert_eq!(approach.next(at(20), Some(10 * NEAR)), None, "100 ms left");
    }
}
