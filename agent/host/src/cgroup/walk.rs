//! The groups below a group: in one pass without allocation for a kill, and as a list of paths for the index.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, RawDir, StatFs};
use rustix::io::Errno;

use crate::cgroup::layout::{CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, Hierarchy};
use crate::error::HostError;

/// Groups nested deeper than this are not visited. The kubelet's are 5 deep, systemd's user services 6.
pub const DEEPEST: usize = 32;

/// kernfs counts a directory's subdirectories in its links: 2 is none. Other file systems may count differently (btrfs: 1 of
/// each; many of FUSE, a view of the cgroups included: 2 of each), so only exactly 2 is believed, and of cgroups alone.
const LINKS_OF_A_LEAF: u64 = 2;

/// Room for directory entries a level: an entry takes at most 280 bytes.
const ENTRIES: usize = 1024;

/// How a walk went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Walk {
    /// Groups visited, the first included.
    pub groups: u32,
    /// Whether every group was visited; false when a bound was met, a call failed, or the visitor stopped.
    pub complete: bool,
    /// The first call that failed, if any. Groups that went away meanwhile are no failure.
    pub first_error: Option<Errno>,
}

/// Visits a group and all groups below it, parents first, at most `most` of them. Allocates nothing.
///
/// The visitor gets the open directory of each group. Groups that appear or go during the walk may or may not be seen.
pub fn visit(
    dir: BorrowedFd<'_>,
    most: u32,
    visitor: &mut dyn FnMut(BorrowedFd<'_>) -> ControlFlow<()>,
) -> Walk {
    let mut walk = Walk {
        groups: 0,
        complete: true,
        first_error: None,
    };
    // A directory of our own: reading entries moves the position of an open one.
    match open(dir, c".") {
        Ok(own) => {
            let _stopped = descend(own.as_fd(), DEEPEST, most, &mut walk, visitor);
        }
        Err(errno) => {
            walk.complete = false;
            walk.first_error = Some(errno);
        }
    }
    walk
}

fn descend(
    dir: BorrowedFd<'_>,
    levels: usize,
    most: u32,
    walk: &mut Walk,
    visitor: &mut dyn FnMut(BorrowedFd<'_>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    if walk.groups >= most || levels == 0 {
        walk.complete = false;
        return if levels == 0 {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        };
    }
    walk.groups += 1;
    if visitor(dir).is_break() {
        walk.complete = false;
        return ControlFlow::Break(());
    }
    if has_no_children(dir) {
        return ControlFlow::Continue(());
    }
    descend_children(dir, levels - 1, most, walk, visitor)
}

fn descend_children(
    dir: BorrowedFd<'_>,
    levels: usize,
    most: u32,
    walk: &mut Walk,
    visitor: &mut dyn FnMut(BorrowedFd<'_>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let mut entries = [MaybeUninit::uninit(); ENTRIES];
    let mut listing = RawDir::new(dir, &mut entries);
    while let Some(entry) = listing.next() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(errno) => {
                note(walk, errno);
                break;
            }
        };
        let name = entry.file_name();
        let maybe_group = matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
        if !maybe_group || name == c"." || name == c".." {
            continue;
        }
        match open(dir, name) {
            Ok(child) => descend(child.as_fd(), levels, most, walk, visitor)?,
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(errno) => note(walk, errno),
        }
    }
    ControlFlow::Continue(())
}

fn note(walk: &mut Walk, errno: Errno) {
    if !is_gone(errno) {
        walk.complete = false;
        walk.first_error.get_or_insert(errno);
    }
}

fn open(dir: BorrowedFd<'_>, name: &CStr) -> Result<std::os::fd::OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty())
}

fn has_no_children(dir: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(dir).is_ok_and(|stat| stat.st_nlink == LINKS_OF_A_LEAF)
        && rustix::fs::fstatfs(dir).is_ok_and(|found| counts_links(&found))
}

/// Whether directories of this file system have a link for each of those below.
fn counts_links(found: &StatFs) -> bool {
    let kind = u64::try_from(found.f_type).ok();
    [CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC]
        .map(Some)
        .contains(&kind)
}

/// A group and those below it, as far as they could be listed.
#[derive(Debug)]
pub struct Listing {
    /// Their paths, as `/proc/<pid>/cgroup` writes them, parents first.
    pub groups: Vec<String>,
    /// What kept the first of the others out; none where none is missing.
    pub trouble: Option<HostError>,
}

