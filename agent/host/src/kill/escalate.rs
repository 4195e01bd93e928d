//! Keeping a v1 group from forking while it is killed: the same group in the v2 tree, or the freezer hierarchy.

use std::ffi::CStr;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::cgroup::layout::{Controller, Hierarchy, Layout, Version};
use crate::cgroup::walk;
use crate::error::HostError;
use crate::hot_file::retry;
use crate::kill::pid_set::ProtectedPids;
use crate::kill::roster::each_process;
use crate::kill::target::KillTarget;

/// Groups of one subtree that are thawed.
const MOST_GROUPS: u32 = 8192;

/// The hierarchies beside a v1 memory hierarchy, held open.
#[derive(Debug)]
pub(super) struct Beside {
    freezer: Option<OwnedFd>,
    unified: Option<OwnedFd>,
}

impl Beside {
    /// Opens them. There are none beside v2, where a group has all of it in itself.
    pub(super) fn open(layout: &Layout) -> Result<Self, HostError> {
        let memory = layout.require(Controller::Memory)?;
        if memory.version == Version::V2 {
            return Ok(Self {
                freezer: None,
                unified: None,
            });
        }
        let freezer = layout
            .hierarchy(Controller::Freezer)
            .filter(|freezer| freezer.version == Version::V1);
        Ok(Self {
            freezer: freezer.map(open_mount).transpose()?,
            unified: layout.unified().map(open_mount).transpose()?,
        })
    }

    /// Stops the target's group in the freezer hierarchy until the result is dropped. `None`: there is no such group, or
    /// somebody is in it who is to live, or might be where it could not be seen. We ourselves would never resume it.
    ///
    /// The write returns before every task has stopped, but from then on a forked child is born stopped
    /// (`freezer_fork` in `kernel/cgroup/legacy_freezer.c`), so nothing new can run.
    pub(super) fn freeze(
        &self,
        target: &KillTarget,
        protected: &ProtectedPids,
    ) -> Result<Option<Frozen>, Errno> {
        let Some(mount) = &self.freezer else {
            return Ok(None);
        };
        let group = match open_group(mount.as_fd(), target) {
            Ok(group) => group,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        let mut is_spared = false;
        let look = each_process(group.as_fd(), &mut |pid| {
            is_spared |= protected.could_be(pid);
        });
        if is_spared || !look.complete {
            return Ok(None);
        }
        let state = match open_file(group.as_fd(), c"freezer.state") {
            Ok(state) => state,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        write(state.as_fd(), b"FROZEN")?;
        Ok(Some(Frozen { state }))
    }

    /// Resumes the target's group and all below it in the freezer hierarchy, whoever stopped them: a stopped v1
    /// process dies only when resumed.
    pub(super) fn thaw(&self, target: &KillTarget) -> Result<(), Errno> {
        let Some(mount) = &self.freezer else {
            return Ok(());
        };
        let group = match open_group(mount.as_fd(), target) {
            Ok(group) => group,
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        let mut outcome = Ok(());
        walk::visit(group.as_fd(), MOST_GROUPS, &mut |group| {
            match open_file(group, c"freezer.state")
                .and_then(|state| write(state.as_fd(), b"THAWED"))
            {
                Ok(()) | Err(Errno::NOENT | Errno::NODEV) => {}
                Err(errno) => outcome = Err(errno),
            }
            ControlFlow::Continue(())
        });
        outcome
    }

    /// The group of the same name in the v2 tree, if there is one.
    pub(super) fn unified_group(&self, target: &KillTarget) -> Result<Option<OwnedFd>, Errno> {
        let Some(mount) = &self.unified else {
            return Ok(None);
        };
        match open_group(mount.as_fd(), target) {
            Ok(group) => Ok(Some(group)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

/// A stopped group; it resumes when this is dropped.
#[derive(Debug)]
pub(super) struct Frozen {
    state: OwnedFd,
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // If the group went away meanwhile there is nothing to resume; anything else the next sweep tries again.
        let _ = write(self.state.as_fd(), b"THAWED");
    }
}

/// Writes `cgroup.kill` of a v2 group (Linux 5.14): SIGKILL to every process in it and below it, and to every child
/// they are forking (`kill_seq` in `kernel/cgroup/cgroup.c`).
pub(super) fn kill_group(group: BorrowedFd<'_>) -> Result<(), Errno> {
    write(open_file(group, c"cgroup.kill")?.as_fd(), b"1")
}

fn open_mount(hierarchy: &Hierarchy) -> Result<OwnedFd, HostError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(&hierarchy.path, flags, Mode::empty()).map_err(|errno| HostError::Open {
        path: hierarchy.path.clone(),
        source: errno.into(),
    })
}

fn open_group(mount: BorrowedFd<'_>, target: &KillTarget) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(mount, target.relative(), flags, Mode::empty())
}

fn open_file(group: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(group, name, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
}

fn write(file: BorrowedFd<'_>, value: &[u8]) -> Result<(), Errno> {
    retry(|| rustix::io::write(file, value)).map(|_length| ())
}
