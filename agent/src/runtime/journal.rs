//! The journal: every input of the engine and its answers as JSON lines, so that an incident can be replayed.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read as _, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brink_core::base::Moment;
use brink_core::node::action::Action;
use brink_core::node::engine::LiveSettings;
use brink_core::node::input::{Confirmation, Reconfiguration};
use brink_core::node::observe::Observations;
use brink_core::node::policy::Policy;
use brink_core::node::workload::{PodUsage, Workload, WorkloadTable};
use brink_host::clock::ClockPair;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::guard::step::{Kind, Step};
use crate::record::DecisionRecord;

/// A journal is put aside when it is larger than this; one is kept.
const LARGEST: u64 = 64 << 20;

/// One line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "camelCase")]
pub enum Line {
    /// The first of a journal, and of each new policy: what the engine was made of.
    Start {
        /// Monotonic time of the engine's making.
        at: Moment,
        /// What wall-clock time a monotonic one was.
        clocks: Clocks,
        /// Its policy.
        policy: Box<Policy>,
        /// Its live settings.
        live: LiveSettings,
        /// Whether an earlier journal, put aside, goes on here: what the engine knew from it is not told again.
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
    out: Option<BufWriter<File>>,
    written: u64,
    largest: u64,
    /// What the engine is made of by now.
    policy: Policy,
    live: LiveSettings,
    table: u64,
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
        };
        journal.begin(at, false)?;
        Ok(journal)
    }

    fn begin(&mut self, at: Moment, continues: bool) -> io::Result<()> {
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
        self.out = Some(BufWriter::new(File::create(&self.path)?));
        self.written = 0;
        self.table = 0;
        let start = Line::Start {
            at,
            clocks: Clocks::now(),
            policy: Box::new(self.policy.clone()),
            live: self.live,
            continues,
        };
        self.write(&start);
        Ok(())
    }

    /// Writes a step, and first the table it speaks of if that is new.
    pub fn step(&mut self, step: &Step, table: Option<&Arc<WorkloadTable>>) {
        if let Some(table) = table.filter(|table| table.generation() != self.table) {
            self.table = table.generation();
            let workloads = table.workloads().to_vec();
            self.write(&Line::Table {
                generation: table.generation(),
                workloads,
            });
        }
        self.write(&Line::Step(Box::new(StepLine {
            at: step.at,
            kind: step.kind,
            generation: step.generation,
            observations: step.observations,
            confirmation: step.confirmation,
            usage: step.usage.clone(),
            actions: step.actions.clone(),
        })));
        // Only here: what stands before a step belongs to it.
        if self.out.is_some() && self.written > self.largest {
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
        self.write(&Line::Lost { steps });
    }

    /// Writes a configuration, before the step that takes it over.
    pub fn reconfigure(&mut self, new: Reconfiguration) {
        self.policy = new.policy.clone();
        self.live = new.live;
        self.write(&Line::Reconfiguration(Box::new(new)));
    }

    fn write(&mut self, line: &Line) {
        let Some(out) = &mut self.out else {
            return;
        };
        let result = serde_json::to_string(line)
            .map_err(io::Error::from)
            .and_then(|text| {
                self.written += text.len() as u64 + 1;
                writeln!(out, "{text}").and_then(|()| out.flush())
            });
        self.look_at(result);
    }

    fn look_at(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            warn!(%error, path = %self.path.display(), "the journal cannot be written and ends here");
            self.out = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use brink_core::base::{Quantity, Span};
    use brink_core::node::observe::Layout;
    use brink_core::node::policy::Settings;
    use brink_core::node::signal::Signal;
    use brink_core::node::threshold::{Threshold, Value};

    use super::*;

    fn policy(mib: i64) -> Policy {
        let threshold = Threshold {
            signal: Signal::MemoryAvailable,
            grace: Span::ZERO,
            value: Value::Quantity(Quantity::from_bytes(mib << 20)),
            min_reclaim: None,
        };
        Policy::new(vec![threshold], Layout::Single, Settings::default())
    }

    fn lines(path: &Path) -> Vec<Line> {
        let text = fs::read_to_string(path).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// When a journal's engine was made, its threshold, and whether it continues an earlier one.
    fn start(path: &Path) -> (Moment, String, bool) {
        match lines(path).into_iter().next() {
            Some(Line::Start {
                at,
                policy,
                continues,
                ..
            }) => (at, policy.thresholds()[0].value.to_string(), continues),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_journal_that_goes_on_begins_with_the_policy_of_its_time() {
        let folder = tempfile::tempdir().unwrap();
        let (path, aside) = (
            folder.path().join("journal"),
            folder.path().join("journal.1"),
        );
        let live = LiveSettings::default();
        let mut journal = Journal::create(&path, Moment::START, policy(100), live).unwrap();
        let new = Reconfiguration {
            policy: policy(200),
            live,
        };
        journal.largest = 0;
        journal.reconfigure(new);
        assert!(!aside.exists(), "a configuration stays with its step");
        let step = Step {
            at: Moment::from_secs(5),
            kind: Kind::Reconfigure,
            ..Step::default()
        };
        journal.step(&step, None);
        assert_eq!(start(&aside), (Moment::START, "100Mi".to_owned(), false));
        assert!(matches!(
            lines(&aside)[1..],
            [Line::Reconfiguration(_), Line::Step(_)]
        ));
        assert_eq!(start(&path), (step.at, "200Mi".to_owned(), true));
        assert_eq!(lines(&path).len(), 1);
    }

    #[test]
    fn a_gap_is_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let live = LiveSettings::default();
        let mut journal = Journal::create(&path, Moment::START, policy(100), live).unwrap();
        journal.lost(3);
        assert!(matches!(lines(&path)[1..], [Line::Lost { steps: 3 }]));
    }

    #[test]
    fn what_is_no_journal_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let aside = folder.path().join("journal.1");
        let begin = || {
            let policy = Policy::new(Vec::new(), Layout::Single, Settings::default());
            Journal::create(&path, Moment::START, policy, LiveSettings::default()).map(drop)
        };
        fs::write(&path, "precious").unwrap();
        assert_eq!(begin().unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&aside).unwrap();
        assert!(begin().is_err() && aside.is_dir());
        fs::remove_dir(&aside).unwrap();
        begin().unwrap();
        begin().unwrap();
        assert!(path.is_file() && aside.is_file());
    }
}
