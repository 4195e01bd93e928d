//! The board of filesystems: what the threads that measure them saw last, for a guard that must never wait for a disk.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering, fence};

use brink_core::base::{Moment, Span};
use brink_core::node::observe::{Observation, Observations};
use brink_core::node::signal::Signal;

/// A filesystem that has not answered for so long is unknown.
pub const UNANSWERED: Span = Span::from_secs(30);
/// What a figure says that nobody knows.
const UNKNOWN: i64 = -1;
/// A reader that is overtaken so often takes the figures of the look before.
const TRIES: u32 = 4;

/// What a filesystem is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// The kubelet's: volumes and logs of pods.
    Nodefs,
    /// Images.
    Imagefs,
    /// Writable layers of containers.
    Containerfs,
}

/// What was seen of a filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// When it was asked.
    pub at: Moment,
    /// Bytes left, and in all.
    pub bytes: (i64, i64),
    /// Inodes left, and in all; none where there is no bounded number of them.
    pub inodes: Option<(i64, i64)>,
}

/// What the guard asks of the container runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReclaimAsked {
    /// For what.
    pub signal: Signal,
    /// The threshold's amount.
    pub quantity: i64,
    /// What was left.
    pub available: i64,
    /// When.
    pub at: Moment,
    /// Nothing is to be removed: it is only told what would be.
    pub is_dry: bool,
}

/// What came of that, as far as it matters to whether anybody goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReclaimAnswer {
    /// It has run; nobody knows of anything more that could go.
    Ended,
    /// Its time ran out while something came back.
    InPart,
    /// Nothing was to be removed.
    Dry {
        /// The bytes that are said to come back where orders are carried out.
        bytes: u64,
    },
}

/// The board; written by the threads that measure, each its own place, and read by the guard without a lock.
#[derive(Debug, Default)]
pub struct DiskBoard {
    places: [Place; PLACES],
    /// Where the figures of each role stand; [`NOWHERE`] for none.
    roles: [Held; Role::ALL.len()],
    is_rung: AtomicBool,
}

/// Filesystems that are measured at a time: one for each role, and as many that still wait for an answer nobody wants any more.
pub const PLACES: usize = 2 * Role::ALL.len();
/// Nowhere on the board.
const NOWHERE: usize = usize::MAX;

/// One place: two sets of figures, of which one stands while the other is written. A writer that is stopped midway leaves the
/// reader what stood before.
#[derive(Debug, Default)]
struct Place {
    figures: [Figures; 2],
    /// How many there were; the last one of them stands.
    published: AtomicU64,
}

#[derive(Debug, Default)]
struct Figures {
    at: AtomicI64,
    bytes: [AtomicI64; 2],
    inodes: [AtomicI64; 2],
}

#[derive(Debug)]
struct Held(AtomicUsize);

impl Default for Held {
    fn default() -> Self {
        Self(AtomicUsize::new(NOWHERE))
    }
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Nodefs, Self::Imagefs, Self::Containerfs];

    /// The kubelet's word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Nodefs => "nodefs",
            Self::Imagefs => "imagefs",
            Self::Containerfs => "containerfs",
        }
    }

    /// Its signals: bytes, then inodes.
    pub const fn signals(self) -> [Signal; 2] {
        match self {
            Self::Nodefs => [Signal::NodefsAvailable, Signal::NodefsInodesFree],
            Self::Imagefs => [Signal::ImagefsAvailable, Signal::ImagefsInodesFree],
            Self::Containerfs => [Signal::ContainerfsAvailable, Signal::ContainerfsInodesFree],
        }
    }

    /// Whose signal that is; none of a signal that is about no filesystem.
    pub fn of(signal: Signal) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|role| role.signals().contains(&signal))
    }
}

impl Room {
    /// What it is to the engine, bytes and inodes.
    pub fn observations(&self) -> [Option<Observation>; 2] {
        let of = |(available, capacity)| Observation {
            available,
            capacity,
            at: Some(self.at),
        };
        [Some(of(self.bytes)), self.inodes.map(of)]
    }
}

impl DiskBoard {
    /// Replaces what stands at a place; none for unknown. Each place has one writer.
    pub fn publish(&self, place: usize, room: Option<Room>) {
        if let Some(place) = self.places.get(place) {
            place.publish(room);
        }
    }

    /// What stands at a place; none where nothing is known.
    pub fn at(&self, place: usize) -> Option<Room> {
        self.places.get(place)?.read()
    }

    /// Has the figures of a role stand at a place, or nowhere.
    pub fn assign(&self, role: Role, place: Option<usize>) {
        let Held(held) = &self.roles[role as usize];
        held.store(place.unwrap_or(NOWHERE), Ordering::Release);
    }

    /// Where the figures of a role stand.
    pub fn place_of(&self, role: Role) -> Option<usize> {
        let Held(held) = &self.roles[role as usize];
        Some(held.load(Ordering::Acquire)).filter(|&place| place != NOWHERE)
    }

    /// What is known of a role's filesystem at a moment.
    pub fn room(&self, role: Role, now: Moment) -> Option<Room> {
        let room = self.at(self.place_of(role)?)?;
        (now.since(room.at) <= UNANSWERED).then_some(room)
    }

    /// Adds what is known at a moment.
    pub fn observe(&self, now: Moment, all: &mut Observations) {
        for role in Role::ALL {
            let seen = self.room(role, now);
            let seen = seen.map_or([None; 2], |room| room.observations());
            for (signal, seen) in role.signals().into_iter().zip(seen) {
                all[signal] = seen;
            }
        }
    }

    /// There is something for the guard to look at.
    pub fn ring(&self) {
        self.is_rung.store(true, Ordering::Release);
    }

