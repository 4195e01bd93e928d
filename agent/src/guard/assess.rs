//! From numbers to an evaluation: whose numbers count, what else has to be read, and what the engine is told.

use brink_core::base::{Moment, Quantity, Span};
use brink_core::node::gate::thresholds_met;
use brink_core::node::input::{Confirmation, Input, Sample};
use brink_core::node::observe::Observations;
use brink_core::node::signal::Signal;
use brink_core::node::threshold::ThresholdSet;
use brink_host::probe::calibrate::{self, Verdict};
use brink_host::probe::{Growth, abi};

use super::figures::NodeFigures;
use super::{Guard, now};
use crate::ledger::entry::Stages;

/// A sample that took longer to get here is told to the record, and the files are evaluated.
pub(super) const FRESH: Span = Span::from_millis(1);

impl Guard {
    /// Whether the sampler's numbers are used.
    pub(super) fn sampler_serves(&self) -> bool {
        self.kernel.is_some() && !self.distrusted
    }

    /// A look at the node because time has come.
    pub(super) fn look(&mut self, at: Moment) {
        self.look_because(
            at,
            Stages {
                woke: Some(at),
                ..Stages::default()
            },
        );
    }

    /// A look at the node because of something other than a sample.
    pub(super) fn look_because(&mut self, at: Moment, stages: Stages) {
        match self.files.read(at) {
            Ok(figures) => {
                let stages = Stages {
                    sampled: Some(at),
                    ..stages
                };
                self.assess(figures, stages, false);
            }
            Err(error) => self.note_unreadable(error, at),
        }
    }

    /// The same with the usage of every workload, whether or not anything is met.
    pub(super) fn look_closely(&mut self, at: Moment) {
        match self.files.read(at) {
            Ok(figures) => self.assess(figures, Stages::default(), true),
            Err(error) => self.note_unreadable(error, at),
        }
    }

    /// A sample of the kernel's: believed if the files, read now, agree.
    pub(super) fn assess_kernel(&mut self, sample: &abi::sample::Sample, stages: Stages) {
        let Some(kernel) = &self.kernel else {
            return;
        };
        let mut figures = kernel.figures(sample);
        let read_at = now();
        let Ok(check) = self.files.read(read_at) else {
            self.assess(figures, stages, false);
            return;
        };
        // Older than what was evaluated last, or than a guard that wakes in time meets: a spike may be over by now.
        let is_late = figures.at <= self.last_evaluated || check.at.since(figures.at) > FRESH;
        let agrees = self.agree(&figures, &check);
        // The sampler does not count tasks.
        figures.pids = check.pids;
        let believed = if agrees && !is_late {
            figures.with_groups_of(&check, self.files.node_group().is_some())
        } else {
            check
        };
        self.assess(believed, stages, false);
        // Whom to believe from now on can wait until whoever had to go is gone.
        if !agrees && self.files.node_group().is_none() {
            self.recheck_or_distrust();
        }
    }

    /// Whether a sample and a later reading can be of the same node: within the tolerance, and what may
    /// have been allocated between them by two processors: what grows faster is compared again, between two readings.
    pub(super) fn agree(&self, kernel: &NodeFigures, files: &NodeFigures) -> bool {
        let apart = files.at.since(kernel.at).as_nanos().unsigned_abs();
        let drift = Growth::LEAST.within(apart);
        self.compare(files, kernel, files, drift) == Verdict::Agrees
    }

    /// Takes both again, and falls to the next rung at once if they still differ.
    fn recheck_or_distrust(&mut self) {
        let mut verdict = self.recheck();
        if verdict != Verdict::Agrees && self.files.refresh_zones().is_ok() {
            verdict = self.recheck();
        }
        if verdict != Verdict::Agrees {
            self.distrust(&doubt(verdict));
        }
    }

    /// Takes a sample between two readings of the files, and compares.
    pub(super) fn recheck(&mut self) -> Verdict {
        let Ok(before) = self.files.read(now()) else {
            return Verdict::Unknown;
        };
        let Some(kernel) = &mut self.kernel else {
            return Verdict::Unknown;
        };
        if kernel.probe().tick().is_err() {
            return Verdict::Unknown;
        }
        let Some(sample) = kernel.sample() else {
            return Verdict::Unknown;
        };
        let figures = kernel.figures(&sample);
        let after = self.files.read(now());
        after.map_or(Verdict::Unknown, |after| {
            self.compare(&before, &figures, &after, 0)
        })
    }

    /// The sampler looks at each zone for itself, the files know sums: they may differ by what zones lacked of their
    /// reserves when those were read last, and by the tolerance.
    fn compare(
        &self,
        before: &NodeFigures,
        kernel: &NodeFigures,
        after: &NodeFigures,
        drift: u64,
    ) -> Verdict {
        let capacity = after.memory.map_or(0, |seen| seen.capacity);
        let thresholds = self.engine.policy().thresholds().iter();
        let memory = thresholds.filter(|threshold| threshold.signal.is_memory());
        let amounts =
            memory.filter_map(|threshold| u64::try_from(threshold.quantity(capacity).value()).ok());
        let smallest = amounts.filter(|&amount| amount > 0).min();
        let capacity = u64::try_from(capacity).unwrap_or(0);
        let allowed = calibrate::tolerance(capacity, smallest).saturating_add(drift);
        calibrate::compare(
            &before.numbers(),
            &kernel.numbers(),
            &after.numbers_by_zone(),
            allowed,
        )
    }

