//! The versioned wire form of a replayed step: what `brink replay -o json` prints. Fields are only ever added.

use std::sync::Arc;

use brink_core::base::Moment;
use brink_core::node::action::Action;
use brink_core::node::condition::Condition;
use brink_core::node::engine::Engine;
use brink_core::node::input::{Control, Delivery, Recalled, Unfinished};
use brink_core::node::order::Phase;
use brink_core::node::policy::Policy;
use brink_core::node::workload::{WorkloadTable, full_name};
use serde::Serialize;

use crate::guard::step::Kind;
use crate::record::wire::{Time, wall_clock};
use crate::record::words::{mode_word, word_of};
use crate::runtime::journal::Clocks;

/// One step again.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplayedStep {
    /// Line of the journal.
    pub line: u64,
    /// When it happened.
    pub at: Time,
    /// Which input it was.
    pub input: InputView,
    /// What the engine answers now.
    pub actions: Vec<ActionView>,
    /// What it answered then.
    pub recorded: Vec<ActionView>,
    /// Whether they differ.
    pub differs: bool,
}

/// What came of a journal: the last line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Steps replayed.
    pub steps: u64,
    /// Steps whose answers differ from the recorded ones.
    pub differing: u64,
    /// Steps that the journal says are missing.
    pub lost: u64,
    /// Steps that are missing though the journal does not say so: somebody has taken them out.
    pub cut: u64,
    /// Steps that stand behind later ones.
    pub misplaced: u64,
    /// The first line that one of these was noticed at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damaged_line: Option<u64>,
    /// Decisions recorded.
    pub decisions: u64,
    /// Whether it continues a journal that was put aside or interrupted: the first answers may differ for want of what came before.
    pub continues: bool,
}

/// An input, with names in the place of indexes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(
    tag = "kind",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum InputView {
    /// Nothing but time.
    Tick,
    /// A new table of workloads.
    Workloads,
    /// Fresh figures.
    Sample,
    /// A workload's last process is gone.
    Gone {
        /// `namespace/name`; none if the journal does not know it.
        workload: Option<String>,
        /// Bytes of files in memory that stay until volumes are unmounted; left out where there are none.
        #[serde(skip_serializing_if = "Option::is_none")]
        kept_bytes: Option<u64>,
        /// Bytes that nobody saw come back before its cgroups were removed; left out where there are none.
        #[serde(skip_serializing_if = "Option::is_none")]
        unseen_bytes: Option<u64>,
    },
    /// Somebody else killed in it.
    Dying {
        /// `namespace/name`; none if the journal does not know it.
        workload: Option<String>,
        /// Bytes the dead process held.
        charged_bytes: u64,
    },
    /// What became of a kill.
    Outcome {
        /// The order's number.
        order: u64,
        /// `done`, `empty` (nobody was left) or `failed`.
        delivered: &'static str,
        /// Processes signalled.
        processes: u32,
    },
    /// Reclaim on the node has run.
    Reclaimed,
    /// Its time ran out while it brought something.
    ReclaimedInPart,
    /// It was only asked what would be brought.
    WouldReclaim {
        /// Bytes, as the container runtime says.
        said_bytes: u64,
    },
    /// A workload uses more of local storage than it may.
    Exceeded {
        /// `namespace/name`; none if the journal does not know it.
        workload: Option<String>,
        /// Which limit, as the kubelet's metrics have it: `emptydirfs.limit` and the like.
        limit: &'static str,
        /// The limit, in bytes.
        limit_bytes: i64,
        /// What was measured, in bytes.
        used_bytes: u64,
    },
    /// The stop button, for a time or until further notice.
    Pause {
        /// How long, in milliseconds.
        for_ms: Option<i64>,
    },
    /// A pause is lifted.
    Unpause,
    /// A pause and a tripped guard are lifted.
    Resume,
    /// Whether another agent enforces on this node.
    Standby {
        /// It does.
        on: bool,
    },
    /// Whether the configuration says to enforce.
    Enforce {
        /// It does.
        on: bool,
    },
    /// Whether a kubelet was found to own the container runtime.
    Kubelet {
        /// One does.
        on: bool,
    },
    /// Whether what workloads hold of disks is still to be measured: for the first time, or once more since one ran short.
    Measuring {
        /// It is, and it is waited for.
        on: bool,
    },
    /// Another configuration.
    Reconfigure,
    /// The last run's orders went up to this number.
    RecallOrder {
        /// The number.
        order: u64,
    },
    /// The last run killed.
    RecallKill {
        /// When.
        at: Time,
        /// Of a kill for a shortage of process ids, how many come back once the killed are reaped; 0 of any other.
        ids: u32,
    },
    /// The last run evicted a pod that is still on the node.
    RecallEvicted {
        /// The order's number.
        order: u64,
        /// `namespace/name`; none if the journal does not know it.
        workload: Option<String>,
        /// When the pod was killed; when the order was given, if it ended before that.
        at: Time,
    },
    /// The last run's order was not over when its agent ended.
    RecallOpen {
        /// The order's number.
        order: u64,
        /// `namespace/name`; none if the journal does not know it.
        workload: Option<String>,
        /// When it was given.
        opened: Time,
        /// When the victim that was asked to end is to be killed; none if it had been killed.
        until: Option<Time>,
        /// When it had been killed; none if it had only been asked to end.
        killed: Option<Time>,
        /// Whether the signals are known to have been sent, to somebody who was still there.
        sent: bool,
    },
    /// The guard did not run although it was due; the dead are waited for as much longer.
    RecallMissed {
        /// For how long, in milliseconds.
        millis: i64,
    },
    /// A threshold is met, and its grace counts from a moment that is told now: the last run knew it, or nobody looked in between.
    RecallMet {
        /// Which; none if the policy has no such threshold.
        threshold: Option<ThresholdName>,
        /// Since when.
        since: Time,
    },
}

