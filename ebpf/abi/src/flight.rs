//! The node's part of the flight recorder: points that the sampler leaves in a ring of pages, oldest overwritten.

use crate::plain::shared;

/// Points of one page. A power of two, for verifiers that lose a comparison.
pub const PAGE_POINTS: usize = 64;
/// Pages of the ring. A power of two as well.
pub const PAGES: u32 = 128;
/// Points of the ring: a minute at one every 10 ms, and a third of that to spare for whoever reads while it is written.
pub const POINTS: usize = PAGES as usize * PAGE_POINTS;
/// Amounts of a point are counted in so many bytes, whatever the size of a page of memory.
pub const UNIT_SHIFT: u32 = 12;

shared! {
    /// The node at one moment. Amounts in units of 4 KiB.
    pub struct FlightPoint {
        /// `CLOCK_MONOTONIC`; 0 where none was ever written
        pub at_ns: u64,
        /// `Sample::available` and `Sample::headroom`
        pub available: i32,
        pub headroom: i32,
        pub anon: u32,
        pub file: u32,
        /// low bits of `SamplerMeter::reclaims` and `ProcessMeter::forks`
        pub reclaims: u32,
        pub forks: u32,
    }
}

shared! {
    /// One page of the ring. Point number n stands at n modulo [`POINTS`].
    pub struct FlightPage {
        pub points: [FlightPoint; PAGE_POINTS],
    }
}

impl FlightPoint {
    /// Bytes as a point counts them; what no point can hold becomes the most it can.
    #[inline]
    pub fn amount(bytes: i64) -> i32 {
        let units = bytes >> UNIT_SHIFT;
        match i32::try_from(units) {
            Ok(units) => units,
            Err(_) if units > 0 => i32::MAX,
            Err(_) => i32::MIN,
        }
    }

    /// An amount of a point, in bytes.
    pub const fn bytes(amount: i64) -> i64 {
        amount << UNIT_SHIFT
    }
}
