//! Sets of process ids with all their room made in advance: those signalled already, and those never to be.

use std::path::Path;
use std::sync::Arc;

use crate::process::identity::{Identity, StartReader};
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
        if self.is_full() {
            return false;
        }
        self.slots[slot] = pid;
        self.taken.push(slot);
        true
    }

    /// Whether there is no room for anybody else.
    pub(super) fn is_full(&self) -> bool {
        self.taken.len() >= SLOTS / 2
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

/// Processes that are never signalled: PID 1, this process, and whoever was named. Whoever has the id of one of them
/// today and began at another time is none of them.
#[derive(Debug, Clone)]
pub struct ProtectedPids {
    /// Ascending by id, one of each, with its start; without one whoever has the id is meant.
    processes: Box<[(i32, Option<u64>)]>,
    /// Reads the start of who has an id now; none where there is no proc.
    starts: Option<Arc<StartReader>>,
}

impl PartialEq for ProtectedPids {
    fn eq(&self, other: &Self) -> bool {
        self.processes == other.processes
    }
}

impl ProtectedPids {
    /// A set of these, PID 1 and this process; proc under the root tells when whoever has an id began.
    pub fn new(root: &Path, named: impl IntoIterator<Item = Identity>) -> Self {
        let own = i32::try_from(std::process::id()).ok();
        let always = own.into_iter().chain([1]).map(|pid| (pid, None));
        let mut processes: Vec<(i32, Option<u64>)> = named
            .into_iter()
            .map(|one| (one.pid, Some(one.start_ticks)))
            .chain(always)
            .filter(|(pid, _)| *pid > 0)
            .collect();
        // Without a start comes first, and with it whoever has the id is meant.
        processes.sort_unstable();
        processes.dedup_by_key(|(pid, _)| *pid);
        Self {
            processes: processes.into_boxed_slice(),
            starts: StartReader::open(root).ok().map(Arc::new),
        }
    }

    /// Whether whoever has this id now is in it. Where its start cannot be read it is, by its id alone. Allocates nothing,
    /// and reads a file only for an id that is in it.
    pub fn contains(&self, pid: i32) -> bool {
        let found = self.processes.binary_search_by_key(&pid, |(pid, _)| *pid);
        let Some((_, start)) = found.ok().and_then(|index| self.processes.get(index)) else {
            return false;
        };
        let (Some(start), Some(starts)) = (start, &self.starts) else {
            return true;
        };
        let now = starts.start_ticks(pid);
        now.is_err() || now == Ok(Some(*start))
    }

    /// Whether whom a group lists so is in it, or might be: a process of another namespace is listed as 0, and could be anybody.
    pub(super) fn could_be(&self, pid: i32) -> bool {
        pid <= 0 || self.contains(pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::fake::{self, FakeProcess};
    use proptest::prelude::*;
    use std::collections::HashSet;
    use std::fs;

    #[test]
    fn init_and_ourselves_are_always_protected() {
        let own = i32::try_from(std::process::id()).expect("a pid");
        let named = [-4, 0, own].map(|pid| Identity {
            pid,
            start_ticks: 1,
        });
        let protected = ProtectedPids::new(Path::new("/"), named);
        for pid in [1, own] {
            assert!(protected.contains(pid), "{pid}");
        }
        for pid in [0, -4, 71] {
            assert!(!protected.contains(pid), "{pid}");
        }
    }

    #[test]
    fn who_has_the_id_of_a_protected_process_that_ended_is_not_protected() {
        let root = tempfile::tempdir().expect("temporary folder");
        let process = FakeProcess {
            pid: 70,
            parent: 1,
            session: 70,
            name: "sshd",
            user: 0,
            group: "/",
            is_contained: false,
        };
        fake::add(root.path(), &process);
        let check = |root: &Path, start_ticks, expected| {
            let named = [70, 70].map(|pid| Identity { pid, start_ticks });
            let protected = ProtectedPids::new(root, named);
            assert_eq!(protected.contains(70), expected, "{start_ticks}");
        };
        check(root.path(), 77, true);
        check(root.path(), 76, false);
        fs::write(root.path().join("proc/70/stat"), "70 (").expect("fake file");
        check(root.path(), 76, true);
        fs::remove_dir_all(root.path().join("proc/70")).expect("fake process");
        check(root.path(), 77, false);
        check(Path::new("/nonexistent"), 77, true);
    }

    #[test]
    fn a_full_set_says_so_and_stays_correct() {
        let mut set = PidSet::new();
        let half = i32::try_from(SLOTS / 2).expect("small");
        assert!((1..half).all(|pid| set.insert(pid)));
        assert!(!set.is_full() && set.insert(half) && set.is_full());
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
