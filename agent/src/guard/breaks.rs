//! Breaks of a shortage that are heard of late: a grace counts from the last of them, although nobody looked then.
//!
//! A guard that could not run (stopped, starved) looks at the node as it is when it runs again. What was in between is
//! in the records that have waited for it.

use brink_core::base::{Moment, Span};
use brink_core::node::input::{Input, Recalled};
use brink_core::node::threshold::{Threshold, ThresholdSet};
use brink_host::probe::abi::record::CROSSING;
use brink_host::probe::abi::sample::SampleRecord;

use super::assess::FRESH;
use super::hear::{BOUND, Item};
use super::{Guard, now};

/// A turn that takes longer was held up in its middle.
const HELD_UP: Span = Span::from_millis(100);

impl Guard {
    /// Whether an evaluation is left to the next turn, at once, because this one was held up (stopped, starved): its figures
    /// may be from before, and what was meanwhile waits in the ring. Never twice in a row: on a machine that is slow
    /// altogether nothing would be evaluated any more.
    pub(super) fn puts_off(&mut self, at: Moment) -> bool {
        let held_up = at.since(self.awake.at);
        self.is_put_off = must_put_off(held_up, self.is_put_off);
        if self.is_put_off {
            self.times.evaluate = Some(at);
            self.tell_of_missed(held_up);
        }
        self.is_put_off
    }

    /// The guard woke, and was due before that: the dead that are waited for may not have run meanwhile either.
    pub(super) fn note_lateness(&mut self, due: Moment) {
        let late = self.awake.at.since(due);
        if late > HELD_UP {
            self.tell_of_missed(late);
        }
    }

    fn tell_of_missed(&mut self, time: Span) {
        let now = now();
        let followed = self.current.iter_mut();
        for victim in followed.chain(self.lingering.iter_mut().flatten()) {
            victim.missed(now, time);
        }
        if self.engine.waits_for_the_dead() {
            self.feed(now, &Input::Recall(Recalled::Missed(time)));
        }
    }

    /// To be called before anything of it is acted on.
    pub(super) fn hear_of_breaks(&mut self, heard: &[Item], woke: Moment) {
        let thresholds = self.engine.policy().thresholds();
        if self.distrusted || thresholds.iter().all(Threshold::is_hard) {
            return;
        }
        let mut is_late = false;
        for item in heard {
            if let Item::Sample(record) = item {
                is_late |= self.hear_of_break(record, woke);
            }
        }
        // There is more to come, or found no room: nobody knows how it went on.
        if is_late && heard.len() >= BOUND {
            self.restart_graces(ThresholdSet::EMPTY, |_| Some(woke));
        }
    }

    /// Takes one sample in; whether it is late.
    fn hear_of_break(&mut self, record: &SampleRecord, woke: Moment) -> bool {
        let Some(kernel) = &self.kernel else {
            return false;
        };
        let figures = kernel.figures(&record.sample);
        let seen = figures.observations(self.files.slow());
        let met = self.engine.met_in(&seen);
        // Nothing heard yet: what was evaluated last is what this one follows.
        let before = self.heard_met.replace(met).unwrap_or(self.met_before);
        // One that comes in time is evaluated itself.
        let is_late = woke.since(figures.at) > FRESH;
        if is_late {
            let thresholds = self.engine.policy().thresholds().iter();
            let unknown = thresholds
                .enumerate()
                .filter(|(_, t)| seen[t.signal].is_none());
            let unknown: ThresholdSet = unknown.map(|(index, _)| index).collect();
            let heard = Heard {
                at: figures.at,
                met,
                before,
                crossed_after: (record.head.kind == CROSSING)
                    .then(|| i64::try_from(record.sample.before_ns).ok())
                    .flatten()
                    .map(Moment::from_nanos),
            };
            self.restart_graces(unknown, |index| heard.last_above(index));
        }
        is_late
    }

