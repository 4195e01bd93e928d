//! A whole filesystem: its room in bytes and inodes, its device, its kind, and whether it can be written to.

use std::fmt;
use std::os::fd::AsFd as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags, StatFs};

use crate::disk::error::DiskError;
use crate::disk::superblock;
use crate::hot_file::retry;

/// The device number of a filesystem. Subvolumes of btrfs have one each, although they share their room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Device {
    /// Of the driver; 0 for a filesystem without a block device.
    pub major: u32,
    /// Within it.
    pub minor: u32,
}

impl Device {
    /// Takes `st_dev` apart.
    pub(crate) fn of(number: u64) -> Self {
        Self {
            major: rustix::fs::major(number),
            minor: rustix::fs::minor(number),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.major, self.minor)
    }
}

/// What a filesystem is, by the magic number of `statfs(2)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilesystemKind(pub u64);

impl FilesystemKind {
    /// Files in memory.
    pub const TMPFS: Self = Self(0x0102_1994);
    /// A writable layer over others: what the files of a container are.
    pub const OVERLAY: Self = Self(0x794c_7630);
    /// ext2, ext3 and ext4 have one number.
    pub const EXT4: Self = Self(0xef53);
    /// XFS.
    pub const XFS: Self = Self(0x5846_5342);
    /// Btrfs, which has no table of inodes.
    pub const BTRFS: Self = Self(0x9123_683e);

    /// The names of `linux/magic.h` and of what is often found besides.
    const NAMES: [(Self, &'static str); 15] = [
        (Self::TMPFS, "tmpfs"),
        (Self::OVERLAY, "overlay"),
        (Self::EXT4, "ext4"),
        (Self::XFS, "xfs"),
        (Self::BTRFS, "btrfs"),
        (Self(0x8584_58f6), "ramfs"),
        (Self(0x7371_7368), "squashfs"),
        (Self(0xe0f5_e1e2), "erofs"),
        (Self(0xf2f5_2010), "f2fs"),
        (Self(0x2fc1_2fc1), "zfs"),
        (Self(0xca45_1a4e), "bcachefs"),
        (Self(0x6573_5546), "fuse"),
        (Self(0x6969), "nfs"),
        (Self(0x00c3_6400), "ceph"),
        (Self(0xfe53_4d42), "smb"),
    ];

    /// Its name, where it is a known one.
    pub fn name(self) -> Option<&'static str> {
        let mut names = Self::NAMES.into_iter();
        names.find_map(|(kind, name)| (kind == self).then_some(name))
    }

    /// Whether its files are memory, which counts as memory and not as a disk.
    pub fn is_memory(self) -> bool {
        matches!(self.name(), Some("tmpfs" | "ramfs"))
    }
}

impl fmt::Display for FilesystemKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => out.write_str(name),
            None => write!(out, "{:#x}", self.0),
        }
    }
}

/// The inodes of a filesystem that has a bounded number of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inodes {
    /// All of them.
    pub total: u64,
    /// Those without a file.
    pub free: u64,
}

/// A filesystem as it was at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filesystem {
    /// Where it lies.
    pub device: Device,
    /// What it is.
    pub kind: FilesystemKind,
    /// Size, bytes.
    pub capacity: u64,
    /// What users without privileges can still write, bytes: the kubelet's `available`, without what is kept for root.
    pub available: u64,
    /// What no file holds, bytes; what is kept for root counts.
    pub free: u64,
    /// Unknown where the filesystem does not count them (btrfs, some of FUSE, tmpfs without a limit).
    ///
    /// There `statfs` says that it has 0 and that 0 are free, and the kubelet takes that for figures: a threshold in percent is
    /// 0 then and never met, an absolute one is met for ever. Here neither is: there is no observation.
    pub inodes: Option<Inodes>,
    /// Whether it refuses writes. A mount that does, of a filesystem that others write to, is none: a container has many such.
    pub read_only: bool,
}

impl Filesystem {
    /// Measures the filesystem that a path lies on; links are followed.
    ///
    /// # Errors
    /// [`DiskError`] with the path.
    pub fn read(path: &Path) -> Result<Self, DiskError> {
        let failed = |errno| DiskError::of("measure the filesystem of", path, errno);
        // One descriptor for both questions, so that both are about the same filesystem; O_PATH needs no right to read.
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let place = retry(|| rustix::fs::open(path, flags, Mode::empty())).map_err(failed)?;
        let device = rustix::fs::fstat(&place).map_err(failed)?.st_dev;
        let found = retry(|| rustix::fs::fstatfs(&place)).map_err(failed)?;
        let mut measured = Self::of(Device::of(device), &found);
        // What cannot be told apart counts as the filesystem's own.
        measured.read_only = measured.read_only && !superblock::takes_writes(place.as_fd());
        Ok(measured)
    }