/// The paths of a group and all groups below it, as `/proc/<pid>/cgroup` writes them, parents first, at most `most`.
///
/// # Errors
/// [`HostError::TooMany`] beyond the bound; [`HostError`] with the path when a group cannot be read.
pub fn groups_below(
    hierarchy: &Hierarchy,
    group: &str,
    most: usize,
) -> Result<Vec<String>, HostError> {
    let Listing { groups, trouble } = listed_below(hierarchy, group, most);
    trouble.map_or(Ok(groups), Err)
}

/// As [`groups_below`], and what cannot be listed takes nothing else with it: beyond the bound the first ones are there, and of a
/// group that cannot be read those below it are missing.
pub fn listed_below(hierarchy: &Hierarchy, group: &str, most: usize) -> Listing {
    let mut listing = Listing {
        groups: Vec::new(),
        trouble: None,
    };
    let Some(folder) = hierarchy.folder(group) else {
        return listing;
    };
    let first = format!("/{}", group.trim_matches('/'));
    let own = first.trim_end_matches('/').to_owned();
    listing.groups.push(first);
    let counting = counting_device(&folder);
    let mut next = 0;
    while let Some(parent) = listing.groups.get(next).cloned() {
        let relative = parent
            .strip_prefix(own.as_str())
            .unwrap_or("")
            .trim_start_matches('/');
        let path = folder.join(relative);
        match children(&path, counting) {
            Ok(names) => listing.groups.extend(
                names
                    .iter()
                    .map(|name| format!("{}/{name}", parent.trim_end_matches('/'))),
            ),
            Err(source) if next > 0 && Errno::from_io_error(&source).is_some_and(is_gone) => {}
            Err(source) => {
                let trouble = HostError::Read { path, source };
                listing.trouble.get_or_insert(trouble);
            }
        }
        if listing.groups.len() > most {
            listing.groups.truncate(most);
            listing.trouble.get_or_insert(HostError::TooMany {
                path: folder,
                what: "groups",
                limit: most,
            });
            break;
        }
        next += 1;
    }
    listing
}

/// Whether a group was removed while it was read: it is gone, which is what a walk wants to know.
fn is_gone(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::NODEV)
}

/// The device of a folder whose file system counts directories by their links; none of any other.
fn counting_device(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statfs(folder).ok()?;
    let device = fs::symlink_metadata(folder).ok()?.dev();
    counts_links(&found).then_some(device)
}

