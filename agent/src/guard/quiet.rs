//! Signs of life of a node of which there is nothing to say: they cost one reading of one file, and an evaluation now and then.

use brink_core::base::{Moment, Span};
use brink_core::node::gate::thresholds_met;
use brink_core::node::policy::Policy;
use brink_core::node::threshold::ThresholdSet;
use brink_host::probe::abi;

use super::assess::FRESH;
use super::figures::{NodeFigures, Slow};
use super::{Guard, now};
use crate::ledger::entry::Stages;

/// A node of which there is nothing to say is evaluated at each sign, every five seconds, unless it was so short a while ago.
const QUIET: Span = Span::from_secs(2);

/// A sign of life, and what was known when it was heard.
#[derive(Clone, Copy, Debug)]
struct Sign {
    figures: NodeFigures,
    slow: Slow,
    /// When it was heard.
    heard: Moment,
    /// Up to when the node has been evaluated.
    evaluated: Moment,
}

impl Sign {
    /// Whether it came in time and gives no reason for anything.
    fn says_nothing(&self, policy: &Policy) -> bool {
        let observations = self.figures.observations(self.slow);
        self.figures.at > self.evaluated
            && self.heard.since(self.figures.at) <= FRESH
            && self.figures.memory.is_some()
            && self.slow.swap == 0
            && thresholds_met(policy, &observations, true).is_empty()
    }

    /// Whether it is evaluated all the same.
    fn is_due(&self) -> bool {
        self.figures.at.since(self.evaluated) >= QUIET
    }
}

impl Guard {
    /// A sign of life: a sample like any other, unless there is nothing to say of the node.
    pub(super) fn take_sign(&mut self, sample: &abi::sample::Sample, stages: Stages) {
        match self.quiet(sample) {
            Some(sign) => self.assess_quiet(sign, stages),
            None => self.assess_kernel(sample, stages),
        }
    }

    /// What a sign of life says that gives no reason for anything: nothing is met or under way, there is no swap, and
    /// /proc/meminfo, read now, agrees. Of a node that is a cgroup the files speak.
    fn quiet(&self, sample: &abi::sample::Sample) -> Option<Sign> {
        let kernel = self.kernel.as_ref()?;
        let is_at_rest = self.files.is_machine_alone()
            && kernel.tells_of_all(now(), self.engine.policy())
            && self.engine.open_order().is_none()
            && self.met_before.is_empty()
            && !self.is_over_threads;
        if !is_at_rest {
            return None;
        }
        let heard = now();
        let check = self.files.read_machine(heard)?;
        let sign = Sign {
            figures: kernel.figures(sample),
            slow: self.files.slow(),
            heard,
            evaluated: self.last_evaluated,
        };
        let is_quiet = sign.says_nothing(self.engine.policy()) && self.agree(&sign.figures, &check);
        is_quiet.then_some(sign)
    }

    /// Takes a quiet sign over, now and then: nothing waits for it, and whoever asks how the node is has it looked at then.
    /// The count of threads is read for it, which the sampler has not got.
    fn assess_quiet(&mut self, sign: Sign, stages: Stages) {
        if !sign.is_due() {
            self.note_above(ThresholdSet::EMPTY, sign.figures.at, None);
            return;
        }
        let figures = NodeFigures {
            pids: self.files.ids().available(now()),
            ..sign.figures
        };
        self.assess(figures, stages, false);
    }
}

#[cfg(test)]
mod tests {
    use brink_core::base::Quantity;
    use brink_core::node::observe::{Layout, Observation};
    use brink_core::node::policy::Settings;
    use brink_core::node::signal::Signal;
    use brink_core::node::threshold::{Threshold, Value};

    use super::*;

    const MIB: i64 = 1 << 20;

    /// A sign of a machine with 200 MiB left, heard as soon as it was told.
    fn sign() -> Sign {
        let at = Moment::START + Span::from_millis(60_000);
        Sign {
            figures: NodeFigures {
                at,
                memory: Some(Observation {
                    available: 200 * MIB,
                    capacity: 1000 * MIB,
                    at: Some(at),
                }),
                headroom: Some(200 * MIB),
                ..NodeFigures::default()
            },
            slow: Slow::default(),
            heard: at,
            evaluated: Moment::START,
        }
    }

    #[test]
    fn a_sign_is_quiet_when_it_is_fresh_and_nothing_is_near() {
        let threshold = Threshold {
            signal: Signal::MemoryAvailable,
            grace: Span::ZERO,
            value: Value::Quantity(Quantity::from_bytes(100 * MIB)),
            min_reclaim: None,
        };
        let policy = Policy::new(vec![threshold], Layout::Single, Settings::default());
        let check = |expected, what: &str, change: fn(&mut Sign)| {
            let mut sign = sign();
            change(&mut sign);
            assert_eq!(sign.says_nothing(&policy), expected, "{what}");
        };
        check(true, "nothing to say", |_| {});
        check(true, "just in time", |sign| sign.heard = sign.heard + FRESH);
        check(false, "late", |sign| {
            sign.heard = sign.heard + FRESH + Span::from_nanos(1);
        });
        check(false, "older than the last look", |sign| {
            sign.evaluated = sign.figures.at;
        });
        check(false, "unknown", |sign| sign.figures.memory = None);
        check(false, "swap was switched on", |sign| sign.slow.swap = 1);
        check(false, "met", |sign| {
            let seen = sign.figures.memory.as_mut().unwrap();
            seen.available = 100 * MIB - 1;
        });
    }

    #[test]
    fn a_quiet_node_is_evaluated_now_and_then() {
        let before = |span| Sign {
            evaluated: sign().figures.at - span,
            ..sign()
        };
        assert!(before(QUIET).is_due());
        assert!(!before(QUIET - Span::from_nanos(1)).is_due());
    }
}
