//! How the collector is told what happened: a bounded queue, and a thread behind it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use brink_host::cgroup::Layout;
use brink_host::clock::ClockPair;
use brink_host::probe::abi::record::VictimRecord;

use super::Outlet;
use super::identity::Snapshot;
use super::worker::Worker;
use crate::guard::files::NodePlan;
use crate::guard::ports::Port;
use crate::guard::roster::Roster;
use crate::record::DecisionRecord;
use crate::runtime::equipment::Loaded;

/// What may wait for the thread.
const WAITING: usize = 512;
/// What the collector needs.
pub struct Plan {
    /// The root of the file system.
    pub root: PathBuf,
    /// Where the cgroups are.
    pub layout: Layout,
    /// What the node is read from.
    pub node: NodePlan,
    /// The cgroup that is the node, `/` for the machine.
    pub scope: String,
    /// Whether arguments of victims may be told.
    pub command_lines: bool,
    /// The counters of the kernel's programs, once they are loaded.
    pub loaded: Arc<Loaded>,
    /// Both clocks at the start.
    pub clocks: ClockPair,
    /// Where incidents are told.
    pub outlet: Box<dyn Outlet>,
}

/// What the thread is told.
#[derive(Debug)]
pub(super) enum Note {
    /// The kernel's killer chose a process.
    Chosen(Box<VictimRecord>),
    /// Another roster.
    Roster(Box<Snapshot>),
    /// An order of ours for the workload with this uid was given, and whether it is carried out.
    Ordered(Arc<str>, bool),
    /// It is over.
    Completed(Arc<str>),
    /// The kernel's programs are loaded.
    Loaded,
    /// End.
    Stop,
}

/// Tells the collector what happened; clones tell the same one, and one that is off tells nobody.
#[derive(Clone, Default)]
pub struct Collector(Option<Arc<Port<Note>>>);

impl Collector {
    /// A collector and the body of its thread.
    ///
    /// # Errors
    /// When the kernel has no event descriptor for us.
    pub fn new(plan: Plan) -> io::Result<(Self, impl FnOnce() + Send + 'static)> {
        let inbox = Arc::new(Port::new(WAITING)?);
        let told = Arc::clone(&inbox);
        // What it reads from is opened by its own thread: nobody is protected while this is called.
        Ok((Self(Some(inbox)), move || Worker::new(plan, told).run()))
    }

    /// The kernel's killer chose a process.
    pub fn chosen(&self, record: &VictimRecord) {
        self.send(|| Note::Chosen(Box::new(*record)));
    }

    /// The workloads are these from now on.
    pub fn follow(&self, roster: &Roster) {
        self.send(|| Note::Roster(Box::new(Snapshot::of(roster))));
    }

    /// An order of ours was given, and told.
    pub fn ordered(&self, record: &DecisionRecord) {
        let is_carried_out = record.mode == "enforcing";
        self.send(|| Note::Ordered(record.victim.uid.as_str().into(), is_carried_out));
    }

    /// That order is over.
    pub fn completed(&self, record: &DecisionRecord) {
        self.send(|| Note::Completed(record.victim.uid.as_str().into()));
    }

    /// The kernel's programs are loaded: what they tell of kills is to be taken from where they were left.
    pub fn loaded(&self) {
        self.send(|| Note::Loaded);
    }

    /// Ends the thread; whatever is open is told as it is.
    pub fn stop(&self) {
        if let Some(inbox) = &self.0 {
            while inbox.send(Note::Stop).is_err() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    fn send(&self, note: impl FnOnce() -> Note) {
        if let Some(inbox) = &self.0 {
            let _told_or_counted = inbox.send(note());
        }
    }
}
