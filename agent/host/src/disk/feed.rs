//! A change feed: which watched folders of a filesystem have changed since they were last measured, by fanotify.
//!
//! One mark on the whole filesystem tells the folder in which a file was written, made, removed, renamed or closed after writing,
//! wherever that is. The handle of that folder is opened and followed upwards to the watched folders, once: the answer
//! is remembered until a folder is moved. The kernel joins events that wait and are alike, so a file that is written to all the
//! time is one event a reading. Its queue is bounded, and when it runs over everything counts as changed.
//!
//! What it cannot see, so that nobody may rely on it for ever: stores to a mapped file and asynchronous writes (`io_submit`) that
//! grow a file are told only when it is closed; what is written through an overlay to its upper folder is hidden from the
//! filesystem below by some kernels (6.18 tells it); a file can grow by a link that is outside of the folder. It needs
//! `CAP_SYS_ADMIN` and `CAP_DAC_READ_SEARCH` in the machine's own user namespace, Linux 5.9, and a filesystem with handles and an
//! id (ext4, XFS, tmpfs since 6.7; Btrfs apart from its first subvolume since 6.8).

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::disk::feed::ancestors::Ancestors;
use crate::disk::feed::events::{Event, Events};
use crate::disk::raw;
use crate::hot_file::{read_bytes, retry};

mod ancestors;
pub(super) mod events;

/// Room for what is read at once, bytes: some 400 events.
const ROOM: usize = 32 << 10;
/// Readings at a time; who still has events after that has changed everything.
const READINGS: usize = 256;

/// Why there is no feed: folders have to be walked.
#[derive(Debug, thiserror::Error)]
pub enum NoFeed {
    /// We have not got the right.
    #[error("fanotify is refused ({0}): it takes CAP_SYS_ADMIN and CAP_DAC_READ_SEARCH")]
    Denied(Errno),
    /// The kernel or the filesystem does not offer it.
    #[error("fanotify does not offer it for this filesystem ({0})")]
    Unsupported(Errno),
    /// All of its queues are in use (`fs.fanotify.max_user_groups`).
    #[error("fanotify has no queue left: fs.fanotify.max_user_groups")]
    TooMany,
    /// The filesystem could not be reached.
    #[error("{0}")]
    Place(Errno),
}

impl NoFeed {
    fn of(errno: Errno) -> Self {
        match errno {
            Errno::PERM | Errno::ACCESS => Self::Denied(errno),
            Errno::MFILE | Errno::NOSPC => Self::TooMany,
            errno => Self::Unsupported(errno),
        }
    }
}

/// What a feed has seen since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FeedCounts {
    /// Events, whatever they were about.
    pub events: u64,
    /// How often everything counted as changed: the queue ran over, or something was not understood.
    pub lost: u64,
}

impl FeedCounts {
    /// What one reading of the queue tells. What is not understood counts as lost.
    pub fn of(read: &[u8]) -> Self {
        Events::of(read).fold(Self::default(), |counts, event| {
            let lost = u64::from(event == Event::Lost);
            counts.plus(Self { events: 1, lost })
        })
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            events: self.events.saturating_add(other.events),
            lost: self.lost.saturating_add(other.lost),
        }
    }
}

/// The changes of one filesystem.
#[derive(Debug)]
pub struct Feed {
    queue: OwnedFd,
    place: PathBuf,
    device: u64,
    /// By inode, whether it has changed since it was asked.
    folders: HashMap<u64, bool>,
    ancestors: Ancestors,
    counts: FeedCounts,
    buffer: Box<[u8]>,
}

impl Feed {
    /// Begins to listen to the filesystem of a folder, by which it is reached from then on. Nothing is held open of it, so that
    /// it can be unmounted.
    ///
    /// # Errors
    /// [`NoFeed`].
    pub fn open(place: &Path) -> Result<Self, NoFeed> {
        const MASK: u64 = libc::FAN_MODIFY
            | libc::FAN_CLOSE_WRITE
            | libc::FAN_CREATE
            | libc::FAN_DELETE
            | libc::FAN_MOVED_FROM
            | libc::FAN_MOVED_TO
            | libc::FAN_ONDIR;
        let dir = open_place(place).map_err(NoFeed::Place)?;
        let device = rustix::fs::fstat(&dir).map_err(NoFeed::Place)?.st_dev;
        let queue = raw::fanotify_of_folders().map_err(NoFeed::of)?;
        raw::mark_filesystem(queue.as_fd(), dir.as_fd(), MASK).map_err(NoFeed::of)?;
        Ok(Self {
            queue,
            place: place.to_path_buf(),
            device,
            folders: HashMap::new(),
            ancestors: Ancestors::of(device),
            counts: FeedCounts::default(),
            buffer: vec![0; ROOM].into(),
        })
    }

