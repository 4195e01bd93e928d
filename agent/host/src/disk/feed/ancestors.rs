//! From the handle of a folder to the watched folders it lies in: opened by its handle, then upwards, and remembered.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::disk::feed::events::FolderHandle;
use crate::disk::raw;

/// Handles remembered; beyond that all are forgotten. About 1 MiB.
const MOST_REMEMBERED: usize = 8192;
/// Levels looked at upwards.
const HIGHEST: usize = 20_000;

/// The inodes of the watched folders above each folder that was asked for, of one filesystem.
#[derive(Debug)]
pub(super) struct Ancestors {
    device: u64,
    known: HashMap<Box<[u8]>, Box<[u64]>>,
}

impl Ancestors {
    pub(super) fn of(device: u64) -> Self {
        Self {
            device,
            known: HashMap::new(),
        }
    }

    /// To be called when folders were moved, or others are watched.
    pub(super) fn forget(&mut self) {
        self.known.clear();
    }

    /// The watched folders that a folder is in or is. `place` opens something on the filesystem.
    ///
    /// A folder that is gone is in none: whoever removed or moved it has changed the folder above it, which is told as well.
    pub(super) fn find(
        &mut self,
        folder: FolderHandle<'_>,
        place: BorrowedFd<'_>,
        is_watched: impl Fn(u64) -> bool,
    ) -> Result<&[u64], Errno> {
        let key = folder.as_bytes();
        if !self.known.contains_key(key) {
            let found = match raw::open_by_handle(place, folder) {
                Ok(dir) => self.climb(dir, is_watched)?,
                Err(Errno::STALE | Errno::NOENT) => return Ok(&[]),
                Err(errno) => return Err(errno),
            };
            if self.known.len() >= MOST_REMEMBERED {
                self.forget();
            }
            self.known.insert(key.into(), found.into());
        }
        Ok(self.known.get(key).map_or(&[], |found| &**found))
    }

    fn climb(&self, mut dir: OwnedFd, is_watched: impl Fn(u64) -> bool) -> Result<Vec<u64>, Errno> {
        let mut found = Vec::new();
        let mut below = None;
        for _ in 0..HIGHEST {
            let stat = rustix::fs::fstat(&dir)?;
            if stat.st_dev != self.device || below == Some(stat.st_ino) {
                return Ok(found);
            }
            if is_watched(stat.st_ino) {
                found.push(stat.st_ino);
            }
            below = Some(stat.st_ino);
            dir = match above(dir.as_fd()) {
                Ok(above) => above,
                // Above what is mounted here, where nothing is watched.
                Err(Errno::NOENT) => return Ok(found),
                Err(errno) => return Err(errno),
            };
        }
        Err(Errno::LOOP)
    }
}

fn above(dir: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(dir, c"..", flags, Mode::empty())
}
