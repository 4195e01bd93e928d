//! The live engine: the kubelet's rules at every sample, and the rules above them.
//!
//! Those keep at most one order open, wait for memory on its way back, and can be stopped.

mod decide;
mod disks;
mod follow;
mod held;
mod limits;
#[cfg(test)]
mod properties;
mod recall;
mod reclaiming;
#[cfg(test)]
mod tests;

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::action::Actions;
use super::condition::{Condition, ConditionSet};
use super::credit::{Credit, Dying};
use super::decision::Decision;
use super::gate::GateState;
use super::input::{Control, Input, Sample};
use super::observe::Observations;
use super::order::OpenOrder;
use super::policy::Policy;
use super::reaping::Reaping;
use super::recent::Recent;
use super::safety::{Limits, Mode, Safety};
use super::threshold::ThresholdSet;
use super::workload::WorkloadTable;
use crate::base::{Moment, Reason};

use disks::Debts;
pub use disks::Disks;
use reclaiming::{Came, Reclaiming};

/// Whose word is enough for a kill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum MemoryPolicy {
    /// `memory.available` alone, as on the kubelet.
    Kubelet,
    /// `memory.available`, and headroom with usable swap below the same amount too.
    #[default]
    Confirmed,
}

/// What the live rules need beyond the kubelet's policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LiveSettings {
    /// Whether orders are carried out.
    pub enforce: bool,
    /// Whose word is enough.
    pub memory: MemoryPolicy,
    /// Limits on the number of kills.
    pub limits: Limits,
    /// Who keeps the filesystems.
    #[cfg_attr(feature = "serde", serde(default))]
    pub disks: Disks,
}

/// The live engine; everything it knows came through [`Engine::step`].
#[derive(Debug)]
pub struct Engine {
    policy: Policy,
    memory: MemoryPolicy,
    gate: GateState,
    /// Thresholds that were ready at the last sample, and confirmed: these stay so until their minimum reclaim is there.
    confirmed: ThresholdSet,
    table: Arc<WorkloadTable>,
    safety: Safety,
    open: Option<OpenOrder>,
    credit: Credit,
    reaping: Reaping,
    recent: Recent,
    /// Whom orders went to for limits of their own.
    limited: Recent,
    last_order: u64,
    reclaim: Reclaiming,
    disks: Disks,
    /// Whether a kubelet keeps the filesystems; unknown until somebody has looked.
    by_kubelet: Option<bool>,
    /// What workloads hold of filesystems is not known of all of them yet, or only as of before one ran short.
    is_measuring: bool,
    debts: Debts,
    order: Vec<u32>,
    decision: Option<Decision>,
    told: ToldBefore,
}

/// What was told last, so that only changes are told.
#[derive(Debug)]
struct ToldBefore {
    met: ThresholdSet,
    conditions: ConditionSet,
    mode: Mode,
    held: [Option<Reason>; ThresholdSet::CAPACITY],
}

impl Engine {
    /// An engine that has seen nothing yet.
    pub fn new(policy: Policy, settings: LiveSettings, now: Moment) -> Self {
        let safety = Safety::new(settings.enforce, settings.limits, now);
        let told = ToldBefore {
            met: ThresholdSet::EMPTY,
            conditions: ConditionSet::EMPTY,
            mode: safety.mode(now),
            held: [None; ThresholdSet::CAPACITY],
        };
        Self {
            policy,
            memory: settings.memory,
            gate: GateState::default(),
            confirmed: ThresholdSet::EMPTY,
            table: Arc::new(WorkloadTable::default()),
            safety,
            open: None,
            credit: Credit::default(),
            reaping: Reaping::default(),
            recent: Recent::default(),
            limited: Recent::default(),
            last_order: 0,
            reclaim: Reclaiming::default(),
            disks: settings.disks,
            by_kubelet: None,
            is_measuring: false,
            debts: Debts::default(),
            order: Vec::new(),
            decision: None,
            told,
        }
    }

