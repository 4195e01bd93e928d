//! The journal: every input of the engine and its answers as JSON lines, so that an incident can be replayed.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brink_core::base::{Moment, Span};
use brink_core::node::action::Action;
use brink_core::node::engine::LiveSettings;
use brink_core::node::input::{Confirmation, Reconfiguration};
use brink_core::node::observe::Observations;
use brink_core::node::policy::Policy;
use brink_core::node::workload::{PodUsage, Workload, WorkloadTable};
use brink_host::clock::ClockPair;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use crate::guard::step::{Kind, Step};
use crate::record::DecisionRecord;

/// A journal is put aside when it is larger than this; one is kept.
const LARGEST: u64 = 64 << 20;
/// What could not be written is tried again after so long.
const RETRY: Span = Span::from_secs(1);

/// One line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "camelCase")]
pub enum Line {
    /// The first of a journal, and the first after a gap: what the engine was made of.
    Start {
        /// Monotonic time of the engine's making.
        at: Moment,
        /// What wall-clock time a monotonic one was.
        clocks: Clocks,
        /// Its policy.
        policy: Box<Policy>,
        /// Its live settings.
        live: LiveSettings,
        /// Whether an earlier journal, put aside or interrupted, goes on here: what the engine knew from it is not told again.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        continues: bool,
    },
    /// A table of workloads, before the first step that speaks of it.
    Table {
        /// Its generation.
        generation: u64,
        /// The workloads.
        workloads: Vec<Workload>,
    },
    /// A configuration, before the step that takes it over.
    Reconfiguration(Box<Reconfiguration>),
    /// An input and its answers.
    Step(Box<StepLine>),
    /// A decision.
    Decision(Box<DecisionRecord>),
    /// Steps that are missing here: a replay cannot be exact beyond this line.
    Lost {
        /// How many at least.
        steps: u64,
    },
}

/// A moment on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Clocks {
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    pub monotonic_ns: i64,
    /// `CLOCK_REALTIME`, in nanoseconds since 1970.
    pub realtime_ns: i64,
}

impl Clocks {
    fn now() -> Self {
        let pair = ClockPair::now();
        Self {
            monotonic_ns: i64::try_from(pair.monotonic_ns).unwrap_or(i64::MAX),
            realtime_ns: pair.realtime_ns,
        }
    }

    /// The wall-clock time of another moment, in nanoseconds since 1970, as the clocks stood to each other then.
    pub const fn realtime_of(self, at: Moment) -> i64 {
        let since = at.as_nanos().saturating_sub(self.monotonic_ns);
        self.realtime_ns.saturating_add(since)
    }
}

/// An input and its answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepLine {
    /// Its number among the steps that one run of the agent has written, from 1; 0 in journals of before there were numbers.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub number: u64,
    /// When.
    pub at: Moment,
    /// What.
    pub kind: Kind,
    /// The table that indexes refer to.
    pub generation: u64,
    /// A sample's observations.
    pub observations: Observations,
    /// A sample's confirmation.
    pub confirmation: Confirmation,
    /// A sample's usage.
    pub usage: Vec<Option<PodUsage>>,
    /// What the engine answered.
    pub actions: Vec<Action>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Refuses to touch a file that is no journal: whatever else has the name is somebody's.
fn refuse_others(path: &Path) -> io::Result<()> {
    const START: &[u8] = br#"{"line":"start""#;
    let found = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    let mut head = Vec::new();
    if found.is_file() {
        File::open(path)?
            .take(START.len() as u64)
            .read_to_end(&mut head)?;
    }
    // An agent that was ended at once left an empty one.
    if found.is_file() && (head.is_empty() || head == START) {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!(
            "{} is there and is no journal; it is left alone",
            path.display()
        ),
    ))
}

/// A journal that is being written.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    out: Option<File>,
    /// Bytes of whole lines in it.
    written: u64,
    largest: u64,
    /// What the engine is made of by now.
    policy: Policy,
    live: LiveSettings,
    table: u64,
    /// The number of the last step.
    number: u64,
    /// What cannot be written now, on a full disk.
    gap: Option<Gap>,
}

/// Lines that are missing at the end of a journal.
#[derive(Clone, Copy, Debug, Default)]
struct Gap {
    /// Steps among them.
    steps: u64,
    /// When writing was tried last; none before the first step of the gap.
    tried: Option<Moment>,
}

impl Journal {
    /// Begins a journal; the one that is at the path is put aside.
    ///
    /// # Errors
    /// When the file cannot be made, or what is at its path or would have to make room is no journal.
    pub fn create(path: &Path, at: Moment, policy: Policy, live: LiveSettings) -> io::Result<Self> {
        let mut journal = Self {
            path: path.to_path_buf(),
            out: None,
            written: 0,
            largest: LARGEST,
            policy,
            live,
            table: 0,
            number: 0,
            gap: None,
        };
        journal.begin(at, false)?;
        Ok(journal)
    }

