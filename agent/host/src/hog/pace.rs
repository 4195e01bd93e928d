//! The pace of a hog, its deadline, and everything else that makes it stop.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::clock::monotonic_ns;
use crate::error::HostError;
use crate::hog::progress::{Progress, Writer};
use crate::hog::spec::HogSpec;
use crate::meminfo::MeminfoReader;

/// How often the bounds that cost a system call or more are looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Why a hog stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// It has taken all it was to take, and held it if it was to.
    Done,
    /// Its time was over before.
    Deadline,
    /// The node was getting short of memory.
    Floor,
    /// The process that started it is gone.
    Orphaned,
    /// The kernel gave no more (a limit of its group or of the process).
    Refused,
}

/// Counts, waits and watches.
#[derive(Debug)]
pub(super) struct Pacer {
    started: Instant,
    deadline: Instant,
    rate: Option<u64>,
    floor: u64,
    parent: Option<i32>,
    meminfo: MeminfoReader,
    next_look: Instant,
    progress: Progress,
    writer: Option<Writer>,
}

impl Pacer {
    pub(super) fn start(spec: &HogSpec, writer: Option<Writer>) -> Result<Self, HostError> {
        let started = Instant::now();
        let now = monotonic_ns();
        let pacer = Self {
            started,
            deadline: started + spec.deadline.min(HogSpec::LONGEST),
            rate: spec.rate,
            floor: spec.floor,
            parent: spec
                .parent
                .map_or_else(parent, |parent| i32::try_from(parent).ok()),
            meminfo: MeminfoReader::open(Path::new("/"))?,
            next_look: started,
            progress: Progress {
                touched: 0,
                started_ns: now,
                latest_ns: now,
                finished_ns: 0,
            },
            writer,
        };
        pacer.tell();
        Ok(pacer)
    }

    pub(super) fn touched(&self) -> u64 {
        self.progress.touched
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Notes that more was taken and waits until it is time for the next. `Some`: stop now.
    pub(super) fn took(&mut self, amount: u64) -> Option<Stop> {
        self.progress.touched = self.progress.touched.saturating_add(amount);
        self.progress.latest_ns = monotonic_ns();
        self.tell();
        let now = Instant::now();
        if now >= self.next_look {
            self.next_look = now + LOOK;
            if let Some(stop) = self.look(now) {
                return Some(stop);
            }
        }
        let due = self.due().min(self.deadline);
        sleep(due.saturating_duration_since(now));
        None
    }

    /// When as much as was taken should have been taken.
    fn due(&self) -> Instant {
        let Some(rate) = self.rate else {
            return self.started;
        };
        let nanoseconds =
            u128::from(self.progress.touched) * 1_000_000_000 / u128::from(rate.max(1));
        self.started + Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    fn look(&self, now: Instant) -> Option<Stop> {
        if now >= self.deadline {
            return Some(Stop::Deadline);
        }
        if parent() != self.parent {
            return Some(Stop::Orphaned);
        }
        // Not being able to tell is a reason to stop.
        let left = self
            .meminfo
            .read()
            .map_or(0, |info| info.free.saturating_add(info.reclaimable()));
        (left < self.floor).then_some(Stop::Floor)
    }

    /// All is taken: keeps it until the end if the specification says so.
    pub(super) fn finish(&mut self, spec: &HogSpec) -> Stop {
        self.progress.finished_ns = monotonic_ns();
        self.tell();
        if !spec.hold {
            return Stop::Done;
        }
        loop {
            match self.look(Instant::now()) {
                Some(Stop::Deadline) => return Stop::Done,
                Some(stop) => return stop,
                None => sleep(LOOK),
            }
        }
    }

    /// It stopped early: what it has is given back.
    pub(super) fn stopped(&mut self, stop: Stop) -> Stop {
        self.progress.finished_ns = monotonic_ns();
        self.tell();
        stop
    }

    fn tell(&self) {
        if let Some(writer) = &self.writer {
            writer.write(self.progress);
        }
    }
}

fn parent() -> Option<i32> {
    rustix::process::getppid().map(rustix::process::Pid::as_raw_pid)
}
