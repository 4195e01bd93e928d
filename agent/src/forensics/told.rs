//! What the kernel's programs tell of kills, taken in: choices, signals, exits, and memory that is gone.

use std::collections::VecDeque;
use std::time::Duration;

use brink_host::clock::monotonic_ns;
use brink_host::probe::abi::record::VictimRecord;
use brink_host::probe::forensics::{End, ForensicsRing, Kill, Oom, Process, SignalCode, Told};
use brink_stream::model::field::Missing;
use brink_stream::model::incident::{Cause, OtherKill};

use super::choice::{self, Choice};
use super::compose::Order;
use super::correlate::{Answer, Chosen, Key, Killed, Sender, Who};
use super::worker::Worker;

/// Records taken from the ring at a time.
const BOUND: usize = 1024;
/// What one program has told of a choice waits so long for what the other one tells, in nanoseconds.
const PATIENCE: u64 = 100_000_000;
/// Choices that may wait.
const WAITING: usize = 256;
/// Processes that we have killed and that are remembered until their order is told.
const OURS: usize = 512;

/// What waits to be completed, and what was kept for an order of ours.
#[derive(Debug, Default)]
pub(super) struct Halves {
    /// Choices the program beside the sampler has told of, with the time at which they count alone.
    marked: VecDeque<(u64, Choice)>,
    /// Those of the program on kills that do not say for whose limit.
    undecided: VecDeque<(u64, Choice)>,
    /// Who was killed by us, as the kernel had them.
    pub(super) ours: VecDeque<Process>,
    /// Which of them have exited, and when: a small one is gone before its order is told.
    ended: Vec<(Who, u64)>,
}

impl Halves {
    fn take(queue: &mut VecDeque<(u64, Choice)>, choice: &Choice) -> Option<Choice> {
        let place = queue.iter().position(|(_, other)| other.is_same(choice))?;
        Some(queue.remove(place)?.1)
    }

    /// Remembers the exit of somebody that we have killed.
    fn end(&mut self, who: Who, at_ns: u64) {
        let mut ours = self.ours.iter();
        let is_ours = ours.any(|process| choice::who(process).may_be(who));
        if is_ours && self.ended.len() < OURS {
            self.ended.push((who, at_ns));
        }
    }

    /// Forgets whom we have killed, now that the order is told: gives back who of them has exited, and when.
    pub(super) fn forget_ours(&mut self) -> Vec<(Who, u64)> {
        self.ours.clear();
        std::mem::take(&mut self.ended)
    }

    /// When the first of them counts alone.
    fn next_due(&self) -> Option<u64> {
        let first = |queue: &VecDeque<(u64, Choice)>| queue.front().map(|(due, _)| *due);
        first(&self.marked)
            .into_iter()
            .chain(first(&self.undecided))
            .min()
    }

    /// One that counts alone now.
    fn due(&mut self, now: u64) -> Option<Choice> {
        [&mut self.marked, &mut self.undecided]
            .into_iter()
            .find_map(|queue| {
                let is_due = queue.front().is_some_and(|(due, _)| *due <= now);
                Some(is_due.then(|| queue.pop_front()).flatten()?.1)
            })
    }
}

impl Worker {
    /// Takes everything that waits in the ring.
    pub(super) fn drain(&mut self) {
        for _ in 0..BOUND {
            let Some(told) = self.ring.as_mut().and_then(ForensicsRing::take) else {
                break;
            };
            match told {
                Told::Oom(oom) => self.oom(&oom),
                Told::Kill(kill) => self.kill(*kill),
                Told::End(end) => self.end(end),
                Told::Released(released) => {
                    let (pid, start) = (released.tgid, released.start_ns);
                    self.released(Who { pid, start }, released.at_ns);
                }
            }
        }
        let now = monotonic_ns();
        while let Some(choice) = self.halves.due(now) {
            self.choose(&choice);
        }
    }

