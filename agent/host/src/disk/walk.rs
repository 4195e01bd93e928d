//! What a folder uses, found by walking it: bytes as `du` counts them, inodes as the kubelet does.
//!
//! Each inode counts once: its blocks of 512 bytes, the folder's own included. Files with several links are remembered until all
//! were met. The walk goes folder by folder from an open parent, so a folder that is replaced by a link, or a tree that
//! is moved away, leads nowhere else. What goes while it is looked at is not counted. All memory is bounded, about 13 MiB at
//! worst, and so are open folders: below the deepest that are open the way back is found by `..`, and checked.
//!
//! The kubelet differs where a folder has a mount of its own filesystem in it, which it walks, and in folders that
//! cannot be read, where it gives up.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, RawDir, SeekFrom};
use rustix::io::Errno;

use crate::disk::error::DiskError;
use crate::disk::folder::{open, open_child, open_parent};
use crate::disk::pace::{Pace, Pacer, Stopped};
use crate::disk::tally::{Gaps, Tally};

/// Folders held open on the way down.
const OPEN: usize = 64;
/// Levels below the first folder that are visited.
pub const DEEPEST: usize = 16_384;
/// Room for entries at once, bytes, in folders up to [`OPEN`] levels deep and below them.
const ENTRIES: usize = 32 << 10;
const ENTRIES_DEEP: usize = 1 << 10;
/// Room for the names of folders that wait to be visited, bytes.
const MOST_WAITING: usize = 3 << 20;

/// How a walk is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalkLimits {
    /// What it may take of the machine.
    pub pace: Pace,
    /// How long it may take.
    pub within: Duration,
}

/// What a walk has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walked {
    /// Bytes on the disk.
    pub bytes: u64,
    /// Files, folders, links and all else that has an inode.
    pub inodes: u64,
    /// What makes these figures less than exact.
    pub gaps: Gaps,
    /// Whether a file in it has, or may have, links outside of it: it can grow by a name that is not in this folder.
    pub has_links_elsewhere: bool,
    /// From the first call to the last pause.
    pub took: Duration,
    /// Of that, on a processor.
    pub cpu: Duration,
}

/// Walks a folder. `stop` is looked at between slices.
///
/// # Errors
/// [`DiskError`] when the folder itself cannot be opened; what is in it and cannot be read is told in [`Walked::gaps`].
pub fn walk(folder: &Path, limits: WalkLimits, stop: &AtomicBool) -> Result<Walked, DiskError> {
    walk_open(open(folder)?, folder, limits, stop, &mut || ())
}

/// The same of an open folder; `beside` is done again and again while that takes its time.
pub(super) fn walk_open(
    dir: OwnedFd,
    folder: &Path,
    limits: WalkLimits,
    stop: &AtomicBool,
    beside: &mut dyn FnMut(),
) -> Result<Walked, DiskError> {
    let mut pacer = Pacer::new(limits.pace, limits.within, stop).beside(beside);
    let stat = rustix::fs::fstat(&dir).map_err(|errno| DiskError::of("look at", folder, errno))?;
    let mut walk = Walk {
        tally: Tally::new(stat.st_dev),
        frames: Vec::new(),
        waiting: 0,
    };
    walk.tally.count(&stat);
    walk.frames.push(Frame::new(dir, stat.st_ino));
    let stopped = walk.run(&mut pacer).and_then(|()| pacer.rest()).err();
    let (took, cpu) = pacer.spent();
    let mut tally = walk.tally;
    // A stop that came in the last pause has cut nothing off.
    tally.gaps.stopped = stopped.filter(|_| !walk.frames.is_empty());
    Ok(Walked {
        bytes: tally.bytes(),
        inodes: tally.inodes(),
        gaps: tally.gaps,
        has_links_elsewhere: tally.has_links_elsewhere(),
        took,
        cpu,
    })
}

/// A folder on the way down.
#[derive(Debug)]
struct Frame {
    /// `None` while it is closed because those below it are open.
    dir: Option<OwnedFd>,
    inode: u64,
    /// Where the next entries begin, while it is closed.
    position: u64,
    /// Names of folders in it that wait to be visited, each with its NUL.
    names: Vec<u8>,
    /// The room they were given.
    held: usize,
    /// Whether all entries were read.
    listed: bool,
}

impl Frame {
    fn new(dir: OwnedFd, inode: u64) -> Self {
        Self {
            dir: Some(dir),
            inode,
            position: 0,
            names: Vec::new(),
            held: 0,
            listed: false,
        }
    }

    fn next_name(&mut self) -> Option<CString> {
        let end = self.names.len().checked_sub(1)?;
        let begin = self.names[..end].iter().rposition(|byte| *byte == 0);
        let name = self.names.split_off(begin.map_or(0, |at| at + 1));
        CString::from_vec_with_nul(name).ok()
    }

    fn close(&mut self) {
        // Without a position the entries would begin anew, and be counted twice.
        let position = self
            .dir
            .as_ref()
            .map(|dir| rustix::fs::seek(dir, SeekFrom::Current(0)));
        if let Some(Ok(position)) = position {
            self.position = position;
            self.dir = None;
        }
    }

    /// Opens it again as what is above one of its folders.
    fn reopen(&mut self, device: u64, below: BorrowedFd<'_>) -> Result<(), Errno> {
        let dir = open_parent(below)?;
        let stat = rustix::fs::fstat(&dir)?;
        if (stat.st_dev, stat.st_ino) != (device, self.inode) {
            return Err(Errno::STALE);
        }
        rustix::fs::seek(&dir, SeekFrom::Start(self.position))?;
        self.dir = Some(dir);
        Ok(())
    }
}

