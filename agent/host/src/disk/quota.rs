//! What a folder uses, asked of its filesystem: project quotas of ext4 and XFS count as they write.
//!
//! Files and folders have a project id, and the filesystem keeps a sum for each id. That sum is a folder's own where the folder has
//! an id that nothing else has, and gives it to all that is made in it. What is above the folder is looked at here; whether another
//! folder has the same id, only who knows all folders can say: [`ProjectId`] is there to be compared.
//!
//! In the machine's own user namespace the owner of a file may give it another id, and thereby take it out of the sum. The kubelet
//! asks quotas only about pods that have a user namespace of their own, and so should who asks here on behalf of a limit.
//!
//! No limit has to be set: to count is enough. It needs `CAP_SYS_ADMIN` and Linux 5.14 (`quotactl_fd`).

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;

use crate::disk::folder::open_parent;
use crate::disk::raw::{self, ProjectAttributes};

/// The id of a project, never 0: that is what has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProjectId(u32);

impl ProjectId {
    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for ProjectId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// What a project uses, by its filesystem's own books.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProjectUsage {
    /// Bytes on the disk, with what is still to be written to it.
    pub bytes: u64,
    /// Inodes.
    pub inodes: u64,
}

/// Why no quota tells what a folder uses: a plain answer, and nothing is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoQuota {
    /// The filesystem, or the kernel, knows no projects.
    #[error("it knows no project ids ({0})")]
    NoProjects(Errno),
    /// The folder belongs to none.
    #[error("the folder has no project id")]
    NoId,
    /// What is made in it would belong to none.
    #[error("new files in it do not get its project id")]
    NotInherited,
    /// What is above it belongs to the same.
    #[error("the folder above it has the same project id")]
    Wider,
    /// Projects are not counted.
    #[error("the usage of projects is not counted ({0})")]
    NotCounted(Errno),
    /// We have not got the right.
    #[error("it may not be asked ({0})")]
    Denied(Errno),
}

/// The project that is a folder's own, as far as the folder and the one above it show.
///
/// # Errors
/// [`NoQuota`] when there is none.
pub fn project(folder: impl AsFd) -> Result<ProjectId, NoQuota> {
    let folder = folder.as_fd();
    let attributes = raw::project_attributes(folder).map_err(NoQuota::NoProjects)?;
    let above = above(folder)?;
    own_project(attributes, above)
}

fn own_project(
    folder: ProjectAttributes,
    above: Option<ProjectAttributes>,
) -> Result<ProjectId, NoQuota> {
    if folder.project == 0 {
        return Err(NoQuota::NoId);
    }
    if !folder.is_inherited() {
        return Err(NoQuota::NotInherited);
    }
    match above {
        Some(above) if above.project == folder.project => Err(NoQuota::Wider),
        _ => Ok(ProjectId(folder.project)),
    }
}

/// What is above a folder, on the same filesystem.
fn above(folder: BorrowedFd<'_>) -> Result<Option<ProjectAttributes>, NoQuota> {
    let look = || {
        let above = open_parent(folder)?;
        let (one, other) = (rustix::fs::fstat(folder)?, rustix::fs::fstat(&above)?);
        if one.st_dev != other.st_dev || one.st_ino == other.st_ino {
            return Ok(None);
        }
        raw::project_attributes(above.as_fd()).map(Some)
    };
    look().map_err(NoQuota::Denied)
}

/// What a project uses on the filesystem of a folder.
///
/// # Errors
/// [`NoQuota`] when it is not counted, or we are not told.
pub fn usage(folder: impl AsFd, project: ProjectId) -> Result<ProjectUsage, NoQuota> {
    raw::project_usage(folder.as_fd(), project.0).map_err(|errno| match errno {
        Errno::PERM | Errno::ACCESS => NoQuota::Denied(errno),
        _ => NoQuota::NotCounted(errno),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const INHERITED: u32 = 0x200;

    fn of(project: u32, flags: u32) -> ProjectAttributes {
        ProjectAttributes { flags, project }
    }

    #[test]
    fn a_project_is_a_folders_own_or_is_said_not_to_be() {
        fn check(
            folder: ProjectAttributes,
            above: Option<ProjectAttributes>,
            expected: Result<u32, NoQuota>,
        ) {
            let found = own_project(folder, above).map(ProjectId::get);
            assert_eq!(found, expected, "{folder:?} in {above:?}");
        }
        check(of(7, INHERITED), Some(of(0, 0)), Ok(7));
        check(of(7, INHERITED), Some(of(8, INHERITED)), Ok(7));
        check(of(7, INHERITED), None, Ok(7));
        check(of(0, INHERITED), None, Err(NoQuota::NoId));
        check(of(7, 0), Some(of(0, 0)), Err(NoQuota::NotInherited));
        check(
            of(7, INHERITED),
            Some(of(7, INHERITED)),
            Err(NoQuota::Wider),
        );
        // Also where the one above gives it to nothing new: what it holds belongs to it.
        check(of(7, INHERITED), Some(of(7, 0)), Err(NoQuota::Wider));
    }

    #[test]
    fn a_folder_of_nobodys_is_a_plain_answer() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let dir = std::fs::File::open(folder.path()).expect("a folder");
        let answer = project(&dir).expect_err("nobody gave it an id");
        assert!(
            matches!(answer, NoQuota::NoId | NoQuota::NoProjects(_)),
            "{answer:?}"
        );
    }
}
