//! The board of warm figures: what cannot be read in the instant of a decision, kept fresh by another thread.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use brink_core::base::Moment;

const UNKNOWN: u64 = u64::MAX;

/// Figures of one cgroup; written by the warmer, read by the guard, without a lock.
///
/// Each figure is its own atomic: a reader may see two of different passes, which for slow figures is harmless.
#[derive(Debug)]
pub struct Figures {
    inactive_file: AtomicU64,
    processes: AtomicU64,
    usage: AtomicU64,
    at: AtomicI64,
    growth: AtomicI64,
}

/// The figures of every cgroup of a roster, in its order.
#[derive(Debug)]
pub struct Board {
    figures: Box<[Figures]>,
}

impl Default for Figures {
    fn default() -> Self {
        Self {
            inactive_file: AtomicU64::new(UNKNOWN),
            processes: AtomicU64::new(UNKNOWN),
            usage: AtomicU64::new(UNKNOWN),
            at: AtomicI64::new(0),
            growth: AtomicI64::new(0),
        }
    }
}

impl Board {
    /// A board on which nothing is known yet.
    pub fn new(groups: usize) -> Self {
        Self {
            figures: (0..groups).map(|_| Figures::default()).collect(),
        }
    }

    /// The figures of the group at `index`.
    pub fn get(&self, index: usize) -> Option<&Figures> {
        self.figures.get(index)
    }
}

impl Figures {
    /// Inactive file memory, in bytes.
    pub fn inactive_file(&self) -> Option<u64> {
        known(&self.inactive_file)
    }

    /// Processes.
    pub fn processes(&self) -> Option<u64> {
        known(&self.processes)
    }

    /// Usage at the warmer's last pass, in bytes.
    pub fn usage(&self) -> Option<u64> {
        known(&self.usage)
    }

    /// Growth of the usage between the last two passes, in bytes a second.
    pub fn growth(&self) -> i64 {
        self.growth.load(Ordering::Relaxed)
    }

    /// When the warmer last looked.
    pub fn at(&self) -> Moment {
        Moment::from_nanos(self.at.load(Ordering::Relaxed))
    }

    /// Takes over everything another set of figures says.
    pub fn inherit(&self, other: &Self) {
        let copies = [
            (&self.inactive_file, &other.inactive_file),
            (&self.processes, &other.processes),
            (&self.usage, &other.usage),
        ];
        for (to, from) in copies {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        for (to, from) in [(&self.at, &other.at), (&self.growth, &other.growth)] {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Replaces the inactive file memory.
    pub fn set_inactive_file(&self, bytes: u64) {
        self.inactive_file.store(bytes, Ordering::Relaxed);
    }

    /// Replaces the number of processes; `None` for unknown.
    pub fn set_processes(&self, processes: Option<u64>) {
        self.processes
            .store(processes.unwrap_or(UNKNOWN), Ordering::Relaxed);
    }

    /// Takes in a usage read at `now`, and works out the growth since the last one.
    pub fn set_usage(&self, now: Moment, bytes: u64) {
        let nanos = now.since(self.at()).as_nanos();
        if let Some(before) = self.usage().filter(|_| nanos > 0) {
            let grown = (i128::from(bytes) - i128::from(before)) * 1_000_000_000;
            let growth = i64::try_from(grown / i128::from(nanos)).unwrap_or(i64::MAX);
            self.growth.store(growth, Ordering::Relaxed);
        }
        self.usage.store(bytes, Ordering::Relaxed);
        self.at.store(now.as_nanos(), Ordering::Relaxed);
    }
}

fn known(figure: &AtomicU64) -> Option<u64> {
    Some(figure.load(Ordering::Relaxed)).filter(|&value| value != UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_is_not_zero() {
        let board = Board::new(1);
        let figures = board.get(0).unwrap();
        assert_eq!((figures.inactive_file(), figures.processes()), (None, None));
        figures.set_processes(Some(0));
        assert_eq!(figures.processes(), Some(0));
        assert!(board.get(1).is_none());
    }

    #[test]
    fn growth_is_per_second() {
        let figures = Figures::default();
        figures.set_usage(Moment::from_secs(10), 100);
        assert_eq!(figures.growth(), 0);
        figures.set_usage(
            Moment::from_secs(10) + brink_core::base::Span::from_millis(500),
            150,
        );
        assert_eq!(figures.growth(), 100);
        figures.set_usage(
            Moment::from_secs(11) + brink_core::base::Span::from_millis(500),
            50,
        );
        assert_eq!(figures.growth(), -100);
    }
}