    /// Evaluates the thresholds on these figures and carries out what follows.
    pub(super) fn assess(&mut self, mut figures: NodeFigures, stages: Stages, closely: bool) {
        let slow = self.files.slow();
        let mut observations = figures.observations(slow);
        self.ports.disks.observe(now(), &mut observations);
        let mut met = thresholds_met(self.engine.policy(), &observations, true);
        let mut unreaped = None;
        if self.met_resources(met).processes {
            unreaped = self.unreaped(now());
            // Counted anew after the dead: an id that comes back in between counts twice rather than not at all.
            figures.pids = self.files.ids().available(now());
            observations[Signal::PidAvailable] = figures.pids;
            met = thresholds_met(self.engine.policy(), &observations, true);
        }
        self.note_above(met, figures.at, stages.above);
        // Who lies between a threshold and its minimum reclaim has not crossed it, and what crosses from there is measured too.
        let crossed = self.disks_met_in(self.engine.met_in(&observations));
        if self.measuring.concerns(crossed) {
            self.follow_measuring(now(), crossed);
        }
        let mut confirmation = figures.confirmation(slow);
        // What a kill for a filesystem brings shows in its figures, and its end in the victim's cgroups.
        let open = self.engine.open_order();
        let (is_open, followed) = (
            open.is_some(),
            open.is_some_and(|order| !order.waits_for_disk()),
        );
        // Page cache that nobody is killed for may hold a threshold met for hours.
        let urgent = met.difference(self.disks_met_in(met));
        let pressed = followed
            || self
                .engine
                .is_pressing(urgent, &observations, &confirmation);
        let disks_seen = self.disks_seen;
        let disks = self.news_of_disks(met, &observations);
        if pressed || closely || !disks.is_empty() {
            let wanted = self.met_resources(met);
            confirmation.unreaped = unreaped;
            self.gather_usage(wanted.processes || closely);
            if self.may_order(&observations, confirmation, met) {
                let pids = wanted.processes.then_some(Signal::PidAvailable);
                if let Some(signal) = wanted.memory.or(pids) {
                    confirmation.parked = wanted.memory.and_then(|_| self.parked(now()));
                    self.verify_first(signal);
                }
                self.verify_for_disks(disks);
            }
        } else {
            self.usage.clear();
        }
        let at = now();
        if self.puts_off(at) {
            self.disks_seen = disks_seen;
            return;
        }
        let usage = std::mem::take(&mut self.usage);
        let sample = Sample {
            observations,
            confirmation,
            usage: &usage,
        };
        self.engine
            .step(at, Input::Sample(&sample), &mut self.actions);
        self.conclude(at, &Input::Sample(&sample), Some(&figures), stages);
        self.usage = usage;
        self.last_evaluated = figures.at;
        let slack = self.slack(&observations, &confirmation);
        self.note_progress(&observations, figures.at);
        self.follow_swap();
        self.plan_next(at, pressed || self.lives_on_swap(&figures), slack);
        self.close_in_on_ids(at, &observations);
        // Nothing comes near to what was met, or while somebody is on the way out.
        self.plan_rehearsal(at, slack.filter(|&left| left > 0 && !is_open));
    }

    fn may_order(
        &self,
        observations: &Observations,
        confirmation: Confirmation,
        met: ThresholdSet,
    ) -> bool {
        let sample = Sample {
            observations: *observations,
            confirmation,
            usage: &self.usage,
        };
        self.engine.may_order(now(), &sample, met)
    }

    fn met_resources(&self, met: ThresholdSet) -> Wanted {
        let thresholds = self.engine.policy().thresholds();
        let signals = met
            .iter()
            .filter_map(|index| Some(thresholds.get(index)?.signal));
        signals.fold(Wanted::default(), |wanted, signal| Wanted {
            memory: wanted.memory.or(signal.is_memory().then_some(signal)),
            processes: wanted.processes || signal == Signal::PidAvailable,
        })
    }

    /// Keeps the last moment at which each threshold was not met; `before` is the kernel's last look
    /// before a crossing.
    pub(super) fn note_above(&mut self, met: ThresholdSet, at: Moment, before: Option<Moment>) {
        let known = self.engine.policy().thresholds().len();
        for (index, last) in self.last_above.iter_mut().enumerate().take(known) {
            if !met.contains(index) {
                *last = Some(at);
            } else if !self.met_before.contains(index) {
                *last = (*last).max(before.filter(|&before| before < at));
            }
        }
        self.met_before = met;
    }

    /// Bytes to the nearest memory threshold that anybody would be killed for; none without one.
    pub(super) fn slack(&self, seen: &Observations, confirmation: &Confirmation) -> Option<i64> {
        let thresholds = self.engine.policy().thresholds().iter();
        let slack = thresholds
            .filter(|threshold| threshold.signal.is_memory())
            .filter_map(|threshold| {
                let available = seen[threshold.signal]?;
                let quantity: Quantity = threshold.quantity(available.capacity);
                let left = self.engine.confirming(threshold.signal, confirmation);
                let left = left.unwrap_or(available.available).max(available.available);
                Some(left.saturating_sub(quantity.value()))
            });
        slack.min()
    }

    /// The time the node cannot be read is time nobody is protected: try again soon, and say so.
    fn note_unreadable(&mut self, error: brink_host::HotError, at: Moment) {
        self.times.poll = Some(at + Span::from_millis(10));
        self.times.evaluate = None;
        self.unreadable = Some(error);
    }
}

/// What has to be known of the workloads for the thresholds that are met.
#[derive(Clone, Copy, Debug, Default)]
struct Wanted {
    memory: Option<Signal>,
    processes: bool,
}

/// Why the sampler's numbers are not believed.
pub(super) fn doubt(verdict: Verdict) -> String {
    match verdict {
        Verdict::Differs(found) => format!(
            "its numbers and the files' differ by more than the tolerance ({}: {} against {} bytes)",
            found.name, found.kernel, found.files
        ),
        Verdict::Agrees | Verdict::Unknown => {
            "its numbers could not be compared with the files'".to_owned()
        }
    }
}