/// The way down, and what was counted.
struct Walk {
    tally: Tally,
    frames: Vec<Frame>,
    /// Bytes of all names that wait.
    waiting: usize,
}

impl Walk {
    fn run(&mut self, pacer: &mut Pacer<'_>) -> Result<(), Stopped> {
        let mut buffer = vec![MaybeUninit::uninit(); ENTRIES];
        while let Some(frame) = self.frames.last_mut() {
            if let Some(name) = frame.next_name() {
                self.descend(&name);
                pacer.entry()?;
                continue;
            }
            // The room of the names is given back with the last of them.
            frame.names = Vec::new();
            self.waiting -= std::mem::take(&mut frame.held);
            if frame.listed {
                self.leave();
            } else {
                self.list(&mut buffer, pacer)?;
            }
        }
        Ok(())
    }

    /// Reads some entries of the last folder: what is no folder is counted, folders wait.
    fn list(
        &mut self,
        buffer: &mut [MaybeUninit<u8>],
        pacer: &mut Pacer<'_>,
    ) -> Result<(), Stopped> {
        let depth = self.frames.len();
        let Some(frame) = self.frames.last_mut() else {
            return Ok(());
        };
        let Some(dir) = frame.dir.as_ref().map(AsFd::as_fd) else {
            frame.listed = true;
            return Ok(());
        };
        let room = if depth > OPEN { ENTRIES_DEEP } else { ENTRIES };
        let mut listing = RawDir::new(dir, &mut buffer[..room]);
        loop {
            match listing.next() {
                None => frame.listed = true,
                Some(Err(errno)) => {
                    frame.listed = true;
                    self.tally.missed(errno);
                }
                Some(Ok(entry)) => {
                    let name = entry.file_name();
                    let fits = depth < DEEPEST
                        && self.waiting + frame.names.len() + name.count_bytes() < MOST_WAITING;
                    let waits = match (name.to_bytes(), entry.file_type()) {
                        (b"." | b"..", _) => false,
                        (_, FileType::Directory) if fits => true,
                        (_, FileType::Directory | FileType::Unknown) => {
                            is_folder(dir, name, &mut self.tally, fits)
                        }
                        _ => {
                            count(dir, name, &mut self.tally);
                            false
                        }
                    };
                    if waits {
                        frame.names.extend_from_slice(name.to_bytes_with_nul());
                    } else {
                        pacer.entry()?;
                    }
                }
            }
            if frame.listed || listing.is_buffer_empty() {
                break;
            }
        }
        frame.names.shrink_to_fit();
        frame.held = frame.names.capacity();
        self.waiting += frame.held;
        Ok(())
    }

    /// Goes into a folder of the last one, if it still is one of this filesystem.
    fn descend(&mut self, name: &CStr) {
        let dir = self.frames.last().and_then(|frame| frame.dir.as_ref());
        let Some(dir) = dir.map(AsFd::as_fd) else {
            return;
        };
        let child = match open_child(dir, name) {
            Ok(child) => child,
            Err(Errno::NOENT | Errno::XDEV) => return,
            Err(errno) => {
                // It is something else now, or closed to us: its own inode counts in any case.
                if count(dir, name, &mut self.tally) == Some(FileType::Directory) {
                    self.tally.missed(errno);
                }
                return;
            }
        };
        match rustix::fs::fstat(&child) {
            Ok(stat) if self.tally.is_here(&stat) => {
                self.tally.count(&stat);
                self.frames.push(Frame::new(child, stat.st_ino));
                let closing = self.frames.len().checked_sub(OPEN + 1);
                if let Some(frame) = closing.and_then(|at| self.frames.get_mut(at)) {
                    frame.close();
                }
            }
            Ok(_other_filesystem) => {}
            Err(errno) => self.tally.missed(errno),
        }
    }

    /// Goes back up.
    fn leave(&mut self) {
        let left = self.frames.pop().and_then(|frame| frame.dir);
        let device = self.tally.device();
        let Some(above) = self.frames.last_mut() else {
            return;
        };
        if above.dir.is_some() {
            return;
        }
        let reopened = left.map(|left| above.reopen(device, left.as_fd()));
        if !matches!(reopened, Some(Ok(()))) {
            // The tree was rearranged above us: what is left of all folders up there has no way to it any more.
            for _ in self.frames.drain(..) {
                self.tally.missed(Errno::STALE);
            }
        }
    }
}

/// Counts an entry that is no folder to be visited, and tells what it is.
fn count(dir: BorrowedFd<'_>, name: &CStr, tally: &mut Tally) -> Option<FileType> {
    let stat = look(dir, name, tally)?;
    if !tally.is_here(&stat) {
        return None;
    }
    tally.count(&stat);
    Some(FileType::from_raw_mode(stat.st_mode))
}

/// Whether an entry is a folder that can be visited; if not, it is counted.
fn is_folder(dir: BorrowedFd<'_>, name: &CStr, tally: &mut Tally, fits: bool) -> bool {
    let Some(stat) = look(dir, name, tally).filter(|stat| tally.is_here(stat)) else {
        return false;
    };
    let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    if is_folder && fits {
        return true;
    }
    tally.count(&stat);
    if is_folder {
        tally.gaps.too_deep += 1;
    }
    false
}

fn look(dir: BorrowedFd<'_>, name: &CStr, tally: &mut Tally) -> Option<rustix::fs::Stat> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    rustix::fs::statat(dir, name, flags)
        .inspect_err(|errno| tally.missed(*errno))
        .ok()
}

#[cfg(test)]
mod tests;