/// An answer, with names in the place of indexes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(
    tag = "action",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum ActionView {
    /// Kill every process of the workload now.
    Kill {
        /// The order's number.
        order: u64,
        /// `namespace/name`; none if the journal does not know it.
        workload: Option<String>,
    },
    /// Ask every process of the workload to end.
    Ask {
        /// The order's number.
        order: u64,
        /// `namespace/name`; none if the journal does not know it.
        workload: Option<String>,
        /// When the kill follows.
        until: Time,
    },
    /// What would have been done if orders were carried out.
    WouldEvict {
        /// The order's number.
        order: u64,
        /// `namespace/name`; none if the journal does not know it.
        workload: Option<String>,
    },
    /// An order is over.
    Ended {
        /// The order's number.
        order: u64,
        /// Why.
        end: String,
    },
    /// Reclaim on the node comes before any workload.
    Reclaim {
        /// What it is for.
        threshold: Option<ThresholdName>,
    },
    /// A threshold is crossed.
    Crossed {
        /// Which.
        threshold: Option<ThresholdName>,
    },
    /// A threshold is no longer met.
    Cleared {
        /// Which.
        threshold: Option<ThresholdName>,
    },
    /// A threshold is due and not acted on.
    Held {
        /// Which.
        threshold: Option<ThresholdName>,
        /// Why.
        reason: &'static str,
    },
    /// The node's conditions.
    Conditions {
        /// Those that hold now.
        conditions: Vec<&'static str>,
    },
    /// Whether orders are carried out.
    Mode {
        /// `enforcing`, or why orders are only observed.
        mode: &'static str,
    },
}

/// What tells one threshold from another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ThresholdName {
    /// Its signal.
    pub signal: &'static str,
    /// As written: `100Mi`, `10%`.
    pub value: String,
    /// Whether it acts at once.
    pub hard: bool,
    /// Its grace, in seconds.
    pub grace_seconds: i64,
}

/// What gives indexes and moments their names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Namer<'a> {
    clocks: Clocks,
    policy: &'a Policy,
    table: &'a Arc<WorkloadTable>,
}

impl<'a> Namer<'a> {
    /// The names that an engine's answers refer to.
    pub(super) const fn new(engine: &'a Engine, clocks: Clocks) -> Self {
        Self {
            clocks,
            policy: engine.policy(),
            table: engine.table(),
        }
    }

    pub(super) fn time(&self, at: Moment) -> Time {
        Time {
            wall: wall_clock(self.clocks.realtime_of(at)),
            monotonic_ns: at.as_nanos(),
        }
    }

    fn workload(&self, index: usize) -> Option<String> {
        let workload = self.table.workloads().get(index)?;
        Some(full_name(&workload.namespace, &workload.name))
    }

    fn threshold(&self, index: usize) -> Option<ThresholdName> {
        let threshold = self.policy.thresholds().get(index)?;
        Some(ThresholdName {
            signal: threshold.signal.name(),
            value: threshold.value.to_string(),
            hard: threshold.is_hard(),
            grace_seconds: threshold.grace.as_secs(),
        })
    }

    pub(super) fn actions(&self, actions: &[Action]) -> Vec<ActionView> {
        actions.iter().map(|&action| self.action(action)).collect()
    }

