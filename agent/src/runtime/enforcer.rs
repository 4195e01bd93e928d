//! Who enforces on this node, and the ledger that goes with it: one agent at a time, the others observe.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use brink_core::base::{Moment, Reason, Span};
use brink_core::node::input::Recalled;
use brink_core::node::order::{End, Phase};
use brink_core::node::recent;
use brink_core::node::safety::Mode;
use brink_core::node::signal::Signal;
use brink_core::node::{credit, reaping};
use brink_host::clock::BootId;
use brink_host::ledger::{Entry, Ledger, Opening};
use brink_host::lock::{self, Enforcer, EnforcerLock};
use brink_host::process::unreaped;
use tracing::{info, warn};

use super::LOCK;
use super::foretold::Foretold;
use super::state::State;
use crate::guard::ports::{Evicted, Interrupted};
use crate::ledger::{self, DECISIONS, Mark, Marks, Record};
use crate::record::DecisionRecord;

/// Somebody whose deadline has been over for longer is left to a new decision: nobody knows what happened meanwhile.
const OVERDUE: Span = Span::from_secs(10);

/// The right to enforce; ours, or another agent's.
pub struct Enforcement {
    root: PathBuf,
    folder: PathBuf,
    boot: BootId,
    lock: Mutex<Option<EnforcerLock>>,
    is_ours: Arc<AtomicBool>,
}

impl Enforcement {
    /// Takes the right if nobody has it, and opens the ledger then.
    ///
    /// # Errors
    /// When the lock or the ledger cannot be had although nobody else has it.
    pub fn begin(
        root: &Path,
        folder: &Path,
        boot: BootId,
    ) -> anyhow::Result<(Self, Option<Ledger>)> {
        let enforcement = Self {
            root: root.to_path_buf(),
            folder: folder.to_path_buf(),
            boot,
            lock: Mutex::new(None),
            is_ours: Arc::default(),
        };
        let ledger = enforcement.take_over()?;
        if ledger.is_none() {
            warn!(
                pid = enforcement.other(),
                "another agent enforces on this node; this one only observes"
            );
        }
        Ok((enforcement, ledger))
    }

    /// Takes the right when nobody else has it; the ledger if it became ours just now.
    ///
    /// # Errors
    /// When the lock or the ledger cannot be had although nobody else has it.
    pub fn take_over(&self) -> anyhow::Result<Option<Ledger>> {
        let mut held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_some() {
            return Ok(None);
        }
        let Enforcer::We(lock) = EnforcerLock::acquire(&self.folder.join(LOCK))? else {
            return Ok(None);
        };
        let ledger = self.open_ledger()?;
        *held = Some(lock);
        self.is_ours.store(true, Ordering::Release);
        Ok(Some(ledger))
    }

    /// Lets go of the right, for whoever stands by: nobody here orders anything any more, nor writes what only the enforcer may.
    pub fn let_go(&self) {
        let mut held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        // Before anybody else can have it.
        self.is_ours.store(false, Ordering::Release);
        drop(held.take());
    }

    /// Whether another agent has it.
    pub fn is_elsewhere(&self) -> bool {
        !self.is_ours.load(Ordering::Acquire)
    }

    /// Whether it is ours, for whoever writes what only the enforcer may.
    pub fn is_ours(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_ours)
    }

    /// The process that enforces in our place; none if we do, or it is not seen from here.
    pub fn other(&self) -> Option<i32> {
        if !self.is_elsewhere() {
            return None;
        }
        lock::holder_of(&self.root, &self.folder.join(LOCK))
            .ok()
            .flatten()
    }

    fn open_ledger(&self) -> anyhow::Result<Ledger> {
        let path = self.folder.join(ledger::FILE);
        let (ledger, opening) = Ledger::open(&path, DECISIONS, self.boot)?;
        match opening {
            Opening::Created => {}
            Opening::Resumed { records } => info!(records, "the ledger of this boot goes on"),
            Opening::Replaced { aside, why } => {
                warn!(aside = %aside.display(), why, "a ledger that is not ours was put aside");
            }
        }
        Ok(ledger)
    }
}

/// How many of the machine's processes are dead and not reaped; without it none of them are waited for, which is told.
pub(super) fn dead(root: &Path) -> Option<u64> {
    let counted = unreaped(root);
    if let Err(error) = &counted {
        warn!(%error, "process ids of what was killed before are not waited for: the dead cannot be counted");
    }
    counted.ok()
}

/// This boot's kills, oldest first. An order that found nobody was none. Process ids come back of those that are waited for
/// still, and no more than `unreaped` processes hold; the latest are reaped last. Where nobody can count, none are waited for.
pub(super) fn kills(
    ledger: &Ledger,
    now: Moment,
    unreaped: impl FnOnce() -> Option<u64>,
) -> Vec<Recalled> {
    let mut kills: Vec<(Moment, u32)> = ledger
        .entries()
        .filter_map(|entry| killed(&entry, now))
        .collect();
    kills.sort_unstable();
    let has_ids = kills.iter().any(|(_, ids)| *ids > 0);
    let mut left = has_ids.then(unreaped).flatten().unwrap_or(0);
    for (_, ids) in kills.iter_mut().rev() {
        *ids = u32::try_from(left).unwrap_or(u32::MAX).min(*ids);
        left -= u64::from(*ids);
    }
    let recalled = |(at, ids)| Recalled::Kill { at, ids };
    kills.into_iter().map(recalled).collect()
}