    fn begin(&mut self, at: Moment, continues: bool) -> io::Result<()> {
        self.create_file()?;
        let start = self.start(at, continues);
        self.write(&start);
        Ok(())
    }

    fn create_file(&mut self) -> io::Result<()> {
        self.out = None;
        let mut aside = self.path.clone().into_os_string();
        aside.push(".1");
        for path in [&self.path, Path::new(&aside)] {
            refuse_others(path)?;
        }
        match fs::rename(&self.path, aside) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => result?,
        }
        self.out = Some(File::create(&self.path)?);
        self.written = 0;
        Ok(())
    }

    /// What the engine is made of; the table is told anew with the next step.
    fn start(&mut self, at: Moment, continues: bool) -> Line {
        self.table = 0;
        Line::Start {
            at,
            clocks: Clocks::now(),
            policy: Box::new(self.policy.clone()),
            live: self.live,
            continues,
        }
    }

    /// Writes a step, and first the table it speaks of if that is new.
    pub fn step(&mut self, step: &Step, table: Option<&Arc<WorkloadTable>>) {
        // The configuration that it takes over has found no room, and it means nothing alone.
        if step.kind != Kind::Reconfigure {
            self.resume(step.at);
        }
        if let Some(gap) = &mut self.gap {
            gap.steps += 1;
            return;
        }
        if let Some(table) = table.filter(|table| table.generation() != self.table) {
            self.table = table.generation();
            let workloads = table.workloads().to_vec();
            self.write(&Line::Table {
                generation: table.generation(),
                workloads,
            });
        }
        self.number += 1;
        self.write(&Line::Step(Box::new(StepLine {
            number: self.number,
            at: step.at,
            kind: step.kind,
            generation: step.generation,
            observations: step.observations,
            confirmation: step.confirmation,
            usage: step.usage.clone(),
            actions: step.actions.clone(),
        })));
        if let Some(gap) = &mut self.gap {
            gap.steps += 1;
        }
        // Only here: what stands before a step belongs to it.
        if self.gap.is_none() && self.written > self.largest {
            let begun = self.begin(step.at, true);
            self.look_at(begun);
        }
    }

    /// Writes a decision.
    pub fn decision(&mut self, record: &DecisionRecord) {
        self.write(&Line::Decision(Box::new(record.clone())));
    }

    /// Says that steps are missing.
    pub fn lost(&mut self, steps: u64) {
        match &mut self.gap {
            Some(gap) => gap.steps += steps,
            None => self.write(&Line::Lost { steps }),
        }
    }

    /// Writes a configuration, before the step that takes it over.
    pub fn reconfigure(&mut self, new: Reconfiguration) {
        self.policy = new.policy.clone();
        self.live = new.live;
        self.write(&Line::Reconfiguration(Box::new(new)));
    }

    fn write(&mut self, line: &Line) {
        if self.gap.is_some() {
            return;
        }
        let written = self.append(line);
        self.look_at(written);
    }

    /// Adds one line, or nothing of it.
    fn append(&mut self, line: &Line) -> io::Result<()> {
        let out = self.out.as_mut().ok_or(io::ErrorKind::NotFound)?;
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        if let Err(error) = out.write_all(&text) {
            // A part of a line would spoil the one after it: where it stays, another file begins.
            let end = SeekFrom::Start(self.written);
            if out
                .set_len(self.written)
                .and_then(|()| out.seek(end))
                .is_err()
            {
                self.out = None;
            }
            return Err(error);
        }
        self.written += text.len() as u64;
        Ok(())
    }

    fn look_at(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            warn!(%error, path = %self.path.display(), "the journal cannot be written; it is tried again, and what is missing will be counted");
            self.gap.get_or_insert_default();
        }
    }

    /// Goes on after a gap once there is room again, and tells of it first.
    fn resume(&mut self, at: Moment) {
        let Some(gap) = &mut self.gap else {
            return;
        };
        let tried = *gap.tried.get_or_insert(at);
        if at.since(tried) < RETRY {
            return;
        }
        gap.tried = Some(at);
        let steps = gap.steps;
        let file = match self.out {
            Some(_) => Ok(()),
            None => self.create_file(),
        };
        let start = self.start(at, true);
        let told = file
            .and_then(|()| self.append(&start))
            .and_then(|()| self.append(&Line::Lost { steps }));
        if told.is_ok() {
            self.gap = None;
            info!(path = %self.path.display(), steps, "the journal is written again; so many steps are missing");
        }
    }
}

#[cfg(test)]
mod tests;
