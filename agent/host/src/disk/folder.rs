//! Opening folders of a tree that others change meanwhile: no link is followed, no mount entered, no time of access touched.

use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::disk::error::DiskError;

const FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Opens the folder that a path leads to. Links on the way are followed, the last part is no link.
pub(super) fn open(path: &Path) -> Result<OwnedFd, DiskError> {
    quietly(|flags| rustix::fs::open(path, flags, Mode::empty()))
        .map_err(|errno| DiskError::of("open", path, errno))
}

/// Opens a folder of a folder.
///
/// `EXDEV` is a mount point, also one of the same filesystem: what lies there is no use of this folder. Kernels without
/// `openat2`, and filters that do not know it, enter mounts of the same filesystem.
pub(super) fn open_child(dir: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let within = quietly(|flags| {
        let resolve = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
        rustix::fs::openat2(dir, name, flags, Mode::empty(), resolve)
    });
    match within {
        Err(Errno::NOSYS | Errno::PERM) => {
            quietly(|flags| rustix::fs::openat(dir, name, flags, Mode::empty()))
        }
        answer => answer,
    }
}

/// Opens what is above a folder now.
pub(super) fn open_parent(dir: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    quietly(|flags| rustix::fs::openat(dir, c"..", flags, Mode::empty()))
}

/// Reading a folder would write its time of access to the disk; only its owner and root may prevent that.
fn quietly(open: impl Fn(OFlags) -> Result<OwnedFd, Errno>) -> Result<OwnedFd, Errno> {
    match open(FLAGS | OFlags::NOATIME) {
        Err(Errno::PERM) => open(FLAGS),
        answer => answer,
    }
}
