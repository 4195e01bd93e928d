//! What workloads use of disks: measured by a thread that may wait, read by the guard without a lock.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use brink_core::base::Moment;
use brink_core::node::workload::{FsUsage, PodUsage};

const UNKNOWN: u64 = u64::MAX;

/// What one workload uses of disks, in the parts that a ranking tells apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// Writable layers of its containers.
    pub rootfs: FsUsage,
    /// Logs of its containers.
    pub logs: FsUsage,
    /// Local volumes.
    pub volumes: FsUsage,
}

/// The same to be shared. Each figure is its own atomic: a reader may see two of different measurements, which for figures
/// that are a minute old is harmless.
#[derive(Debug)]
pub struct Disk {
    figures: [AtomicU64; 6],
    /// Whether it was measured to the end.
    is_measured: AtomicBool,
    /// Whether there is nothing to be measured.
    is_unowned: AtomicBool,
}

/// That of every workload of a roster, in its order.
#[derive(Debug, Default)]
pub struct Disks {
    disks: Box<[Disk]>,
    /// When the round began that all of it is of at least, in nanoseconds; 0 before the first.
    round: AtomicI64,
}

impl Default for Disk {
    fn default() -> Self {
        Self {
            figures: [const { AtomicU64::new(UNKNOWN) }; 6],
            is_measured: AtomicBool::new(false),
            is_unowned: AtomicBool::new(false),
        }
    }
}

impl Disks {
    /// Nothing is known yet of so many workloads.
    pub fn new(workloads: usize) -> Self {
        Self {
            disks: (0..workloads).map(|_| Disk::default()).collect(),
            round: AtomicI64::new(0),
        }
    }

    /// That of the workload at `index`.
    pub fn get(&self, index: usize) -> Option<&Disk> {
        self.disks.get(index)
    }

    /// Whether all have been measured that own anything, so that whoever holds most is among those that are known.
    pub fn are_measured(&self) -> bool {
        let is_done = |disk: &Disk| disk.is_measured() || disk.is_unowned.load(Ordering::Relaxed);
        self.disks.iter().all(is_done)
    }

    /// Whether anybody owns anything that could be measured.
    pub fn has_owners(&self) -> bool {
        let mut disks = self.disks.iter();
        disks.any(|disk| !disk.is_unowned.load(Ordering::Relaxed))
    }

    /// All has been measured in a round that began then, or later; none if not all has been yet.
    pub fn note_round(&self, began: Option<Moment>) {
        let nanos = began.map_or(0, Moment::as_nanos);
        // Whoever sees that sees the figures.
        self.round.store(nanos, Ordering::Release);
    }

    /// When the round began that all figures are of at least; none before the first is over.
    pub fn round(&self) -> Option<Moment> {
        let nanos = self.round.load(Ordering::Acquire);
        (nanos > 0).then(|| Moment::from_nanos(nanos))
    }

    /// Adds what is known of disks to the usage of every workload that has one; nothing is known of the others at all.
    pub fn add_to(&self, usage: &mut [Option<PodUsage>]) {
        for (disk, used) in self.disks.iter().zip(usage) {
            if let Some(used) = used {
                let DiskUsage {
                    rootfs,
                    logs,
                    volumes,
                } = disk.used();
                (used.rootfs, used.logs, used.volumes) = (rootfs, logs, volumes);
            }
        }
    }
}

impl Disk {
    /// What is known.
    pub fn used(&self) -> DiskUsage {
        let figure = |index: usize| {
            let value = self.figures[index].load(Ordering::Relaxed);
            Some(value).filter(|&value| value != UNKNOWN)
        };
        let part = |first: usize| FsUsage {
            bytes: figure(first),
            inodes: figure(first + 1),
        };
        DiskUsage {
            rootfs: part(0),
            logs: part(2),
            volumes: part(4),
        }
    }

    /// Replaces it.
    pub fn set(&self, used: &DiskUsage) {
        self.store(used);
        // Whoever sees that sees the figures.
        self.is_measured.store(true, Ordering::Release);
    }