    /// Takes one input in and answers in `actions`, which is cleared first.
    ///
    /// Allocates only for [`Input::Workloads`].
    pub fn step(&mut self, now: Moment, input: Input<'_>, actions: &mut Actions) {
        actions.clear();
        match input {
            Input::Workloads(table) => self.replace_table(now, table, actions),
            Input::Sample(sample) => self.sample(now, sample, actions),
            Input::Gone {
                workload,
                kept,
                unseen,
            } => {
                let is_waited_for = self.waits_for(workload);
                // Nothing else of it comes back.
                self.credit.forget(workload);
                if is_waited_for {
                    self.credit.add_nobodys(unseen, now);
                }
                if !self.is_by_kubelet(workload) {
                    self.recent.forget(workload);
                } else if kept > 0 {
                    self.credit.add(Dying::mounted(workload, kept, now));
                }
                if let Some(order) = self.open_on(workload) {
                    order.mark_gone(now);
                }
            }
            Input::Dying { workload, charged } => {
                self.credit.add(Dying::new(workload, charged, None, now));
            }
            Input::Outcome { order, delivered } => self.outcome(now, order, delivered, actions),
            Input::Reclaimed => self.reclaim.finish(now, Came::All),
            Input::ReclaimedInPart => self.reclaim.finish(now, Came::Part),
            Input::WouldReclaim { bytes } => self.reclaim.finish(now, Came::Said(bytes)),
            Input::Exceeded {
                workload,
                limit,
                memory,
            } => self.exceeded(now, workload, (limit, memory), actions),
            Input::Control(Control::Kubelet(owns)) => self.by_kubelet = Some(owns),
            Input::Control(Control::Measuring(is_waited_for)) => self.is_measuring = is_waited_for,
            Input::Control(request) => self.safety.control(now, request),
            Input::Reconfigure(new) => self.reconfigure(now, new),
            Input::Recall(recalled) => self.recall(now, recalled, actions),
            Input::Tick => {}
        }
        self.pass_time(now, actions);
    }

    /// Whether a sample at `now` could bring a new order: none is open, or the open one is over with it or overtaken.
    pub fn may_order(&self, now: Moment, sample: &Sample<'_>, met: ThresholdSet) -> bool {
        let Some(mut order) = self.open.clone() else {
            return true;
        };
        if order.waits_for_disk() && met != self.disks_in(met) {
            return true;
        }
        self.show(&mut order, now, sample);
        let crossed = follow::is_crossed(&order, met);
        order
            .end(now, crossed, self.is_under_reserve(sample))
            .is_some()
    }

    /// Whether anybody is waited for who was killed.
    pub fn waits_for_the_dead(&self) -> bool {
        let is_killed = |order: &OpenOrder| !order.is_soft() && !order.dry_run;
        self.open.as_ref().is_some_and(is_killed) || self.credit.is_owed()
    }

    /// When the engine wants to be stepped again with a fresh sample, if nothing happens before.
    pub fn next_wake(&self, now: Moment) -> Option<Moment> {
        let order = self.open.as_ref().map(OpenOrder::next_wake);
        let graces = self.told.met.iter().filter_map(|index| {
            let grace = self.policy.thresholds().get(index)?.grace;
            Some(self.gate.first_observed(index)? + grace)
        });
        let period = self.policy.settings.pressure_transition;
        let fading = Condition::ALL
            .into_iter()
            .filter_map(|condition| Some(self.gate.last_seen(condition)? + period));
        let others = [order, self.credit.next_wake(), self.safety.next_wake(now)];
        let others = others.into_iter().chain(self.reaping.ends()).flatten();
        let all = graces.chain(fading).chain(others);
        all.filter(|&at| at > now).min()
    }

    /// The policy that indexes of thresholds refer to.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The table that indexes of workloads refer to.
    pub const fn table(&self) -> &Arc<WorkloadTable> {
        &self.table
    }

    /// What the last order rests on.
    pub const fn decision(&self) -> Option<&Decision> {
        self.decision.as_ref()
    }

    /// Whether orders are carried out at `now`.
    pub fn mode(&self, now: Moment) -> Mode {
        self.safety.mode(now)
    }

    /// The open order, if there is one.
    pub const fn open_order(&self) -> Option<&OpenOrder> {
        self.open.as_ref()
    }

    /// Whether memory of a workload is waited for: what it uses is to be as fresh as it can be.
    pub fn waits_for(&self, workload: usize) -> bool {
        let is_open = |order: &OpenOrder| !order.dry_run && order.workload == Some(workload);
        self.credit.covers(workload) || self.open.as_ref().is_some_and(is_open)
    }

    /// The order by which a pod that a kubelet runs is evicted, while whatever is started in it again belongs to that.
    pub fn evicted_by(&self, now: Moment, workload: usize) -> Option<u64> {
        let order = || self.recent.evicted_by(now, workload);
        self.is_by_kubelet(workload).then(order).flatten()
    }

    fn is_by_kubelet(&self, workload: usize) -> bool {
        let found = self.table.workloads().get(workload);
        found.is_some_and(|workload| workload.by_kubelet)
    }

    /// The thresholds that these observations show as met, with those that are held until their minimum reclaim is there.
    pub fn met_in(&self, seen: &Observations) -> ThresholdSet {
        self.gate.met(&self.policy, seen)
    }

    /// The state of the gate: since when thresholds are met, and conditions were last seen.
    pub const fn gate(&self) -> &GateState {
        &self.gate
    }
}
