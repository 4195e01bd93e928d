//! Workloads over a limit of their own: told by the thread that measures, ordered by the engine if it can be now.

use brink_core::node::input::Input;
use brink_core::node::limits::Exceeded;

use super::{Guard, now};
use crate::ledger::entry::Stages;

impl Guard {
    /// Feeds it to the engine, if an order could come of it. Nothing is lost otherwise: it is told again as long as it holds.
    pub(super) fn take_exceeded(&mut self, generation: u64, workload: usize, limit: Exceeded) {
        let at = now();
        let is_same = generation == self.engine.table().generation();
        if !is_same || !self.engine.takes_limit(at, workload) {
            return;
        }
        let Some(used) = self
            .usage_now(workload)
            .filter(|used| used.processes != Some(0))
        else {
            return;
        };
        let input = Input::Exceeded {
            workload,
            limit,
            memory: used.memory,
        };
        let stages = Stages {
            sampled: Some(at),
            woke: Some(self.awake.at),
            ..Stages::default()
        };
        self.engine.step(at, input.clone(), &mut self.actions);
        self.conclude(at, &input, None, stages);
    }
}
