//! What the kubelet would have done, from the course the node was on when an order was given.

use std::sync::Arc;

use brink_core::base::Moment;
use brink_core::node::gate::GateState;
use brink_core::node::policy::Policy;
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
    let policy = state.kubelets.as_ref().unwrap_or(&state.policy);
    let fates = fates(&Outlook {
        policy,
        gate: &gate(state, policy),
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

/// Since when each of the kubelet's thresholds has been met. That is known of those that are ours too; of one that was
/// raised only that it is not met earlier than ours, so its grace counts from now.
fn gate(state: &State, kubelets: &Policy) -> GateState {
    let mut gate = GateState::default();
    let ours = state.policy.thresholds();
    for (index, threshold) in kubelets.thresholds().iter().enumerate() {
        let same = ours.iter().position(|our| our.is_same_as(threshold));
        let since = same.and_then(|same| *state.met_since.get(same)?);
        if let Some(since) = since {
            gate.resume(index, since);
        }
    }
    gate
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

#[cfg(test)]
mod tests {
    use brink_core::base::{Quantity, Span};
    use brink_core::node::engine::MemoryPolicy;
    use brink_core::node::observe::{Layout, Observation};
    use brink_core::node::policy::Settings;
    use brink_core::node::safety::Mode;
    use brink_core::node::shadow::{Fate, PHASES};
    use brink_core::node::signal::Signal;
    use brink_core::node::threshold::{Threshold, Value};
    use brink_core::node::workload::{PodUsage, Workload, WorkloadTable};

    use super::*;

    const MIB: i64 = 1 << 20;

    fn policy(thresholds: &[(i64, i64)]) -> Policy {
        let threshold = |&(mib, grace): &(i64, i64)| Threshold {
            signal: Signal::MemoryAvailable,
            grace: Span::from_secs(grace),
            value: Value::Quantity(Quantity::from_bytes(mib * MIB)),
            min_reclaim: None,
        };
        let thresholds = thresholds.iter().map(threshold).collect();
        Policy::new(thresholds, Layout::Single, Settings::default())
    }

    /// What is foreseen with 150 MiB left, for good, by the policy in force and the kubelet's own; the first threshold in
    /// force has been met for so many seconds.
    fn foreseen(ours: &[(i64, i64)], kubelets: Option<&[(i64, i64)]>, met: i64) -> [Fate; PHASES] {
        let mut state = State::new(policy(ours), MemoryPolicy::Kubelet, Mode::Enforcing);
        state.kubelets = kubelets.map(policy);
        let now = Moment::from_secs(1000);
        state.met_since[0] = Some(now - Span::from_secs(met));
        let table = WorkloadTable::new(vec![Workload::default()], 1);
        state.tables.push_back(Arc::new(table));
        let mut step = Step {
            at: now,
            generation: 1,
            usage: vec![Some(PodUsage {
                memory: Some(1 << 30),
                ..PodUsage::default()
            })],
            ..Step::default()
        };
        step.observations[Signal::MemoryAvailable] = Some(Observation {
            available: 150 * MIB,
            capacity: 4096 * MIB,
            at: Some(now),
        });
        foresee(&BoardCell::default(), &mut state, &step, 7);
        let (order, fates, _) = state.foreseen.unwrap();
        assert_eq!(order, 7);
        fates
    }

    fn after(fates: [Fate; PHASES]) -> [i64; PHASES] {
        fates.map(|fate| match fate {
            Fate::Evicts { after, .. } => after.as_secs(),
            _ => -1,
        })
    }

    #[test]
    fn the_kubelet_goes_by_its_own_threshold_and_not_by_ours() {
        let raised = [(164, 0)];
        let never = foreseen(&raised, Some(&[(100, 0)]), 0);
        assert_eq!(never, [Fate::Nothing; PHASES]);
        let looks = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
        assert_eq!(after(foreseen(&raised, Some(&[(151, 0)]), 0)), looks);
        assert_eq!(after(foreseen(&raised, None, 0)), looks, "ours are its own");
    }

    #[test]
    fn a_grace_that_runs_already_is_not_begun_anew() {
        let soft = [(200, 60)];
        let met = foreseen(&soft, Some(&soft), 60);
        assert_eq!(after(met), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        // The kubelet's is another threshold: nobody knows since when it is met.
        let other = foreseen(&soft, Some(&[(190, 60)]), 60);
        assert_eq!(after(other)[0], 60);
    }
}
