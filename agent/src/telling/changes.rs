//! What a step of the guard changed, as events: conditions, thresholds, and whether orders are carried out.

use brink_core::base::Moment;
use brink_core::node::action::Action;
use brink_core::node::condition::ConditionSet;
use brink_core::node::engine::MemoryPolicy;
use brink_core::node::policy::Policy;
use brink_core::node::safety::Mode;
use brink_core::node::threshold;
use brink_stream::model::data::{Configuration, Pressure, Rung, Threshold, ThresholdParts};
use brink_stream::model::kind::Kind;

use super::Telling;
use crate::guard::rung::Standing;
use crate::guard::step::Step;
use crate::record::words::{memory_word, mode_word};

/// A step, and what was in force when it was taken.
#[derive(Clone, Copy, Debug)]
pub struct Heard<'a> {
    /// The step.
    pub step: &'a Step,
    /// The policy that its answers speak of.
    pub policy: &'a Policy,
    /// Whose word is enough for a kill.
    pub memory: MemoryPolicy,
    /// Whether orders are carried out.
    pub mode: Mode,
    /// Whether it took another configuration over.
    pub is_reconfigured: bool,
}

impl Telling {
    /// Tells what a step changed.
    pub fn step(&self, heard: &Heard<'_>) {
        if self.inner().is_none() {
            return;
        }
        let mut is_changed = heard.is_reconfigured;
        for action in &heard.step.actions {
            match *action {
                Action::Crossed { threshold } => {
                    self.threshold(Kind::ThresholdCrossed, heard, threshold);
                }
                Action::Cleared { threshold } => {
                    self.threshold(Kind::ThresholdCleared, heard, threshold);
                }
                Action::Conditions(conditions) => self.pressure(heard.step.at, conditions),
                Action::Mode(_) => is_changed = true,
                // Orders are told with their records.
                Action::Kill { .. }
                | Action::Ask { .. }
                | Action::WouldEvict { .. }
                | Action::Ended { .. }
                | Action::Reclaim { .. }
                | Action::Held { .. } => {}
            }
        }
        if is_changed {
            self.configuration(heard.step.at, heard.policy, heard.memory, heard.mode);
        }
        self.tell_waiting();
    }

    /// Tells what is in force.
    pub fn configuration(&self, at: Moment, policy: &Policy, memory: MemoryPolicy, mode: Mode) {
        let Some(inner) = self.inner() else {
            return;
        };
        let thresholds = policy.thresholds();
        let data = Configuration {
            mode: mode_word(mode).to_owned(),
            memory_policy: memory_word(memory).to_owned(),
            thresholds: thresholds.iter().map(ToString::to_string).collect(),
            parts: thresholds.iter().map(parts).collect(),
            pressure_transition: Some(policy.settings.pressure_transition.to_string()),
            max_pod_grace_seconds: Some(policy.settings.max_pod_grace),
        };
        self.say(Kind::ConfigurationChanged, at, None, &data);
        *inner.configuration() = Some(data);
    }

    /// Tells on which rung the guard stands.
    pub fn rung(&self, at: Moment, standing: &Standing) {
        let data = Rung {
            rung: standing.rung.word().to_owned(),
            scheduling: standing.scheduling.clone(),
            reasons: standing.reasons.clone(),
        };
        self.say(Kind::RungChanged, at, None, &data);
    }

    fn threshold(&self, of: Kind, heard: &Heard<'_>, index: usize) {
        let Some(threshold) = heard.policy.thresholds().get(index) else {
            return;
        };
        let seen = heard.step.observations[threshold.signal];
        let data = Threshold {
            signal: threshold.signal.name().to_owned(),
            hard: threshold.is_hard(),
            grace_seconds: threshold.grace.as_secs(),
            quantity: seen.map(|seen| threshold.quantity(seen.capacity).value()),
            available: seen.map(|seen| seen.available),
            capacity: seen.map(|seen| seen.capacity),
        };
        self.say(of, heard.step.at, None, &data);
    }

    fn pressure(&self, at: Moment, conditions: ConditionSet) {
        let names = conditions
            .iter()
            .map(|condition| condition.name().to_owned());
        let data = Pressure {
            conditions: names.collect(),
        };
        self.say(Kind::Pressure, at, None, &data);
    }
}

/// A threshold as a configuration has it.
fn parts(of: &threshold::Threshold) -> ThresholdParts {
    ThresholdParts {
        signal: of.signal.name().to_owned(),
        value: of.value.to_string(),
        grace: (!of.is_hard()).then(|| of.grace.to_string()),
        min_reclaim: of.min_reclaim.map(|more| more.to_string()),
    }
}