    /// Lets the graces of soft thresholds count from when the signal was last seen above them.
    fn restart_graces(
        &mut self,
        unknown: ThresholdSet,
        last_above: impl Fn(usize) -> Option<Moment>,
    ) {
        for threshold in 0..self.engine.policy().thresholds().len() {
            let is_soft = !self.engine.policy().thresholds()[threshold].is_hard();
            let counts_from = self.engine.gate().first_observed(threshold);
            let later =
                last_above(threshold).filter(|&at| counts_from.is_some_and(|from| from < at));
            if let Some(since) = later.filter(|_| is_soft && !unknown.contains(threshold)) {
                let met = Recalled::Met { threshold, since };
                self.feed(now(), &Input::Recall(met));
            }
        }
    }
}

/// Whether an evaluation so long after the turn's begin is put off.
const fn must_put_off(since_woken: Span, was_put_off: bool) -> bool {
    since_woken.as_nanos() > HELD_UP.as_nanos() && !was_put_off
}

/// What a late sample shows.
#[derive(Clone, Copy, Debug)]
struct Heard {
    at: Moment,
    /// The thresholds that are met in it, and in the one before.
    met: ThresholdSet,
    before: ThresholdSet,
    /// For a crossing, when the sampler had looked before.
    crossed_after: Option<Moment>,
}

impl Heard {
    /// When the signal of a threshold was last seen above it; none if this sample does not tell.
    fn last_above(&self, threshold: usize) -> Option<Moment> {
        let is_met = self.met.contains(threshold);
        let was_met = self.before.contains(threshold);
        match (is_met, was_met) {
            (false, _) => Some(self.at),
            (true, false) => self.crossed_after,
            (true, true) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use brink_core::node::order::OpenOrder;

    use super::super::scene::Scene;
    use super::*;

    fn set(indexes: &[usize]) -> ThresholdSet {
        indexes.iter().copied().collect()
    }

    #[test]
    fn a_turn_that_was_held_up_is_left_to_the_next_once() {
        let more = HELD_UP + Span::from_nanos(1);
        for (since, before, expected) in [
            (Span::ZERO, false, false),
            (HELD_UP, false, false),
            (more, false, true),
            (more, true, false),
            (Span::ZERO, true, false),
        ] {
            assert_eq!(must_put_off(since, before), expected, "{since:?} {before}");
        }
    }

    #[test]
    fn who_woke_late_waits_for_the_dead_as_much_longer() {
        for (late, waits) in [(HELD_UP, false), (HELD_UP + Span::from_nanos(1), true)] {
            let mut scene = Scene::killing();
            scene.sample(scene.begun, 50);
            let guard = &mut scene.guard;
            let end = |guard: &Guard| guard.engine.open_order().map(OpenOrder::next_wake);
            let before = end(guard);
            assert!(before.is_some());
            guard.awake.at = now();
            guard.note_lateness(guard.awake.at - late);
            assert_eq!(end(guard) > before, waits, "{late:?}");
        }
    }

    #[test]
    fn a_break_is_what_a_late_sample_shows_above_or_just_crossed() {
        const HARD: usize = 0;
        const SOFT: usize = 1;
        let at = Moment::from_secs;
        for (met, before, crossed_after, hard, soft) in [
            // Above both.
            (&[][..], &[SOFT][..], None, Some(at(9)), Some(at(9))),
            // Below the soft one since the last look.
            (&[SOFT], &[], Some(at(8)), Some(at(9)), Some(at(8))),
            // A crossing of the hard one, below the soft one all the while.
            (&[HARD, SOFT], &[SOFT], Some(at(8)), Some(at(8)), None),
            // No crossing: below for as long as is known.
            (&[HARD, SOFT], &[HARD, SOFT], None, None, None),
            (&[HARD, SOFT], &[], None, None, None),
        ] {
            let heard = Heard {
                at: at(9),
                met: set(met),
                before: set(before),
                crossed_after,
            };
            let told = (heard.last_above(HARD), heard.last_above(SOFT));
            assert_eq!(told, (hard, soft), "{met:?} after {before:?}");
        }
    }
}