    /// Watches a folder of this filesystem by its inode. It counts as changed at first.
    pub fn watch(&mut self, inode: u64) {
        self.folders.insert(inode, true);
        // Folders that were in none may be in this one.
        self.ancestors.forget();
    }

    /// Watches it no more.
    pub fn forget(&mut self, inode: u64) {
        self.folders.remove(&inode);
    }

    /// Reads all that waits. To be called often enough that the queue does not run over, and before [`Feed::take`].
    pub fn drain(&mut self) {
        let mut place = None;
        for _ in 0..READINGS {
            let buffer = &mut *self.buffer;
            match retry(|| rustix::io::read(&self.queue, &mut *buffer)) {
                Ok(0) | Err(Errno::AGAIN) => return,
                Ok(length) => self.hear(length, &mut place),
                Err(_) => return self.lose(),
            }
        }
        self.lose();
    }

    /// Whether a folder has changed since this was last asked, as far as it was read; one that is not watched always has.
    ///
    /// What changes from here on is told the next time: ask first, then measure.
    pub fn take(&mut self, inode: u64) -> bool {
        self.folders.get_mut(&inode).is_none_or(std::mem::take)
    }

    /// Whether it listens to the filesystem of this device number, and the kernel still has our mark. That goes with the
    /// filesystem, without a word, when it is unmounted.
    pub fn listens_to(&self, device: u64) -> bool {
        self.device == device && self.is_alive()
    }

    fn is_alive(&self) -> bool {
        let path = format!("/proc/self/fdinfo/{}", self.queue.as_raw_fd());
        read_bytes(Path::new(&path)).is_ok_and(|text| {
            let mut lines = crate::scan::lines(&text);
            lines.any(|line| line.starts_with(b"fanotify sdev:"))
        })
    }

    /// What it has seen.
    pub fn counts(&self) -> FeedCounts {
        self.counts
    }

    fn hear(&mut self, length: usize, place: &mut Option<OwnedFd>) {
        let buffer = std::mem::take(&mut self.buffer);
        for event in Events::of(buffer.get(..length).unwrap_or_default()) {
            self.counts.events += 1;
            if self.note(event, place).is_err() {
                self.lose();
            }
        }
        self.buffer = buffer;
    }

    fn note(&mut self, event: Event<'_>, place: &mut Option<OwnedFd>) -> Result<(), Errno> {
        let Event::Changed {
            folder,
            moved_folder,
        } = event
        else {
            // The caller loses everything for it.
            return Err(Errno::OVERFLOW);
        };
        let place = match place {
            Some(place) => place,
            None => place.insert(self.reach()?),
        };
        let folders = &self.folders;
        let found = self
            .ancestors
            .find(folder, place.as_fd(), |inode| folders.contains_key(&inode))?;
        for inode in found {
            if let Some(changed) = self.folders.get_mut(inode) {
                *changed = true;
            }
        }
        if moved_folder {
            self.ancestors.forget();
        }
        Ok(())
    }

    /// Opens the filesystem, if it still is the one.
    fn reach(&self) -> Result<OwnedFd, Errno> {
        let dir = open_place(&self.place)?;
        if rustix::fs::fstat(&dir)?.st_dev == self.device {
            Ok(dir)
        } else {
            Err(Errno::STALE)
        }
    }

    fn lose(&mut self) {
        self.counts.lost += 1;
        self.ancestors.forget();
        self.folders
            .values_mut()
            .for_each(|changed| *changed = true);
    }
}

impl AsFd for Feed {
    /// Readable when something waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

fn open_place(place: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(place, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_say_what_is_missing() {
        fn check(errno: Errno, words: &str) {
            let said = NoFeed::of(errno).to_string();
            assert!(said.contains(words), "{said}");
        }
        check(Errno::PERM, "CAP_SYS_ADMIN");
        check(Errno::MFILE, "fs.fanotify.max_user_groups");
        check(Errno::OPNOTSUPP, "does not offer it");
        check(Errno::NODEV, "does not offer it");
    }
}
