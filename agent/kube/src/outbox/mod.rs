//! What Kubernetes is still to be told: kept on disk until it was told once, or never can be.

pub mod entry;
pub mod files;
pub mod last;

pub use entry::{Cause, End, Entry, EventWords, Eviction, Key, Part, PodRef};
pub use files::{ENTRIES, Files, PutError};
