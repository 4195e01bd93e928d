//! Records and settings shared by the kernel programs and the agent: `#[repr(C)]`, plain integers, no padding.
//!
//! One definition serves both sides, so a layout that moves on one side moves on the other; the numbers are pinned
//! in `tests/layout.rs` because a checked-in object may be older than the agent that loads it.
#![no_std]
#![expect(
    unsafe_code,
    reason = "bytes become values here, and only here, for types that hold the promise of `Plain`"
)]
#![expect(
    missing_docs,
    reason = "a field that says nothing more than its name carries no comment"
)]

pub mod births;
pub mod command;
pub mod flight;
pub mod forensics;
pub mod layout;
pub mod meter;
pub mod plain;
pub mod record;
pub mod sample;
pub mod survey;
pub mod truth;

pub use plain::Plain;

/// Raised whenever a shared layout changes its meaning. Objects and agent are built from one tree, so nobody compares it.
pub const VERSION: u32 = 8;

/// Most NUMA nodes with memory that the sampler sums over.
pub const MAX_NODES: usize = 64;
/// Most zones a node has.
pub const MAX_ZONES: usize = 6;
/// Most cgroups whose usage the sampler follows.
pub const MAX_SLOTS: usize = 512;
/// Most limits the sampler compares with at each tick.
pub const MAX_WATCHES: usize = 32;
/// Names of programs whose start is told.
pub const MAX_NAMES: usize = 64;
/// Longest cgroup path carried by a record; a longer one is cut and says so.
pub const MAX_PATH: usize = 384;
/// Bytes of a task's name, terminator included.
pub const COMM: usize = 16;
