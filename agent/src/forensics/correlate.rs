//! Which kills are one incident: facts with their times go in, and out comes what opens, grows, is known already and closes.
//!
//! Nothing here reads a clock or a file. A fact is settled by what the kernel tells of it, in this order: who was chosen by
//! the OOM killer belongs to the decision that chose it, whatever we had ordered; a signal of our own belongs to our order; one
//! of the kernel's belongs to an OOM or is no kill by anybody; and what is left is a kill by somebody else, told with our order
//! for its workload where there is one, else by itself.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::MOST_VICTIMS;

/// Incidents that may be open at a time; who is killed beyond that is counted as lost.
pub const MOST_OPEN: usize = 128;
/// An incident stays open for no longer, in nanoseconds.
pub const LONGEST: u64 = 30_000_000_000;
/// After its last exit an incident stays open for so long: what is killed in one act may be told apart by as much, and a
/// container that follows its first process does so within it.
pub const SETTLE: u64 = 200_000_000;
/// Signals of one sender to one workload are one act if they follow the first within this time.
const ONE_ACT: u64 = 2_000_000_000;
/// An order of ours has to do with a kill so long after its end.
const AFTERMATH: u64 = 2_000_000_000;
/// The same choice is told twice within this time, if it is.
const TWICE: u64 = 1_000_000_000;
/// Victims of closed incidents that are remembered.
const REMEMBERED: usize = 1024;

/// An incident of this run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub u64);

/// A process as a fact names it. Its id is somebody else's before long; with its start it is one process for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Who {
    /// Its id.
    pub pid: u32,
    /// When it was started, nanoseconds of `CLOCK_BOOTTIME`; none where nobody told.
    pub start: Option<u64>,
}

impl Who {
    /// Whether both may be the same process: without both starts there is no more than the id to go by.
    pub fn may_be(self, other: Self) -> bool {
        let starts = self.start.zip(other.start);
        self.pid == other.pid && starts.is_none_or(|(one, other)| one == other)
    }
}

/// The kernel's killer chose a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// When, `CLOCK_MONOTONIC` in nanoseconds.
    pub at: u64,
    /// The process.
    pub who: Who,
    /// The decision it fell to, if that is known: the trigger's thread, and when it had last reclaimed.
    pub decision: Option<(u32, u64)>,
}

/// SIGKILL was sent to a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Killed {
    /// When, `CLOCK_MONOTONIC` in nanoseconds.
    pub at: u64,
    /// The process.
    pub who: Who,
    /// Who sent it.
    pub sender: Sender,
    /// The uid of the workload it belongs to, if it does.
    pub workload: Option<Arc<str>>,
}

/// Who sent a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The kernel.
    Kernel,
    /// This agent.
    Ourselves,
    /// Some other process.
    Process(u32),
}

/// What became of a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It opens an incident.
    Opened(Key),
    /// It is one more victim of an open incident.
    Joined(Key),
    /// It is one more victim of an open incident that has as many as it can hold.
    Counted(Key),
    /// It was told before.
    Known,
    /// It is a signal of our own.
    Ours,
    /// It is somebody else's, while an order of ours for its workload was open or just over: it belongs into the incident of
    /// that order, or is one by itself ([`Correlator::apart`]).
    Beside,
    /// It is nobody's kill of a workload.
    Nobodys,
    /// It would open an incident, and too many are open.
    Lost,
}

/// Why an incident is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All victims have exited.
    Exited,
    /// Some victim has not exited within [`LONGEST`].
    TimedOut,
    /// The agent ends.
    AgentEnds,
}

/// Correlates facts.
#[derive(Debug, Default)]
pub struct Correlator {
    open: Vec<Case>,
    /// Which open incident a process is a victim of.
    victims: BTreeMap<Who, Key>,
    /// Victims of closed incidents, oldest first, with when they were chosen or signalled.
    recent: VecDeque<(Who, u64)>,
    /// Orders of ours by the uid of their workload, with their end.
    orders: Vec<(Arc<str>, Option<u64>)>,
    last: u64,
}

