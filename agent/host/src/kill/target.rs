//! A workload's group made ready to be killed: held open in advance, its names in other hierarchies prepared.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

use crate::cgroup::dir::{CgroupDir, CgroupId};
use crate::cgroup::events::GroupState;
use crate::cgroup::layout::{Controller, Hierarchy, Layout, Version};
use crate::cgroup::membership::normal_path;
use crate::error::HostError;
use crate::hot_file::retry;
use crate::kill::roster::{each_process, has_own_process, nobody_in};

/// A group that can be killed. Made on the housekeeping path; one open file each.
#[derive(Debug)]
pub struct KillTarget {
    dir: CgroupDir,
    /// The group's path relative to a mount point, for the freezer hierarchy and the v2 tree.
    relative: CString,
}

impl KillTarget {
    /// Opens a group of the memory hierarchy.
    ///
    /// # Errors
    /// [`HostError::Unsupported`] for the root of the hierarchy, which is never killed; [`HostError`] with the path.
    pub fn open(layout: &Layout, group: &str) -> Result<Self, HostError> {
        Self::open_in(layout.require(Controller::Memory)?, group)
    }

    /// Opens a group of any hierarchy.
    ///
    /// # Errors
    /// As [`KillTarget::open`].
    pub fn open_in(hierarchy: &Hierarchy, group: &str) -> Result<Self, HostError> {
        let refused = |why: &str| HostError::Unsupported {
            what: "a kill",
            why: format!("{group}: {why}"),
        };
        let relative =
            normal_path(group).ok_or_else(|| refused("the path climbs out of the hierarchy"))?;
        if relative.as_os_str().is_empty() {
            return Err(refused("it is the root of the hierarchy"));
        }
        let relative = CString::new(relative.into_os_string().into_encoded_bytes())
            .map_err(|_nul| refused("the path has a zero byte in it"))?;
        Ok(Self {
            dir: CgroupDir::open(hierarchy, group)?,
            relative,
        })
    }

    /// The group.
    pub fn dir(&self) -> &CgroupDir {
        &self.dir
    }

    /// The group's id.
    pub fn id(&self) -> CgroupId {
        self.dir.id()
    }

    /// Whether no process is in the group or below it, for sure: every list was read to its end. Allocates nothing.
    pub fn is_empty(&self) -> bool {
        // Most often somebody is in the group itself, and one file says so; a walk costs several times as much.
        if has_own_process(self.as_fd()) {
            return false;
        }
        nobody_in(self.as_fd())
    }

    /// Whether anybody is in the group or below it who is on no list any more: since Linux 7.0 a process leaves those as it
    /// begins to exit, and this only once its memory is back. None on v1, which does not tell, or where it cannot be read.
    /// Allocates nothing.
    pub fn is_populated(&self) -> Option<bool> {
        if !self.is_v2() {
            return None;
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = match openat(self.as_fd(), c"cgroup.events", flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::NODEV) => return Some(false),
            Err(_) => return None,
        };
        let mut text = [0; 256];
        match retry(|| rustix::io::read(file.as_fd(), &mut text[..])) {
            Ok(length) => GroupState::parse(&text[..length])
                .ok()
                .map(|state| state.populated),
            Err(Errno::NODEV) => Some(false),
            Err(_) => None,
        }
    }

    /// How many processes are in the group and below it, those of other pid namespaces included; none if a list could not
    /// be read to its end. Allocates nothing.
    pub fn processes(&self) -> Option<u64> {
        let mut count = 0;
        let look = each_process(self.as_fd(), &mut |_pid| count += 1);
        look.complete.then_some(count)
    }

    /// Visits every process in the group and below it; false if a list could not be read to its end. Allocates nothing.
    pub fn each_process(&self, visit: &mut dyn FnMut(i32)) -> bool {
        each_process(self.as_fd(), visit).complete
    }

    pub(super) fn is_v2(&self) -> bool {
        self.dir.version() == Version::V2
    }

    pub(super) fn relative(&self) -> &CString {
        &self.relative
    }
}

impl AsFd for KillTarget {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}
