//! The sum of a walk: bytes and inodes of one filesystem, each inode once, and what is missing in it.

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use crate::disk::filesystem::unsigned;
use crate::disk::linked::{Charge, LinkedFiles, MOST_REMEMBERED};
use crate::disk::pace::Stopped;

/// `st_blocks` counts in these, whatever the filesystem's own blocks are.
const BLOCK: u64 = 512;
/// Shares of a file are counted in these parts, so that they lose nothing worth mentioning.
const PARTS: u128 = 1 << 20;

/// What makes a sum less than exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gaps {
    /// Folders that could not be read, and files that could not be looked at. What went meanwhile is none.
    pub unread: u64,
    /// The first refusal among them.
    pub first_error: Option<Errno>,
    /// Folders that were counted and not visited: deeper, or more of them at once, than the walk has room for.
    pub too_deep: u64,
    /// Links that counted by their share of the file, because too many files had links that were still to come. The sum is
    /// exact if all links are in the folder, and too small if not.
    pub by_share: u64,
    /// Why it ended early.
    pub stopped: Option<Stopped>,
}

impl Gaps {
    /// Whether there are none.
    pub fn is_exact(&self) -> bool {
        *self == Self::default()
    }

    /// Whether something was left out, so that the true figures are at least as large.
    pub fn is_partial(&self) -> bool {
        self.unread > 0 || self.too_deep > 0 || self.stopped.is_some()
    }
}

/// What was counted so far.
#[derive(Debug)]
pub(super) struct Tally {
    device: u64,
    bytes: u64,
    inodes: u64,
    /// The same of what counts by shares, in [`PARTS`].
    bytes_shared: u128,
    inodes_shared: u128,
    linked: LinkedFiles,
    pub(super) gaps: Gaps,
}

impl Tally {
    /// Of one filesystem.
    pub(super) fn new(device: u64) -> Self {
        Self::bounded(device, MOST_REMEMBERED)
    }

    fn bounded(device: u64, most: usize) -> Self {
        Self {
            device,
            bytes: 0,
            inodes: 0,
            bytes_shared: 0,
            inodes_shared: 0,
            linked: LinkedFiles::new(most),
            gaps: Gaps::default(),
        }
    }

    pub(super) fn device(&self) -> u64 {
        self.device
    }

    pub(super) fn is_here(&self, stat: &Stat) -> bool {
        stat.st_dev == self.device
    }

    /// One entry more.
    pub(super) fn count(&mut self, stat: &Stat) {
        let bytes = unsigned(stat.st_blocks).saturating_mul(BLOCK);
        let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        // The links of a folder are those of its subfolders to it.
        let charge = if is_folder {
            Charge::Whole
        } else {
            self.linked.meet(stat.st_ino, unsigned(stat.st_nlink))
        };
        match charge {
            Charge::Whole => {
                self.bytes = self.bytes.saturating_add(bytes);
                self.inodes += 1;
            }
            Charge::Nothing => {}
            Charge::Share(links) => {
                self.gaps.by_share += 1;
                self.bytes_shared += u128::from(bytes) * PARTS / u128::from(links);
                self.inodes_shared += PARTS / u128::from(links);
            }
        }
    }

    /// Something could not be read. What is gone is no gap.
    pub(super) fn missed(&mut self, errno: Errno) {
        if errno != Errno::NOENT {
            self.gaps.unread += 1;
            self.gaps.first_error.get_or_insert(errno);
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.saturating_add(whole(self.bytes_shared))
    }

    pub(super) fn inodes(&self) -> u64 {
        self.inodes.saturating_add(whole(self.inodes_shared))
    }

    pub(super) fn has_links_elsewhere(&self) -> bool {
        self.linked.has_links_elsewhere()
    }
}

/// The nearest whole number: a third three times is one.
fn whole(parts: u128) -> u64 {
    u64::try_from((parts + PARTS / 2) / PARTS).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Stat {
        let file = tempfile::NamedTempFile::new().expect("temporary file");
        rustix::fs::fstat(file.as_file()).expect("a file")
    }

    #[test]
    fn each_inode_counts_once_also_by_shares() {
        for most in [10, 0] {
            let mut stat = sample();
            let mut tally = Tally::bounded(stat.st_dev, most);
            (stat.st_blocks, stat.st_nlink) = (8, 1);
            tally.count(&stat);
            (stat.st_ino, stat.st_blocks, stat.st_nlink) = (stat.st_ino + 1, 16, 3);
            for _ in 0..3 {
                tally.count(&stat);
            }
            assert_eq!((tally.bytes(), tally.inodes()), (4096 + 8192, 2), "{most}");
            assert_eq!(tally.gaps.by_share, if most == 0 { 3 } else { 0 });
            assert_eq!(tally.gaps.is_exact(), most > 0);
            assert!(!tally.gaps.is_partial());
        }
    }

    #[test]
    fn a_folder_has_links_and_is_one() {
        let folder = tempfile::tempdir().expect("temporary folder");
        std::fs::create_dir(folder.path().join("a")).expect("a folder");
        let stat = rustix::fs::stat(folder.path()).expect("a folder");
        let mut tally = Tally::bounded(stat.st_dev, 10);
        tally.count(&stat);
        assert_eq!(tally.inodes(), 1);
        assert!(!tally.has_links_elsewhere());
    }

    #[test]
    fn what_is_gone_is_no_gap() {
        let mut tally = Tally::bounded(0, 10);
        tally.missed(Errno::NOENT);
        assert!(tally.gaps.is_exact());
        tally.missed(Errno::ACCESS);
        tally.missed(Errno::IO);
        assert_eq!(
            (tally.gaps.unread, tally.gaps.first_error),
            (2, Some(Errno::ACCESS))
        );
        assert!(tally.gaps.is_partial());
    }
}
