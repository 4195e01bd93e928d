//! Whether a mount shows the machine's whole tree of groups, or one group of it and what is below.

use std::fmt;
use std::path::PathBuf;

use crate::cgroup::layout::{Hierarchy, Version};

/// A mount that shows a part of the machine's groups alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partial {
    /// Where it is mounted, with the root argument in front.
    pub path: PathBuf,
    /// Which group is there; none where it has no name, as it is the root of a cgroup namespace.
    pub group: Option<String>,
}

impl fmt::Display for Partial {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.group {
            Some(group) => write!(out, "{path} shows the group {group} alone"),
            None => write!(out, "{path} shows a group below the machine's root alone"),
        }
    }
}

/// What a hierarchy shows, if that is not the whole tree; none too where nothing tells.
///
/// A group can be bound somewhere as any folder can, and mountinfo tells which it is. What is mounted inside of a cgroup namespace begins
/// at the root of that, and there mountinfo calls it `/` as if it were the machine's. But some files the kernel has in every group
/// except the machine's root, and others in that root alone.
pub(super) fn partial(hierarchy: &Hierarchy) -> Option<Partial> {
    let group = (hierarchy.mount_root != "/").then(|| hierarchy.mount_root.clone());
    (group.is_some() || is_below_root(hierarchy)).then(|| Partial {
        path: hierarchy.path.clone(),
        group,
    })
}

/// Whether the group at the mount point is certainly not the machine's root.
fn is_below_root(hierarchy: &Hierarchy) -> bool {
    let has = |name: &str| hierarchy.path.join(name).try_exists();
    match hierarchy.version {
        Version::V2 => has("cgroup.type").is_ok_and(|is_there| is_there),
        // The root alone has them, so they are looked for in nothing that only imitates groups, as lxcfs does.
        Version::V1 => {
            let lacks = |name| has(name).is_ok_and(|is_there| !is_there);
            hierarchy.is_itself() && lacks("cgroup.sane_behavior") && lacks("release_agent")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::cgroup::layout::Layout;

    const V2: &str = "30 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";

    /// A machine with these mounts; `files` are at the mount point of its v2 tree.
    fn shown(mounts: &str, files: &[&str]) -> Vec<(String, Option<String>)> {
        let root = tempfile::tempdir().expect("temporary folder");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("parent")).expect("fake folder");
            fs::write(path, text).expect("fake file");
        };
        let own = std::process::id();
        write("proc/self/mountinfo", mounts);
        write("proc/self/cgroup", "0::/\n");
        write("sys/fs/cgroup/cgroup.controllers", "memory\n");
        write("sys/fs/cgroup/own/cgroup.procs", &format!("{own}\n"));
        for file in files {
            write(&format!("sys/fs/cgroup/{file}"), "domain\n");
        }
        let layout = Layout::detect(root.path()).expect("a layout");
        let point = |partial: &Partial| {
            let below = partial.path.strip_prefix(root.path());
            below.expect("under the root").display().to_string()
        };
        let found = layout.partial().into_iter();
        found
            .map(|partial| (point(&partial), partial.group))
            .collect()
    }

    #[test]
    fn a_whole_tree_is_told_from_a_part_of_it() {
        let place = "sys/fs/cgroup".to_owned();
        let bound = V2.replace(" / /sys", " /docker/abc /sys");
        let above = V2.replace(" / /sys", " /.. /sys");
        assert!(shown(V2, &[]).is_empty());
        assert_eq!(shown(V2, &["cgroup.type"]), [(place.clone(), None)]);
        let group = Some("/docker/abc".to_owned());
        let expected = [(place.clone(), group)];
        assert_eq!(shown(&bound, &["cgroup.type"]), expected);
        assert_eq!(shown(&bound, &[]), expected, "the name tells enough");
        // From a namespace of our own, with the machine's groups, or those of a container that we are nested in.
        assert!(shown(&above, &[]).is_empty());
        assert_eq!(shown(&above, &["cgroup.type"]), [(place, None)]);
    }

    #[test]
    fn controllers_of_one_mount_are_told_of_once() {
        let point = "sys/fs/cgroup/both";
        let mounts = format!("31 30 0:29 /docker/abc /{point} rw - cgroup cgroup rw,memory,pids\n");
        let group = Some("/docker/abc".to_owned());
        assert_eq!(shown(&mounts, &[]), [(point.to_owned(), group)]);
        // Files in a folder are no groups: what they lack says nothing.
        let whole = mounts.replace("/docker/abc", "/");
        assert!(shown(&whole, &[]).is_empty());
    }

    #[test]
    fn a_real_group_is_a_part_where_it_is_mounted_by_itself() {
        let layout = Layout::detect(Path::new("/")).expect("this machine");
        // Groups are made by whoever starts processes: every machine has some.
        let (whole, folder) = layout
            .all()
            .find_map(|whole| {
                let entries = fs::read_dir(&whole.path).ok()?;
                let mut groups = entries.flatten().map(|entry| entry.path());
                Some((whole, groups.find(|path| path.is_dir())?))
            })
            .expect("a group below a root");
        let alone = Hierarchy {
            path: folder.clone(),
            mount_root: "/".to_owned(),
            ..whole.clone()
        };
        let expected = Partial {
            path: folder,
            group: None,
        };
        assert_eq!(partial(&alone), Some(expected));
    }
}
