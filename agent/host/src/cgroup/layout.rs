//! Which cgroup layout the machine has: v1, v2 or hybrid, and which mount holds the controllers Brink reads.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::cgroup::home::{Home, climbs};
use crate::cgroup::membership::normal_path;
use crate::cgroup::mounts::{Kind, Mount, choose, parse_mounts};
use crate::cgroup::partial::{Partial, partial};
use crate::error::HostError;
use crate::hot_file::read_bytes;
use crate::scan;

/// The magic numbers of `statfs` (`linux/magic.h`).
pub(super) const CGROUP_SUPER_MAGIC: u64 = 0x0027_e0eb;
pub(super) const CGROUP2_SUPER_MAGIC: u64 = 0x6367_7270;

/// The controllers Brink reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Controller {
    /// Usage, limits, statistics.
    Memory,
    /// Process counts and limits.
    Pids,
    /// Stops a whole group (v1; part of every group on v2).
    Freezer,
    /// Real-time run time of a group (v1).
    Cpu,
}

impl Controller {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Memory, Self::Pids, Self::Freezer, Self::Cpu];

    /// The kernel's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Freezer => "freezer",
            Self::Cpu => "cpu",
        }
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// The interface version of one hierarchy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// One hierarchy a controller, `memory.usage_in_bytes`.
    V1,
    /// One hierarchy for all, `memory.current`.
    V2,
}

/// The machine as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Controllers on v1, no v2 tree mounted.
    V1,
    /// Every controller on v2.
    V2,
    /// Both are mounted; each controller is on one of them.
    Hybrid,
}

/// A mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// Its version.
    pub version: Version,
    /// Where it is mounted, with the root argument in front.
    pub path: PathBuf,
    /// Which of its groups is at the mount point: `/`, unless a part of the tree was bound there. `/` too where it was mounted
    /// from above our cgroup namespace: the groups have the names of the mount then ([`Home`]).
    pub mount_root: String,
}

impl Hierarchy {
    /// The folder of a group that [`Membership`] calls `group` (`/kubepods/burstable`), if this mount shows it.
    ///
    /// [`Membership`]: crate::cgroup::membership::Membership
    pub fn folder(&self, group: &str) -> Option<PathBuf> {
        let inside = match self.mount_root.as_str() {
            "/" => group,
            bound => match group.strip_prefix(bound)? {
                rest if rest.is_empty() || rest.starts_with('/') => rest,
                _ => return None,
            },
        };
        Some(self.path.join(normal_path(inside)?))
    }

    /// Whether the file system at the mount point is the one that mountinfo says.
    pub(super) fn is_itself(&self) -> bool {
        let expected = match self.version {
            Version::V1 => CGROUP_SUPER_MAGIC,
            Version::V2 => CGROUP2_SUPER_MAGIC,
        };
        rustix::fs::statfs(&self.path)
            .is_ok_and(|found| u64::try_from(found.f_type) == Ok(expected))
    }

    /// A group and those above it up to the root, as far as this mount shows them; the group comes first. There are no more than
    /// its name has parts, and the root.
    pub fn upwards(&self, group: &str) -> Vec<String> {
        let mut names = Vec::new();
        let mut path = group.trim_matches('/');
        loop {
            let name = format!("/{path}");
            // What is above the mount nobody here can see.
            if self.folder(&name).is_none() {
                return names;
            }
            names.push(name);
            if path.is_empty() {
                return names;
            }
            let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
            path = parent.trim_end_matches('/');
        }
    }
}

/// Where the controllers are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The v2 tree, whether or not it has controllers.
    unified: Option<Hierarchy>,
    /// Where our cgroup namespace begins in it.
    home: Home,
    /// Controllers on v1 mounts.
    legacy: Vec<(Controller, Hierarchy)>,
    /// Controllers the v2 tree offers.
    offered: Vec<Controller>,
    /// Controllers switched off on the kernel's command line.
    disabled: Vec<Controller>,
}

