//! Which groups a process is in: /proc/&lt;pid&gt;/cgroup.

use std::path::{Component, Path, PathBuf};

use crate::cgroup::home::{Home, climbs};
use crate::cgroup::layout::{Controller, Layout, Version};
use crate::error::HostError;
use crate::hot_file::read_bytes;
use crate::scan;

/// The groups of one process, one a hierarchy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Membership {
    unified: Option<String>,
    legacy: Vec<(Vec<String>, String)>,
}

impl Membership {
    /// Reads the groups of a process (`"self"` for our own) under a root, by the names they have below the mount.
    ///
    /// # Errors
    /// [`HostError`] with the path; the process may have gone.
    pub fn read(root: &Path, home: &Home, process: &str) -> Result<Self, HostError> {
        let path = root.join("proc").join(process).join("cgroup");
        Ok(Self::parse(&read_bytes(&path)?).seen_from(home))
    }

    /// The same by the names they have below the mount, where our cgroup namespace begins at `home`. The v2 group is none if the
    /// mount does not show it.
    #[must_use]
    pub fn seen_from(mut self, home: &Home) -> Self {
        let shown = self.unified.take();
        self.unified = shown.and_then(|shown| home.name(&shown));
        self
    }

    /// Understands lines like `4:memory:/a/b` and `0::/a/b`, and leaves the names as they are. A removed group has ` (deleted)`
    /// behind its path.
    pub fn parse(text: &[u8]) -> Self {
        let mut membership = Self::default();
        for line in scan::lines(text) {
            let mut parts = line
                .splitn(3, |byte| *byte == b':')
                .map(String::from_utf8_lossy);
            let (Some(number), Some(names), Some(path)) =
                (parts.next(), parts.next(), parts.next())
            else {
                continue;
            };
            let path = path.into_owned();
            if number == "0" && names.is_empty() {
                membership.unified = Some(path);
            } else {
                membership
                    .legacy
                    .push((names.split(',').map(str::to_owned).collect(), path));
            }
        }
        membership
    }

    /// The group in the v2 tree.
    pub fn unified(&self) -> Option<&str> {
        self.unified.as_deref()
    }

    /// The group in the v1 hierarchy of a controller, or of a named one (`name=systemd`).
    pub fn legacy(&self, name: &str) -> Option<&str> {
        let held = self
            .legacy
            .iter()
            .find(|(names, _)| names.iter().any(|held| held == name));
        held.map(|(_, path)| path.as_str())
    }

    /// The group as the controller's hierarchy of a layout names it.
    pub fn of(&self, layout: &Layout, controller: Controller) -> Option<&str> {
        match layout.hierarchy(controller)?.version {
            Version::V1 => self.legacy(controller.name()),
            Version::V2 => self.unified(),
        }
    }

    /// The group systemd tracks the process by: of its own v1 hierarchy, or of the v2 tree.
    pub fn service(&self) -> Option<&str> {
        let named = self.legacy("name=systemd");
        let named = named.filter(|path| *path != "/" && !climbs(path));
        named.or(self.unified())
    }
}

/// A group path as a path relative to a mount point: no leading `/`, and nothing that climbs out of it.
pub(crate) fn normal_path(group: &str) -> Option<PathBuf> {
    let mut relative = PathBuf::new();
    for component in Path::new(group).components() {
        match component {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => relative.push(name),
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    Some(relative)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_hierarchy_has_its_own_path() {
        let text =
            b"9:name=systemd:/system.slice/a.service\n4:memory:/x/y:z\n2:cpu,cpuacct:/c\n0::/u\n";
        let membership = Membership::parse(text);
        assert_eq!(membership.legacy("memory"), Some("/x/y:z"));
        assert_eq!(membership.legacy("cpu"), Some("/c"));
        assert_eq!(membership.legacy("cpuset"), None);
        assert_eq!(membership.unified(), Some("/u"));
        assert_eq!(membership.service(), Some("/system.slice/a.service"));
        assert_eq!(
            Membership::parse(b"0::/init.scope\n").service(),
            Some("/init.scope")
        );
        let outside = b"1:name=systemd:/../x\n0::/u\n";
        assert_eq!(Membership::parse(outside).service(), Some("/u"));
    }

    #[test]
    fn nothing_climbs_out_of_a_mount() {
        fn check(group: &str, expected: Option<&str>) {
            assert_eq!(normal_path(group), expected.map(PathBuf::from), "{group:?}");
        }
        check("/", Some(""));
        check("/a//b/./c/", Some("a/b/c"));
        check("/../a", None);
        check("a/../../b", None);
    }

    #[test]
    fn we_are_somewhere() {
        let layout = Layout::detect(Path::new("/")).expect("this machine");
        let own = Membership::read(Path::new("/"), layout.home(), "self").expect("our own groups");
        assert!(
            own.of(&layout, Controller::Memory)
                .is_some_and(|path| path.starts_with('/')),
            "{own:?}"
        );
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            Membership::parse(&text);
        }
    }
}
