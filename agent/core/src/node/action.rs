//! What the live engine answers: the closed set of actions, in a buffer of fixed size.

use super::condition::ConditionSet;
use super::order::End;
use super::safety::Mode;
use crate::base::{Moment, Reason};

/// One thing to do or to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub enum Action {
    /// Kill every process of the workload now.
    Kill {
        /// The order's number.
        order: u64,
        /// Index in the current table.
        workload: usize,
    },
    /// Ask every process of the workload to end; a kill follows at `until`.
    Ask {
        /// The order's number.
        order: u64,
        /// Index in the current table.
        workload: usize,
        /// End of the grace period.
        until: Moment,
    },
    /// What would have been done if orders were carried out.
    WouldEvict {
        /// The order's number.
        order: u64,
        /// Index in the current table.
        workload: usize,
    },
    /// An order is over.
    Ended {
        /// The order's number.
        order: u64,
        /// Why.
        end: End,
    },
    /// Reclaim on the node before any workload dies.
    Reclaim {
        /// Index of the threshold it is for.
        threshold: usize,
    },
    /// A threshold is crossed.
    Crossed {
        /// Index in the policy.
        threshold: usize,
    },
    /// A threshold is no longer met, minimum reclaim included.
    Cleared {
        /// Index in the policy.
        threshold: usize,
    },
    /// A threshold that is ready is not acted on; told when the reason changes.
    Held {
        /// Index in the policy.
        threshold: usize,
        /// Why.
        reason: Reason,
    },
    /// The node conditions changed.
    Conditions(ConditionSet),
    /// Whether orders are carried out changed.
    Mode(Mode),
}

/// The answers to one input, in order.
#[derive(Clone, Debug)]
pub struct Actions {
    items: [Action; Self::CAPACITY],
    len: usize,
    lost: u64,
}

impl Default for Actions {
    fn default() -> Self {
        Self {
            items: [Action::Conditions(ConditionSet::EMPTY); Self::CAPACITY],
            len: 0,
            lost: 0,
        }
    }
}

impl Actions {
    /// One step crosses, clears or holds each threshold at most once and adds a handful of others.
    pub const CAPACITY: usize = 80;

    /// Forgets the answers of the last input.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// The answers.
    pub fn as_slice(&self) -> &[Action] {
        &self.items[..self.len]
    }

    /// Answers that found no room since the start; anything but zero is a defect.
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    pub(super) fn push(&mut self, action: Action) {
        if let Some(slot) = self.items.get_mut(self.len) {
            *slot = action;
            self.len += 1;
        } else {
            self.lost += 1;
        }
    }
}
