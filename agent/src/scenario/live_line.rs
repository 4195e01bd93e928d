//! What is printed of a step of the live engine, beyond what the kubelet's loop has.

use brink_core::base::Moment;
use brink_core::node::action::Action;
use brink_core::node::condition::Condition;
use brink_core::node::order::{End, OpenOrder, Phase};
use brink_core::node::policy::Policy;
use brink_core::node::safety::Mode;
use serde::Serialize;

use super::line::StepLine;

/// One step, and what only the live engine has.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LiveLine<'a> {
    /// The same keys as without it.
    #[serde(flatten)]
    pub step: StepLine<'a>,
    /// `enforcing`, or why orders are not carried out.
    pub mode: &'static str,
    /// The order that is open after the step.
    pub order: Option<OrderLine<'a>>,
    /// Everything that was done and told since the step before.
    pub actions: Vec<ActionLine<'a>>,
}

/// The open order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OrderLine<'a> {
    /// Its number.
    pub id: u64,
    /// The victim.
    pub pod: Option<&'a str>,
    /// `asked` or `killed`.
    pub phase: &'static str,
    /// Whether nothing is really done.
    pub dry_run: bool,
}

/// One thing done or told. What does not belong to its kind is null.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ActionLine<'a> {
    /// When.
    pub at: String,
    /// What: `kill`, `ask`, `wouldEvict`, `ended`, `reclaim`, `crossed`, `cleared`, `held`,
    /// `conditions` or `mode`.
    pub action: &'static str,
    /// The order's number.
    pub order: Option<u64>,
    /// The pod.
    pub pod: Option<&'a str>,
    /// The threshold, as `signal<value for grace`.
    pub threshold: Option<String>,
    /// Why, in a word.
    pub reason: Option<&'static str>,
    /// When a grace ends.
    pub until: Option<String>,
    /// The conditions that are reported from now on.
    pub conditions: Option<Vec<&'static str>>,
}

/// Turns what an engine says into lines.
pub(super) struct Teller<'a> {
    /// The policy its thresholds refer to.
    pub(super) policy: &'a Policy,
    /// Names of the workloads, by index.
    pub(super) names: &'a [String],
}

impl<'a> Teller<'a> {
    /// The open order of an engine.
    pub(super) fn order(&self, order: &OpenOrder) -> OrderLine<'a> {
        OrderLine {
            id: order.id,
            pod: order.workload.map(|index| self.pod(index)),
            phase: match order.phase {
                Phase::Asked { .. } => "asked",
                Phase::Killed { .. } => "killed",
            },
            dry_run: order.dry_run,
        }
    }

    fn pod(&self, index: usize) -> &'a str {
        self.names.get(index).map_or("", String::as_str)
    }

    /// One action of an engine.
    pub(super) fn action(&self, at: Moment, action: Action) -> ActionLine<'a> {
        let mut line = ActionLine {
            at: at.since(Moment::START).to_string(),
            action: "",
            order: None,
            pod: None,
            threshold: None,
            reason: None,
            until: None,
            conditions: None,
        };
        match action {
            Action::Kill { order, workload } => {
                line.action = "kill";
                (line.order, line.pod) = (Some(order), Some(self.pod(workload)));
            }
            Action::Ask {
                order,
                workload,
                until,
            } => {
                line.action = "ask";
                (line.order, line.pod) = (Some(order), Some(self.pod(workload)));
                line.until = Some(until.since(Moment::START).to_string());
            }
            Action::WouldEvict { order, workload } => {
                line.action = "wouldEvict";
                (line.order, line.pod) = (Some(order), Some(self.pod(workload)));
            }
            Action::Ended { order, end } => {
                line.action = "ended";
                (line.order, line.reason) = (Some(order), Some(word_of_end(end)));
            }
            _ => return self.told(line, action),
        }
        line
    }

    fn told(&self, mut line: ActionLine<'a>, action: Action) -> ActionLine<'a> {
        let threshold = |index: usize| {
            let threshold = self.policy.thresholds().get(index);
            threshold.map(ToString::to_string)
        };
        (line.action, line.threshold, line.reason) = match action {
            Action::Reclaim { threshold: index } => ("reclaim", threshold(index), None),
            Action::Crossed { threshold: index } => ("crossed", threshold(index), None),
            Action::Cleared { threshold: index } => ("cleared", threshold(index), None),
            Action::Held {
                threshold: index,
                reason,
            } => ("held", threshold(index), Some(reason.word())),
            Action::Mode(mode) => ("mode", None, Some(word_of_mode(mode))),
            Action::Conditions(conditions) => {
                line.conditions = Some(conditions.iter().map(Condition::name).collect());
                ("conditions", None, None)
            }
            _ => ("", None, None),
        };
        line
    }
}

/// `enforcing`, or why not.
pub(super) const fn word_of_mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforcing => "enforcing",
        Mode::Observing(reason) => reason.word(),
    }
}

const fn word_of_end(end: End) -> &'static str {
    match end {
        End::MemoryBack => "memory-back",
        End::Relieved => "relieved",
        End::Gone => "gone",
        End::Stalled => "stalled",
        End::UnderReserve => "under-reserve",
        End::Overtaken => "overtaken",
        End::Failed => "failed",
        End::DryRun => "dry-run",
        End::Stopped => "stopped",
    }
}
