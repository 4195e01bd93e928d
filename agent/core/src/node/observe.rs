//! Observations: how the numbers of kernel and runtime become what a threshold is compared with.

use super::signal::PerSignal;
use crate::base::{Moment, Quantity};

/// One reading of one signal: bytes, inodes or process ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Observation {
    /// What is left; negative if the kernel reports more used than there is.
    pub available: i64,
    /// What percentages refer to.
    pub capacity: i64,
    /// When it was measured, by the clock of the source; `None` where the source has none, which
    /// counts as always fresh.
    pub at: Option<Moment>,
}

/// What is known now; a signal without an observation neither fires nor clears.
pub type Observations = PerSignal<Option<Observation>>;

impl Observation {
    /// Whether strictly less than `quantity` is available.
    pub fn is_below(&self, quantity: Quantity) -> bool {
        quantity > Quantity::from_bytes(self.available)
    }
}

/// How the node's filesystems are laid out; decides what is measured, reclaimed and derived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub enum Layout {
    /// Kubelet, images and writable layers share one filesystem.
    #[default]
    Single,
    /// Images and writable layers have a filesystem of their own.
    DedicatedImagefs,
    /// Images have a filesystem of their own; writable layers stay on the kubelet's.
    Split,
    /// Writable layers have one that is neither the kubelet's nor that of images. The kubelet knows none such, and takes it for
    /// [`Layout::Split`].
    LayersApart,
}

/// Limits above this many bytes count as none: "max" on cgroup v2, the rounded maximum on v1.
pub const UNLIMITED: u64 = 1 << 62;

/// What of a cgroup's usage cannot be dropped at once, in bytes: all but inactive file pages.
///
/// `inactive_file` is `total_inactive_file` on cgroup v1. Active file pages, shared memory and
/// dirty pages count as used, which makes page cache look like pressure; see `memory.headroom`.
pub const fn working_set(usage: u64, inactive_file: u64) -> u64 {
    usage.saturating_sub(inactive_file)
}

/// Usage of the cgroup v2 root, which has no `memory.current`: anonymous and file pages, in bytes.
/// Kernel memory is not in it.
pub const fn root_usage(anon: u64, file: u64) -> u64 {
    anon.wrapping_add(file)
}

/// A memory signal from a limit and a working set, in bytes: absent without a limit.
///
/// The node's limit is the machine's memory. A working set above the limit wraps to a negative
/// available, and the capacity wraps back to the limit, as in the kubelet.
pub fn memory(limit: u64, working_set: u64, at: Option<Moment>) -> Option<Observation> {
    let available = (limit <= UNLIMITED).then(|| limit.wrapping_sub(working_set));
    memory_stats(available, Some(working_set), at)
}

/// A memory signal from the kubelet's own statistics: absent unless both figures are there.
pub fn memory_stats(
    available: Option<u64>,
    working_set: Option<u64>,
    at: Option<Moment>,
) -> Option<Observation> {
    let (available, working_set) = available.zip(working_set)?;
    let capacity = available.wrapping_add(working_set).cast_signed();
    Some(Observation {
        available: available.cast_signed(),
        capacity,
        at,
    })
}

/// A filesystem signal, in bytes or inodes: absent unless both figures are there.
pub fn filesystem(
    available: Option<u64>,
    capacity: Option<u64>,
    at: Option<Moment>,
) -> Option<Observation> {
    let (available, capacity) = (available?.cast_signed(), capacity?.cast_signed());
    Some(Observation {
        available,
        capacity,
        at,
    })
}

/// `pid.available` from the largest id and the number of threads in use.
pub fn pids(max: Option<i64>, running: Option<i64>, at: Option<Moment>) -> Option<Observation> {
    let (max, running) = max.zip(running)?;
    Some(Observation {
        available: max.wrapping_sub(running),
        capacity: max,
        at,
    })
}

/// The largest process id: the smaller of `pid_max` and `threads-max`, whichever could be read.
pub fn max_pid(pid_max: Option<i64>, threads_max: Option<i64>) -> Option<i64> {
    match (pid_max, threads_max) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (known, None) | (None, known) => known,
    }
}

