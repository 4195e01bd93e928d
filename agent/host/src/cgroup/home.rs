//! Where our cgroup namespace begins, and so what the groups outside of it are called.
//!
//! In a namespace the kernel names every group by the way from the namespace's root: `/` is that root, and `/../b` the group `b`
//! beside it. Of a v2 tree that is mounted from further up it says how far that is (`/../../..`), and what the groups on the way
//! are called it says nowhere. But one group so far below the mount lists us, and it is the only one: a process is in one group.
//!
//! On v1 nobody is given such a namespace but who asks for it, so that is not looked for there.

use std::path::Path;

use crate::cgroup::layout::Hierarchy;
use crate::cgroup::membership::Membership;
use crate::cgroup::pids::processes_at;
use crate::cgroup::walk::{Listing, listed_below};
use crate::error::HostError;
use crate::hot_file::read_bytes;

/// More groups than this are not gone through.
const MOST_GROUPS: usize = 65_536;

/// The root of our cgroup namespace in the v2 tree; the default is that the names are those of the mount.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Home {
    /// Its path below the mount, where that shows the tree from further up.
    path: Option<String>,
}

impl Home {
    /// Its path below the mount, where the namespace is not that of the mount.
    pub fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// What a group is called below the mount that the kernel calls `shown` to us; none where the mount does not show it.
    pub fn name(&self, shown: &str) -> Option<String> {
        let Some(home) = &self.path else {
            return Some(shown.to_owned());
        };
        let mut names: Vec<&str> = parts(home).collect();
        for part in parts(shown) {
            if part == ".." {
                names.pop()?;
            } else {
                names.push(part);
            }
        }
        Some(format!("/{}", names.join("/")))
    }

    /// Looks for it in a v2 tree that is mounted under a root. One that is mounted from above our namespace has the names of its mount
    /// from then on.
    ///
    /// # Errors
    /// [`HostError::OtherNamespace`] when we are not in what is mounted, [`HostError`] with the path when it cannot be read.
    pub(super) fn settle(root: &Path, tree: &mut Hierarchy) -> Result<Self, HostError> {
        if !climbs(&tree.mount_root) {
            return Ok(Self::default());
        }
        let is_above = parts(&tree.mount_root).all(|part| part == "..");
        let levels = parts(&tree.mount_root).count();
        "/".clone_into(&mut tree.mount_root);
        let tree: &Hierarchy = tree;
        let elsewhere = || HostError::OtherNamespace {
            path: tree.path.clone(),
        };
        let groups = Membership::parse(&read_bytes(&root.join("proc/self/cgroup"))?);
        let below = groups.unified().filter(|path| is_above && !climbs(path));
        let below = below.ok_or_else(elsewhere)?.trim_end_matches('/');
        let depth = levels + parts(below).count();
        let own = i32::try_from(std::process::id()).unwrap_or(i32::MAX);
        let is_ours = |group: &str| {
            let listed = tree.folder(group).map(|folder| processes_at(&folder));
            listed.is_some_and(|pids| pids.is_ok_and(|pids| pids.contains(&own)))
        };
        let Listing { groups, trouble } = listed_below(tree, "/", MOST_GROUPS);
        let found = groups.iter().find_map(|group| {
            let home = group.strip_suffix(below)?;
            (parts(group).count() == depth && is_ours(group)).then(|| home.to_owned())
        });
        match found {
            Some(path) => Ok(Self { path: Some(path) }),
            None => Err(trouble.unwrap_or_else(elsewhere)),
        }
    }
}

/// Whether a path leads up from the root of our namespace.
pub(super) fn climbs(path: &str) -> bool {
    parts(path).next() == Some("..")
}

fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::layout::Layout;
    use proptest::prelude::*;

    /// A v2 tree with these groups, mounted as `mount`, of which `ours` lists us; `shown` is what the kernel calls that.
    fn settled(mount: &str, shown: &str, ours: &str) -> Result<Layout, HostError> {
        let root = tempfile::tempdir().expect("temporary folder");
        let tree = root.path().join("sys/fs/cgroup");
        for group in ["", "a", "a/b", "a/b/sub", "a/c", "d", "d/b"] {
            let folder = tree.join(group);
            std::fs::create_dir_all(&folder).expect("fake group");
            let own = std::process::id();
            let listed = if group == ours {
                format!("0\n{own}\n")
            } else {
                "1\n".to_owned()
            };
            std::fs::write(folder.join("cgroup.procs"), listed).expect("fake file");
        }
        std::fs::write(tree.join("cgroup.controllers"), "memory\n").expect("fake file");
        let own = root.path().join("proc/self");
        std::fs::create_dir_all(&own).expect("fake folder");
        let mounts = format!("30 23 0:28 {mount} /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        std::fs::write(own.join("mountinfo"), mounts).expect("fake file");
        std::fs::write(own.join("cgroup"), format!("0::{shown}\n")).expect("fake file");
        Layout::detect(root.path())
    }

    #[test]
    fn the_group_that_lists_us_says_what_all_others_are_called() {
        for (shown, ours) in [("/", "a/b"), ("/sub", "a/b/sub")] {
            let layout = settled("/../..", shown, ours).expect("we are in it");
            let home = layout.home();
            assert_eq!(home.path(), Some("/a/b"), "{shown}");
            for (shown, expected) in [
                ("/", Some("/a/b")),
                ("/x", Some("/a/b/x")),
                ("/../c", Some("/a/c")),
                ("/../c (deleted)", Some("/a/c (deleted)")),
                ("/../..", Some("/")),
                ("/../../d/b", Some("/d/b")),
                ("/../../..", None),
                ("/../../../d", None),
            ] {
                assert_eq!(home.name(shown).as_deref(), expected, "{shown}");
            }
            let tree = layout.unified().expect("a tree");
            assert!(
                tree.folder("/d/b")
                    .is_some_and(|folder| folder.ends_with("d/b"))
            );
            assert_eq!(tree.upwards("/a/b"), ["/a/b", "/a", "/"]);
        }
    }

    #[test]
    fn a_mount_from_our_own_root_has_the_names_that_the_kernel_tells() {
        let layout = settled("/", "/a/b", "a/b").expect("a layout");
        assert_eq!(layout.home(), &Home::default());
        assert_eq!(layout.home().name("/../x").as_deref(), Some("/../x"));
    }

    #[test]
    fn a_tree_in_which_we_are_not_is_refused_with_what_to_do() {
        fn check(mount: &str, shown: &str, ours: &str) {
            let error = settled(mount, shown, ours).expect_err("no names for the groups of others");
            assert!(matches!(error, HostError::OtherNamespace { .. }), "{error}");
            let error = error.to_string();
            assert!(error.contains("sys/fs/cgroup"), "{error}");
            assert!(error.contains("privileged"), "{error}");
        }
        // Nobody lists us, or one at another depth.
        check("/../..", "/", "nowhere");
        check("/../..", "/", "a");
        check("/../..", "/", "");
        check("/..", "/", "a/b");
        check("/../..", "/sub", "a/b");
        // What is mounted is beside us.
        check("/../d", "/", "a/b");
        // We have been moved out of our namespace.
        check("/../..", "/../c", "a/c");
    }

    proptest! {
        #[test]
        fn a_name_is_the_group_that_the_kernel_named_by_the_way_to_it(
            home in proptest::collection::vec("[ab]", 1..5),
            group in proptest::collection::vec("[ab]", 0..6),
        ) {
            let shared = home.iter().zip(&group).take_while(|(one, other)| one == other).count();
            let mut way = vec![".."; home.len() - shared];
            way.extend(group[shared..].iter().map(String::as_str));
            let home = Home { path: Some(format!("/{}", home.join("/"))) };
            let shown = format!("/{}", way.join("/"));
            prop_assert_eq!(home.name(&shown), Some(format!("/{}", group.join("/"))));
        }

        #[test]
        fn garbage_never_panics(shown in ".{0,80}") {
            let home = Home { path: Some("/a/b".to_owned()) };
            let _ = home.name(&shown);
        }
    }
}
