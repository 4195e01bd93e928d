//! One filesystem and the thread that measures it: nobody else waits for its answers.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use brink_core::base::{Moment, Span};
use brink_core::node::threshold::{Threshold, ThresholdSet};
use brink_host::disk::{DiskError, Filesystem};

use super::Disks;
use super::pace::{self, Growth, Kind};
use crate::guard;
use crate::guard::disks::{Role, Room};
use crate::guard::figures::saturated;

/// Name of the threads.
const NAME: &str = "brink-disks";
/// The short name of a filesystem that refuses writes.
pub const READ_ONLY: &str = "read-only";

/// A filesystem that is measured.
#[derive(Debug)]
pub struct Spot {
    /// Its place on the guard's board.
    pub place: usize,
    /// The folder that it is measured by, as this process sees it.
    pub path: PathBuf,
    seen: Mutex<Seen>,
    answered: Condvar,
    /// Since when it has been asked, in nanoseconds; 0 while it is not.
    asked: AtomicI64,
    /// After how long it is looked at again, in nanoseconds; 0 before the first look.
    period: AtomicI64,
    is_stopped: AtomicBool,
    thread: OnceLock<Thread>,
}

/// What was seen last.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// When it was asked for it; none before the first answer.
    pub at: Option<Moment>,
    /// The filesystem; none where it could not be measured.
    pub filesystem: Option<Filesystem>,
    /// Why not: a short name, and a sentence.
    pub trouble: Option<(&'static str, String)>,
}

