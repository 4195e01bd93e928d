//! Sets of process ids with all their room made in advance: those signalled already, and those never to be.

use crate::realtime::prefault_buffer;

/// Room for so many signalled processes; a power of two, half of which is used.
const SLOTS: usize = 1 << 15;

/// Process ids, up to 16 384 of them. A full set takes no more, which costs a second signal and no harm.
#[derive(Debug)]
pub(super) struct PidSet {
    /// Linear probing; 0 is a free slot (no process has it).
    slots: Box<[i32]>,
    /// The slots that are taken: clearing touches no others, since a kill begins with it.
    taken: Vec<usize>,
}

impl PidSet {
    pub(super) fn new() -> Self {
        let mut slots = Vec::with_capacity(SLOTS);
        prefault_buffer(&mut slots, &1);
        slots.resize(SLOTS, 0);
        let mut taken = Vec::with_capacity(SLOTS / 2);
        prefault_buffer(&mut taken, &1);
        Self {
            slots: slots.into_boxed_slice(),
            taken,
        }
    }

    pub(super) fn clear(&mut self) {
        for slot in self.taken.drain(..) {
            self.slots[slot] = 0;
        }
    }

    pub(super) fn contains(&self, pid: i32) -> bool {
        self.slots[self.slot_of(pid)] == pid
    }

    /// Adds a process; false when there was no room.
    pub(super) fn insert(&mut self, pid: i32) -> bool {
        let slot = self.slot_of(pid);
        if self.slots[slot] == pid {
            return true;
        }
        if self.taken.len() >= SLOTS / 2 {
            return false;
        }
        self.slots[slot] = pid;
        self.taken.push(slot);
        true
    }

    /// Where the process is, or the free slot it would take. Half of the slots stay free, so there always is one.
    fn slot_of(&self, pid: i32) -> usize {
        // Process ids are given in sequence, so their low bits spread well.
        let mut slot = usize::try_from(pid.unsigned_abs()).unwrap_or(0) & (SLOTS - 1);
        while self.slots[slot] != 0 && self.slots[slot] != pid {
            slot = (slot + 1) & (SLOTS - 1);
        }
        slot
    }
}

/// Processes that are never signalled: PID 1, this process, and whoever was named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtectedPids {
    /// Ascending, without doubles.
    pids: Box<[i32]>,
}

impl ProtectedPids {
    /// A set of these, PID 1 and this process.
    pub fn new(named: impl IntoIterator<Item = i32>) -> Self {
        let own = i32::try_from(std::process::id()).ok();
        let mut pids: Vec<i32> = named
            .into_iter()
            .chain([1])
            .chain(own)
            .filter(|pid| *pid > 0)
            .collect();
        pids.sort_unstable();
        pids.dedup();
        Self {
            pids: pids.into_boxed_slice(),
        }
    }

    /// Whether a process is in it. Allocates nothing.
    pub fn contains(&self, pid: i32) -> bool {
        self.pids.binary_search(&pid).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn init_and_ourselves_are_always_protected() {
        let protected = ProtectedPids::new([70, -4, 0, 70]);
        let own = i32::try_from(std::process::id()).expect("a pid");
        for pid in [1, 70, own] {
            assert!(protected.contains(pid), "{pid}");
        }
        for pid in [0, -4, 71] {
            assert!(!protected.contains(pid), "{pid}");
        }
    }

    #[test]
    fn a_full_set_says_so_and_stays_correct() {
        let mut set = PidSet::new();
        let half = i32::try_from(SLOTS / 2).expect("small");
        assert!((1..=half).all(|pid| set.insert(pid)));
        assert!(!set.insert(half + 1));
        assert!(set.contains(half) && !set.contains(half + 1));
        assert!(set.insert(half), "what is in it stays in it");
        set.clear();
        assert!(!set.contains(1) && set.insert(half + 1));
    }

    proptest! {
        #[test]
        fn agrees_with_a_hash_set(pids in proptest::collection::vec(1..=4_194_304i32, 0..500), asked in 1..=4_194_304i32) {
            let mut set = PidSet::new();
            let expected: HashSet<i32> = pids.iter().copied().collect();
            for pid in &pids {
                prop_assert!(set.insert(*pid));
            }
            prop_assert!(pids.iter().all(|pid| set.contains(*pid)));
            prop_assert_eq!(set.contains(asked), expected.contains(&asked));
        }
    }
}
