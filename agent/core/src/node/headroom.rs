//! Brink's own memory signal: what could still be allocated, kernel memory and reclaim included.
//!
//! The kubelet's formula sees neither kernel memory, so it can be a gigabyte too optimistic, nor
//! that page cache can be dropped, so it can be as much too pessimistic. Headroom counts pages:
//! free ones above what the kernel keeps for itself, plus what reclaim could give back without
//! writing. Free swap is counted apart, because reaching it takes time. All amounts are in bytes.

use super::observe::{Observation, UNLIMITED};
use crate::base::Moment;

/// One memory zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Zone {
    /// Free pages.
    pub free: u64,
    /// The min watermark: below it only the kernel itself allocates.
    pub min_watermark: u64,
    /// The largest lowmem reserve of the zone, kept from allocations that could live elsewhere.
    pub max_lowmem_reserve: u64,
}

/// What reclaim could give back without writing anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Reclaimable {
    /// File pages on the active list; shared memory and locked pages are not on it.
    pub active_file: u64,
    /// File pages on the inactive list.
    pub inactive_file: u64,
    /// File pages that have to be written first.
    pub dirty: u64,
    /// File pages being written.
    pub writeback: u64,
    /// Slab memory the kernel can shrink.
    pub slab: u64,
}

/// Free swap, by what it is worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FreeSwap {
    /// On devices and files.
    pub disk: u64,
    /// On zram, which takes memory itself.
    pub zram: u64,
}

/// What could still be allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Headroom {
    /// Without swapping.
    pub memory: u64,
    /// By swapping, on top.
    pub swap: u64,
}

impl Zone {
    /// Free pages that an ordinary allocation may take.
    pub const fn allocatable(self) -> u64 {
        let kept = self.min_watermark.saturating_add(self.max_lowmem_reserve);
        self.free.saturating_sub(kept)
    }
}

impl Reclaimable {
    /// Clean file pages and reclaimable slab.
    pub const fn total(self) -> u64 {
        let file = self.active_file.saturating_add(self.inactive_file);
        let clean = file
            .saturating_sub(self.dirty)
            .saturating_sub(self.writeback);
        clean.saturating_add(self.slab)
    }
}

impl FreeSwap {
    /// What free swap gives: zram half, as a page swapped to it still takes about half a page.
    pub const fn usable(self) -> u64 {
        self.disk.saturating_add(self.zram / 2)
    }
}

impl Headroom {
    /// Of the machine: every zone for itself, since one zone's surplus does not fill another's
    /// reserve.
    pub fn of_node(
        zones: impl IntoIterator<Item = Zone>,
        reclaimable: Reclaimable,
        swap: FreeSwap,
    ) -> Self {
        let free = zones
            .into_iter()
            .fold(0, |sum: u64, zone| sum.saturating_add(zone.allocatable()));
        Self {
            memory: free.saturating_add(reclaimable.total()),
            swap: swap.usable(),
        }
    }

    /// Of a cgroup that stands for the node: `None` if it has no limit.
    pub const fn of_cgroup(
        limit: u64,
        usage: u64,
        reclaimable: Reclaimable,
        swap: FreeSwap,
    ) -> Option<Self> {
        if limit > UNLIMITED {
            return None;
        }
        let memory = limit
            .saturating_sub(usage)
            .saturating_add(reclaimable.total());
        Some(Self {
            memory: if memory < limit { memory } else { limit },
            swap: swap.usable(),
        })
    }

    /// Memory and swap together.
    pub const fn with_swap(self) -> u64 {
        self.memory.saturating_add(self.swap)
    }

    /// The observation of `memory.headroom` that goes with a capacity. Free swap counts, so that a
    /// node that can still swap is not taken for a dying one.
    pub fn observation(self, capacity: u64, at: Option<Moment>) -> Observation {
        let bytes = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
        Observation {
            available: bytes(self.with_swap()),
            capacity: bytes(capacity),
            at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MI: u64 = 1 << 20;

    #[test]
    fn each_zone_keeps_its_own_reserve() {
        let rich = Zone {
            free: 100 * MI,
            min_watermark: 10 * MI,
            max_lowmem_reserve: 5 * MI,
        };
        let poor = Zone {
            free: 3 * MI,
            min_watermark: 10 * MI,
            max_lowmem_reserve: 0,
        };
        let cache = Reclaimable {
            active_file: 30 * MI,
            inactive_file: 20 * MI,
            dirty: 15 * MI,
            writeback: 5 * MI,
            slab: 7 * MI,
        };
        let swap = FreeSwap {
            disk: 8 * MI,
            zram: 6 * MI,
        };
        let headroom = Headroom::of_node([rich, poor], cache, swap);
        assert_eq!(
            headroom,
            Headroom {
                memory: (85 + 30 + 7) * MI,
                swap: 11 * MI
            }
        );
        assert_eq!(headroom.with_swap(), 133 * MI);
        let seen = headroom.observation(200 * MI, None);
        assert_eq!((seen.available, seen.capacity), (133 << 20, 200 << 20));
    }

    #[test]
    fn a_cgroup_has_what_its_limit_leaves() {
        let cache = Reclaimable {
            inactive_file: 10 * MI,
            ..Reclaimable::default()
        };
        let none = FreeSwap::default();
        let of = |limit, usage| Headroom::of_cgroup(limit, usage, cache, none).map(|h| h.memory);
        assert_eq!(of(100 * MI, 80 * MI), Some(30 * MI));
        // Usage can pass the limit for a moment; what can be dropped still can.
        assert_eq!(of(100 * MI, 120 * MI), Some(10 * MI));
        assert_eq!(of(100 * MI, 0), Some(100 * MI));
        assert_eq!(of(u64::MAX, 0), None);
    }

    #[test]
    fn more_dirty_than_cached_is_nothing() {
        let odd = Reclaimable {
            active_file: MI,
            dirty: 5 * MI,
            ..Reclaimable::default()
        };
        assert_eq!(odd.total(), 0);
    }
}