/// When a kill was ordered, and the process ids that it brings back.
fn killed(entry: &Entry<'_>, now: Moment) -> Option<(Moment, u32)> {
    let (record, completion) = Record::read(entry)?;
    let signalled = completion
        .and_then(|completion| completion.kill)
        .map(|kill| kill.signalled);
    let is_carried_out = record.mode == Mode::Enforcing && signalled != Some(0);
    let decided = record.stages.decided.filter(|_| is_carried_out)?;
    if record.crossed.signal != Signal::PidAvailable {
        return Some((decided, 0));
    }
    let marks = Marks::read(entry);
    let sent = marks.at(Mark::Signalled).or(marks.at(Mark::Hardened));
    let sent = sent.or_else(|| (record.reason == Reason::Hard).then_some(decided));
    // Whoever was only asked gives nothing back for that.
    let Some(at) = sent else {
        return Some((decided, 0));
    };
    // An agent that ended in the middle has left how many there were when it decided.
    let seen = record.victim.standing.usage;
    let seen = seen.and_then(|processes| u32::try_from(processes).ok());
    let is_waited_for = now < at + reaping::REAPING;
    let ids = signalled.or(seen).filter(|_| is_waited_for);
    Some((at, ids.unwrap_or(0)))
}

/// Pods that this boot's orders have evicted so lately that what is started in them again belongs to that, oldest first.
pub(super) fn evicted(ledger: &Ledger, now: Moment) -> Vec<Evicted> {
    let mut found: Vec<Evicted> = ledger
        .entries()
        .filter_map(|entry| evicted_by(&entry, now))
        .collect();
    found.sort_unstable_by_key(|evicted| evicted.order);
    found
}

fn evicted_by(entry: &Entry<'_>, now: Moment) -> Option<Evicted> {
    let (record, completion) = Record::read(entry)?;
    let end = completion.and_then(|completion| completion.end);
    let killed = Marks::read(entry).at(Mark::Hardened);
    // Whoever was only asked, or was to be killed, by an agent that ended then, is taken up or decided anew.
    let is_done = killed.is_some() || end.is_some();
    let is_void = matches!(end, Some(End::Failed | End::Stopped));
    let is_carried_out = record.mode == Mode::Enforcing && is_done && !is_void;
    let is_late = |at: &Moment| now.since(*at) < recent::EVICTED;
    let at = killed.or(record.stages.decided).filter(is_late)?;
    is_carried_out.then(|| Evicted {
        uid: record.victim.uid.to_owned(),
        order: record.order,
        at,
    })
}

/// The latest order, if it was not over when its agent ended and that is not too long ago: somebody was asked to end whose
/// deadline is still to come or has just gone by, or was killed a moment before `now`.
pub(super) fn interrupted(ledger: &Ledger, now: Moment) -> Option<Interrupted> {
    let latest = ledger.entries().max_by_key(|entry| entry.slot.sequence)?;
    let (record, _) = Record::read(&latest)?;
    let marks = Marks::read(&latest);
    let is_over = latest.completion.is_some() || marks.at(Mark::Ended).is_some();
    if record.mode != Mode::Enforcing || is_over {
        return None;
    }
    let decided = record.stages.decided?;
    let asked = marks.at(Mark::Asked);
    let (phase, asked, latest_start) = match (marks.at(Mark::Hardened), marks.at(Mark::Signalled)) {
        (_, Some(at)) => (Phase::Killed { at }, asked, at + credit::LIFETIME),
        // Some may have been killed: the others are to follow at once.
        (Some(until), None) => (
            Phase::Asked { until },
            Some(until),
            until + credit::LIFETIME,
        ),
        (None, None) => {
            // Nobody was killed, so it is decided anew.
            let until = record.until?;
            (Phase::Asked { until }, asked, until + OVERDUE)
        }
    };
    let is_sent = asked.is_some() || matches!(phase, Phase::Killed { .. });
    let charged = record.victim.standing.usage;
    (now < latest_start).then(|| Interrupted {
        slot: latest.slot,
        uid: record.victim.uid.to_owned(),
        order: record.order,
        crossed: record.crossed,
        opened: decided,
        asked,
        phase,
        is_sent,
        charged: charged.and_then(|bytes| u64::try_from(bytes).ok()),
    })
}

/// Remembers the decisions of this boot, with what was worked out of them after the kill; the number of the last one.
pub(super) fn remember(state: &mut State, ledger: &Ledger, foretold: &Foretold) -> u64 {
    let mut found = foretold.recall();
    let mut entries: Vec<_> = ledger.entries().collect();
    entries.sort_by_key(|entry| entry.slot.sequence);
    let mut last = 0;
    for entry in entries {
        let Some((record, completion)) = Record::read(&entry) else {
            warn!("a record of the ledger cannot be read; it is left out");
            continue;
        };
        last = last.max(record.order);
        let mut decision = DecisionRecord::new(&record, completion.as_ref());
        found.add_to(&mut decision);
        state.add_decision(decision);
    }
    last
}

#[cfg(test)]
mod tests;
