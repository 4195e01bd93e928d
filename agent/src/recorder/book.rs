//! The recorder's memory: every ring, and the names of the cgroups whose points lie in them.
//!
//! | ring | points | bytes |
//! |---|---|---|
//! | node, in the kernel | 8,192 of 32 bytes | 262,144 |
//! | cgroups near their limit | 32 × 600 of 32 bytes | 614,400 |
//! | all cgroups | 512 × 60 of 32 bytes | 983,040 |
//! | node, from files | 600 of 20 bytes | 12,000 |
//! | waits of the node | 600 of 8 bytes | 4,800 |
//! | the way of each cgroup to its limit | 512 × 16 of 8 bytes | 65,536 |

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brink_host::probe::Followed;
use brink_stream::model::field::Missing;

use super::lanes::Lanes;
use super::point::{Counts, FilePoint, GroupPoint, Reading, StallPoint, Stamp, bytes, low};

/// Cgroups that are recorded closely.
pub const NEAR: usize = 32;
/// Points of each of those.
pub const NEAR_POINTS: usize = 600;
/// Cgroups that are recorded at all.
pub const GROUPS: usize = 512;
/// Points of each.
pub const GROUP_POINTS: usize = 60;
/// Points of the node that user space takes.
pub const NODE_POINTS: usize = 600;

/// Everything that is kept, and all of it is taken at the start.
#[derive(Debug)]
pub struct Book {
    groups: Box<[Option<Entry>]>,
    near: Lanes<GroupPoint>,
    all: Lanes<GroupPoint>,
    files: Lanes<FilePoint>,
    stalls: Lanes<StallPoint>,
    stall_us: Option<u64>,
    /// From one point to the next, for now.
    pub periods: Periods,
    /// Cgroups whose usage a program of the kernel's tells.
    pub surveyed: usize,
    /// Cgroups for which there was no room at the last search.
    pub left_out: usize,
    /// What the kernel's timer has taken, where it follows those near their limit.
    pub followed: Option<Followed>,
    /// Whether the kernel tells how long tasks of a cgroup wait for memory.
    pub tells_stalls: bool,
    /// Whether the node is a cgroup: nobody counts reclaims and forks of it as of a machine.
    pub node_is_cgroup: bool,
    /// Why files said nothing of the node when they were asked last; none where they did.
    pub node_missing: Option<Missing>,
    /// The same of how long its tasks wait for memory.
    pub stalls_missing: Option<Missing>,
}

/// From one point to the next, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Periods {
    /// Of the node, where the kernel leaves none.
    pub node_ms: u32,
    /// Of the cgroups near their limit.
    pub near_ms: u32,
    /// Of the others.
    pub others_ms: u32,
}

/// A cgroup that is, or lately was, recorded.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its path in the hierarchy of the memory controller.
    pub path: Arc<str>,
    /// Its id; none before that was told.
    pub id: Option<u64>,
    /// Its own limit, in bytes.
    pub limit: Option<u64>,
    /// The lane of its close points.
    pub near: Option<usize>,
    /// Since when it is gone.
    pub gone: Option<Stamp>,
    /// Its counters in full at the newest point.
    pub stall_us: Option<u64>,
    /// The same of what the kernel's programs count.
    pub counts: Option<Counts>,
    /// How near it is to its limit, in thousandths, by what it is expected to hold in ten seconds.
    pub nearness: u32,
}

/// A cgroup that somebody asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// Its path.
    pub path: &'a str,
    /// Its id, where that is known: of those that have the path one after the other, as of a service that is started again, it is one.
    pub id: Option<u64>,
}

/// Which rings a point goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Into {
    /// That of its close points, if it has one.
    pub near: bool,
    /// That of all cgroups.
    pub all: bool,
}

impl Default for Book {
    fn default() -> Self {
        Self {
            groups: vec![None; GROUPS].into(),
            near: Lanes::new(NEAR, NEAR_POINTS),
            all: Lanes::new(GROUPS, GROUP_POINTS),
            files: Lanes::new(1, NODE_POINTS),
            stalls: Lanes::new(1, NODE_POINTS),
            stall_us: None,
            periods: Periods::default(),
            surveyed: 0,
            left_out: 0,
            followed: None,
            tells_stalls: false,
            node_is_cgroup: false,
            node_missing: None,
            stalls_missing: None,
        }
    }
}