/// Names of the groups directly below, sorted. A name that is not UTF-8 is shown with replacement characters. On the device
/// `counting` links are believed.
fn children(path: &Path, counting: Option<u64>) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    // To list the many files of a group costs more than all else.
    let own = fs::symlink_metadata(path)?;
    if own.nlink() == LINKS_OF_A_LEAF && Some(own.dev()) == counting {
        return Ok(names);
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::layout::Version;
    use rustix::fs::CWD;

    fn tree(groups: &[&str]) -> (tempfile::TempDir, Hierarchy) {
        let root = tempfile::tempdir().expect("temporary folder");
        for group in groups {
            fs::create_dir_all(root.path().join(group)).expect("fake group");
            fs::write(root.path().join(group).join("cgroup.procs"), "").expect("fake file");
        }
        let hierarchy = Hierarchy {
            version: Version::V2,
            path: root.path().to_owned(),
            mount_root: "/".to_owned(),
        };
        (root, hierarchy)
    }

    fn walk(root: &Path, most: u32) -> Walk {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(CWD, root, flags, Mode::empty()).expect("open");
        let first = visit(dir.as_fd(), most, &mut |_| ControlFlow::Continue(()));
        let second = visit(dir.as_fd(), most, &mut |_| ControlFlow::Continue(()));
        assert_eq!(
            first, second,
            "a walk must not use up the caller's directory"
        );
        first
    }

    #[test]
    fn every_group_is_visited_within_the_bounds() {
        let (root, hierarchy) = tree(&["a/b/c", "a/d", "e"]);
        assert_eq!(
            walk(root.path(), 100),
            Walk {
                groups: 6,
                complete: true,
                first_error: None
            }
        );
        assert_eq!(
            walk(root.path(), 6),
            Walk {
                groups: 6,
                complete: true,
                first_error: None
            }
        );
        assert_eq!(
            walk(root.path(), 4),
            Walk {
                groups: 4,
                complete: false,
                first_error: None
            }
        );
        let below = groups_below(&hierarchy, "/a", 100).expect("list");
        assert_eq!(below, ["/a", "/a/b", "/a/d", "/a/b/c"]);
        assert_eq!(groups_below(&hierarchy, "/", 100).expect("list").len(), 6);
        assert!(matches!(
            groups_below(&hierarchy, "/", 5),
            Err(HostError::TooMany { limit: 5, .. })
        ));
        assert!(matches!(
            groups_below(&hierarchy, "/none", 5),
            Err(HostError::Read { .. })
        ));
    }

    #[test]
    fn what_cannot_be_listed_takes_nothing_else_with_it() {
        let (_root, hierarchy) = tree(&["a/b/c", "a/d", "e"]);
        let listing = listed_below(&hierarchy, "/", 4);
        assert_eq!(listing.groups, ["/", "/a", "/e", "/a/b"]);
        assert!(matches!(
            listing.trouble,
            Some(HostError::TooMany { limit: 4, .. })
        ));
        let listing = listed_below(&hierarchy, "/none", 4);
        assert_eq!(listing.groups, ["/none"]);
        assert!(matches!(listing.trouble, Some(HostError::Read { .. })));
        let listing = listed_below(&hierarchy, "/a", 4);
        assert_eq!(listing.groups, ["/a", "/a/b", "/a/d", "/a/b/c"]);
        assert!(listing.trouble.is_none());
    }

    /// Root reads any folder, but nobody one whose path is longer than a call takes.
    #[test]
    fn of_a_group_that_cannot_be_read_those_below_are_missing() {
        let (root, hierarchy) = tree(&["a", "b/c"]);
        let name = "x".repeat(250);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = root.path().join("a");
        let mut folder =
            rustix::fs::openat(CWD, top.as_path(), flags, Mode::empty()).expect("open");
        for _ in 0..20 {
            rustix::fs::mkdirat(&folder, name.as_str(), Mode::RWXU).expect("fake group");
            folder =
                rustix::fs::openat(&folder, name.as_str(), flags, Mode::empty()).expect("open");
        }
        let listing = listed_below(&hierarchy, "/", 1_000);
        assert!(listing.groups.contains(&"/b/c".to_owned()));
        assert!(matches!(listing.trouble, Some(HostError::Read { .. })));
        assert!(groups_below(&hierarchy, "/", 1_000).is_err());
    }

    #[test]
    fn depth_is_bounded_and_the_rest_is_still_visited() {
        let deep = (0..DEEPEST + 5).map(|_| "x").collect::<Vec<_>>().join("/");
        let (root, _hierarchy) = tree(&[&deep, "y"]);
        let walk = walk(root.path(), 1000);
        assert_eq!(
            (walk.groups, walk.complete),
            (u32::try_from(DEEPEST).expect("small") + 1, false)
        );
    }

    #[test]
    fn only_of_cgroups_two_links_mean_that_nothing_is_below() {
        let root = tempfile::tempdir().expect("temporary folder");
        let mut found = rustix::fs::statfs(root.path()).expect("a file system");
        for (kind, expected) in [
            (CGROUP_SUPER_MAGIC, true),
            (CGROUP2_SUPER_MAGIC, true),
            // FUSE, tmpfs
            (0x6573_5546, false),
            (0x0102_1994, false),
        ] {
            found.f_type = kind.try_into().expect("a magic number");
            assert_eq!(counts_links(&found), expected, "{kind:#x}");
        }
    }

    #[test]
    fn the_visitor_can_stop() {
        let (root, _hierarchy) = tree(&["a", "b"]);
        let dir = fs::File::open(root.path()).expect("open");
        let walk = visit(dir.as_fd(), 100, &mut |_| ControlFlow::Break(()));
        assert_eq!((walk.groups, walk.complete), (1, false));
    }

    #[test]
    fn links_are_not_followed() {
        let (root, _hierarchy) = tree(&["a"]);
        std::os::unix::fs::symlink("/", root.path().join("a/everything")).expect("link");
        assert_eq!(walk(root.path(), 100).groups, 2);
    }
}
