//! What the cgroups of a kubelet's pod are: containers, which an eviction kills, and everything else, which it leaves alone.
//!
//! A cgroup directly below the pod's is a container if its name has an id that the pod's status knows, or that the runtime's
//! own processes call a container. One that they call a sandbox is one. Where they say nothing, a cgroup is the sandbox if
//! it alone holds one process `pause` and nothing else; and in a pod whose sandbox is known and alive every other container's
//! name is a container's, newer than the status. Whatever is left is nobody's that is known, and is not killed.

use std::collections::HashMap;
use std::path::Path;

use brink_host::cgroup::Home;
use brink_host::cgroup::layout::Hierarchy;
use brink_host::cgroup::pids::processes_at;
use brink_host::cgroup::pod::PodMember;
use brink_host::process::command_name;
use brink_host::process::wards::{Ward, wards};

/// The command of a sandbox, in every image that is used for one.
const PAUSE: &str = "pause";

/// What was found out of cgroups with a container's name, by their paths: the ids in those are never given twice.
pub type Judged = HashMap<String, Ward>;

/// The cgroups directly below a pod's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Its containers.
    pub containers: Vec<String>,
    /// Its sandboxes; a second one is made when the first has ended.
    pub sandboxes: Vec<String>,
    /// Others in which somebody runs.
    pub unknown: Vec<String>,
}

/// One look at all pods.
pub struct Judge<'a> {
    root: &'a Path,
    hierarchy: &'a Hierarchy,
    home: &'a Home,
    before: &'a Judged,
    /// What this look has found out, or knew.
    pub now: Judged,
    /// What the runtimes' processes say; read once it is needed.
    wards: Option<HashMap<String, Ward>>,
    /// One sentence for what could not be read.
    pub troubles: Vec<String>,
}

/// Who runs in a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inside {
    Nobody,
    Pause,
    Others,
}

impl<'a> Judge<'a> {
    /// A look at what is under a root, with what earlier ones have found out; processes name their groups from `home`.
    pub fn new(
        root: &'a Path,
        (hierarchy, home): (&'a Hierarchy, &'a Home),
        before: &'a Judged,
    ) -> Self {
        Self {
            root,
            hierarchy,
            home,
            before,
            now: Judged::new(),
            wards: None,
            troubles: Vec::new(),
        }
    }

    /// The parts of a pod: its own cgroup and all below it in `family`, the containers known by status in `ids`.
    pub fn pod(&mut self, family: &[&str], ids: &[String]) -> Parts {
        let mut parts = Parts::default();
        let Some((&pod, below)) = family.split_first() else {
            return parts;
        };
        let mut open: Vec<(&str, String)> = Vec::new();
        for &path in below.iter().filter(|path| is_child(pod, path)) {
            let name = path.rsplit('/').next().unwrap_or_default();
            match PodMember::of(name) {
                PodMember::Container(id) => match self.known(path, &id, ids) {
                    Some(ward) => self.settle(&mut parts, path, ward),
                    None => open.push((path, id)),
                },
                PodMember::Monitor(_) => {}
                PodMember::Other(_) => parts.unknown.push(path.to_owned()),
            }
        }
        self.settle_by_runtime(&mut parts, &mut open);
        self.settle_by_sandbox(&mut parts, &mut open, family);
        parts
            .unknown
            .extend(open.iter().map(|(path, _)| (*path).to_owned()));
        let is_used = |path: &String| self.inside(&[path.as_str()], family) != Inside::Nobody;
        parts.unknown.retain(is_used);
        if self.lives_in(pod) {
            parts.unknown.push(pod.to_owned());
        }
        parts
    }

    fn known(&self, path: &str, id: &str, ids: &[String]) -> Option<Ward> {
        let is_listed = ids.iter().any(|listed| listed == id);
        let listed = is_listed.then_some(Ward::Container);
        listed.or_else(|| self.before.get(path).copied())
    }

