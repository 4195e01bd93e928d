//! Orders for limits of local storage: exactly the workload that is over its own, at once, and only where no order is open.

use super::super::action::{Action, Actions};
use super::super::decision::{Decision, Places, Ranked, Standing};
use super::super::input::Confirmation;
use super::super::limits::Exceeded;
use super::super::observe::{Observation, Observations};
use super::super::order::{OpenOrder, Phase, Remains, Stake};
use super::super::rank::Excess;
use super::super::safety::Mode;
use super::super::signal::Signal;
use super::super::threshold::{Threshold, ThresholdSet, Value};
use super::Engine;
use crate::base::{Moment, Reason, Span};

/// What the threshold of such an order is on: the disk that the kubelet counts local storage against.
const SIGNAL: Signal = Signal::NodefsAvailable;

impl Engine {
    /// Whether an order could be given on this workload now for a limit of its own. One that is not is to be told of again:
    /// it waits for the open order, and for kills that the guards leave to thresholds. The same workload is ordered again
    /// only after a while, so that one that is started again with the same files is not killed all the time.
    pub fn takes_limit(&self, now: Moment, workload: usize) -> bool {
        let may_go = |index: usize| {
            let row = self.table.rows().get(index)?;
            let is_left = self.protection_of(index).is_none()
                && !self.recent.holds(now, index)
                && self.evicted_by(now, index).is_none()
                && self.limited.evicted_by(now, index).is_none();
            Some(row.is_candidate && is_left)
        };
        let is_idle = self.open.is_none();
        let is_enforcing = self.mode(now) == Mode::Enforcing;
        self.policy.settings.local_storage_isolation
            && is_idle
            && (!is_enforcing || self.safety.has_to_spare(now))
            && may_go(workload) == Some(true)
    }

    /// Gives the order, if it can be given now.
    pub(super) fn exceeded(
        &mut self,
        now: Moment,
        workload: usize,
        (limit, memory): (Exceeded, Option<u64>),
        actions: &mut Actions,
    ) {
        let Some(mut decision) = self
            .draft_for_limit(now, workload, limit)
            .filter(|_| self.takes_limit(now, workload))
        else {
            return;
        };
        decision.mode = self.permit(now, actions);
        let (order, dry_run) = (decision.order, decision.mode != Mode::Enforcing);
        self.last_order = order;
        self.decision = Some(decision);
        self.limited.add(now, workload, order);
        let remains = Remains {
            memory,
            processes: None,
        };
        // Its memory comes back too, and whoever waits for memory waits for it; of its disk nobody does.
        let stake = (ThresholdSet::CAPACITY, Stake::Memory);
        let phase = Phase::Killed { at: now };
        let mut open = OpenOrder::new(order, (workload, remains), stake, phase, now);
        open.dry_run = dry_run;
        self.open = Some(open);
        if dry_run {
            actions.push(Action::WouldEvict { order, workload });
        } else {
            self.recent.add(now, workload, order);
            actions.push(Action::Kill { order, workload });
        }
    }

    fn draft_for_limit(&self, now: Moment, workload: usize, limit: Exceeded) -> Option<Decision> {
        let row = self.table.rows().get(workload)?;
        let victim = Ranked {
            workload: u32::try_from(workload).ok()?,
            standing: Standing {
                preference: row.preference,
                preference_by: row.preference_by,
                excess: Excess::Over,
                priority: row.priority,
                usage: i64::try_from(limit.used).ok(),
                request: row.storage_request.value(),
            },
            refusal: None,
        };
        let mut ranking = Places::default();
        ranking.push(victim);
        Some(Decision {
            order: self.last_order.saturating_add(1),
            at: now,
            reason: Reason::Hard,
            mode: Mode::Enforcing,
            threshold: ThresholdSet::CAPACITY,
            crossed: Threshold {
                signal: SIGNAL,
                grace: Span::ZERO,
                value: Value::Quantity(limit.limit),
                min_reclaim: None,
            },
            quantity: limit.limit,
            observation: Observation {
                available: limit.left(),
                capacity: limit.limit.value(),
                at: None,
            },
            observations: Observations::default(),
            limit: Some(limit),
            confirmation: Confirmation::default(),
            credit: 0,
            generation: self.table.generation(),
            victim,
            candidates: 1,
            ranking,
        })
    }
}
