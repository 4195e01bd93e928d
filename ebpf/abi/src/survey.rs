//! The survey: what many cgroups use, asked in one call. Each argument of a call is an argument of the program.

use crate::plain::shared;

/// Most cgroups a survey holds.
pub const MAX_SURVEYED: usize = 512;
/// Words of a set of them: cgroup n is bit n modulo 64 of word n / 64.
pub const WORDS: usize = MAX_SURVEYED / 64;

/// First argument: look at the set of cgroups in the arguments that follow. The result is how many use another amount than at the
/// last look.
pub const LOOK: u64 = 0;
/// First argument: put the cgroup whose directory is open as the third argument at the place of the second. The result is one of
/// those in [`crate::command`].
pub const SEAT: u64 = 1;
/// First argument: empty the place of the second. The result is the same.
pub const LEAVE: u64 = 2;
/// First argument: read the limits of all that have a place. The result is one of the same, `UNSUPPORTED` where this kernel's are not
/// found.
pub const LIMITS: u64 = 3;

/// First argument: follow, in the lane of the second, the cgroup at the place of the third, or nobody with [`NOBODY`]. The fourth is not
/// zero where every movement of it counts. The result is one of the same.
pub const FOLLOW: u64 = 4;
/// A place that nobody has.
pub const NOBODY: u64 = u64::MAX;

/// What is not known: the place is empty, the cgroup gone, or its counter cannot be read.
pub const UNKNOWN: u64 = u64::MAX;
/// A limit that is none.
pub const UNLIMITED: u64 = u64::MAX - 1;

shared! {
    /// What was found, by place, in bytes: usage, or limits.
    pub struct Surveyed {
        pub bytes: [u64; MAX_SURVEYED],
    }
}

/// Cgroups that are followed: a timer looks at them at a pace of its own.
pub const LANES: usize = 32;
/// What the timer found is kept in a ring of pages, oldest overwritten. Both are powers of two, for verifiers that lose a comparison.
pub const PAGE_TRACES: usize = 16;
pub const TRACE_PAGES: u32 = 8;
/// Stands for a usage that is not known, and for that of nobody.
pub const UNTRACED: u32 = u32::MAX;

shared! {
    /// What those that are followed used at one moment, by lane, in units of 4 KiB.
    pub struct Trace {
        /// `CLOCK_MONOTONIC`; 0 where none was ever written
        pub at_ns: u64,
        pub units: [u32; LANES],
    }
}

shared! {
    /// One page of the ring. Trace number n stands at n modulo the length of the ring.
    pub struct TracePage {
        pub traces: [Trace; PAGE_TRACES],
    }
}

shared! {
    /// What the timer counts.
    pub struct Follower {
        /// traces that were ever left
        pub traces: u64,
        /// of those, the ones that somebody was woken for
        pub told: u64,
        /// nanoseconds they took, all and the longest
        pub cost_ns: u64,
        pub cost_max_ns: u64,
    }
}

/// By how many bytes usage has to move for what it consists of to have changed: 256 KiB, or a 64th, and no less than 16 KiB.
pub const fn movement(usage: u64) -> u64 {
    let part = usage >> 6;
    if part > 256 << 10 {
        256 << 10
    } else if part < 16 << 10 {
        16 << 10
    } else {
        part
    }
}