impl Layout {
    /// Finds the layout from `proc/self/mountinfo` and `proc/cgroups` under a root.
    ///
    /// # Errors
    /// [`HostError::Unsupported`] when no cgroup file system is mounted; [`HostError::OtherNamespace`] when it is mounted from
    /// above our cgroup namespace, on v2 only if we are not found in it; [`HostError`] with the path otherwise.
    pub fn detect(root: &Path) -> Result<Self, HostError> {
        let path = root.join("proc/self/mountinfo");
        let mounts = parse_mounts(&read_bytes(&path)?);
        let at = |mount: &Mount, version| Hierarchy {
            version,
            path: root.join(mount.point.strip_prefix("/").unwrap_or(&mount.point)),
            mount_root: mount.root.clone(),
        };
        let mut unified = choose(&mounts, |mount| mount.kind == Kind::Unified)
            .map(|mount| at(mount, Version::V2));
        let legacy = Controller::ALL.into_iter().filter_map(|controller| {
            let mount = choose(&mounts, |mount| mount.kind.has(controller))?;
            Some((controller, at(mount, Version::V1)))
        });
        let legacy: Vec<_> = legacy.collect();
        if unified.is_none() && legacy.is_empty() {
            return Err(HostError::Unsupported {
                what: "control groups",
                why: format!("{} lists no cgroup file system", path.display()),
            });
        }
        let mut all = legacy.iter().map(|(_, found)| found);
        if let Some(climbing) = all.find(|found| climbs(&found.mount_root)) {
            return Err(HostError::OtherNamespace {
                path: climbing.path.clone(),
            });
        }
        let home = match &mut unified {
            Some(tree) => Home::settle(root, tree)?,
            None => Home::default(),
        };
        let offered = unified
            .as_ref()
            .map_or_else(|| Ok(Vec::new()), offered_by)?;
        Ok(Self {
            unified,
            home,
            legacy,
            offered,
            disabled: disabled_controllers(root),
        })
    }

    /// v1, v2 or both.
    pub fn mode(&self) -> Mode {
        match (&self.unified, self.legacy.is_empty()) {
            (Some(_), true) => Mode::V2,
            (Some(_), false) => Mode::Hybrid,
            (None, _) => Mode::V1,
        }
    }

    /// The v2 tree, with or without controllers.
    pub fn unified(&self) -> Option<&Hierarchy> {
        self.unified.as_ref()
    }

    /// Where our cgroup namespace begins in the v2 tree.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// The hierarchy that holds a controller. The v2 tree always has the freezer, in every group but its root.
    pub fn hierarchy(&self, controller: Controller) -> Option<&Hierarchy> {
        let legacy = self
            .legacy
            .iter()
            .find(|(held, _)| *held == controller)
            .map(|(_, hierarchy)| hierarchy);
        legacy.or_else(|| {
            let offered = controller == Controller::Freezer || self.offered.contains(&controller);
            self.unified.as_ref().filter(|_| offered)
        })
    }

    /// The same, with the reason when it is nowhere.
    ///
    /// # Errors
    /// [`HostError::Unsupported`] that says whether the controller is disabled or only not mounted.
    pub fn require(&self, controller: Controller) -> Result<&Hierarchy, HostError> {
        self.hierarchy(controller).ok_or_else(|| HostError::Unsupported {
            what: "a cgroup controller",
            why: if self.disabled.contains(&controller) {
                format!("{controller} is disabled (cgroup_disable= or cgroup_enable= on the kernel's command line)")
            } else {
                format!("{controller} is on no mounted hierarchy")
            },
        })
    }

    /// Controllers that `proc/cgroups` lists as disabled.
    pub fn disabled(&self) -> &[Controller] {
        &self.disabled
    }

    /// Mount points whose file system is not what mountinfo says: something else has been mounted over them.
    pub fn shadowed(&self) -> Vec<PathBuf> {
        let wrong = self.all().filter(|hierarchy| !hierarchy.is_itself());
        let mut paths: Vec<PathBuf> = wrong.map(|hierarchy| hierarchy.path.clone()).collect();
        paths.dedup();
        paths
    }

