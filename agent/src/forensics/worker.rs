//! The collector's thread: takes what happened from its queue and its ring, and tells incidents as they open and close.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brink_host::clock::{ClockPair, monotonic_ns};
use brink_host::probe::forensics::ForensicsRing;
use brink_stream::model::event::Time;
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::kind::Kind;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use super::Outlet;
use super::collector::{Inbox, Note, Ordered, Over, Plan, Step};
use super::correlate::{Correlator, End, Key, Who};
use super::eviction::{self, Eviction, Seen};
use super::gather::top;
use super::open::Open;
use super::scene::Scene;
use super::sharers::Sharers;
use super::symbols::{self, Symbols};
use super::told::Halves;
use super::watch::Watched;
use crate::record::wire::wall_clock;

/// So often it is looked at whether memory has come back, while a victim lives.
const TICK: Duration = Duration::from_millis(10);

/// Kills that found no room, or that the kernel told in words that are not ours.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// Incidents that too many were open for.
    pub(super) refused: u64,
    told: u64,
}

pub(super) struct Worker {
    inbox: Arc<Inbox>,
    clocks: ClockPair,
    pub(super) ring: Option<ForensicsRing>,
    pub(super) halves: Halves,
    pub(super) sharers: Sharers,
    pub(super) correlator: Correlator,
    /// In the order in which they opened, so that they are numbered in it.
    pub(super) open: BTreeMap<Key, Open>,
    pub(super) watched: Watched,
    /// Orders of ours that are not over.
    pub(super) evictions: Vec<Eviction>,
    symbols: Symbols,
    pub(super) lost: Lost,
    pub(super) scene: Scene,
    pub(super) outlet: Box<dyn Outlet>,
}

impl Worker {
    pub(super) fn new(plan: Plan, inbox: Arc<Inbox>) -> Self {
        Self {
            inbox,
            clocks: plan.clocks,
            ring: None,
            halves: Halves::default(),
            sharers: Sharers::default(),
            correlator: Correlator::default(),
            open: BTreeMap::new(),
            watched: Watched::default(),
            evictions: Vec::new(),
            symbols: Symbols::new(&plan.root),
            lost: Lost::default(),
            scene: Scene::new(&plan),
            outlet: plan.outlet,
        }
    }

    pub(super) fn run(mut self) {
        loop {
            self.inbox.notes.hush();
            while let Some(note) = self.inbox.notes.take() {
                self.look_beside();
                match note {
                    Note::Chosen(record) => self.marked(&record),
                    Note::Beside => {}
                    Note::Stop => {
                        self.finish();
                        return;
                    }
                }
            }
            self.drain();
            self.tell_opened();
            self.tell_lost();
            self.look();
            let is_busy = self.fill_tables();
            // What was long in coming may be over already, and gets its table all the same.
            if !is_busy {
                self.close_due();
            }
            self.close_evictions(|eviction| eviction.has_table);
            self.wait(is_busy);
        }
    }

    /// Takes what lies beside the queue.
    pub(super) fn look_beside(&mut self) {
        let beside = self.inbox.beside();
        if let Some(snapshot) = beside.roster {
            self.scene.follow(*snapshot);
        }
        if beside.is_loaded {
            self.ring = self.scene.loaded.take_forensics();
            self.scene.births = self.scene.loaded.take_births();
            self.scene.gfp_names = self.scene.loaded.take_gfp_names();
        }
        for step in beside.steps {
            match step {
                Step::Given(order) => self.ordered(order),
                Step::Over(over) => self.completed(over),
            }
        }
    }

    /// Adds to an order of ours what is seen of it from here.
    fn ordered(&mut self, order: Ordered) {
        let uid = order.uid;
        self.close_evictions(|eviction| *eviction.uid == *uid);
        // Of one that is still there, the end was never told.
        self.evictions.retain(|eviction| *eviction.uid != *uid);
        // Who was signalled first has been told by the kernel before the order was.
        self.drain();
        let seen = self.scene.eviction(&uid, order.crowd, &self.halves.ours);
        if order.crowd.is_some() {
            // As the incident has it of whom nothing is seen.
            let lost = Field::Missing(Missing::Lost);
            let root = seen.as_ref().map_or(&lost, Seen::fork_root);
            self.outlet.fork_root(order.order, &uid, root);
        }
        if let Some(mut seen) = seen
            && self.outlet.amend(&uid, &mut |incident| seen.fill(incident))
        {
            if self.evictions.len() == eviction::MOST_OPEN {
                let oldest = self.evictions.remove(0);
                self.tell_over(oldest);
            }
            self.evictions.push(Eviction {
                uid: Arc::clone(&uid),
                since: Instant::now(),
                has_table: false,
                over: None,
            });
        }
        for (who, at_ns) in self.halves.forget_ours() {
            self.exited(who, at_ns);
        }
        if order.is_carried_out {
            self.correlator.ordered(uid);
        }
    }

    /// An order of ours is over. It is told once everything of it that was seen before is in its incident.
    fn completed(&mut self, over: Box<Over>) {
        self.drain();
        let uid = over.record.victim.uid.as_str();
        self.correlator.completed(uid, monotonic_ns());
        let mut open = self.evictions.iter_mut();
        match open.find(|eviction| *eviction.uid == *uid) {
            Some(eviction) => eviction.over = Some(over),
            None => self.outlet.completed(&over),
        }
    }

    /// Tells those of our orders that are over, and of which nothing more is waited for.
    fn close_evictions(&mut self, is_meant: impl Fn(&Eviction) -> bool) {
        let over = |eviction: &mut Eviction| eviction.over.is_some() && is_meant(eviction);
        let closed: Vec<Eviction> = self.evictions.extract_if(.., over).collect();
        for eviction in closed {
            self.tell_over(eviction);
        }
    }

