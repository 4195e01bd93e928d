//! The collector's thread: takes what happened from its queue, and tells incidents as they open and close.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brink_host::cgroup::Layout;
use brink_host::clock::{ClockPair, monotonic_ns};
use brink_host::probe::abi::record::VictimRecord;
use brink_stream::model::event::Time;
use brink_stream::model::field::Field;
use brink_stream::model::incident::Cause;
use brink_stream::model::kind::Kind;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use super::Outlet;
use super::compose::decision;
use super::correlate::{Answer, Chosen, Correlator, End, Key};
use super::eviction::Waiting;
use super::identity::Snapshot;
use super::open::Open;
use super::scene::Scene;
use super::watch::Watched;
use crate::guard::files::NodePlan;
use crate::guard::ports::Port;
use crate::guard::roster::Roster;
use crate::record::DecisionRecord;
use crate::record::wire::wall_clock;
use crate::runtime::equipment::Loaded;

/// What may wait for the thread.
const WAITING: usize = 512;
/// So often it is looked at whether memory has come back, while a victim lives.
const TICK: Duration = Duration::from_millis(10);

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
enum Note {
    /// The kernel's killer chose a process.
    Chosen(Box<VictimRecord>),
    /// Another roster.
    Roster(Box<Snapshot>),
    /// An order of ours for the workload with this uid was given, and whether it is carried out.
    Ordered(Arc<str>, bool),
    /// It is over.
    Completed(Arc<str>),
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
        let worker = Worker {
            inbox: Arc::clone(&inbox),
            clocks: plan.clocks,
            correlator: Correlator::default(),
            open: HashMap::new(),
            watched: Watched::default(),
            evictions: Vec::new(),
            lost: Lost::default(),
            scene: Scene::new(&plan),
            outlet: plan.outlet,
        };
        Ok((Self(Some(inbox)), move || worker.run()))
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

/// Kills that found no room.
#[derive(Debug, Default)]
struct Lost {
    /// Incidents that too many were open for.
    refused: u64,
    told: u64,
}

struct Worker {
    inbox: Arc<Port<Note>>,
    clocks: ClockPair,
    correlator: Correlator,
    open: HashMap<Key, Open>,
    watched: Watched,
    /// Orders of ours that are to have the table of the node.
    evictions: Vec<Waiting>,
    lost: Lost,
    scene: Scene,
    outlet: Box<dyn Outlet>,
}

impl Worker {
    fn run(mut self) {
        loop {
            self.inbox.hush();
            while let Some(note) = self.inbox.take() {
                if matches!(note, Note::Stop) {
                    self.finish();
                    return;
                }
                self.take(note);
            }
            self.tell_opened();
            self.tell_lost();
            self.look();
            let is_busy = self.fill_tables();
            self.close_due();
            self.wait(is_busy);
        }
    }

    fn take(&mut self, note: Note) {
        match note {
            Note::Chosen(record) => self.chosen(&record),
            Note::Roster(snapshot) => self.scene.follow(*snapshot),
            Note::Ordered(uid, is_carried_out) => self.ordered(uid, is_carried_out),
            Note::Completed(uid) => self.correlator.completed(&uid, monotonic_ns()),
            Note::Stop => {}
        }
    }

    fn chosen(&mut self, record: &VictimRecord) {
        let victim = self.scene.victim(record);
        let answer = self.correlator.chosen(&Chosen {
            at: record.head.at_ns,
            pid: victim.pid,
            decision: decision(record),
        });
        match answer {
            Answer::Opened(key) => {
                self.watched.add(victim.pid);
                let at = self.time(record.head.at_ns);
                let open = self.scene.oom(record, victim, &at);
                self.open.insert(key, open);
            }
            Answer::Joined(key) => {
                self.watched.add(victim.pid);
                if let Some(open) = self.open.get_mut(&key) {
                    open.join(victim);
                    if open.incident.cause == Cause::MemcgOom {
                        open.incident.cause = Cause::GroupOom;
                    }
                }
            }
            Answer::Counted(key) => {
                if let Some(open) = self.open.get_mut(&key) {
                    open.incident.more_victims += 1;
                }
            }
            Answer::Lost => self.lost.refused += 1,
            Answer::Known | Answer::Ours | Answer::Nobodys => {}
        }
    }

