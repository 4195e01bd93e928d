//! What outlives an agent: graces, kills, and the order that was open when it ended.

use super::super::action::{Action, Actions};
use super::super::credit::Dying;
use super::super::input::{Recalled, Unfinished};
use super::super::order::{OpenOrder, Phase, Remains, Stake};
use super::super::safety::Mode;
use super::super::threshold::ThresholdSet;
use super::Engine;
use crate::base::Moment;

impl Engine {
    /// Soft graces that began before a restart go on, kills count for the guards, and numbers of orders stay unique.
    pub(super) fn recall(&mut self, now: Moment, recalled: Recalled, actions: &mut Actions) {
        match recalled {
            Recalled::LastOrder(last) => self.last_order = self.last_order.max(last),
            Recalled::Kill { at, ids } => {
                self.safety.recall(at);
                if ids > 0 {
                    self.reaping.recall(at, ids);
                }
            }
            Recalled::Met { threshold, since } => self.gate.resume(threshold, since),
            Recalled::Evicted {
                workload,
                order,
                at,
            } => self.recent.add(at, workload, order),
            Recalled::Unfinished(order) => self.take_up(now, &order, actions),
            Recalled::Missed(time) => {
                self.credit.missed(now, time);
                if let Some(order) = &mut self.open {
                    order.missed(now, time);
                }
            }
        }
    }

    /// Goes on with an order as if there had been no restart.
    fn take_up(&mut self, now: Moment, before: &Unfinished, actions: &mut Actions) {
        self.last_order = self.last_order.max(before.order);
        if self.table.workloads().get(before.workload).is_none() {
            return;
        }
        match before.phase {
            Phase::Asked { until } => self.take_up_asked(now, before, until, actions),
            Phase::Killed { at } => {
                // Whoever may not have been killed can be chosen again, by what is known then.
                if before.is_sent {
                    self.recent.add(at, before.workload, before.order);
                }
                if before.signal.is_memory() {
                    let dying = Dying::new(before.workload, before.charged, None, now);
                    self.credit.add(dying.killed_at(at));
                }
            }
        }
    }

    /// The victim keeps its deadline. One that may not have heard is asked again, and has its whole grace.
    fn take_up_asked(
        &mut self,
        now: Moment,
        before: &Unfinished,
        until: Moment,
        actions: &mut Actions,
    ) {
        let may_go_on =
            self.mode(now) == Mode::Enforcing && self.protection_of(before.workload).is_none();
        if self.open.is_some() || !may_go_on {
            return;
        }
        let until = if before.is_sent {
            until
        } else {
            now + until.since(before.opened)
        };
        let remains = Remains {
            memory: Some(before.charged),
            processes: None,
        };
        let threshold = before.threshold.unwrap_or(ThresholdSet::CAPACITY);
        self.open = Some(OpenOrder::new(
            before.order,
            (before.workload, remains),
            (threshold, Stake::of(before.signal)),
            Phase::Asked { until },
            before.opened,
        ));
        self.recent
            .add(before.opened, before.workload, before.order);
        if !before.is_sent {
            actions.push(Action::Ask {
                order: before.order,
                workload: before.workload,
                until,
            });
        }
    }
}