    fn end(&mut self, end: End) {
        let (pid, start) = (end.tgid, end.start_ns);
        let who = Who { pid, start };
        self.sharers.ended(pid);
        self.halves.end(who, end.at_ns);
        // Its memory is still there where this comes early; its descriptor tells when it is not.
        let ring = self.ring.as_ref();
        if !ring.is_some_and(ForensicsRing::ends_early) || !self.watched.has(who) {
            self.watched.remove(who);
            self.exited(who, end.at_ns);
        }
    }

    /// How long what waits may wait.
    pub(super) fn half_due(&self) -> Option<Duration> {
        let due = self.halves.next_due()?;
        Some(Duration::from_nanos(due.saturating_sub(monotonic_ns())))
    }

    /// The program beside the sampler tells less than the one on kills: where that runs, its word is waited for.
    pub(super) fn marked(&mut self, record: &VictimRecord) {
        // Where the other program runs, its word can only have been lost.
        let absent = match self.ring {
            Some(_) => Missing::Lost,
            None => Missing::ProgramNotLoaded,
        };
        let choice = Choice::marked(record, absent);
        if let Some(mut other) = Halves::take(&mut self.halves.undecided, &choice) {
            other.complete(&choice);
            self.choose(&other);
        } else if self.ring.is_none() || self.halves.marked.len() >= WAITING {
            self.choose(&choice);
        } else {
            let due = monotonic_ns().saturating_add(PATIENCE);
            self.halves.marked.push_back((due, choice));
        }
    }

    fn oom(&mut self, oom: &Oom) {
        let mut choice = Choice::told(oom);
        let other = Halves::take(&mut self.halves.marked, &choice);
        if !oom.is_signalled {
            // It was dying already, and was only given the last of the memory.
            self.correlator.remember(choice.who(), choice.at);
            self.correlator.remember(choice.thread(), choice.at);
            return;
        }
        self.sharers.marked(oom);
        let is_decided = choice.exact.is_some() || other.is_some();
        if let Some(other) = &other {
            choice.complete(other);
        }
        if is_decided || self.halves.undecided.len() >= WAITING {
            self.choose(&choice);
        } else {
            let due = monotonic_ns().saturating_add(PATIENCE);
            self.halves.undecided.push_back((due, choice));
        }
    }

    fn choose(&mut self, choice: &Choice) {
        let victim = self.scene.victim(&choice.victim, choice.cgroup);
        // Of a thread its files tell the process.
        let (pid, start) = (victim.pid, choice.victim.start_ns);
        let who = Who { pid, start };
        let answer = self.correlator.chosen(&Chosen {
            at: choice.at,
            who,
            decision: choice.decision,
        });
        // The same choice may be told by the thread that was marked.
        self.correlator.remember(choice.thread(), choice.at);
        match answer {
            Answer::Opened(key) => {
                self.watched.add(who);
                let at = self.time(choice.at);
                let open = self.scene.oom(choice, victim, &at);
                self.open.insert(key, open);
                self.join_sharers(pid, key);
            }
            Answer::Joined(key) => {
                self.watched.add(who);
                if let Some(open) = self.open.get_mut(&key) {
                    open.join(victim);
                    if open.incident.cause == Cause::MemcgOom {
                        open.incident.cause = Cause::GroupOom;
                    }
                }
                self.join_sharers(pid, key);
            }
            other => self.counted(other),
        }
    }

    fn join_sharers(&mut self, victim: u32, key: Key) {
        for kill in self.sharers.belong(victim, key) {
            self.share(&kill, key, victim);
        }
    }

    /// Adds somebody who shares the memory of a victim, and was killed for it, to that one's incident.
    fn share(&mut self, kill: &Kill, key: Key, with: u32) {
        let who = choice::who(&kill.target);
        match self.correlator.shares(key, who, kill.at_ns) {
            Answer::Joined(key) => {
                self.watched.add(who);
                let told = choice::told(&kill.target);
                let victim = self.scene.victim(&told, kill.target.cgroup);
                if let Some(open) = self.open.get_mut(&key) {
                    open.share(victim, with);
                }
            }
            other => self.counted(other),
        }
    }

