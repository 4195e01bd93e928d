//! The points as they lie in memory: times in milliseconds, amounts in units of 4 KiB, counters by their low bits.

use brink_host::probe::abi::flight::FlightPoint;

/// Milliseconds of `CLOCK_MONOTONIC` by their low 32 bits, which come round every 49 days. Only distances are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp(u32);

impl Stamp {
    /// Of nanoseconds of `CLOCK_MONOTONIC`.
    pub fn of(nanos: u64) -> Self {
        Self(low(nanos / 1_000_000))
    }

    /// How long before `later` it was, in milliseconds; none if it was after that.
    pub fn before(self, later: Self) -> Option<u32> {
        let distance = later.0.wrapping_sub(self.0);
        (distance <= u32::MAX / 2).then_some(distance)
    }
}

/// A cgroup at one moment, in full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// In use, in bytes.
    pub usage: u64,
    /// That less inactive file pages.
    pub working_set: u64,
    /// Anonymous memory.
    pub anon: u64,
    /// File pages.
    pub file: u64,
    /// In use less what reclaim could give back without swap: what can bring the cgroup to its limit.
    pub held: u64,
    /// Microseconds in which some task of it waited for memory; none where nobody tells.
    pub stall_us: Option<u64>,
    /// Reclaims of its own tasks, and its forks; none where nobody tells.
    pub counts: Option<Counts>,
}

/// What the kernel's programs count of a cgroup, without those below it; none of what they do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reclaims that its tasks stalled in.
    pub reclaims: Option<u64>,
    /// Processes it forked.
    pub forks: Option<u64>,
}

/// Which of those the kernel's programs count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tells {
    /// Reclaims.
    pub reclaims: bool,
    /// Forks.
    pub forks: bool,
}

/// A cgroup at one moment, in 32 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupPoint {
    /// When.
    pub at: Stamp,
    /// In use.
    pub usage: u32,
    /// That less inactive file pages.
    pub working_set: u32,
    /// Anonymous memory.
    pub anon: u32,
    /// File pages.
    pub file: u32,
    /// Low bits of the counters of [`Reading`], [`UNTOLD`] of those that nobody told then.
    pub stall_us: u32,
    /// Reclaims.
    pub reclaims: u32,
    /// Forks.
    pub forks: u32,
}

const _: () = assert!(size_of::<GroupPoint>() == 32);

/// Stands for a counter that nobody told. One whose low bits are these is kept as one less.
const UNTOLD: u32 = u32::MAX;

impl GroupPoint {
    /// A reading as it is kept.
    pub fn of(at: Stamp, reading: &Reading) -> Self {
        let bits = |count: Option<u64>| count.map_or(UNTOLD, |count| low(count).min(UNTOLD - 1));
        let counts = reading.counts;
        Self {
            at,
            usage: units(reading.usage),
            working_set: units(reading.working_set),
            anon: units(reading.anon),
            file: units(reading.file),
            stall_us: bits(reading.stall_us),
            reclaims: bits(counts.and_then(|counts| counts.reclaims)),
            forks: bits(counts.and_then(|counts| counts.forks)),
        }
    }
}

/// The node at one moment as files tell, where the kernel's sampler does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilePoint {
    /// When.
    pub at: Stamp,
    /// `memory.available`.
    pub available: i32,
    /// `memory.headroom`.
    pub headroom: i32,
    /// Anonymous memory.
    pub anon: u32,
    /// File pages.
    pub file: u32,
}

/// How long tasks of the node had waited for memory at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StallPoint {
    /// When.
    pub at: Stamp,
    /// Low bits of the microseconds.
    pub stall_us: u32,
}

/// Bytes in units of 4 KiB; more than 16 TiB is 16 TiB.
pub fn units(bytes: u64) -> u32 {
    u32::try_from(bytes >> brink_host::probe::abi::flight::UNIT_SHIFT).unwrap_or(u32::MAX)
}

/// Units of 4 KiB in bytes.
pub fn bytes(units: u32) -> u64 {
    FlightPoint::bytes(units.into()).unsigned_abs()
}

/// The low 32 bits.
pub fn low(value: u64) -> u32 {
    u32::try_from(value & u64::from(u32::MAX)).unwrap_or(u32::MAX)
}

/// Full values of a counter again, of which points have the low bits and the newest is known in full.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    newest: u64,
}

impl Counter {
    /// A counter whose newest value is this.
    pub const fn of(newest: u64) -> Self {
        Self { newest }
    }

    /// The same of a point's bits, which may stand for nothing.
    pub fn told(self, bits: u32) -> Option<u64> {
        (bits != UNTOLD).then(|| self.full(bits))
    }

    /// The value that had these low bits; the counter has not gone on by 2^32 since.
    pub fn full(self, bits: u32) -> u64 {
        let since = low(self.newest).wrapping_sub(bits);
        self.newest.saturating_sub(since.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_stamp_knows_distances_across_its_end() {
        let check = |earlier: u64, later: u64, expected| {
            let stamp = |millis: u64| Stamp::of(millis * 1_000_000);
            assert_eq!(
                stamp(earlier).before(stamp(later)),
                expected,
                "{earlier} {later}"
            );
        };
        check(5, 5, Some(0));
        check(5, 65, Some(60));
        check((1 << 32) - 3, (1 << 32) + 7, Some(10));
        check(65, 5, None);
    }

    #[test]
    fn what_is_too_large_is_the_most_there_is() {
        assert_eq!(units(u64::MAX), u32::MAX);
        assert_eq!(bytes(units(123 << 12)), 123 << 12);
        assert_eq!(bytes(units((123 << 12) + 4095)), 123 << 12);
    }

    proptest! {
        #[test]
        fn low_bits_and_the_newest_value_give_the_value(value in 0..u64::MAX >> 1, since: u32) {
            let newest = value + u64::from(since);
            prop_assert_eq!(Counter::of(newest).full(low(value)), value);
        }
    }
}
