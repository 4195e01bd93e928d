//! Running a scenario through the kubelet's loop alone.

use brink_core::node::kubelet::{Kubelet, Snapshot};
use brink_core::node::workload::{Stage, Workload, WorkloadTable};

use super::line::StepLine;
use super::{Scenario, Step, name_of};

/// Evaluates every step and hands its line to `tell`, which can stop it by an error.
///
/// An eviction counts as carried out before the next step; the pod stays a candidate until it is
/// gone.
///
/// # Errors
/// What `tell` returns.
pub fn run<E>(
    scenario: &Scenario,
    mut tell: impl FnMut(&StepLine<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut kubelet = Kubelet::new(&scenario.policy, scenario.layout);
    let mut pods = Pods::new(&scenario.pods);
    for step in &scenario.steps {
        pods.end(&step.gone);
        let snapshot = snapshot(step, &pods.table);
        let cycle = kubelet.cycle(step.now, &snapshot);
        tell(&StepLine::of(
            &step.at,
            kubelet.policy(),
            &cycle,
            &pods.names,
        ))?;
    }
    Ok(())
}

fn snapshot<'a>(step: &'a Step, table: &'a WorkloadTable) -> Snapshot<'a> {
    Snapshot {
        observations: &step.seen,
        after_reclaim: Some(&step.after_reclaim),
        table,
        usage: &step.usage,
        details: &step.details,
    }
}

/// The pods of a scenario as they come to their ends; indexes never change.
pub(super) struct Pods {
    workloads: Vec<Workload>,
    pub(super) names: Vec<String>,
    pub(super) table: WorkloadTable,
}

impl Pods {
    pub(super) fn new(pods: &[Workload]) -> Self {
        Self {
            workloads: pods.to_vec(),
            names: pods.iter().map(name_of).collect(),
            table: WorkloadTable::new(pods.to_vec(), 0),
        }
    }

    /// Marks pods as ended and says whether that was news.
    pub(super) fn end(&mut self, gone: &[usize]) -> bool {
        let mut changed = false;
        for &index in gone {
            changed |= self.workloads[index].stage != Stage::Finished;
            self.workloads[index].stage = Stage::Finished;
        }
        if changed {
            let generation = self.table.generation() + 1;
            self.table = WorkloadTable::new(self.workloads.clone(), generation);
        }
        changed
    }
}