    pub(super) fn kill(&mut self, kill: Kill) {
        if kill.sender.tgid == std::process::id() {
            if self.halves.ours.len() == OURS {
                self.halves.ours.pop_front();
            }
            self.halves.ours.push_back(kill.target);
            return;
        }
        // First what costs nothing: most of what is killed on a machine is no workload's, or the kernel's own.
        if kill.code == SignalCode::Kernel {
            if let Some((key, with)) = self.sharers.take(&kill) {
                self.share(&kill, key, with);
            }
            return;
        }
        let pid = i32::try_from(kill.target.tgid).unwrap_or(0);
        let Some(path) = self.scene.workloads_cgroup(kill.target.cgroup, pid) else {
            return;
        };
        let killed = Killed {
            at: kill.at_ns,
            who: choice::who(&kill.target),
            sender: Sender::Process(kill.sender.tgid),
            workload: self.scene.identities.uid(&path),
        };
        match self.correlator.killed(&killed) {
            Answer::Beside => self.beside(&kill, &killed),
            answer => self.foreign(&kill, answer, Order::None),
        }
    }

    /// Takes a kill by somebody else that an order of ours for that workload has to do with.
    fn beside(&mut self, kill: &Kill, killed: &Killed) {
        let uid = killed.workload.as_deref();
        if self.is_told_beside(kill, uid) {
            self.correlator.remember(killed.who, killed.at);
            return;
        }
        let has_ended = uid.is_some_and(|uid| self.correlator.has_ended(uid));
        let order = if has_ended { Order::Over } else { Order::None };
        let answer = self.correlator.apart(killed);
        self.foreign(kill, answer, order);
    }

    /// Adds a kill by somebody else to the incident of our order for that workload; false where that is open no more.
    fn is_told_beside(&self, kill: &Kill, uid: Option<&str>) -> bool {
        let told = OtherKill {
            at: self.time(kill.at_ns),
            pid: kill.target.tgid,
            comm: kill.target.comm.clone(),
            sender_pid: kill.sender.tgid,
            sender_comm: kill.sender.comm.clone(),
            signal_code: kill.code.number(),
        };
        uid.is_some_and(|uid| {
            self.outlet.amend(uid, &mut |incident| {
                incident.killed_by_other(told.clone());
            })
        })
    }

    fn foreign(&mut self, kill: &Kill, answer: Answer, order: Order) {
        match answer {
            Answer::Opened(key) => {
                self.watched.add(choice::who(&kill.target));
                let victim = self
                    .scene
                    .victim(&choice::told(&kill.target), kill.target.cgroup);
                let at = self.time(kill.at_ns);
                let open = self.scene.foreign(kill, order, victim, &at);
                self.open.insert(key, open);
            }
            Answer::Joined(key) => {
                self.watched.add(choice::who(&kill.target));
                let victim = self
                    .scene
                    .victim(&choice::told(&kill.target), kill.target.cgroup);
                if let Some(open) = self.open.get_mut(&key) {
                    open.join(victim);
                }
            }
            other => self.counted(other),
        }
    }

    fn counted(&mut self, answer: Answer) {
        match answer {
            Answer::Counted(key) => {
                if let Some(open) = self.open.get_mut(&key) {
                    open.incident.more_victims += 1;
                }
            }
            Answer::Lost => self.lost.refused += 1,
            _ => {}
        }
    }

    fn released(&mut self, who: Who, at_ns: u64) {
        let Some(key) = self.correlator.incident_of(who) else {
            return;
        };
        let at = self.time(at_ns);
        if let Some(open) = self.open.get_mut(&key) {
            open.release(&at);
        }
    }
}
