//! Replaying a journal: the same inputs through a fresh engine, and whether the answers are the same.

use std::fmt;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use brink_core::base::Moment;
use brink_core::node::action::{Action, Actions};
use brink_core::node::engine::Engine;
use brink_core::node::input::{Input, Reconfiguration, Sample};
use brink_core::node::workload::WorkloadTable;
use serde::Serialize;

use crate::guard::step::Kind;
use crate::runtime::journal::{Line, StepLine};

/// A replay between two lines.
#[derive(Debug, Default)]
pub struct Replay {
    engine: Option<Engine>,
    table: Option<Arc<WorkloadTable>>,
    configuration: Option<Box<Reconfiguration>>,
    summary: Summary,
}

/// What came of a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Steps replayed.
    pub steps: u64,
    /// Steps whose answers differ from the recorded ones.
    pub differing: u64,
    /// Steps that the journal says are missing.
    pub lost: u64,
    /// Decisions recorded.
    pub decisions: u64,
}

/// One step again.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Replayed {
    /// Line of the journal.
    pub line: u64,
    /// When it happened.
    pub at: Moment,
    /// Which input it was.
    pub kind: Kind,
    /// What the engine answers now.
    pub actions: Vec<Action>,
    /// What it answered then.
    pub recorded: Vec<Action>,
    /// Whether they differ.
    pub differs: bool,
}

impl Replay {
    /// Takes one line; a step if it was one.
    ///
    /// # Errors
    /// When the line cannot stand where it does.
    pub fn take(&mut self, line: Line, number: u64) -> anyhow::Result<Option<Replayed>> {
        match line {
            Line::Start { at, policy, live } => {
                self.engine = Some(Engine::new(*policy, live, at));
                self.table = None;
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
            Line::Decision(_) => {
                self.summary.decisions += 1;
                Ok(None)
            }
            Line::Lost { steps } => {
                self.summary.lost += steps;
                Ok(None)
            }
        }
    }

    fn step(&mut self, step: &StepLine, number: u64) -> anyhow::Result<Replayed> {
        let engine = self
            .engine
            .as_mut()
            .context("a step comes before the start")?;
        let mut actions = Actions::default();
        let sample = Sample {
            observations: step.observations,
            confirmation: step.confirmation,
            usage: &step.usage,
        };
        let input = match step.kind {
            Kind::Tick => Input::Tick,
            Kind::Sample => Input::Sample(&sample),
            Kind::Workloads => {
                let table = self
                    .table
                    .clone()
                    .filter(|table| table.generation() == step.generation);
                match table {
                    Some(table) => Input::Workloads(table),
                    None => bail!(
                        "line {number}: the table of generation {} is missing",
                        step.generation
                    ),
                }
            }
            Kind::Gone { workload } => Input::Gone { workload },
            Kind::Dying { workload, charged } => Input::Dying { workload, charged },
            Kind::Outcome { order, delivered } => Input::Outcome { order, delivered },
            Kind::Reclaimed => Input::Reclaimed,
            Kind::Recall(recalled) => Input::Recall(recalled),
            Kind::Control(control) => Input::Control(control),
            Kind::Reconfigure => match &self.configuration {
                Some(new) => Input::Reconfigure(new),
                None => bail!("line {number}: the new configuration is missing"),
            },
        };
        engine.step(step.at, input, &mut actions);
        let now = actions.as_slice().to_vec();
        let differs = now != step.actions;
        self.summary.steps += 1;
        self.summary.differing += u64::from(differs);
        Ok(Replayed {
            line: number,
            at: step.at,
            kind: step.kind,
            actions: now,
            recorded: step.actions.clone(),
            differs,
        })
    }

    /// What came of it so far.
    pub const fn summary(&self) -> Summary {
        self.summary
    }
}

impl fmt::Display for Replayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.at.as_nanos();
        let (seconds, micros) = (nanos / 1_000_000_000, nanos % 1_000_000_000 / 1000);
        writeln!(
            f,
            "{seconds}.{micros:06}s line {}: {:?}",
            self.line, self.actions
        )?;
        if self.differs {
            writeln!(f, "    DIFFERS, recorded: {:?}", self.recorded)?;
        }
        Ok(())
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            steps,
            differing,
            lost,
            decisions,
        } = self;
        write!(f, "{steps} steps, {decisions} decisions: ")?;
        match differing {
            0 => f.write_str("the same answers")?,
            _ => write!(f, "{differing} steps answer differently")?,
        }
        match lost {
            0 => writeln!(f),
            _ => writeln!(f, "; {lost} steps are missing in the journal"),
        }
    }
}
