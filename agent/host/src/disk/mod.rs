//! Disks: what room a filesystem has, and what of it a folder uses.
//!
//! | module | what it knows |
//! |---|---|
//! | [`filesystem`] | bytes and inodes of a whole filesystem, as the kubelet counts them |
//!
//! All of it is for threads that may wait: a filesystem that has stopped answering (a network, a dead FUSE server) holds the
//! thread that asks for as long as it likes, and no deadline of ours ends a system call.

pub mod error;
pub mod filesystem;

pub use error::DiskError;
pub use filesystem::Filesystem;
