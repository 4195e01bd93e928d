//! Filesystems and what folders use, on filesystems of the tests' own: filled, read-only, moved about, listened to.
#![cfg(test)]

mod cost;
mod feed;
mod filesystem;
mod overlay;
mod quota;
mod usage;
mod walk;

use std::path::Path;
use std::time::Duration;
use std::{fs, os::unix::fs::MetadataExt as _};

use brink_host::disk::{Pace, WalkLimits};
use brink_tests::OwnDisk;
use tempfile::TempDir;

pub(crate) const LIMITS: WalkLimits = WalkLimits {
    pace: Pace::UNBOUNDED,
    within: Duration::from_mins(1),
};

/// A small filesystem with handles: ext4 in a file, or else files in memory.
pub(crate) fn disk(mib: u64) -> Result<(TempDir, OwnDisk), String> {
    OwnDisk::own_mounts()?;
    let place = tempfile::tempdir().map_err(|error| error.to_string())?;
    let disk = OwnDisk::ext4(place.path(), mib, &[]).or_else(|why| {
        let options = format!("size={mib}m,mode=0700");
        OwnDisk::mount("tmpfs", place.path(), &options).map_err(|other| format!("{why}; {other}"))
    })?;
    Ok((place, disk))
}

pub(crate) fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}