impl Spot {
    /// Begins to measure a filesystem.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(
        disks: &Arc<Disks>,
        place: usize,
        path: PathBuf,
    ) -> std::io::Result<(Arc<Self>, JoinHandle<()>)> {
        let spot = Arc::new(Self {
            place,
            path,
            seen: Mutex::default(),
            answered: Condvar::new(),
            asked: AtomicI64::new(0),
            period: AtomicI64::new(0),
            is_stopped: AtomicBool::new(false),
            thread: OnceLock::new(),
        });
        let measuring = Measuring {
            disks: Arc::clone(disks),
            spot: Arc::clone(&spot),
            bytes: Growth::default(),
            inodes: Growth::default(),
            told: None,
            met_since: None,
        };
        let thread = std::thread::Builder::new().name(NAME.to_owned());
        let thread = thread.spawn(move || measuring.run())?;
        let _only_one = spot.thread.set(thread.thread().clone());
        Ok((spot, thread))
    }

    /// What was seen last.
    pub fn seen(&self) -> Seen {
        self.lock().clone()
    }

    /// For how long it has been asked without an answer.
    pub fn silent_for(&self, now: Moment) -> Option<Span> {
        let since = self.asked.load(Ordering::Relaxed);
        (since > 0).then(|| now.since(Moment::from_nanos(since)))
    }

    /// After how long it is looked at again; none before the first look.
    pub fn period(&self) -> Option<Span> {
        let nanos = self.period.load(Ordering::Relaxed);
        (nanos > 0).then(|| Span::from_nanos(nanos))
    }

    /// Has it measured now.
    pub fn look_now(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Ends its thread, as soon as its filesystem lets go of that.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.look_now();
    }

    /// Whether it is to end.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Waits until it has been asked after a moment and has answered; none if it does not in time.
    pub fn seen_after(&self, at: Option<Moment>, within: Duration) -> Option<Seen> {
        let until = Instant::now() + within;
        let mut seen = self.lock();
        loop {
            if seen.at > at {
                return Some(seen.clone());
            }
            let left = until.checked_duration_since(Instant::now())?;
            let waited = self.answered.wait_timeout(seen, left);
            seen = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the thread knows.
struct Measuring {
    disks: Arc<Disks>,
    spot: Arc<Spot>,
    bytes: Growth,
    inodes: Growth,
    /// What the guard was rung for last.
    told: Option<Told>,
    met_since: Option<Moment>,
}

/// What is worth a ring when it is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    met: ThresholdSet,
    band: u32,
    is_known: bool,
}

impl Measuring {
    fn run(mut self) {
        while !self.spot.is_stopped() {
            let wait = self.look();
            std::thread::park_timeout(duration(wait));
        }
        self.disks.ports.disks.publish(self.spot.place, None);
    }

    /// Measures once and tells; the time to the next look.
    fn look(&mut self) -> Span {
        let at = guard::now();
        self.spot.asked.store(at.as_nanos(), Ordering::Relaxed);
        let found = Filesystem::read(&self.spot.path);
        self.spot.asked.store(0, Ordering::Relaxed);
        // Whoever stopped us while we waited has given our place to nobody else, and wants to hear no more.
        if self.spot.is_stopped() {
            return Span::ZERO;
        }
        let room = found.as_ref().ok().and_then(|found| room(at, found));
        self.disks.ports.disks.publish(self.spot.place, room);
        let is_other = self.keep(at, found);
        let (period, told) = self.judge(at, room);
        self.spot.period.store(period.as_nanos(), Ordering::Relaxed);
        if told.is_worth_a_ring(self.told.replace(told)) {
            self.disks.ports.ring_for_disks();
        }
        if is_other {
            // Whoever plans looks at what it has become.
            self.disks.ports.reclaims.ring();
        }
        period
    }

    /// Keeps what was seen, for whoever asks; whether it is another filesystem than before.
    fn keep(&self, at: Moment, found: Result<Filesystem, DiskError>) -> bool {
        let mut seen = self.spot.lock();
        let device = |seen: &Seen| seen.filesystem.map(|found| found.device);
        let before = (seen.at.is_some(), device(&seen));
        let (filesystem, trouble) = match found {
            Ok(found) => (Some(found), trouble_with(&found)),
            Err(error) => (None, Some((error.label(), error.to_string()))),
        };
        *seen = Seen {
            at: Some(at),
            filesystem,
            trouble,
        };
        let now = (true, device(&seen));
        drop(seen);
        self.spot.answered.notify_all();
        before != now
    }

    /// How soon it could run short, and what there is to tell.
    fn judge(&mut self, at: Moment, room: Option<Room>) -> (Span, Told) {
        let Some(room) = room else {
            let told = Told {
                met: self.told.map_or(ThresholdSet::EMPTY, |told| told.met),
                band: 0,
                is_known: false,
            };
            return (pace::SLOWEST.min(Span::from_secs(1)), told);
        };
        self.bytes.observe(at.as_nanos(), room.bytes.0);
        if let Some((left, _)) = room.inodes {
            self.inodes.observe(at.as_nanos(), left);
        }
        let thresholds = self.disks.thresholds();
        let (mut met, mut period) = (ThresholdSet::EMPTY, pace::SLOWEST);
        for (index, threshold) in thresholds.iter().enumerate() {
            let Some(distance) = self.distance(threshold, &room) else {
                continue;
            };
            if distance.is_met {
                met.insert(index);
            }
            if distance.left >= 0 {
                period = period.min(pace::period(distance.kind, distance.left, distance.growth));
            }
        }
        let band = pace::band(period);
        self.met_since = (!met.is_empty()).then(|| self.met_since.unwrap_or(at));
        if let Some(since) = self.met_since {
            let long = at.since(since) > pace::LONG;
            period = period.min(if long { pace::LONG_MET } else { pace::MET });
        }
        let told = Told {
            met,
            band,
            is_known: true,
        };
        (period, told)
    }

    /// How far a threshold is; none of one that is about another filesystem.
    fn distance(&self, threshold: &Threshold, room: &Room) -> Option<Distance> {
        let role = Role::of(threshold.signal)?;
        let is_here = self.disks.ports.disks.place_of(role) == Some(self.spot.place);
        let [bytes, inodes] = room.observations();
        let is_bytes = role.signals()[0] == threshold.signal;
        let (seen, kind, growth) = if is_bytes {
            (bytes, Kind::Bytes, self.bytes)
        } else {
            (inodes, Kind::Inodes, self.inodes)
        };
        let seen = seen.filter(|_| is_here)?;
        let quantity = threshold.quantity(seen.capacity).value();
        Some(Distance {
            left: seen.available.saturating_sub(quantity),
            is_met: threshold.is_held(Some(&seen)),
            kind,
            growth,
        })
    }
}

/// How far a threshold is.
struct Distance {
    /// Below zero where it is met.
    left: i64,
    /// Met, minimum reclaim included.
    is_met: bool,
    kind: Kind,
    growth: Growth,
}

impl Told {
    /// While a threshold is met each look is: nobody goes for figures that were acted on before.
    fn is_worth_a_ring(self, before: Option<Self>) -> bool {
        !self.met.is_empty() && self.is_known || before != Some(self)
    }
}

/// What the guard may act on. Nothing can be freed where nothing can be written: it is full by design, or broken.
fn room(at: Moment, found: &Filesystem) -> Option<Room> {
    (!found.read_only && found.capacity > 0).then(|| Room {
        at,
        bytes: (saturated(found.available), saturated(found.capacity)),
        inodes: found
            .inodes
            .map(|inodes| (saturated(inodes.free), saturated(inodes.total))),
    })
}

/// What is wrong with a filesystem that has answered.
fn trouble_with(found: &Filesystem) -> Option<(&'static str, String)> {
    if found.read_only {
        let why = "it is read-only: nothing can be freed there";
        return Some((READ_ONLY, why.to_owned()));
    }
    (found.capacity == 0).then(|| ("empty", "it has no room at all".to_owned()))
}

fn duration(span: Span) -> Duration {
    Duration::from_nanos(u64::try_from(span.as_nanos()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use brink_core::base::Quantity;
    use brink_core::node::signal::Signal;
    use brink_core::node::threshold::Value;
    use brink_host::disk::filesystem::{Device, FilesystemKind, Inodes};

    use super::*;
    use crate::guard::ports::Ports;

    const MIB: i64 = 1 << 20;

    fn filesystem() -> Filesystem {
        Filesystem {
            device: Device { major: 8, minor: 1 },
            kind: FilesystemKind::EXT4,
            capacity: 1000 << 20,
            available: 500 << 20,
            free: 550 << 20,
            inodes: Some(Inodes {
                total: 1000,
                free: 600,
            }),
            read_only: false,
        }
    }

    fn measuring() -> Measuring {
        let thresholds = [
            (
                Signal::NodefsAvailable,
                Value::Quantity(Quantity::from_bytes(100 * MIB)),
            ),
            (Signal::NodefsInodesFree, Value::Fraction(0.05)),
            (Signal::ImagefsAvailable, Value::Fraction(0.9)),
        ];
        let thresholds = thresholds.map(|(signal, value)| Threshold {
            signal,
            grace: Span::ZERO,
            value,
            min_reclaim: None,
        });
        let ports = Arc::new(Ports::new(4, 1).unwrap());
        ports.disks.assign(Role::Nodefs, Some(0));
        let disks = Arc::new(Disks::new(ports, &thresholds));
        let spot = Spot {
            place: 0,
            path: "/nowhere".into(),
            seen: Mutex::default(),
            answered: Condvar::new(),
            asked: AtomicI64::new(0),
            period: AtomicI64::new(0),
            is_stopped: AtomicBool::new(false),
            thread: OnceLock::new(),
        };
        Measuring {
            disks,
            spot: Arc::new(spot),
            bytes: Growth::default(),
            inodes: Growth::default(),
            told: None,
            met_since: None,
        }
    }

    fn with(mib: i64, inodes: i64) -> Room {
        Room {
            at: Moment::START,
            bytes: (mib * MIB, 1000 * MIB),
            inodes: Some((inodes, 1000)),
        }
    }

    #[test]
    fn the_nearest_threshold_of_this_filesystem_sets_the_pace() {
        let mut measuring = measuring();
        let at = Moment::from_secs;
        let (far, told) = measuring.judge(at(1), Some(with(900, 1000)));
        assert_eq!(far, pace::RESTING, "a thousand inodes are few");
        assert!(told.met.is_empty() && told.is_known);
        let (_, told) = measuring.judge(at(2), Some(with(99, 1000)));
        assert_eq!(
            told.met.bits(),
            1,
            "and nothing of images, which are not here"
        );
        let (period, told) = measuring.judge(at(3), Some(with(99, 49)));
        assert_eq!((told.met.bits(), period), (3, pace::MET));
        let (period, _) = measuring.judge(at(9), Some(with(99, 49)));
        assert_eq!(period, pace::LONG_MET);
        let (_, told) = measuring.judge(at(10), Some(with(100, 50)));
        assert!(told.met.is_empty());
    }

    #[test]
    fn the_guard_is_rung_for_news_and_for_every_look_while_something_is_met() {
        let told = |bits, band| Told {
            met: ThresholdSet::from_bits(bits),
            band,
            is_known: true,
        };
        assert!(told(0, 3).is_worth_a_ring(None));
        assert!(!told(0, 3).is_worth_a_ring(Some(told(0, 3))));
        assert!(told(0, 2).is_worth_a_ring(Some(told(0, 3))));
        assert!(told(1, 3).is_worth_a_ring(Some(told(1, 3))));
        assert!(told(0, 3).is_worth_a_ring(Some(told(1, 3))));
        let unknown = Told {
            is_known: false,
            ..told(1, 0)
        };
        assert!(unknown.is_worth_a_ring(Some(told(1, 0))));
        assert!(!unknown.is_worth_a_ring(Some(unknown)));
    }

    #[test]
    fn what_cannot_be_written_to_is_nothing_to_act_on() {
        let at = Moment::from_secs(1);
        let found = room(at, &filesystem()).unwrap();
        assert_eq!(found.bytes, (500 * MIB, 1000 * MIB));
        assert_eq!(found.inodes, Some((600, 1000)));
        let read_only = Filesystem {
            read_only: true,
            ..filesystem()
        };
        assert_eq!(room(at, &read_only), None);
        assert_eq!(trouble_with(&read_only).unwrap().0, "read-only");
        assert_eq!(trouble_with(&filesystem()), None);
    }

    #[test]
    fn a_thread_measures_and_says_why_it_cannot() {
        let folder = tempfile::tempdir().unwrap();
        let disks = measuring().disks;
        let start = |place, path: PathBuf| Spot::start(&disks, place, path).unwrap();
        let (here, first) = start(0, folder.path().to_path_buf());
        let (nowhere, second) = start(1, folder.path().join("none"));
        let patience = Duration::from_secs(20);
        let seen = here.seen_after(None, patience).unwrap();
        assert!(seen.filesystem.is_some());
        assert_eq!(disks.ports.disks.at(0).is_some(), seen.trouble.is_none());
        let seen = nowhere.seen_after(None, patience).unwrap();
        let (label, why) = seen.trouble.unwrap();
        assert_eq!((label, seen.filesystem), ("missing", None));
        assert!(why.ends_with("none is not there"), "{why}");
        assert_eq!(disks.ports.disks.at(1), None);
        let asked = guard::now();
        here.look_now();
        assert!(here.seen_after(Some(asked), patience).is_some());
        for (spot, thread) in [(here, first), (nowhere, second)] {
            spot.stop();
            thread.join().unwrap();
        }
        assert_eq!(disks.ports.disks.at(0), None);
    }
}