    fn action(&self, action: Action) -> ActionView {
        match action {
            Action::Kill { order, workload } => ActionView::Kill {
                order,
                workload: self.workload(workload),
            },
            Action::Ask {
                order,
                workload,
                until,
            } => ActionView::Ask {
                order,
                workload: self.workload(workload),
                until: self.time(until),
            },
            Action::WouldEvict { order, workload } => ActionView::WouldEvict {
                order,
                workload: self.workload(workload),
            },
            Action::Ended { order, end } => ActionView::Ended {
                order,
                end: word_of(&end),
            },
            Action::Conditions(set) => ActionView::Conditions {
                conditions: set.iter().map(Condition::name).collect(),
            },
            Action::Mode(mode) => ActionView::Mode {
                mode: mode_word(mode),
            },
            Action::Reclaim { threshold }
            | Action::Crossed { threshold }
            | Action::Cleared { threshold }
            | Action::Held { threshold, .. } => self.of_threshold(action, threshold),
        }
    }

    fn of_threshold(&self, action: Action, index: usize) -> ActionView {
        let threshold = self.threshold(index);
        match action {
            Action::Reclaim { .. } => ActionView::Reclaim { threshold },
            Action::Cleared { .. } => ActionView::Cleared { threshold },
            Action::Held { reason, .. } => ActionView::Held {
                threshold,
                reason: reason.word(),
            },
            _ => ActionView::Crossed { threshold },
        }
    }

    fn unfinished(&self, before: &Unfinished) -> InputView {
        let (until, killed) = match before.phase {
            Phase::Asked { until } => (Some(self.time(until)), None),
            Phase::Killed { at } => (None, Some(self.time(at))),
        };
        InputView::RecallOpen {
            order: before.order,
            workload: self.workload(before.workload),
            opened: self.time(before.opened),
            until,
            killed,
            sent: before.is_sent,
        }
    }

    pub(super) fn input(&self, kind: Kind) -> InputView {
        match kind {
            Kind::Tick => InputView::Tick,
            Kind::Workloads => InputView::Workloads,
            Kind::Sample => InputView::Sample,
            Kind::Gone {
                workload,
                kept,
                unseen,
            } => InputView::Gone {
                workload: self.workload(workload),
                kept_bytes: (kept > 0).then_some(kept),
                unseen_bytes: (unseen > 0).then_some(unseen),
            },
            Kind::Dying { workload, charged } => InputView::Dying {
                workload: self.workload(workload),
                charged_bytes: charged,
            },
            Kind::Outcome { order, delivered } => outcome(order, delivered),
            Kind::Reclaimed => InputView::Reclaimed,
            Kind::ReclaimedInPart => InputView::ReclaimedInPart,
            Kind::WouldReclaim { bytes } => InputView::WouldReclaim { said_bytes: bytes },
            Kind::Exceeded {
                workload, limit, ..
            } => InputView::Exceeded {
                workload: self.workload(workload),
                limit: limit.kind.name(),
                limit_bytes: limit.limit.value(),
                used_bytes: limit.used,
            },
            Kind::Control(control) => self::control(control),
            Kind::Reconfigure => InputView::Reconfigure,
            Kind::Recall(Recalled::LastOrder(order)) => InputView::RecallOrder { order },
            Kind::Recall(Recalled::Kill { at, ids }) => InputView::RecallKill {
                at: self.time(at),
                ids,
            },
            Kind::Recall(Recalled::Evicted {
                workload,
                order,
                at,
            }) => InputView::RecallEvicted {
                order,
                workload: self.workload(workload),
                at: self.time(at),
            },
            Kind::Recall(Recalled::Unfinished(before)) => self.unfinished(&before),
            Kind::Recall(Recalled::Missed(time)) => InputView::RecallMissed {
                millis: time.as_nanos() / 1_000_000,
            },
            Kind::Recall(Recalled::Met { threshold, since }) => InputView::RecallMet {
                threshold: self.threshold(threshold),
                since: self.time(since),
            },
        }
    }
}

const fn outcome(order: u64, delivered: Delivery) -> InputView {
    let (delivered, processes) = match delivered {
        Delivery::Done { processes } => ("done", processes),
        Delivery::Empty => ("empty", 0),
        Delivery::Failed => ("failed", 0),
    };
    InputView::Outcome {
        order,
        delivered,
        processes,
    }
}

fn control(control: Control) -> InputView {
    match control {
        Control::Pause(length) => InputView::Pause {
            for_ms: length.map(|length| length.as_nanos().saturating_add(500_000) / 1_000_000),
        },
        Control::Unpause => InputView::Unpause,
        Control::Resume => InputView::Resume,
        Control::Standby(on) => InputView::Standby { on },
        Control::Enforce(on) => InputView::Enforce { on },
        Control::Kubelet(on) => InputView::Kubelet { on },
        Control::Measuring(on) => InputView::Measuring { on },
    }
}
