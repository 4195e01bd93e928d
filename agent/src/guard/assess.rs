//! From numbers to an evaluation: whose numbers count, what else has to be read, and what the engine is told.

use brink_core::base::{Moment, Quantity, Span};
use brink_core::node::gate::thresholds_met;
use brink_core::node::input::{Input, Sample};
use brink_core::node::observe::Observations;
use brink_core::node::signal::Signal;
use brink_core::node::threshold::ThresholdSet;
use brink_host::probe::abi;

use super::figures::NodeFigures;
use super::{Guard, now};
use crate::ledger::entry::Stages;

/// Growth that two readings of the same node may lie apart, in bytes a nanosecond: 25 GiB/s.
const DRIFT_PER_NANO: i64 = 27;
/// The kernel's numbers and the files' may differ by this at most, whatever the capacity.
const TOLERANCE: i64 = 16 << 20;

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
        let figures = kernel.figures(sample);
        let read_at = now();
        let Ok(check) = self.files.read(read_at) else {
            self.assess(figures, stages, false);
            return;
        };
        // Older than what was evaluated last: it would count as stale, so the files speak.
        let is_late = figures.at <= self.last_evaluated;
        let agrees = self.agree(&figures, &check);
        if !agrees && self.files.node_group().is_none() && !self.recheck() {
            self.distrust("its numbers and the files' differ by more than the tolerance");
        }
        let believed = if agrees && !is_late { figures } else { check };
        self.assess(believed, stages, false);
    }

    /// Whether two readings can be of the same node: within the tolerance, and what may have been
    /// allocated between them.
    pub(super) fn agree(&self, kernel: &NodeFigures, files: &NodeFigures) -> bool {
        let (Some(a), Some(b)) = (kernel.memory, files.memory) else {
            return false;
        };
        let apart = files.at.since(kernel.at).as_nanos().abs();
        let drift = apart.saturating_mul(DRIFT_PER_NANO);
        let difference = a.available.saturating_sub(b.available).saturating_abs();
        difference <= self.tolerance(b.capacity).saturating_add(drift)
    }

    /// The smallest of one percent of the capacity, a tenth of the smallest threshold, and 16 MiB.
    fn tolerance(&self, capacity: i64) -> i64 {
        let thresholds = self.engine.policy().thresholds().iter();
        let memory = thresholds.filter(|threshold| threshold.signal.is_memory());
        let amounts = memory.map(|threshold| threshold.quantity(capacity).value() / 10);
        let smallest = amounts.filter(|&amount| amount > 0).min();
        smallest
            .unwrap_or(TOLERANCE)
            .min(capacity / 100)
            .min(TOLERANCE)
    }

    /// Takes both readings again, back to back.
    pub(super) fn recheck(&mut self) -> bool {
        let Some(kernel) = &mut self.kernel else {
            return false;
        };
        if kernel.probe().tick().is_err() {
            return false;
        }
        let Some(sample) = kernel.sample() else {
            return false;
        };
        let figures = kernel.figures(&sample);
        self.files
            .read(now())
            .is_ok_and(|check| self.agree(&figures, &check))
    }

    /// Evaluates the thresholds on these figures and carries out what follows.
    pub(super) fn assess(&mut self, mut figures: NodeFigures, stages: Stages, closely: bool) {
        if figures.pids.is_none() {
            figures.pids = self.files.pids(self.threads, figures.at);
        }
        let slow = self.files.slow();
        let observations = figures.observations(slow);
        let met = thresholds_met(self.engine.policy(), &observations, true);
        let pressed = !met.is_empty();
        let gather = pressed || closely || self.engine.open_order().is_some();
        if gather {
            let wanted = self.met_resources(met);
            self.gather_usage(wanted.processes || closely);
            if let Some(signal) = wanted.memory.filter(|_| self.current.is_none()) {
                self.verify_first(signal);
            }
        } else {
            self.usage.clear();
        }
        let at = now();
        let usage = std::mem::take(&mut self.usage);
        let confirmation = figures.confirmation(slow);
        let sample = Sample {
            observations,
            confirmation,
            usage: &usage,
        };
        self.engine
            .step(at, Input::Sample(&sample), &mut self.actions);
        self.carry_out(at, stages);
        self.tell(at, &Input::Sample(&sample), Some(&figures));
        self.usage = usage;
        self.last_evaluated = figures.at;
        let slack = self.slack(&observations);
        self.note_progress(&observations, figures.at);
        self.plan_next(at, pressed, slack);
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

    /// Bytes to the nearest memory threshold; none without one.
    fn slack(&self, seen: &Observations) -> Option<i64> {
        let thresholds = self.engine.policy().thresholds().iter();
        let slack = thresholds
            .filter(|threshold| threshold.signal.is_memory())
            .filter_map(|threshold| {
                let seen = seen[threshold.signal]?;
                let quantity: Quantity = threshold.quantity(seen.capacity);
                Some(seen.available.saturating_sub(quantity.value()))
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