#[derive(Debug)]
struct Case {
    key: Key,
    nature: Nature,
    began: u64,
    /// Victims that have not exited.
    living: Vec<Who>,
    held: usize,
    /// When the last one exited.
    exited: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Nature {
    Oom(Option<(u32, u64)>),
    Foreign(u32, Arc<str>),
}

impl Correlator {
    /// Takes a choice of the kernel's killer.
    pub fn chosen(&mut self, chosen: &Chosen) -> Answer {
        if self.is_known(chosen.who, chosen.at) {
            return Answer::Known;
        }
        let nature = Nature::Oom(chosen.decision);
        let joins = |case: &Case| chosen.decision.is_some() && case.nature == nature;
        let found = self.open.iter().position(joins);
        self.put(found, nature, (chosen.who, chosen.at))
    }

    /// Takes a process that shares the memory of a victim of that incident, and was killed for it.
    pub fn shares(&mut self, key: Key, who: Who, at: u64) -> Answer {
        if self.is_known(who, at) {
            return Answer::Known;
        }
        let found = self.open.iter().position(|case| case.key == key);
        let case = found.and_then(|place| self.open.get(place));
        let nature = case.map(|case| case.nature.clone());
        nature.map_or(Answer::Nobodys, |nature| self.put(found, nature, (who, at)))
    }

    /// Takes a signal.
    pub fn killed(&mut self, killed: &Killed) -> Answer {
        if self.is_known(killed.who, killed.at) {
            return Answer::Known;
        }
        let sender = match killed.sender {
            Sender::Ourselves => return Answer::Ours,
            // Of an OOM the choice is told; what else the kernel kills has ended by itself, or with its namespace.
            Sender::Kernel => return Answer::Nobodys,
            Sender::Process(sender) => sender,
        };
        let Some(workload) = &killed.workload else {
            return Answer::Nobodys;
        };
        if self.is_ordered(workload, killed.at) {
            return Answer::Beside;
        }
        self.foreign(sender, workload, killed)
    }

    /// Takes a signal that is [`Answer::Beside`] an order whose incident takes nothing more.
    pub fn apart(&mut self, killed: &Killed) -> Answer {
        match (killed.sender, &killed.workload) {
            (Sender::Process(sender), Some(workload)) => self.foreign(sender, workload, killed),
            _ => Answer::Nobodys,
        }
    }

    fn foreign(&mut self, sender: u32, workload: &Arc<str>, killed: &Killed) -> Answer {
        let nature = Nature::Foreign(sender, Arc::clone(workload));
        let joins =
            |case: &Case| case.nature == nature && killed.at.saturating_sub(case.began) <= ONE_ACT;
        let found = self.open.iter().position(joins);
        self.put(found, nature, (killed.who, killed.at))
    }

    /// Takes an exit: the incident it belongs to, and whether it was the last one of that.
    pub fn exited(&mut self, who: Who, at: u64) -> Option<(Key, bool)> {
        let (known, key) = self.victim(who)?;
        self.victims.remove(&known);
        let case = self.open.iter_mut().find(|case| case.key == key)?;
        case.living.retain(|living| *living != known);
        case.exited = case.exited.max(at);
        remember(&mut self.recent, known, case.began);
        Some((key, case.living.is_empty()))
    }

    /// This process, or thread, was killed at that time; what is told of it again is known. The start of a thread is its process's:
    /// whoever tells of the thread knows none, and whoever gets its id for a process of its own has another.
    pub fn remember(&mut self, who: Who, at: u64) {
        if self.victim(who).is_none() {
            remember(&mut self.recent, who, at);
        }
    }

    /// The open incident that a process is a victim of, and has not exited.
    pub fn incident_of(&self, who: Who) -> Option<Key> {
        self.victim(who).map(|(_, key)| key)
    }

    /// An order of ours for this workload is open.
    pub fn ordered(&mut self, workload: Arc<str>) {
        self.orders.retain(|(known, _)| *known != workload);
        if self.orders.len() == MOST_OPEN {
            self.orders.remove(0);
        }
        self.orders.push((workload, None));
    }

    /// That order is over.
    pub fn completed(&mut self, workload: &str, at: u64) {
        for (known, end) in &mut self.orders {
            if **known == *workload {
                *end = Some(at);
            }
        }
    }

