//! Processes that share a victim's memory and are no threads of it.
//!
//! The kernel's killer sends them SIGKILL right after its mark, in the same context, and marks none of them.

use std::collections::VecDeque;

use brink_host::probe::forensics::{Kill, Oom, SignalCode};

use super::correlate::Key;

/// The signals follow the mark within this time, the message on a slow console included, in nanoseconds.
const SOON: u64 = 1_000_000_000;
/// Those that may wait until it is known which incident their victim is part of.
const WAITING: usize = 64;

/// The latest mark, and who was killed for it. The kernel takes up one decision at a time, so there is one.
#[derive(Debug, Default)]
pub(super) struct Sharers {
    mark: Option<Mark>,
    waiting: VecDeque<Kill>,
    /// Those whose victim's incident was not known in time, or who were too many.
    lost: u64,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    at: u64,
    victim: u32,
    /// The thread that ran out of memory, and its process.
    trigger: (u32, u32),
    /// What its memory is told from others' by: all that is mapped in it.
    mapped: Option<u64>,
    /// Its incident, once that is known.
    key: Option<Key>,
}

impl Sharers {
    /// A victim was marked, and signalled.
    pub(super) fn marked(&mut self, oom: &Oom) {
        self.lost += self.waiting.drain(..).count() as u64;
        self.mark = Some(Mark {
            at: oom.at_ns,
            victim: oom.victim.tgid,
            trigger: (oom.trigger.tid, oom.trigger.tgid),
            mapped: oom.victim.total_vm,
            key: None,
        });
    }

    /// A process has exited. Whoever ran out of memory and ends is past the killer: what it kills then, with a namespace that it
    /// leads, is nobody's memory.
    pub(super) fn ended(&mut self, tgid: u32) {
        if self.mark.is_some_and(|mark| mark.trigger.1 == tgid) {
            self.mark = None;
        }
    }

    /// A victim is part of that incident: who was killed with it before that was known.
    pub(super) fn belong(&mut self, victim: u32, key: Key) -> Vec<Kill> {
        match &mut self.mark {
            Some(mark) if mark.victim == victim => mark.key = Some(key),
            _ => return Vec::new(),
        }
        self.waiting.drain(..).collect()
    }

    /// Those that are in no incident, since the start.
    pub(super) const fn lost(&self) -> u64 {
        self.lost
    }

    /// Takes a SIGKILL of the kernel's own: the incident it belongs to, with the victim whose memory it is, if it is one of these and
    /// that is known by now.
    pub(super) fn take(&mut self, kill: &Kill) -> Option<(Key, u32)> {
        let mark = self.mark.filter(|mark| mark.is_followed_by(kill))?;
        if let Some(key) = mark.key {
            return Some((key, mark.victim));
        }
        if self.waiting.len() < WAITING {
            self.waiting.push_back(kill.clone());
        } else {
            self.lost += 1;
        }
        None
    }
}

impl Mark {
    fn is_followed_by(&self, kill: &Kill) -> bool {
        let target = &kill.target;
        kill.code == SignalCode::Kernel
            && kill.sender.tid == self.trigger.0
            && target.tgid != self.victim
            && kill
                .at_ns
                .checked_sub(self.at)
                .is_some_and(|since| since <= SOON)
            && self.mapped.is_some()
            && target.total_vm == self.mapped
    }
}

#[cfg(test)]
#[path = "sharers_tests.rs"]
mod tests;