    fn tell_over(&self, eviction: Eviction) {
        if let Some(over) = eviction.over {
            self.outlet.completed(&over);
        }
    }

    /// Tells what has opened since the queue was last empty: those of one decision come together.
    fn tell_opened(&mut self) {
        for open in self.open.values_mut() {
            let Some(kind) = open.opens.take() else {
                continue;
            };
            if symbols::are_pending(&open.incident)
                && let Some(stack) = self.symbols.known(&open.kernel_stack)
            {
                symbols::put(&mut open.incident, stack);
            }
            let opened = open.incident.clone();
            if let Some(told) = self.outlet.open(kind, opened, open.group_id) {
                open.incident = told;
                open.is_told = true;
            }
        }
        self.name_stacks();
    }

    /// Looks up what is not known yet of the kernel's stacks, after their incidents were told: that takes its time.
    fn name_stacks(&mut self) {
        let pending = |open: &&mut Open| symbols::are_pending(&open.incident);
        let waiting = self
            .open
            .values()
            .filter(|open| symbols::are_pending(&open.incident));
        let addresses: Vec<u64> = waiting.flat_map(|open| open.kernel_stack.clone()).collect();
        if addresses.is_empty() {
            return;
        }
        let learnt = self.symbols.learn(&addresses);
        for open in self.open.values_mut().filter(pending) {
            let stack = match learnt {
                Ok(()) => self.symbols.known(&open.kernel_stack),
                Err(reason) => Some(Field::Missing(reason)),
            };
            if let Some(stack) = stack {
                symbols::put(&mut open.incident, stack);
            }
        }
    }

    fn tell_lost(&mut self) {
        let undecoded = self.ring.as_ref().map_or(0, ForensicsRing::undecoded);
        let refused = self.lost.refused + self.sharers.lost();
        let total = refused + self.inbox.kills_lost() + undecoded;
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
        for who in self.watched.exited() {
            self.exited(who, now);
        }
    }

    pub(super) fn exited(&mut self, who: Who, now: u64) {
        let at = self.time(now);
        if let Some((key, is_last)) = self.correlator.exited(who, now)
            && let Some(open) = self.open.get_mut(&key)
        {
            open.exited(who.pid, &at);
            if is_last {
                open.ended(&at);
            }
            return;
        }
        let outlet = &self.outlet;
        // One whose incident is open no more is over, whoever has told so.
        self.evictions.retain(|eviction| {
            let is_open = outlet.amend(&eviction.uid, &mut |incident| {
                incident.exited(who.pid, &at);
            });
            is_open || eviction.over.is_some()
        });
    }

    /// Gives each incident the table of the node, or makes another part of it: whether more is to be made.
    fn fill_tables(&mut self) -> bool {
        let waiting = self.open.values().filter(|open| open.waits_for_table());
        let waiting = waiting.map(|open| open.since);
        let evictions = self.evictions.iter().filter(|eviction| !eviction.has_table);
        let evictions = evictions.map(|eviction| eviction.since);
        let Some(latest) = waiting.chain(evictions).max() else {
            return false;
        };
        let Some(table) = self.scene.table_of_node(latest) else {
            return true;
        };
        for open in self.open.values_mut().filter(|open| open.waits_for_table()) {
            open.incident.top_of_node = table.clone();
        }
        for eviction in self
            .evictions
            .iter_mut()
            .filter(|eviction| !eviction.has_table)
        {
            eviction.has_table = true;
            let _over_already = self.outlet.amend(&eviction.uid, &mut |incident| {
                let table = table.clone();
                incident.top_of_node =
                    table.map(|lines| top::with_victims(lines, &incident.victims));
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
        self.drain();
        self.tell_opened();
        for (key, end) in self.correlator.close() {
            self.close(key, end);
        }
        self.close_evictions(|_| true);
        self.tell_lost();
    }

    fn close(&mut self, key: Key, end: End) {
        let Some(mut open) = self.open.remove(&key) else {
            return;
        };
        let now = self.time(monotonic_ns());
        open.look(&now);
        self.scene.identify(&mut open.incident);
        open.close(end);
        for victim in &open.incident.victims {
            let start = victim.start_ns.value().copied();
            self.watched.remove(Who {
                pid: victim.pid,
                start,
            });
        }
        if open.is_told {
            self.outlet.close(Kind::IncidentClosed, &open.incident);
        }
    }

    pub(super) fn time(&self, monotonic_ns: u64) -> Time {
        Time {
            wall: wall_clock(self.clocks.current().realtime_of(monotonic_ns)),
            monotonic_ns: i64::try_from(monotonic_ns).unwrap_or(i64::MAX),
        }
    }

    /// Waits for a note, a record, an exit, or the next thing that is due.
    fn wait(&self, is_busy: bool) {
        let due = self.correlator.next_due();
        let due = due.map(|due| Duration::from_nanos(due.saturating_sub(monotonic_ns())));
        let tick = (!self.watched.is_empty()).then_some(TICK);
        let timeout = if is_busy {
            Some(Duration::ZERO)
        } else {
            let timeout = [due, tick, self.half_due()].into_iter().flatten().min();
            // What is due a moment later must not be waited for in a circle.
            timeout.map(|timeout| timeout + Duration::from_micros(500))
        };
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut fds = vec![PollFd::new(&self.inbox.notes, PollFlags::IN)];
        let ring = self.ring.as_ref().map(ForensicsRing::fd);
        fds.extend(ring.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        fds.extend(self.watched.fds());
        // An interrupted wait is an early one.
        let _interrupted = poll(&mut fds, timeout.as_ref());
    }
}
