//! One control group held open: the directory stays the same group, whatever is later created under its name.

use std::ffi::CStr;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::cgroup::layout::{Hierarchy, Version};
use crate::error::{HostError, HotError};
use crate::hot_file::HotFile;

/// The kernel's id of a cgroup: the inode number of its directory, never given twice in a boot on 64-bit kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CgroupId(pub u64);

impl fmt::Display for CgroupId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// A group, by an open directory.
#[derive(Debug)]
pub struct CgroupDir {
    fd: OwnedFd,
    id: CgroupId,
    version: Version,
    group: String,
    path: PathBuf,
}

impl CgroupDir {
    /// Opens the group that `/proc/<pid>/cgroup` calls `group` (`/kubepods/burstable`) in a hierarchy.
    ///
    /// # Errors
    /// [`HostError::Unsupported`] when this mount does not show the group, [`HostError::Open`] otherwise.
    pub fn open(hierarchy: &Hierarchy, group: &str) -> Result<Self, HostError> {
        let path = hierarchy
            .folder(group)
            .ok_or_else(|| HostError::Unsupported {
                what: "the group",
                why: format!("{group} is not under {}", hierarchy.path.display()),
            })?;
        let failed = |errno: Errno| HostError::Open {
            path: path.clone(),
            source: errno.into(),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&path, flags, Mode::empty()).map_err(failed)?;
        let id = CgroupId(rustix::fs::fstat(&fd).map_err(failed)?.st_ino);
        Ok(Self {
            fd,
            id,
            version: hierarchy.version,
            group: group.to_owned(),
            path,
        })
    }

    /// Its id.
    pub fn id(&self) -> CgroupId {
        self.id
    }

    /// The version of its hierarchy.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Its path in the hierarchy.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the group is still there: a removed one keeps its open directory, with no files in it.
    pub fn is_alive(&self) -> bool {
        rustix::fs::statat(&self.fd, c"cgroup.procs", rustix::fs::AtFlags::empty()).is_ok()
    }

    /// Opens one of its files.
    ///
    /// # Errors
    /// [`HostError::Open`] with the path.
    pub fn file(&self, name: &CStr) -> Result<HotFile, HostError> {
        HotFile::open_at(self.fd.as_fd(), name).map_err(|errno| HostError::Open {
            path: self.file_path(name),
            source: errno.into(),
        })
    }

    /// Reads one of its single-record files into a buffer.
    ///
    /// # Errors
    /// [`HostError`] with the path.
    pub(crate) fn read<'buffer>(
        &self,
        name: &CStr,
        buffer: &'buffer mut [u8],
    ) -> Result<&'buffer [u8], HostError> {
        self.file(name)?
            .read_record(buffer)
            .map_err(|error| self.wrong(name, error))
    }

    /// A reading of one of its files that was not understood.
    pub(crate) fn wrong(&self, name: &CStr, error: HotError) -> HostError {
        error.at(&self.file_path(name))
    }

    fn file_path(&self, name: &CStr) -> PathBuf {
        self.path.join(name.to_string_lossy().as_ref())
    }
}

impl AsFd for CgroupDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A v2 or v1 group made of plain files in a temporary folder.
#[cfg(test)]
pub(crate) mod fake {
    use super::*;

    pub(crate) fn group(
        version: Version,
        files: &[(&str, &str)],
    ) -> (tempfile::TempDir, CgroupDir) {
        let root = tempfile::tempdir().expect("temporary folder");
        std::fs::create_dir(root.path().join("pod")).expect("fake group");
        for (name, text) in files {
            std::fs::write(root.path().join("pod").join(name), text).expect("fake file");
        }
        let hierarchy = Hierarchy {
            version,
            path: root.path().to_owned(),
            mount_root: "/".to_owned(),
        };
        let dir = CgroupDir::open(&hierarchy, "/pod").expect("fake group");
        (root, dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_group_is_not_its_successor() {
        let (root, dir) = fake::group(Version::V2, &[("cgroup.procs", "")]);
        assert!(dir.is_alive());
        std::fs::remove_dir_all(root.path().join("pod")).expect("remove");
        std::fs::create_dir(root.path().join("pod")).expect("again");
        std::fs::write(root.path().join("pod/cgroup.procs"), "").expect("again");
        assert!(!dir.is_alive());
        let hierarchy = Hierarchy {
            version: Version::V2,
            path: root.path().to_owned(),
            mount_root: "/".to_owned(),
        };
        assert!(
            CgroupDir::open(&hierarchy, "/pod")
                .expect("the new one")
                .is_alive()
        );
    }

    #[test]
    fn a_group_outside_the_hierarchy_is_refused() {
        let hierarchy = Hierarchy {
            version: Version::V2,
            path: "/sys/fs/cgroup".into(),
            mount_root: "/".to_owned(),
        };
        let error = CgroupDir::open(&hierarchy, "/../../etc").expect_err("climbs out");
        assert!(matches!(error, HostError::Unsupported { .. }), "{error}");
    }
}
