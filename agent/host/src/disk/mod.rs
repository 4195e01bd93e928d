//! Disks: what room a filesystem has, and what of it a folder uses.
//!
//! | module | what it knows |
//! |---|---|
//! | [`filesystem`] | bytes and inodes of a whole filesystem, as the kubelet counts them |
//! | [`walk`] | what a folder uses, by walking it at a [`pace`] that leaves the disk to others |
//! | [`quota`] | the same by the filesystem's own books, where it keeps them |
//! | [`feed`] | which folders have changed since, where the kernel tells |
//! | [`usage`] | all of these together: a figure for a folder, by the way that costs least |
//! | [`calm`] | how the thread that does so goes behind all others |
//!
//! All of it is for threads that may wait: a filesystem that has stopped answering (a network, a dead FUSE server) holds the
//! thread that asks for as long as it likes, and no deadline of ours ends a system call.

pub mod calm;
pub mod error;
pub mod feed;
mod feeds;
pub mod filesystem;
mod folder;
mod linked;
pub mod pace;
pub mod quota;
mod raw;
mod superblock;
mod tally;
pub mod usage;
pub mod walk;

pub use error::DiskError;
pub use filesystem::Filesystem;
pub use pace::{Pace, Stopped};
pub use tally::Gaps;
pub use usage::{Folder, Method, Usage, UsageMeter, UsageSettings};
pub use walk::{WalkLimits, Walked};