    /// Adds to an order of ours what is seen of it from here.
    fn ordered(&mut self, uid: Arc<str>, is_carried_out: bool) {
        if let Some(mut seen) = self.scene.eviction(&uid)
            && self.outlet.amend(&uid, &mut |incident| seen.fill(incident))
        {
            self.evictions.push(Waiting {
                uid: uid.to_string(),
                since: Instant::now(),
            });
        }
        if is_carried_out {
            self.correlator.ordered(uid);
        }
    }

    /// Tells what has opened since the queue was last empty: those of one decision come together.
    fn tell_opened(&mut self) {
        for open in self.open.values_mut() {
            let Some(kind) = open.opens.take() else {
                continue;
            };
            if let Some(told) = self.outlet.open(kind, open.incident.clone()) {
                open.incident = told;
                open.is_told = true;
            }
        }
    }

    fn tell_lost(&mut self) {
        let total = self.lost.refused + self.inbox.lost();
        if total > self.lost.told {
            self.outlet.lost(total - self.lost.told, total);
            self.lost.told = total;
        }
    }

    /// Who has exited, and what has come back.
    fn look(&mut self) {
        if self.watched.is_empty() {
            return;
        }
        let now = monotonic_ns();
        let at = self.time(now);
        for open in self.open.values_mut() {
            open.look(&at);
        }
        for pid in self.watched.exited() {
            let Some((key, is_last)) = self.correlator.exited(pid, now) else {
                continue;
            };
            if let Some(open) = self.open.get_mut(&key) {
                open.exited(pid, &at);
                if is_last {
                    open.ended(&at);
                }
            }
        }
    }

    /// Gives each incident the table of the node, or makes another part of it: whether more is to be made.
    fn fill_tables(&mut self) -> bool {
        let waiting = self.open.values().filter(|open| open.waits_for_table());
        let waiting = waiting.map(|open| open.since);
        let evictions = self.evictions.iter().map(|waiting| waiting.since);
        let Some(latest) = waiting.chain(evictions).max() else {
            return false;
        };
        let Some(lines) = self.scene.table_of_node(latest) else {
            return true;
        };
        for open in self.open.values_mut().filter(|open| open.waits_for_table()) {
            open.incident.top_of_node = Field::Value(lines.clone());
        }
        for Waiting { uid, .. } in self.evictions.drain(..) {
            let _over_already = self.outlet.amend(&uid, &mut |incident| {
                incident.top_of_node = Field::Value(lines.clone());
            });
        }
        false
    }

    fn close_due(&mut self) {
        for (key, end) in self.correlator.due(monotonic_ns()) {
            self.close(key, end);
        }
    }

    fn finish(&mut self) {
        self.tell_opened();
        for (key, end) in self.correlator.close() {
            self.close(key, end);
        }
        self.tell_lost();
    }

    fn close(&mut self, key: Key, end: End) {
        let Some(mut open) = self.open.remove(&key) else {
            return;
        };
        let now = self.time(monotonic_ns());
        open.look(&now);
        open.close(end);
        for victim in &open.incident.victims {
            self.watched.remove(victim.pid);
        }
        if open.is_told {
            self.outlet.close(Kind::IncidentClosed, &open.incident);
        }
    }

    fn time(&self, monotonic_ns: u64) -> Time {
        Time {
            wall: wall_clock(self.clocks.current().realtime_of(monotonic_ns)),
            monotonic_ns: i64::try_from(monotonic_ns).unwrap_or(i64::MAX),
        }
    }

    /// Waits for a note, an exit, or the next thing that is due.
    fn wait(&self, is_busy: bool) {
        let due = self.correlator.next_due();
        let due = due.map(|due| Duration::from_nanos(due.saturating_sub(monotonic_ns())));
        let tick = (!self.watched.is_empty()).then_some(TICK);
        let busy = is_busy.then_some(Duration::ZERO);
        let timeout = [due, tick, busy].into_iter().flatten().min();
        // To the next whole millisecond: what is due a moment later must not be waited for in a circle.
        let timeout =
            timeout.map(|timeout| timeout + Duration::from_micros(u64::from(!is_busy) * 500));
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut fds = vec![PollFd::new(&*self.inbox, PollFlags::IN)];
        fds.extend(self.watched.fds());
        // An interrupted wait is an early one.
        let _interrupted = poll(&mut fds, timeout.as_ref());
    }
}
