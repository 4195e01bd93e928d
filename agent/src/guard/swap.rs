//! Swap as it is used up: what the machine's free swap is worth, and the sampler's limits that follow it.

use std::path::Path;

use brink_core::node::headroom::FreeSwap;
use brink_core::node::signal::Signal;
use brink_host::HostError;
use brink_host::swap::{SwapArea, Swaps};

use super::Guard;
use super::figures::{NodeFigures, saturated};
use super::watches::Terrain;

/// The machine's areas of swap, as they were listed last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwapAreas {
    free: FreeSwap,
    exist: bool,
    has_zram: bool,
    /// Whether zram is filled before disks.
    zram_first: bool,
}

impl SwapAreas {
    /// Lists them.
    ///
    /// # Errors
    /// [`HostError`] with the path.
    pub fn read(root: &Path) -> Result<Self, HostError> {
        Ok(Self::of(&Swaps::read(root)?))
    }

    fn of(swaps: &Swaps) -> Self {
        let disk = swaps.free_outside_memory();
        let highest = |zram: bool| {
            let of_kind = swaps.areas.iter().filter(|area| area.is_zram() == zram);
            of_kind.map(|area| area.priority).max()
        };
        Self {
            free: FreeSwap {
                disk,
                zram: swaps.free().saturating_sub(disk),
            },
            exist: !swaps.areas.is_empty(),
            has_zram: swaps.areas.iter().any(SwapArea::is_zram),
            zram_first: highest(true) > highest(false),
        }
    }

    /// Whether there are any.
    pub const fn exist(self) -> bool {
        self.exist
    }

    /// What `free` bytes (`SwapFree`) are worth, in bytes; what was free at the listing where nobody knows. The total
    /// does not tell kinds apart, so what is gone since went from the kind that is filled first, and what came back
    /// counts as zram where there is any.
    pub fn worth(self, free: Option<u64>) -> u64 {
        let before = self.free;
        let total = before.disk.saturating_add(before.zram);
        let free = free.unwrap_or(total);
        let (gone, back) = (total.saturating_sub(free), free.saturating_sub(total));
        let now = if back > 0 && self.has_zram {
            FreeSwap {
                zram: before.zram.saturating_add(back),
                ..before
            }
        } else if self.zram_first {
            let zram = before.zram.saturating_sub(gone);
            FreeSwap {
                disk: free.saturating_sub(zram),
                zram,
            }
        } else {
            let disk = before.disk.saturating_sub(gone).saturating_add(back);
            FreeSwap {
                disk,
                zram: free.saturating_sub(disk),
            }
        };
        now.usable()
    }
}

impl Guard {
    /// Whether memory alone is below a threshold on headroom that swap still lifts. Nothing of the sampler's moves while
    /// swap is eaten up, so the node is looked at as if the threshold were met.
    pub(super) fn lives_on_swap(&self, figures: &NodeFigures) -> bool {
        let Some((headroom, memory)) = figures.headroom.zip(figures.memory) else {
            return false;
        };
        let mut thresholds = self.engine.policy().thresholds().iter();
        self.files.slow().swap > 0
            && thresholds.any(|threshold| {
                threshold.signal == Signal::MemoryHeadroom
                    && headroom < threshold.quantity(memory.capacity).value()
            })
    }

    /// Moves the sampler's limits to the swap there is now, once it is far from what they were made for.
    pub(super) fn follow_swap(&mut self) {
        let Some(armed) = self.terrain.filter(|_| self.sampler_serves()) else {
            return;
        };
        let slow = self.files.slow();
        let now = Terrain {
            swap: saturated(slow.swap),
            pods_swap: saturated(slow.pods_swap),
            ..armed
        };
        let policy = self.engine.policy();
        if !now.is_far_from(&armed, policy) {
            return;
        }
        let Some(kernel) = &mut self.kernel else {
            return;
        };
        match kernel.watch(policy, now) {
            Ok(()) => self.terrain = Some(now),
            Err(error) => self.distrust(&format!("the sampler cannot be armed: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "Filename Type Size Used Priority\n";
    const DISK: &str = "/dev/sda2 partition 1000 0 -2\n";
    const ZRAM: &str = "/dev/zram0 partition 400 100 100\n";

    fn areas(lines: &[&str]) -> SwapAreas {
        let text = format!("{HEADER}{}", lines.concat());
        SwapAreas::of(&Swaps::parse(text.as_bytes()).unwrap())
    }

    #[track_caller]
    fn check(lines: &[&str], free: Option<u64>, expected: u64) {
        let areas = areas(lines);
        let worth = areas.worth(free.map(|kib| kib << 10));
        assert_eq!(worth >> 10, expected, "{free:?} of {areas:?}");
    }

    #[test]
    fn free_swap_is_worth_what_is_left_of_each_kind() {
        check(&[], Some(0), 0);
        // Switched on since the listing.
        check(&[], Some(500), 500);
        check(&[DISK], None, 1000);
        check(&[DISK], Some(10), 10);
        check(&[DISK], Some(0), 0);
        check(&[ZRAM], Some(300), 150);
        check(&[ZRAM], Some(400), 200);
        check(&[ZRAM], Some(20), 10);
        check(&[DISK, ZRAM], None, 1150);
        // zram has the higher priority and goes first.
        check(&[DISK, ZRAM], Some(1200), 1100);
        check(&[DISK, ZRAM], Some(900), 900);
        check(&[DISK, ZRAM], Some(1400), 1200);
        let late = "/dev/zram0 partition 400 100 -3\n";
        check(&[DISK, late], Some(800), 500 + 150);
        check(&[DISK, late], Some(200), 100);
    }

    #[test]
    fn areas_that_are_full_are_areas() {
        assert!(!areas(&[]).exist());
        let full = areas(&["/dev/sda2 partition 1000 1000 -2\n"]);
        assert!(full.exist());
        assert_eq!(full.worth(None), 0);
        assert_eq!(full.worth(Some(4096)), 4096);
    }
}