impl Book {
    /// Begins to record a cgroup in this slot; whoever had it is forgotten.
    pub fn admit(&mut self, slot: usize, path: Arc<str>, limit: Option<u64>) {
        self.forget(slot);
        if let Some(place) = self.groups.get_mut(slot) {
            *place = Some(Entry {
                path,
                id: None,
                limit,
                near: None,
                gone: None,
                stall_us: None,
                counts: None,
                nearness: 0,
            });
        }
    }

    /// Empties a slot.
    pub fn forget(&mut self, slot: usize) {
        self.move_near(slot, None);
        self.all.clear(slot);
        if let Some(place) = self.groups.get_mut(slot) {
            *place = None;
        }
    }

    /// The cgroup of a slot.
    pub fn entry(&self, slot: usize) -> Option<&Entry> {
        self.groups.get(slot)?.as_ref()
    }

    /// The cgroup of a slot, to change what is known of it.
    pub fn entry_mut(&mut self, slot: usize) -> Option<&mut Entry> {
        self.groups.get_mut(slot)?.as_mut()
    }

    /// Every recorded cgroup with its slot.
    pub fn entries(&self) -> impl Iterator<Item = (usize, &Entry)> {
        let groups = self.groups.iter().enumerate();
        groups.filter_map(|(slot, entry)| Some((slot, entry.as_ref()?)))
    }

    /// The cgroup that is wanted: by its id, and where that is not known the one that lives, or else the last to go. None where
    /// another one has its path.
    pub fn find(&self, wanted: Wanted<'_>) -> Option<(usize, &Entry)> {
        let is_it = |entry: &Entry| {
            *entry.path == *wanted.path && wanted.id.is_none_or(|id| entry.id == Some(id))
        };
        let found = self.entries().filter(|(_, entry)| is_it(entry));
        found.reduce(|one, other| match (one.1.gone, other.1.gone) {
            (Some(_), None) => other,
            (Some(gone), Some(later)) if gone.before(later).is_some() => other,
            _ => one,
        })
    }

    /// Gives a slot this lane of close points, emptied, or none.
    pub fn move_near(&mut self, slot: usize, lane: Option<usize>) {
        let Some(entry) = self.entry_mut(slot) else {
            return;
        };
        if entry.near == lane {
            return;
        }
        let before = std::mem::replace(&mut entry.near, lane);
        for lane in before.into_iter().chain(lane) {
            self.near.clear(lane);
        }
    }

    /// Takes a reading of a slot's cgroup.
    pub fn note(&mut self, slot: usize, at: Stamp, reading: &Reading, into: Into) {
        let Some(entry) = self.entry_mut(slot) else {
            return;
        };
        entry.stall_us = reading.stall_us.or(entry.stall_us);
        entry.counts = reading.counts.or(entry.counts);
        let lane = entry.near.filter(|_| into.near);
        let point = GroupPoint::of(at, reading);
        if let Some(lane) = lane {
            self.near.push(lane, point);
        }
        if into.all {
            self.all.push(slot, point);
        }
    }

    /// Takes a reading of the node from files.
    pub fn note_node(&mut self, point: FilePoint) {
        self.files.push(0, point);
    }

    /// Takes how long tasks of the node have waited for memory, in microseconds.
    pub fn note_stall(&mut self, at: Stamp, stall_us: u64) {
        self.stall_us = Some(stall_us);
        let stall_us = low(stall_us);
        self.stalls.push(0, StallPoint { at, stall_us });
    }

    /// The points of a slot's cgroup, oldest first: the close ones, and before those the others.
    pub fn points(&self, slot: usize) -> impl Iterator<Item = &GroupPoint> {
        let lane = self.entry(slot).and_then(|entry| entry.near);
        let lane = lane.unwrap_or(usize::MAX);
        let first = self.near.of(lane).next().map(|point| point.at);
        let is_older = move |point: &&GroupPoint| {
            first.is_none_or(|first| point.at.before(first).is_some_and(|before| before > 0))
        };
        self.all.of(slot).filter(is_older).chain(self.near.of(lane))
    }

