//! How fast memory can be used up here, and what follows for how often it has to be looked at.
//!
//! None of the figures is a law. A processor was measured to clear 12.5 GiB of huge pages a second, on one virtual machine;
//! what a kernel hands out without clearing it (fallocate on a tmpfs of huge pages without `init_on_alloc`, `nr_hugepages`,
//! a balloon that is inflated) may go faster, and memory on the processor's own package (HBM) takes in more.

use aya::util::online_cpus;

/// Looks that must fit in before the fastest growth has used up what is left.
pub const LOOKS: u64 = 8;

/// What one processor adds, in bytes per second.
const PROCESSOR: u64 = (25 << 30) / 2;
/// What no two sockets take in, however many processors write: twelve channels of DDR5-6400 each take in 1.2 TB/s
/// together, of MRDIMM-8800 1.7 TB/s.
const MOST: u64 = 2 << 40;

/// The fastest growth there can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    per_second: u64,
}

impl Growth {
    /// What is assumed at least: two processors.
    pub const LEAST: Self = Self {
        per_second: 2 * PROCESSOR,
    };

    /// With all processors of this machine that are online now; where they cannot be listed, the fastest of any machine.
    pub fn of_this_machine() -> Self {
        Self::of_processors(online_cpus().map_or(u64::MAX, |online| online.len() as u64))
    }

    /// With so many processors growing at once.
    pub fn of_processors(count: u64) -> Self {
        Self {
            per_second: PROCESSOR
                .saturating_mul(count)
                .clamp(Self::LEAST.per_second, MOST),
        }
    }

    /// The most it can be in so many nanoseconds, in bytes.
    pub const fn within(self, nanos: u64) -> u64 {
        self.per_second
            .div_ceil(1_000_000_000)
            .saturating_mul(nanos)
    }

    /// Bytes of slack that allow one nanosecond from one look to the next, so that [`LOOKS`] fit in.
    pub const fn slack_per_ns(self) -> u64 {
        (self.per_second * LOOKS).div_ceil(1_000_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_follows_the_processors() {
        for (processors, gib) in [(0, 25), (1, 25), (2, 25), (4, 50), (32, 400), (64, 800)] {
            let growth = Growth::of_processors(processors);
            assert_eq!(growth.per_second, gib << 30, "{processors}");
        }
        for processors in [1000, u64::MAX] {
            assert_eq!(Growth::of_processors(processors).per_second, MOST);
        }
    }

    #[test]
    fn eight_looks_fit_in_before_the_slack_is_used_up() {
        for processors in [2, 32, 256] {
            let growth = Growth::of_processors(processors);
            for slack in [1_u64 << 30, 10 << 30, 1 << 40] {
                let period = slack / growth.slack_per_ns();
                let used = growth.per_second / 1_000 * (LOOKS * period / 1_000) / 1_000;
                assert!(
                    (slack / 50 * 49..=slack).contains(&used),
                    "{processors} {slack}: {used}"
                );
            }
        }
    }
}