    /// Whether there was since it was last asked.
    pub fn take_ring(&self) -> bool {
        self.is_rung.load(Ordering::Relaxed) && self.is_rung.swap(false, Ordering::AcqRel)
    }
}

impl Place {
    fn publish(&self, room: Option<Room>) {
        let number = self.published.load(Ordering::Relaxed).wrapping_add(1);
        let figures = &self.figures[usize::from(number % 2 == 1)];
        // Whoever reads any of what follows sees at the end that another set has come to stand meanwhile.
        fence(Ordering::Release);
        let bytes = room.map_or((UNKNOWN, UNKNOWN), |room| room.bytes);
        let inodes = room.and_then(|room| room.inodes);
        let inodes = inodes.unwrap_or((UNKNOWN, UNKNOWN));
        let at = room.map_or(Moment::START, |room| room.at);
        figures.at.store(at.as_nanos(), Ordering::Relaxed);
        for (to, (left, all)) in [(&figures.bytes, bytes), (&figures.inodes, inodes)] {
            to[0].store(left, Ordering::Relaxed);
            to[1].store(all, Ordering::Relaxed);
        }
        self.published.store(number, Ordering::Release);
    }

    fn read(&self) -> Option<Room> {
        for _ in 0..TRIES {
            let number = self.published.load(Ordering::Acquire);
            if number == 0 {
                return None;
            }
            let figures = &self.figures[usize::from(number % 2 == 1)];
            let pair = |of: &[AtomicI64; 2]| {
                let [left, all] = of;
                (left.load(Ordering::Relaxed), all.load(Ordering::Relaxed))
            };
            let (bytes, inodes) = (pair(&figures.bytes), pair(&figures.inodes));
            let at = figures.at.load(Ordering::Relaxed);
            fence(Ordering::Acquire);
            if self.published.load(Ordering::Relaxed) == number {
                return (bytes.1 != UNKNOWN).then_some(Room {
                    at: Moment::from_nanos(at),
                    bytes,
                    inodes: (inodes.1 != UNKNOWN).then_some(inodes),
                });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn room(at: i64, bytes: i64) -> Room {
        Room {
            at: Moment::from_secs(at),
            bytes: (bytes, 2 * bytes),
            inodes: Some((3 * bytes, 4 * bytes)),
        }
    }

    #[test]
    fn nothing_is_known_before_anybody_has_measured_and_after_nobody_could() {
        let board = DiskBoard::default();
        let now = Moment::from_secs(10);
        assert_eq!(board.room(Role::Nodefs, now), None);
        board.assign(Role::Nodefs, Some(1));
        assert_eq!(board.room(Role::Nodefs, now), None);
        board.publish(1, Some(room(10, 5)));
        assert_eq!(board.room(Role::Nodefs, now), Some(room(10, 5)));
        assert_eq!(board.room(Role::Imagefs, now), None);
        board.publish(1, None);
        assert_eq!(board.room(Role::Nodefs, now), None);
    }

    #[test]
    fn a_filesystem_that_has_not_answered_for_long_is_unknown() {
        let board = DiskBoard::default();
        board.assign(Role::Imagefs, Some(0));
        board.publish(0, Some(room(10, 5)));
        assert!(board.room(Role::Imagefs, Moment::from_secs(40)).is_some());
        let later = Moment::from_secs(40) + Span::from_nanos(1);
        assert_eq!(board.room(Role::Imagefs, later), None);
    }

    #[test]
    fn roles_that_share_a_filesystem_have_the_same_figures_under_their_own_names() {
        let board = DiskBoard::default();
        board.assign(Role::Nodefs, Some(0));
        board.assign(Role::Imagefs, Some(0));
        let without_inodes = Room {
            inodes: None,
            ..room(10, 5)
        };
        board.publish(0, Some(without_inodes));
        let mut all = Observations::default();
        board.observe(Moment::from_secs(11), &mut all);
        let seen = Some(Observation {
            available: 5,
            capacity: 10,
            at: Some(Moment::from_secs(10)),
        });
        assert_eq!(all[Signal::NodefsAvailable], seen);
        assert_eq!(all[Signal::ImagefsAvailable], seen);
        assert_eq!(all[Signal::NodefsInodesFree], None);
        assert_eq!(all[Signal::ContainerfsAvailable], None);
    }

    #[test]
    fn figures_are_never_of_two_looks() {
        let board = Arc::new(DiskBoard::default());
        let has_seen = Arc::new(AtomicBool::new(false));
        // Goes on until somebody has read it meanwhile.
        let writer = {
            let (board, has_seen) = (Arc::clone(&board), Arc::clone(&has_seen));
            std::thread::spawn(move || {
                let mut number = 0;
                while number < 100_000 || !has_seen.load(Ordering::Relaxed) {
                    number += 1;
                    board.publish(0, Some(room(number, number)));
                }
                number
            })
        };
        while !writer.is_finished() {
            if let Some(found) = board.at(0) {
                has_seen.store(true, Ordering::Relaxed);
                assert_eq!(found, room(found.bytes.0, found.bytes.0));
            }
        }
        let last = writer.join().unwrap();
        assert_eq!(board.at(0), Some(room(last, last)));
    }

    #[test]
    fn every_filesystem_signal_has_its_role() {
        for signal in Signal::ALL {
            let is_disk = signal.name().contains("fs.");
            assert_eq!(Role::of(signal).is_some(), is_disk, "{signal}");
        }
        assert_eq!(Role::of(Signal::NodefsInodesFree), Some(Role::Nodefs));
    }

    #[test]
    fn a_ring_is_heard_once() {
        let board = DiskBoard::default();
        assert!(!board.take_ring());
        board.ring();
        assert!(board.take_ring() && !board.take_ring());
    }
}
