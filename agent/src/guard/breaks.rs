//! Breaks of a shortage that are heard of late: a grace counts from the last of them, although nobody looked then.
//!
//! A guard that could not run (stopped, starved) looks at the node as it is when it runs again. What was in between is
//! in the records that have waited for it.

use brink_core::base::Moment;
use brink_core::node::input::{Input, Recalled};
use brink_core::node::threshold::{Threshold, ThresholdSet};
use brink_host::probe::abi::record::CROSSING;
use brink_host::probe::abi::sample::SampleRecord;

use super::assess::FRESH;
use super::hear::{BOUND, Item};
use super::{Guard, now};

impl Guard {
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
        let before = std::mem::replace(&mut self.heard_met, met);
        // One that comes in time is evaluated itself.
        let is_late = woke.since(figures.at) > FRESH;
        if is_late {
            let thresholds = self.engine.policy().thresholds().iter();
            let unknown = thresholds
                .enumerate()
                .filter(|(_, t)| seen[t.signal].is_none());
            let unknown: ThresholdSet = unknown.map(|(index, _)| index).collect();
            let is_crossing = record.head.kind == CROSSING;
            let last_above = i64::try_from(record.sample.before_ns).map(Moment::from_nanos);
            self.restart_graces(unknown, |index| match (met.contains(index), is_crossing) {
                (false, _) => Some(figures.at),
                (true, true) if !before.contains(index) => last_above.ok(),
                (true, _) => None,
            });
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
