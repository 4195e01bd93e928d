//! Who forked whom: a ring of pages that the kernel programs write and user space reads, oldest overwritten.

use crate::COMM;
use crate::plain::shared;

/// Births of one page. A power of two, for verifiers that lose a comparison.
pub const PAGE_BIRTHS: usize = 32;
/// Pages of the ring. A power of two as well.
pub const PAGES: u32 = 256;
/// Births of the ring.
pub const BIRTHS: usize = PAGES as usize * PAGE_BIRTHS;

shared! {
    /// A process was forked.
    pub struct Birth {
        /// `CLOCK_MONOTONIC`; 0 where none was ever written
        pub at_ns: u64,
        /// `task_struct.start_boottime` of both
        pub start_ns: u64,
        pub parent_start_ns: u64,
        /// memory cgroup, which is that of who forked; [`crate::record::UNKNOWN`] when it cannot be read
        pub cgroup: u64,
        /// thread-group ids
        pub tgid: u32,
        pub parent: u32,
        /// name of the thread that forked, which the child has until it runs another program
        pub parent_comm: [u8; COMM],
    }
}

shared! {
    /// One page of the ring. Birth number n stands at n modulo [`BIRTHS`].
    pub struct BirthPage {
        pub births: [Birth; PAGE_BIRTHS],
    }
}