    /// Mounts that show a part of the machine's groups alone, as far as that can be told.
    pub fn partial(&self) -> Vec<Partial> {
        let mut found: Vec<Partial> = self.all().filter_map(partial).collect();
        found.dedup();
        found
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Hierarchy> {
        let legacy = self.legacy.iter().map(|(_, hierarchy)| hierarchy);
        legacy.chain(&self.unified)
    }
}

/// What `cgroup.controllers` of the v2 tree's root lists.
fn offered_by(unified: &Hierarchy) -> Result<Vec<Controller>, HostError> {
    let text = read_bytes(&unified.path.join("cgroup.controllers"))?;
    let offered = |controller: &Controller| {
        scan::words(&text).any(|word| word == controller.name().as_bytes())
    };
    Ok(Controller::ALL.into_iter().filter(offered).collect())
}

/// Controllers whose last column in `proc/cgroups` is 0. Linux 6.12 no longer lists v2-only controllers there, and a
/// kernel without v1 has no such file: then none is known to be disabled.
fn disabled_controllers(root: &Path) -> Vec<Controller> {
    let text = read_bytes(&root.join("proc/cgroups")).unwrap_or_default();
    let is_disabled = |controller: &Controller| {
        scan::lines(&text).any(|line| {
            let mut words = scan::words(line);
            words.next() == Some(controller.name().as_bytes()) && words.nth(2) == Some(b"0")
        })
    };
    Controller::ALL.into_iter().filter(is_disabled).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "#subsys_name\thierarchy\tnum_cgroups\tenabled\n";

    /// A fake machine: its mountinfo, the controllers of its v2 tree, its /proc/cgroups.
    fn machine(
        mountinfo: &str,
        controllers: &str,
        cgroups: &str,
    ) -> (tempfile::TempDir, Result<Layout, HostError>) {
        let root = tempfile::tempdir().expect("temporary folder");
        for (path, text) in [
            ("proc/self/mountinfo", mountinfo),
            ("proc/cgroups", cgroups),
            ("sys/fs/cgroup/cgroup.controllers", controllers),
            ("sys/fs/cgroup/unified/cgroup.controllers", controllers),
        ] {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().expect("parent")).expect("fake tree");
            std::fs::write(path, text).expect("fake file");
        }
        let layout = Layout::detect(root.path());
        (root, layout)
    }

    const V1: &str = "\
24 1 0:22 / /proc rw - proc proc rw
30 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
31 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
32 30 0:30 / /sys/fs/cgroup/memory rw,relatime shared:10 master:2 - cgroup cgroup rw,memory
33 30 0:31 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
34 30 0:32 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
";
    const UNIFIED: &str = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
    const V2: &str = "30 23 0:28 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n";

    #[test]
    fn the_three_modes_are_told_apart() {
        fn check(mountinfo: &str, controllers: &str, mode: Mode, memory: (Version, &str)) {
            let (root, layout) = machine(mountinfo, controllers, HEADER);
            let layout = layout.expect("a layout");
            assert_eq!(layout.mode(), mode);
            let hierarchy = layout.require(Controller::Memory).expect("memory");
            assert_eq!(
                (hierarchy.version, hierarchy.path.as_path()),
                (memory.0, root.path().join(memory.1).as_path())
            );
        }
        check(V1, "", Mode::V1, (Version::V1, "sys/fs/cgroup/memory"));
        check(
            V2,
            "cpuset cpu io memory pids\n",
            Mode::V2,
            (Version::V2, "sys/fs/cgroup"),
        );
        check(
            &format!("{V1}{UNIFIED}"),
            "hugetlb\n",
            Mode::Hybrid,
            (Version::V1, "sys/fs/cgroup/memory"),
        );
        let kept: Vec<&str> = V1
            .lines()
            .filter(|line| !line.ends_with("memory"))
            .collect();
        let without_memory = kept.join("\n") + "\n";
        check(
            &format!("{without_memory}{UNIFIED}"),
            "memory\n",
            Mode::Hybrid,
            (Version::V2, "sys/fs/cgroup/unified"),
        );
    }

    #[test]
    fn controllers_mounted_together_share_a_path_and_v2_always_has_a_freezer() {
        let (root, layout) = machine(V1, "", HEADER);
        let layout = layout.expect("a layout");
        assert_eq!(
            layout
                .hierarchy(Controller::Cpu)
                .map(|cpu| cpu.path.clone()),
            Some(root.path().join("sys/fs/cgroup/cpu,cpuacct"))
        );
        let (_root, layout) = machine(V2, "memory\n", HEADER);
        let layout = layout.expect("a layout");
        assert_eq!(
            layout
                .hierarchy(Controller::Freezer)
                .map(|freezer| freezer.version),
            Some(Version::V2)
        );
        assert_eq!(layout.hierarchy(Controller::Pids), None);
    }

