//! What the kubelet would have done, from the course the node was on when an order was given.

use std::sync::Arc;

use brink_core::base::Moment;
use brink_core::node::gate::GateState;
use brink_core::node::shadow::{Course as Outlook, MemoryRates, fates};

use super::state::State;
use crate::guard::board::Board;
use crate::guard::roster::Roster;
use crate::guard::step::Step;

/// The board of the newest roster, for whoever works out growth.
#[derive(Debug, Default)]
pub struct BoardCell(std::sync::Mutex<Option<BoardView>>);

#[derive(Clone, Debug)]
struct BoardView {
    board: Arc<Board>,
    workloads: Vec<usize>,
}

impl BoardCell {
    /// Remembers the board of a roster that is about to be handed to the guard.
    pub fn set(&self, roster: &Roster) {
        let view = BoardView {
            board: Arc::clone(&roster.board),
            workloads: roster
                .members
                .iter()
                .map(|member| member.workload)
                .collect(),
        };
        *self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = Some(view);
    }

    /// Growth of each of `count` workloads, in bytes a second.
    fn growth(&self, count: usize) -> Vec<i64> {
        let mut growth = vec![0_i64; count];
        let view = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone();
        let Some(view) = view else {
            return growth;
        };
        for (member, &workload) in view.workloads.iter().enumerate() {
            if let (Some(sum), Some(figures)) = (growth.get_mut(workload), view.board.get(member)) {
                *sum = sum.saturating_add(figures.growth());
            }
        }
        growth
    }
}

/// Works out what the kubelet would have done, from the course the node was on.
pub(super) fn foresee(board: &BoardCell, state: &mut State, step: &Step, order: u64) {
    let Some(table) = state.table_of(step.generation).cloned() else {
        return;
    };
    let growth = board.growth(table.len());
    let rates = rates(state, step.at);
    let headroom = step.confirmation.node.map(|bytes| {
        bytes.saturating_add(i64::try_from(step.confirmation.swap).unwrap_or(i64::MAX))
    });
    let fates = fates(&Outlook {
        policy: &state.policy,
        gate: &GateState::default(),
        now: step.at,
        observations: &step.observations,
        rates,
        headroom,
        table: &table,
        usage: &step.usage,
        growth: &growth,
    });
    state.foreseen = Some((order, fates, table));
}

/// How fast memory runs short: from the oldest reading of the last second.
fn rates(state: &State, now: Moment) -> MemoryRates {
    let second = brink_core::base::Span::from_secs(1);
    let recent = state
        .readings
        .iter()
        .find(|course| now.since(course.at) <= second);
    let before = recent.filter(|course| course.at < now);
    let older = || state.readings.iter().rev().find(|course| course.at < now);
    let (Some(before), Some(last)) = (before.or_else(older), state.readings.back()) else {
        return MemoryRates::default();
    };
    let nanos = i128::from(last.at.since(before.at).as_nanos());
    let rate = |now: Option<i64>, then: Option<i64>| {
        let (Some(now), Some(then)) = (now, then) else {
            return 0;
        };
        let change = (i128::from(now) - i128::from(then)) * 1_000_000_000;
        i64::try_from(change.checked_div(nanos).unwrap_or(0)).unwrap_or(0)
    };
    MemoryRates {
        available: rate(last.available, before.available),
        allocatable: rate(last.allocatable, before.allocatable),
        headroom: rate(last.headroom, before.headroom),
    }
}