    /// Replaces it by what is known while something is still to be measured.
    pub fn set_in_part(&self, used: &DiskUsage) {
        self.is_measured.store(false, Ordering::Release);
        self.store(used);
    }

    fn store(&self, used: &DiskUsage) {
        let parts = [used.rootfs, used.logs, used.volumes];
        let values = parts.iter().flat_map(|part| [part.bytes, part.inodes]);
        for (figure, value) in self.figures.iter().zip(values) {
            figure.store(value.unwrap_or(UNKNOWN), Ordering::Relaxed);
        }
    }

    /// There is nothing to be measured.
    pub fn note_unowned(&self) {
        self.is_unowned.store(true, Ordering::Relaxed);
    }

    fn is_measured(&self) -> bool {
        self.is_measured.load(Ordering::Acquire)
    }

    /// Takes over what was known of the same workload before.
    pub fn inherit(&self, before: &Self) {
        if before.is_measured() {
            self.set(&before.used());
        } else {
            self.set_in_part(&before.used());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(bytes: u64, inodes: u64) -> FsUsage {
        FsUsage {
            bytes: Some(bytes),
            inodes: Some(inodes),
        }
    }

    #[test]
    fn each_figure_comes_back_where_it_was_put_and_unknown_is_not_zero() {
        let disks = Disks::new(2);
        let all = DiskUsage {
            rootfs: used(1, 2),
            logs: used(3, 4),
            volumes: FsUsage {
                bytes: Some(5),
                inodes: None,
            },
        };
        disks.get(0).unwrap().set(&all);
        assert_eq!(disks.get(0).unwrap().used(), all);
        assert_eq!(disks.get(1).unwrap().used(), DiskUsage::default());
        disks.get(0).unwrap().set(&DiskUsage::default());
        assert_eq!(disks.get(0).unwrap().used(), DiskUsage::default());
        assert!(disks.get(2).is_none() && !disks.are_measured());
        disks.get(1).unwrap().inherit(disks.get(0).unwrap());
        assert!(disks.are_measured(), "and unknown all the same");
        let unowned = Disks::new(1);
        unowned.get(0).unwrap().note_unowned();
        let later = Disks::new(1);
        later.get(0).unwrap().inherit(unowned.get(0).unwrap());
        assert!(unowned.are_measured() && !later.are_measured());
        assert!(!unowned.has_owners() && later.has_owners());
    }

    #[test]
    fn a_round_is_known_once_it_is_over() {
        let disks = Disks::new(1);
        assert_eq!(disks.round(), None);
        let began = Some(Moment::from_secs(5));
        disks.note_round(began);
        assert_eq!(disks.round(), began);
        disks.note_round(None);
        assert_eq!(disks.round(), None);
    }

    #[test]
    fn what_is_known_in_part_is_told_and_waited_for_and_so_it_is_by_a_later_roster() {
        let (disks, later) = (Disks::new(1), Disks::new(1));
        let all = DiskUsage {
            rootfs: used(1, 2),
            logs: used(3, 4),
            volumes: used(5, 6),
        };
        let part = DiskUsage {
            rootfs: FsUsage::default(),
            ..all
        };
        let (one, same) = (disks.get(0).unwrap(), later.get(0).unwrap());
        one.set(&all);
        assert!(disks.are_measured());
        one.set_in_part(&part);
        same.inherit(one);
        assert_eq!((one.used(), same.used()), (part, part));
        assert!(!disks.are_measured() && !later.are_measured());
        one.set(&part);
        assert!(disks.are_measured());
    }

    #[test]
    fn whoever_has_no_usage_at_all_gets_none_by_its_disks() {
        let disks = Disks::new(2);
        for index in 0..2 {
            let volumes = used(7, 8);
            disks.get(index).unwrap().set(&DiskUsage {
                volumes,
                ..DiskUsage::default()
            });
        }
        let mut usage = [None, Some(PodUsage::default())];
        disks.add_to(&mut usage);
        assert_eq!(usage[0], None);
        let sum = usage[1].map(|used| (used.volumes, used.logs, used.memory));
        assert_eq!(sum, Some((used(7, 8), FsUsage::default(), None)));
    }
}