    fn of(device: Device, found: &StatFs) -> Self {
        const READ_ONLY: u64 = 1;
        // The kernel gives the size of a block where a filesystem has no fragments.
        let fragment = unsigned(found.f_frsize);
        let bytes = |blocks: u64| blocks.saturating_mul(fragment);
        Self {
            device,
            kind: FilesystemKind(unsigned(found.f_type)),
            capacity: bytes(found.f_blocks),
            available: bytes(found.f_bavail),
            free: bytes(found.f_bfree),
            inodes: (found.f_files > 0).then_some(Inodes {
                total: found.f_files,
                free: found.f_ffree,
            }),
            read_only: unsigned(found.f_flags) & READ_ONLY != 0,
        }
    }
}

/// A number of the kernel's, whose type is another on each architecture; none of them means anything below zero.
pub(super) fn unsigned(word: impl TryInto<u64>) -> u64 {
    word.try_into().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw() -> StatFs {
        let folder = tempfile::tempdir().expect("temporary folder");
        let mut raw = rustix::fs::statfs(folder.path()).expect("a filesystem");
        raw.f_type = 0xef53;
        raw.f_bsize = 65536;
        raw.f_frsize = 4096;
        raw.f_blocks = 1000;
        raw.f_bfree = 300;
        raw.f_bavail = 250;
        raw.f_files = 64;
        raw.f_ffree = 4;
        raw.f_flags = 0;
        raw
    }

    fn of(raw: &StatFs) -> Filesystem {
        Filesystem::of(Device { major: 8, minor: 1 }, raw)
    }

    #[test]
    fn blocks_are_counted_in_fragments_and_the_reserve_of_root_is_not_available() {
        let found = of(&raw());
        assert_eq!(
            (found.capacity, found.available, found.free),
            (4_096_000, 1_024_000, 1_228_800)
        );
        assert_eq!(found.inodes, Some(Inodes { total: 64, free: 4 }));
        assert_eq!(found.kind.to_string(), "ext4");
        assert_eq!(found.device.to_string(), "8:1");
        assert!(!found.read_only);
    }

    #[test]
    fn a_filesystem_that_counts_no_inodes_has_none_known() {
        let mut raw = raw();
        (raw.f_files, raw.f_ffree) = (0, 0);
        assert_eq!(of(&raw).inodes, None);
        (raw.f_files, raw.f_ffree) = (64, 0);
        assert_eq!(of(&raw).inodes, Some(Inodes { total: 64, free: 0 }));
    }

    #[test]
    fn figures_that_do_not_fit_are_the_largest_there_is() {
        let mut raw = raw();
        raw.f_blocks = u64::MAX;
        raw.f_frsize = -1;
        assert_eq!(of(&raw).capacity, 0, "no size of a block is no figure");
        raw.f_frsize = 4096;
        raw.f_flags = 1;
        assert_eq!((of(&raw).capacity, of(&raw).read_only), (u64::MAX, true));
    }

    #[test]
    fn kinds_have_names_or_numbers() {
        assert_eq!(FilesystemKind(0x0102_1994).to_string(), "tmpfs");
        assert_eq!(FilesystemKind(0x1234).to_string(), "0x1234");
        assert!(FilesystemKind(0x8584_58f6).is_memory());
        assert!(!FilesystemKind::OVERLAY.is_memory());
    }

    #[test]
    fn the_folder_of_a_test_lies_on_a_filesystem_with_room() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let found = Filesystem::read(folder.path()).expect("a filesystem");
        assert!(found.available <= found.free && found.free <= found.capacity);
        assert!(found.available > 0, "{found:?}");
        let file = folder.path().join("file");
        std::fs::write(&file, "").expect("a file");
        let same = Filesystem::read(&file).expect("by a file");
        assert_eq!((found.device, found.kind), (same.device, same.kind));
    }

    #[test]
    fn what_is_not_there_is_told_apart() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let none = folder.path().join("none");
        let error = Filesystem::read(&none).expect_err("nothing there");
        assert!(matches!(error, DiskError::Missing { path } if path == none));
    }
}