/// What the runtime reports of one of its filesystems; compared as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilesystemStats {
    /// Bytes left.
    pub available: Option<u64>,
    /// Bytes in all.
    pub capacity: Option<u64>,
    /// Inodes in use.
    pub inodes_used: Option<u64>,
    /// Inodes left.
    pub inodes_free: Option<u64>,
    /// Inodes in all.
    pub inodes: Option<u64>,
}

/// The devices behind the node's filesystems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Devices<'a> {
    /// Of the kubelet's root directory.
    pub nodefs: &'a str,
    /// Of the runtime's images.
    pub images: &'a str,
    /// Of the runtime's writable layers; `None` where it cannot say, which counts as "not split".
    pub containers: Option<&'a str>,
}

impl Layout {
    /// The layout behind what node and runtime report. Images have a filesystem of their own if
    /// their device is not the kubelet's, or if the runtime tells images and writable layers
    /// apart; they are split from writable layers only if both is known.
    pub fn detect(devices: Devices<'_>, images: FilesystemStats, layers: FilesystemStats) -> Self {
        let dedicated = devices.images != devices.nodefs || images != layers;
        let split = devices
            .containers
            .is_some_and(|containers| containers != devices.images);
        match (dedicated, split) {
            (false, _) => Self::Single,
            (true, false) => Self::DedicatedImagefs,
            (true, true) => Self::Split,
        }
    }

    /// The same as the kubelet has it.
    #[must_use]
    pub const fn of_kubelet(self) -> Self {
        match self {
            Self::LayersApart => Self::Split,
            known => known,
        }
    }

    /// Whether images have a filesystem of their own.
    pub const fn has_dedicated_imagefs(self) -> bool {
        !matches!(self, Self::Single)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GI: u64 = 1 << 30;

    #[track_caller]
    fn check(seen: Option<Observation>, expected: (i64, i64)) {
        assert_eq!(
            seen.map(|seen| (seen.available, seen.capacity)),
            Some(expected)
        );
    }

    #[test]
    fn a_working_set_never_falls_below_zero() {
        assert_eq!(working_set(3 * GI, GI), 2 * GI);
        assert_eq!(working_set(GI, 3 * GI), 0);
    }

    #[test]
    fn memory_wraps_like_the_kubelet_and_knows_no_limit_above_2_to_the_62() {
        let used = working_set(80_342_220_800, 10_048_962_560);
        assert_eq!(used, 70_293_258_240);
        check(
            memory(32_879_017_984, used, None),
            (-37_414_240_256, 32_879_017_984),
        );
        check(memory(2 * GI, GI, None), (1 << 30, 2 << 30));
        check(memory(UNLIMITED, 0, None), (1 << 62, 1 << 62));
        assert_eq!(memory(UNLIMITED + 1, 0, None), None);
        assert_eq!(memory_stats(None, Some(0), None), None);
    }

    #[test]
    fn half_an_observation_is_none() {
        assert_eq!(filesystem(Some(1), None, None), None);
        assert_eq!(filesystem(None, Some(1), None), None);
        check(filesystem(Some(1024), Some(2048), None), (1024, 2048));
        check(pids(Some(255_816), Some(1000), None), (254_816, 255_816));
        assert_eq!(pids(None, Some(1000), None), None);
        assert_eq!(max_pid(Some(32_768), Some(10)), Some(10));
        assert_eq!(max_pid(None, Some(10)), Some(10));
        assert_eq!(max_pid(None, None), None);
    }

    #[test]
    fn layouts_follow_devices_and_statistics() {
        let devices = |images, containers| Devices {
            nodefs: "sda",
            images,
            containers,
        };
        let same = FilesystemStats::default();
        let other = FilesystemStats {
            inodes: Some(1),
            ..same
        };
        for (images, containers, layers, expected) in [
            ("sda", Some("sda"), same, Layout::Single),
            ("sda", None, same, Layout::Single),
            ("sdb", Some("sdb"), same, Layout::DedicatedImagefs),
            ("sdb", None, same, Layout::DedicatedImagefs),
            ("sda", Some("sda"), other, Layout::DedicatedImagefs),
            ("sdb", Some("sda"), other, Layout::Split),
        ] {
            assert_eq!(
                Layout::detect(devices(images, containers), same, layers),
                expected
            );
        }
    }
}
