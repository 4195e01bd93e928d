//! How the collector is told what happened: a bounded queue, and a thread behind it.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use brink_core::node::signal::Signal;
use brink_host::cgroup::Layout;
use brink_host::clock::ClockPair;
use brink_host::probe::abi::record::VictimRecord;

use super::identity::Snapshot;
use super::worker::Worker;
use super::{Outlet, eviction};
use crate::guard::files::NodePlan;
use crate::guard::ports::Port;
use crate::guard::roster::Roster;
use crate::record::DecisionRecord;
use crate::runtime::equipment::Loaded;

/// What may wait for the thread.
pub(super) const WAITING: usize = 512;
/// Beginnings and ends of orders of ours that may wait beside that: those of all that are followed.
pub(super) const MOST_STEPS: usize = 2 * eviction::MOST_OPEN;

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
    /// Something new lies beside the queue.
    Beside,
    /// End.
    Stop,
}

/// What is told of an order of ours.
#[derive(Debug)]
pub(super) enum Step {
    /// It was given.
    Given(Ordered),
    /// It is over.
    Over(Box<Over>),
}

/// An order of ours.
#[derive(Debug)]
pub(super) struct Ordered {
    /// Its number.
    pub(super) order: u64,
    /// Of the workload.
    pub(super) uid: Arc<str>,
    pub(super) is_carried_out: bool,
    /// Of one for process ids.
    pub(super) crowd: Option<Crowd>,
}

/// The processes of a workload that was ordered to go for them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crowd {
    /// When that was decided, nanoseconds of `CLOCK_MONOTONIC`.
    pub(super) at_ns: u64,
    /// How many they were; none where nobody had counted them.
    pub(super) processes: Option<usize>,
}

impl Ordered {
    fn of(record: &DecisionRecord) -> Self {
        let is_for_ids = record.threshold.signal == Signal::PidAvailable.name();
        let count = |usage| usize::try_from(usage).ok();
        Self {
            order: record.order,
            uid: record.victim.uid.as_str().into(),
            is_carried_out: record.mode == "enforcing",
            crowd: is_for_ids.then(|| Crowd {
                at_ns: u64::try_from(record.decided.monotonic_ns).unwrap_or(0),
                processes: record.victim.usage.and_then(count),
            }),
        }
    }
}

/// The queue, and what lies beside it because none of it may be lost.
pub(super) struct Inbox {
    pub(super) notes: Port<Note>,
    beside: Mutex<Beside>,
    /// Kills that found no room, the kernel's and ours.
    kills_lost: AtomicU64,
}

#[derive(Default)]
pub(super) struct Beside {
    /// The newest roster that was not taken up: it takes the place of one before it.
    pub(super) roster: Option<Box<Snapshot>>,
    /// The kernel's programs have been loaded.
    pub(super) is_loaded: bool,
    /// What was told of orders of ours, in its order. However many the kernel kills, it has its own room: an order whose end is not
    /// heard of stays open.
    pub(super) steps: Vec<Step>,
}

/// The end of an order of ours.
#[derive(Debug)]
pub struct Over {
    /// Its record.
    pub record: DecisionRecord,
    /// The class of the victim, if it is known.
    pub qos: Option<&'static str>,
}

impl Inbox {
    /// What lies beside the queue. Whoever puts something there sends a note after it, or finds the queue full: looked at
    /// before each note that is taken, it comes no later than its note would have.
    pub(super) fn beside(&self) -> Beside {
        std::mem::take(&mut *self.beside.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn kills_lost(&self) -> u64 {
        self.kills_lost.load(Ordering::Relaxed)
    }

    pub(super) fn put(&self, change: impl FnOnce(&mut Beside)) {
        change(&mut self.beside.lock().unwrap_or_else(PoisonError::into_inner));
        // Where there is no room, the thread is awake and has notes to take.
        let _awake_anyway = self.notes.send(Note::Beside);
    }

    /// Puts a step of an order there; false where there is no room for it.
    fn step(&self, step: Step) -> bool {
        let mut has_room = false;
        self.put(|beside| {
            has_room = beside.steps.len() < MOST_STEPS;
            if has_room {
                beside.steps.push(step);
            }
        });
        has_room
    }

    fn lose_a_kill(&self) {
        self.kills_lost.fetch_add(1, Ordering::Relaxed);
    }
}

/// Tells the collector what happened; clones tell the same one, and one that is off tells nobody.
#[derive(Clone, Default)]
pub struct Collector(Option<Arc<Inbox>>);

impl Collector {
    /// A collector and the body of its thread.
    ///
    /// # Errors
    /// When the kernel has no event descriptor for us.
    pub fn new(plan: Plan) -> io::Result<(Self, impl FnOnce() + Send + 'static)> {
        let inbox = Arc::new(Inbox {
            notes: Port::new(WAITING)?,
            beside: Mutex::default(),
            kills_lost: AtomicU64::new(0),
        });
        let told = Arc::clone(&inbox);
        // What it reads from is opened by its own thread: nobody is protected while this is called.
        Ok((Self(Some(inbox)), move || Worker::new(plan, told).run()))
    }

    #[cfg(test)]
    pub(super) fn inbox(&self) -> Arc<Inbox> {
        Arc::clone(self.0.as_ref().expect("it is on"))
    }

    /// The kernel's killer chose a process.
    pub fn chosen(&self, record: &VictimRecord) {
        if let Some(inbox) = &self.0
            && inbox.notes.send(Note::Chosen(Box::new(*record))).is_err()
        {
            inbox.lose_a_kill();
        }
    }

    /// The workloads are these from now on.
    pub fn follow(&self, roster: &Roster) {
        if let Some(inbox) = &self.0 {
            let snapshot = Box::new(Snapshot::of(roster));
            inbox.put(|beside| beside.roster = Some(snapshot));
        }
    }

    /// An order of ours was given, and told.
    pub fn ordered(&self, record: &DecisionRecord) {
        if let Some(inbox) = &self.0
            && !inbox.step(Step::Given(Ordered::of(record)))
        {
            inbox.lose_a_kill();
        }
    }

    /// That order is over, and `qos` the class of its victim, if that is known. It is told once all that was seen of it is
    /// known; false where the caller has to tell it.
    pub fn completed(&self, record: &DecisionRecord, qos: Option<&'static str>) -> bool {
        let Some(inbox) = &self.0 else {
            return false;
        };
        let record = record.clone();
        inbox.step(Step::Over(Box::new(Over { record, qos })))
    }

    /// The kernel's programs are loaded: what they tell of kills is to be taken from where they were left.
    pub fn loaded(&self) {
        if let Some(inbox) = &self.0 {
            inbox.put(|beside| beside.is_loaded = true);
        }
    }

    /// Asks the thread to end; whatever is open is told as it is. False where there is no room to ask: it is to be tried again.
    pub fn stop(&self) -> bool {
        let inbox = self.0.as_ref();
        inbox.is_none_or(|inbox| inbox.notes.send(Note::Stop).is_ok())
    }
}