    /// What a cgroup held at `at` without inactive file pages, in bytes, as of the newest point that is no later.
    pub fn working_set(&self, path: &str, at: Stamp) -> Option<u64> {
        // One that went before may have had the same name.
        let (slot, _) = self.find(Wanted { path, id: None })?;
        let points = self.points(slot);
        let before = points.take_while(|point| point.at.before(at).is_some());
        before.last().map(|point| bytes(point.working_set))
    }

    /// The node's points from files, oldest first.
    pub fn node_points(&self) -> impl Iterator<Item = &FilePoint> {
        self.files.of(0)
    }

    /// The node's waits, oldest first.
    pub fn stalls(&self) -> impl Iterator<Item = &StallPoint> {
        self.stalls.of(0)
    }

    /// How long tasks of the node had waited at the newest point, in microseconds; none where nobody tells.
    pub const fn stall_us(&self) -> Option<u64> {
        self.stall_us
    }
}

/// The book, for a moment. Whoever died with it locked left points behind that mean what they say.
pub fn lock(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use brink_host::probe::abi::flight::{FlightPoint, POINTS};

    use super::super::approach::Approach;
    use super::*;

    /// All that may be taken, in bytes.
    const ROOM: usize = 2 << 20;

    #[test]
    fn what_is_taken_is_what_is_documented_and_no_more_than_two_mebibytes() {
        let rings = [
            POINTS * size_of::<FlightPoint>(),
            NEAR * NEAR_POINTS * size_of::<GroupPoint>(),
            GROUPS * GROUP_POINTS * size_of::<GroupPoint>(),
            NODE_POINTS * size_of::<FilePoint>(),
            NODE_POINTS * size_of::<StallPoint>(),
            GROUPS * Approach::NOTES_BYTES,
        ];
        assert_eq!(rings, [262_144, 614_400, 983_040, 12_000, 4_800, 65_536]);
        assert!(rings.iter().sum::<usize>() <= ROOM);
    }

    fn at(millis: u64) -> Stamp {
        Stamp::of(millis * 1_000_000)
    }

    fn usage(bytes: u64) -> Reading {
        Reading {
            usage: bytes,
            ..Reading::default()
        }
    }

    const BOTH: Into = Into {
        near: true,
        all: true,
    };
    const NEAR_ALONE: Into = Into {
        near: true,
        all: false,
    };

    #[test]
    fn close_points_take_the_place_of_the_others_from_their_first_on() {
        let mut book = Book::default();
        book.admit(3, "/a".into(), Some(1 << 30));
        book.note(3, at(1_000), &usage(4096), BOTH);
        book.move_near(3, Some(0));
        book.note(3, at(2_000), &usage(8192), BOTH);
        book.note(3, at(2_100), &usage(12_288), NEAR_ALONE);
        let usages: Vec<u32> = book.points(3).map(|point| point.usage).collect();
        assert_eq!(usages, [1, 2, 3]);
        book.move_near(3, None);
        assert_eq!(book.points(3).count(), 2);
    }

    #[test]
    fn what_a_group_held_is_what_the_newest_point_before_says() {
        let mut book = Book::default();
        book.admit(3, "/a".into(), None);
        for (millis, pages) in [(1_000, 1), (2_000, 5), (3_000, 2)] {
            let reading = Reading {
                working_set: pages << 12,
                ..Reading::default()
            };
            book.note(3, at(millis), &reading, BOTH);
        }
        let held = |millis| book.working_set("/a", at(millis));
        assert_eq!(
            [held(999), held(1_000), held(2_999), held(9_000)],
            [None, Some(4096), Some(5 * 4096), Some(2 * 4096)]
        );
        assert_eq!(book.working_set("/b", at(9_000)), None);
    }

    #[test]
    fn a_slot_and_a_lane_begin_empty_for_whoever_gets_them_next() {
        let mut book = Book::default();
        book.admit(0, "/a".into(), None);
        book.move_near(0, Some(1));
        book.note(0, at(1), &usage(4096), BOTH);
        book.admit(0, "/b".into(), None);
        assert_eq!(book.points(0).count(), 0);
        book.move_near(0, Some(1));
        assert_eq!(book.points(0).count(), 0);
        assert_eq!(book.entries().count(), 1);
    }
}