    #[test]
    fn a_missing_controller_is_explained() {
        let cgroups = format!("{HEADER}memory\t0\t1\t0\npids\t8\t1\t1\n");
        let (_root, layout) = machine(V2, "pids\n", &cgroups);
        let layout = layout.expect("a layout");
        assert_eq!(layout.disabled(), [Controller::Memory]);
        let message = |controller| {
            layout
                .require(controller)
                .expect_err("not there")
                .to_string()
        };
        assert!(
            message(Controller::Memory).contains("memory is disabled"),
            "{}",
            message(Controller::Memory)
        );
        assert!(
            message(Controller::Cpu).contains("cpu is on no mounted hierarchy"),
            "{}",
            message(Controller::Cpu)
        );
    }

    #[test]
    fn a_machine_without_cgroups_is_unsupported() {
        let (_root, layout) = machine("24 1 0:22 / /proc rw - proc proc rw\n", "", HEADER);
        assert!(
            matches!(layout, Err(HostError::Unsupported { .. })),
            "{layout:?}"
        );
    }

    #[test]
    fn a_tree_of_version_one_from_above_our_namespace_is_refused_with_what_to_do() {
        // As a container sees the machine's groups that was given a namespace of its own.
        let above = V1.replace(
            " / /sys/fs/cgroup/memory",
            " /../../.. /sys/fs/cgroup/memory",
        );
        let (root, layout) = machine(&above, "", HEADER);
        let error = layout.expect_err("no groups by these names").to_string();
        let path = root.path().join("sys/fs/cgroup/memory");
        assert!(error.contains(&path.display().to_string()), "{error}");
        assert!(error.contains("privileged"), "{error}");
    }

    #[test]
    fn our_own_part_of_a_tree_goes_before_one_from_above_our_namespace() {
        let above = V2.replace(" / /sys", " /../../.. /sys");
        let (root, _) = machine(&above, "memory\n", HEADER);
        let own = "51 30 0:28 / /own rw - cgroup2 cgroup2 rw\n";
        std::fs::create_dir(root.path().join("own")).expect("fake tree");
        std::fs::write(root.path().join("own/cgroup.controllers"), "memory\n").expect("fake file");
        std::fs::write(root.path().join("proc/self/mountinfo"), above + own).expect("fake file");
        let layout = Layout::detect(root.path()).expect("our own part");
        assert_eq!(
            layout.unified().expect("a tree").path,
            root.path().join("own")
        );
    }

    #[test]
    fn a_bound_part_of_the_tree_is_used_only_without_a_whole_one() {
        let bound = "50 30 0:30 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let (root, layout) = machine(&format!("{bound}{V1}"), "", HEADER);
        assert_eq!(
            layout
                .expect("a layout")
                .require(Controller::Memory)
                .expect("memory")
                .mount_root,
            "/"
        );
        let (_other, layout) = machine(bound, "", HEADER);
        let layout = layout.expect("a layout");
        let memory = layout.require(Controller::Memory).expect("memory");
        assert_eq!(
            memory
                .folder("/docker/abc/x")
                .map(|path| path.ends_with("sys/fs/cgroup/memory/x")),
            Some(true)
        );
        assert_eq!(memory.folder("/docker/abcd"), None);
        assert_eq!(memory.folder("/other"), None);
        assert_eq!(memory.upwards("/docker/abc/x/y").len(), 3);
        assert_eq!(memory.upwards("/docker/abc"), ["/docker/abc"]);
        assert!(memory.upwards("/other").is_empty());
        drop(root);
    }

    #[test]
    fn the_way_up_ends_at_the_root() {
        let whole = Hierarchy {
            version: Version::V2,
            path: "/sys/fs/cgroup".into(),
            mount_root: "/".to_owned(),
        };
        for group in ["/a/b", "/a/b/", "a/b"] {
            assert_eq!(whole.upwards(group), ["/a/b", "/a", "/"], "{group}");
        }
        assert_eq!(whole.upwards("/a//b"), ["/a//b", "/a", "/"]);
        assert_eq!(whole.upwards("/"), ["/"]);
        assert!(whole.upwards("/../a").is_empty(), "it climbs out");
    }

    #[test]
    fn a_fake_tree_is_seen_as_shadowed() {
        let (root, layout) = machine(V2, "memory\n", HEADER);
        assert_eq!(
            layout.expect("a layout").shadowed(),
            [root.path().join("sys/fs/cgroup")]
        );
        assert_eq!(
            Layout::detect(Path::new("/"))
                .expect("this machine")
                .shadowed(),
            Vec::<PathBuf>::new()
        );
    }
}