    fn settle(&mut self, parts: &mut Parts, path: &str, ward: Ward) {
        self.now.insert(path.to_owned(), ward);
        let list = match ward {
            Ward::Container => &mut parts.containers,
            Ward::Sandbox => &mut parts.sandboxes,
        };
        list.push(path.to_owned());
    }

    fn settle_by_runtime(&mut self, parts: &mut Parts, open: &mut Vec<(&str, String)>) {
        if open.is_empty() {
            return;
        }
        let said = self.wards();
        let found: Vec<Option<Ward>> = open.iter().map(|(_, id)| said.get(id).copied()).collect();
        let mut found = found.into_iter();
        open.retain(|(path, _)| match found.next().flatten() {
            Some(ward) => {
                self.settle(parts, path, ward);
                false
            }
            None => true,
        });
    }

    fn wards(&mut self) -> &HashMap<String, Ward> {
        let (root, home, troubles) = (self.root, self.home, &mut self.troubles);
        self.wards.get_or_insert_with(|| {
            wards(root, home).unwrap_or_else(|error| {
                troubles.push(format!(
                    "{error}: what the container runtime says of sandboxes is not known"
                ));
                HashMap::new()
            })
        })
    }

    fn settle_by_sandbox(
        &mut self,
        parts: &mut Parts,
        open: &mut Vec<(&str, String)>,
        family: &[&str],
    ) {
        if open.is_empty() {
            return;
        }
        if parts.sandboxes.is_empty() {
            let is_pause = |path: &&str| self.inside(&[path], family) == Inside::Pause;
            let pauses: Vec<&str> = open
                .iter()
                .map(|(path, _)| *path)
                .filter(is_pause)
                .collect();
            let [sandbox] = pauses[..] else {
                return;
            };
            self.settle(parts, sandbox, Ward::Sandbox);
            open.retain(|(path, _)| *path != sandbox);
        }
        let sandboxes: Vec<&str> = parts.sandboxes.iter().map(String::as_str).collect();
        if self.inside(&sandboxes, family) == Inside::Nobody {
            return;
        }
        for (path, _) in std::mem::take(open) {
            self.settle(parts, path, Ward::Container);
        }
    }

    /// Who runs in these cgroups and below them. Where a list cannot be read, somebody does.
    fn inside(&self, groups: &[&str], family: &[&str]) -> Inside {
        let is_within = |path: &&&str| {
            let mut groups = groups.iter();
            groups.any(|group| *path == group || is_below(group, path))
        };
        let mut found = Vec::new();
        for path in family.iter().filter(is_within) {
            match self.processes(path) {
                Some(pids) => found.extend(pids),
                None => return Inside::Others,
            }
        }
        match found[..] {
            [] => Inside::Nobody,
            [pid]
                if command_name(self.root, pid)
                    .is_ok_and(|name| name.as_deref() == Some(PAUSE)) =>
            {
                Inside::Pause
            }
            _ => Inside::Others,
        }
    }

    fn lives_in(&self, group: &str) -> bool {
        self.processes(group).is_none_or(|pids| !pids.is_empty())
    }

    /// The processes of one cgroup; nobody's once it is gone, none where the list cannot be read.
    fn processes(&self, group: &str) -> Option<Vec<i32>> {
        let folder = self.hierarchy.folder(group)?;
        match processes_at(&folder) {
            Ok(pids) => Some(pids),
            Err(error) => matches!(error.errno(), Some(libc::ENOENT | libc::ENODEV)).then(Vec::new),
        }
    }
}

/// Whether a cgroup lies directly below another.
fn is_child(group: &str, path: &str) -> bool {
    let rest = path
        .strip_prefix(group)
        .and_then(|rest| rest.strip_prefix('/'));
    rest.is_some_and(|name| !name.contains('/'))
}

/// Whether it lies anywhere below.
fn is_below(group: &str, path: &str) -> bool {
    path.strip_prefix(group)
        .is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
#[path = "parts_tests.rs"]
mod tests;
