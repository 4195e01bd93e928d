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