    /// Whether an order of ours for this workload, whose incident takes nothing more, has ended just now. One whose end nobody has told
    /// of is over too, for who knows how long, and is forgotten.
    pub fn has_ended(&mut self, workload: &str) -> bool {
        let is_it = |known: &Arc<str>| **known == *workload;
        let mut orders = self.orders.iter();
        let has_ended = orders.any(|(known, end)| is_it(known) && end.is_some());
        if !has_ended {
            self.orders.retain(|(known, _)| !is_it(known));
        }
        has_ended
    }

    /// Closes what is over at `now`.
    pub fn due(&mut self, now: u64) -> Vec<(Key, End)> {
        self.orders
            .retain(|(_, end)| end.is_none_or(|end| now.saturating_sub(end) <= AFTERMATH));
        let ends = self.open.iter().filter_map(|case| {
            let (at, end) = case.due();
            (at <= now).then_some((case.key, end))
        });
        let ends: Vec<(Key, End)> = ends.collect();
        for (key, _) in &ends {
            self.forget(*key);
        }
        ends
    }

    /// Closes everything.
    pub fn close(&mut self) -> Vec<(Key, End)> {
        let ends = self.open.drain(..).map(|case| (case.key, End::AgentEnds));
        let ends = ends.collect();
        self.victims.clear();
        ends
    }

    /// When the next incident is over if nothing happens, `CLOCK_MONOTONIC` in nanoseconds.
    pub fn next_due(&self) -> Option<u64> {
        self.open.iter().map(|case| case.due().0).min()
    }

    /// Incidents that are open.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    fn put(&mut self, found: Option<usize>, nature: Nature, (who, at): (Who, u64)) -> Answer {
        if let Some(case) = found.and_then(|place| self.open.get_mut(place)) {
            case.held += 1;
            if case.held > MOST_VICTIMS {
                remember(&mut self.recent, who, at);
                return Answer::Counted(case.key);
            }
            case.living.push(who);
            self.victims.insert(who, case.key);
            return Answer::Joined(case.key);
        }
        if self.open.len() >= MOST_OPEN {
            remember(&mut self.recent, who, at);
            return Answer::Lost;
        }
        self.last += 1;
        let key = Key(self.last);
        self.open.push(Case {
            key,
            nature,
            began: at,
            living: vec![who],
            held: 1,
            exited: at,
        });
        self.victims.insert(who, key);
        Answer::Opened(key)
    }

    fn is_known(&self, who: Who, at: u64) -> bool {
        let mut recent = self.recent.iter();
        self.victim(who).is_some()
            || recent.any(|(known, when)| known.may_be(who) && at.abs_diff(*when) <= TWICE)
    }

    /// A victim that has not exited, as it is known, and its incident.
    fn victim(&self, who: Who) -> Option<(Who, Key)> {
        let of = |start| Who { start, ..who };
        // Whoever is known without a start comes before those with one.
        let same = self.victims.range(of(None)..=of(Some(u64::MAX)));
        let mut same = same.map(|(known, key)| (*known, *key));
        same.find(|(known, _)| known.may_be(who))
    }

    fn is_ordered(&self, workload: &str, at: u64) -> bool {
        self.orders.iter().any(|(known, end)| {
            **known == *workload && end.is_none_or(|end| at <= end.saturating_add(AFTERMATH))
        })
    }

    fn forget(&mut self, key: Key) {
        let Some(place) = self.open.iter().position(|case| case.key == key) else {
            return;
        };
        let case = self.open.swap_remove(place);
        for who in case.living {
            self.victims.remove(&who);
            remember(&mut self.recent, who, case.began);
        }
    }
}

impl Case {
    fn due(&self) -> (u64, End) {
        let longest = self.began.saturating_add(LONGEST);
        if self.living.is_empty() {
            (longest.min(self.exited.saturating_add(SETTLE)), End::Exited)
        } else {
            (longest, End::TimedOut)
        }
    }
}

fn remember(recent: &mut VecDeque<(Who, u64)>, who: Who, at: u64) {
    if recent.len() == REMEMBERED {
        recent.pop_front();
    }
    recent.push_back((who, at));
}

#[cfg(test)]
#[path = "correlate_tests.rs"]
mod tests;
