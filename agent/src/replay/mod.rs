//! Replaying a journal: the same inputs through a fresh engine, and whether the answers are the same.

mod order;
mod text;
mod wire;

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Context as _;
use brink_core::node::action::Actions;
use brink_core::node::engine::Engine;
use brink_core::node::input::{Input, Reconfiguration, Sample};
use brink_core::node::workload::WorkloadTable;

use crate::guard::step::Kind;
use crate::runtime::journal::{Clocks, Line, StepLine};
use order::Order;
pub use text::{step, summary};
use wire::Namer;
pub use wire::{ReplayedStep, Summary};

/// A replay between two lines.
#[derive(Debug, Default)]
pub struct Replay {
    running: Option<(Engine, Clocks)>,
    table: Option<Arc<WorkloadTable>>,
    configuration: Option<Box<Reconfiguration>>,
    decisions: BTreeSet<u64>,
    order: Order,
    summary: Summary,
}

impl Replay {
    /// Takes one line; a step if it was one.
    ///
    /// # Errors
    /// When the line cannot stand where it does.
    pub fn take(&mut self, line: Line, number: u64) -> anyhow::Result<Option<ReplayedStep>> {
        match line {
            Line::Start {
                at,
                clocks,
                policy,
                live,
                continues,
            } => {
                self.running = Some((Engine::new(*policy, live, at), clocks));
                self.table = None;
                self.order.begin(continues);
                self.summary.continues |= continues;
                Ok(None)
            }
            Line::Table {
                generation,
                workloads,
            } => {
                self.table = Some(Arc::new(WorkloadTable::new(workloads, generation)));
                Ok(None)
            }
            Line::Reconfiguration(new) => {
                self.configuration = Some(new);
                Ok(None)
            }
            Line::Step(step) => self.step(&step, number).map(Some),
            // Told when it is taken, and again when it is over.
            Line::Decision(record) => {
                self.decisions.insert(record.order);
                Ok(None)
            }
            Line::Lost { steps } => {
                self.summary.lost = self.summary.lost.saturating_add(steps);
                Ok(None)
            }
        }
    }

    fn step(&mut self, step: &StepLine, number: u64) -> anyhow::Result<ReplayedStep> {
        let sample = Sample {
            observations: step.observations,
            confirmation: step.confirmation,
            usage: &step.usage,
        };
        let tables = (self.table.as_ref(), self.configuration.as_deref());
        let input = input(step, &sample, tables)?;
        let (engine, clocks) = self
            .running
            .as_mut()
            .context("a step comes before the start")?;
        self.order.take(step, number);
        let mut actions = Actions::default();
        // A journal that continues another one has the table, and not the step that brought it.
        let is_behind = self.summary.continues
            && step.kind != Kind::Workloads
            && engine.table().generation() != step.generation;
        if is_behind && let Some(table) = &self.table {
            engine.step(step.at, Input::Workloads(Arc::clone(table)), &mut actions);
            actions.clear();
        }
        engine.step(step.at, input, &mut actions);
        let differs = actions.as_slice() != step.actions;
        self.summary.steps += 1;
        self.summary.differing += u64::from(differs);
        let names = Namer::new(engine, *clocks);
        Ok(ReplayedStep {
            line: number,
            at: names.time(step.at),
            input: names.input(step.kind),
            actions: names.actions(actions.as_slice()),
            recorded: names.actions(&step.actions),
            differs,
        })
    }

    /// What came of it so far.
    pub fn summary(&self) -> Summary {
        Summary {
            decisions: self.decisions.len() as u64,
            cut: self.order.cut,
            misplaced: self.order.misplaced,
            damaged_line: self.order.first,
            ..self.summary
        }
    }
}

/// What the engine was told, with the table and the configuration that earlier lines have brought.
fn input<'a>(
    step: &StepLine,
    sample: &'a Sample<'a>,
    (table, configuration): (Option<&Arc<WorkloadTable>>, Option<&'a Reconfiguration>),
) -> anyhow::Result<Input<'a>> {
    Ok(match step.kind {
        Kind::Tick => Input::Tick,
        Kind::Sample => Input::Sample(sample),
        Kind::Workloads => {
            let generation = step.generation;
            let table = table.filter(|table| table.generation() == generation);
            let table = table
                .with_context(|| format!("the table of generation {generation} is missing"))?;
            Input::Workloads(Arc::clone(table))
        }
        Kind::Gone {
            workload,
            kept,
            unseen,
        } => Input::Gone {
            workload,
            kept,
            unseen,
        },
        Kind::Dying { workload, charged } => Input::Dying { workload, charged },
        Kind::Outcome { order, delivered } => Input::Outcome { order, delivered },
        Kind::Reclaimed => Input::Reclaimed,
        Kind::ReclaimedInPart => Input::ReclaimedInPart,
        Kind::WouldReclaim { bytes } => Input::WouldReclaim { bytes },
        Kind::Exceeded {
            workload,
            limit,
            memory,
        } => Input::Exceeded {
            workload,
            limit,
            memory,
        },
        Kind::Recall(recalled) => Input::Recall(recalled),
        Kind::Control(control) => Input::Control(control),
        Kind::Reconfigure => {
            Input::Reconfigure(configuration.context("the new configuration is missing")?)
        }
    })
}
