//! What a group may still swap out: its own limit of swap and those of the groups above it, less what they use.

use std::path::Path;

use crate::cgroup::dir::CgroupDir;
use crate::cgroup::layout::{Hierarchy, Version};
use crate::error::{HostError, HotError};
use crate::hot_file::{HotFile, read_bytes};
use crate::scan;

/// The limits of swap of a group and of every group above it that this mount shows, with their usage held open.
///
/// v2 limits swap by itself (`memory.swap.max`). v1 limits memory and swap together (`memory.memsw.limit_in_bytes`), so
/// swap adds what that limit leaves beyond what the group's own memory limit leaves. Where the kernel does not account
/// for swap there is no such limit. Reclaim for a group's limit writes nothing to swap when the swappiness is 0
/// (`memory.swappiness` on v1, `vm.swappiness` on v2): such a group can use none, whatever is free.
#[derive(Debug)]
pub struct SwapRoomReader {
    version: Version,
    swaps: bool,
    levels: Vec<Level>,
}

/// One group that has a limit.
#[derive(Debug)]
struct Level {
    limit: u64,
    usage: HotFile,
}

impl SwapRoomReader {
    /// Opens the limits of a group and of those above it, and reads the swappiness under `root`. One that cannot be
    /// read is taken for the kernel's default, which swaps.
    ///
    /// # Errors
    /// [`HostError`] with the path.
    pub fn open(root: &Path, hierarchy: &Hierarchy, group: &str) -> Result<Self, HostError> {
        let mut levels = Vec::new();
        for name in hierarchy.upwards(group) {
            levels.extend(Level::open(&CgroupDir::open(hierarchy, &name)?)?);
        }
        Ok(Self {
            version: hierarchy.version,
            swaps: swappiness(root, hierarchy, group) != Some(0),
            levels,
        })
    }

    /// What the group may still swap out beside what it may still use of its memory limit, `unused`, in bytes; none
    /// without any limit of swap. Allocates nothing.
    ///
    /// # Errors
    /// [`HotError`].
    pub fn read(&self, unused: u64) -> Result<Option<u64>, HotError> {
        if !self.swaps {
            return Ok(Some(0));
        }
        let mut room: Option<u64> = None;
        for level in &self.levels {
            let left = level.left()?;
            let left = match self.version {
                Version::V1 => left.saturating_sub(unused),
                Version::V2 => left,
            };
            room = Some(room.map_or(left, |room| room.min(left)));
        }
        Ok(room)
    }
}

impl Level {
    /// None where the group has no limit, or the kernel does not account for swap.
    fn open(dir: &CgroupDir) -> Result<Option<Self>, HostError> {
        let (limit, usage) = match dir.version() {
            Version::V1 => (
                c"memory.memsw.limit_in_bytes",
                c"memory.memsw.usage_in_bytes",
            ),
            Version::V2 => (c"memory.swap.max", c"memory.swap.current"),
        };
        let limit = match dir.limit(limit) {
            Err(error) if error.errno() == Some(libc::ENOENT) => return Ok(None),
            answer => answer?.value(),
        };
        let level = |limit| {
            Ok(Self {
                limit,
                usage: dir.file(usage)?,
            })
        };
        limit.map(level).transpose()
    }

    fn left(&self) -> Result<u64, HotError> {
        if self.limit == 0 {
            return Ok(0);
        }
        let mut buffer = [0; 32];
        let usage = scan::lone_number(self.usage.read_record(&mut buffer)?);
        let usage = usage.ok_or(HotError::Malformed("usage of swap"))?;
        Ok(self.limit.saturating_sub(usage))
    }
}

fn swappiness(root: &Path, hierarchy: &Hierarchy, group: &str) -> Option<u64> {
    let file = match hierarchy.version {
        Version::V1 => hierarchy.folder(group)?.join("memory.swappiness"),
        Version::V2 => root.join("proc/sys/vm/swappiness"),
    };
    scan::lone_number(&read_bytes(&file).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of `/`, `/a` and `/a/b`, by their path below the mount.
    fn room(version: Version, files: &[(&str, &str)], unused: u64) -> Option<u64> {
        let root = tempfile::tempdir().expect("temporary folder");
        let mount = root.path().join("mount");
        std::fs::create_dir_all(mount.join("a/b")).expect("fake groups");
        std::fs::create_dir_all(root.path().join("proc/sys/vm")).expect("fake proc");
        for (name, text) in files {
            let folder = if name.starts_with("proc/") {
                root.path()
            } else {
                &mount
            };
            std::fs::write(folder.join(name), text).expect("fake file");
        }
        let hierarchy = Hierarchy {
            version,
            path: mount,
            mount_root: "/".to_owned(),
        };
        let reader = SwapRoomReader::open(root.path(), &hierarchy, "/a/b").expect("readable");
        reader.read(unused).expect("readable")
    }

    #[test]
    fn v2_counts_each_limit_of_swap_up_to_the_root() {
        fn check(files: &[(&str, &str)], expected: Option<u64>) {
            assert_eq!(room(Version::V2, files, 999), expected, "{files:?}");
        }
        check(&[], None);
        check(&[("a/b/memory.swap.max", "max\n")], None);
        // No usage is read where nothing may be used, but the kernel has both files or none.
        check(
            &[
                ("a/b/memory.swap.max", "0\n"),
                ("a/b/memory.swap.current", "0\n"),
            ],
            Some(0),
        );
        let own = [
            ("a/b/memory.swap.max", "100\n"),
            ("a/b/memory.swap.current", "30\n"),
        ];
        check(&own, Some(70));
        let mut both = own.to_vec();
        both.extend([
            ("a/memory.swap.max", "90\n"),
            ("a/memory.swap.current", "80\n"),
        ]);
        check(&both, Some(10));
        let mut over = own.to_vec();
        over[1].1 = "130\n";
        check(&over, Some(0));
    }

    #[test]
    fn v1_counts_what_memory_and_swap_together_leave_beyond_memory() {
        let files = [
            ("a/b/memory.memsw.limit_in_bytes", "150\n"),
            ("a/b/memory.memsw.usage_in_bytes", "110\n"),
        ];
        // A limit of 100 with 80 in use and 30 swapped out: 20 more of swap, and 20 more of memory.
        assert_eq!(room(Version::V1, &files, 20), Some(20));
        assert_eq!(room(Version::V1, &files, 40), Some(0));
        assert_eq!(room(Version::V1, &files, 100), Some(0));
        assert_eq!(
            room(
                Version::V1,
                &[("a/memory.memsw.limit_in_bytes", "9223372036854771712\n")],
                0
            ),
            None
        );
        assert_eq!(room(Version::V1, &[], 0), None, "no swap accounting");
    }

    #[test]
    fn a_group_that_is_never_swapped_can_use_none() {
        fn check(version: Version, file: &str, text: &str, expected: Option<u64>) {
            assert_eq!(
                room(version, &[(file, text)], 0),
                expected,
                "{file} {text:?}"
            );
        }
        check(Version::V1, "a/b/memory.swappiness", "0\n", Some(0));
        check(Version::V1, "a/b/memory.swappiness", "60\n", None);
        check(Version::V1, "proc/sys/vm/swappiness", "0\n", None);
        check(Version::V2, "proc/sys/vm/swappiness", "0\n", Some(0));
        check(Version::V2, "proc/sys/vm/swappiness", "60\n", None);
    }
}
