//! What the processes of a container runtime say of the containers in their care: which is a pod's sandbox.
//!
//! | runtime | its process | what it says |
//! |---|---|---|
//! | containerd | `containerd-shim-runc-v2 -namespace k8s.io -id <id>`, one a pod | the sandbox's id |
//! | CRI-O | `conmon -c <id> -n k8s_<name>_…`, one a container | the sandbox's name is `POD` |

use std::collections::HashMap;
use std::path::Path;

use crate::cgroup::Home;
use crate::cgroup::membership::Membership;
use crate::cgroup::pod::{PodGroup, PodMember};
use crate::error::HostError;
use crate::process::{self, Glimpse, ProcessInfo};

/// What a container is to its pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ward {
    /// One of the pod's containers.
    Container,
    /// The one that keeps the pod's namespaces: without it the pod has to be made anew.
    Sandbox,
}

/// Reads what runtimes say under a root, by the containers' ids. Only processes of root's outside containers are believed:
/// anybody else can write what he likes on his command line. One that shares the host's processes is a container's by its
/// control group, which is named from `home`.
///
/// # Errors
/// [`HostError`] when the processes cannot be listed.
pub fn wards(root: &Path, home: &Home) -> Result<HashMap<String, Ward>, HostError> {
    let mut found = HashMap::new();
    for pid in process::ids(root)? {
        let is_keeper = |glimpse: &Glimpse| {
            // As the kernel cuts `containerd-shim-runc-v2`.
            matches!(glimpse.name.as_str(), "containerd-shim" | "conmon")
        };
        if !Glimpse::of(root, pid).as_ref().is_some_and(is_keeper) {
            continue;
        }
        // One that ends meanwhile keeps nobody.
        let Ok(Some(keeper)) = ProcessInfo::read(root, pid) else {
            continue;
        };
        if keeper.user == 0
            && keeper.is_contained == Some(false)
            && !is_in_container(root, home, pid)
        {
            found.extend(ward_of(&keeper.command_line));
        }
    }
    Ok(found)
}

/// Whether a process is in the control group of a pod's container, or nobody can say. Monitors have groups of their own.
fn is_in_container(root: &Path, home: &Home, pid: i32) -> bool {
    let Ok(groups) = Membership::read(root, home, &pid.to_string()) else {
        return true;
    };
    let groups = [groups.service(), groups.legacy("memory")];
    let mut pods = groups.into_iter().flatten().filter_map(PodGroup::parse);
    pods.any(|pod| matches!(pod.member, Some(PodMember::Container(_))))
}

/// What a command line says, if it is a runtime's.
fn ward_of(line: &[String]) -> Option<(String, Ward)> {
    let program = line.first()?.rsplit('/').next()?;
    let value = |names: &[&str]| {
        let at = line
            .iter()
            .position(|word| names.contains(&word.as_str()))?;
        line.get(at + 1)
    };
    let one_a_pod = program.starts_with("containerd-shim-") && program.ends_with("-v2");
    if one_a_pod && value(&["-namespace"])? == "k8s.io" {
        return Some((value(&["-id"])?.clone(), Ward::Sandbox));
    }
    if program != "conmon" {
        return None;
    }
    let name = value(&["-n", "--name"])?.strip_prefix("k8s_")?;
    let ward = if name.starts_with("POD_") {
        Ward::Sandbox
    } else {
        Ward::Container
    };
    Some((value(&["-c", "--cid"])?.clone(), ward))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::fake::{self, FakeProcess};

    const SHIM: &str = "/usr/bin/containerd-shim-runc-v2 -namespace k8s.io -id abc -address /run/containerd/containerd.sock";

    fn check(line: &str, expected: Option<(&str, Ward)>) {
        let line: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let expected = expected.map(|(id, ward)| (id.to_owned(), ward));
        assert_eq!(ward_of(&line), expected, "{line:?}");
    }

    #[test]
    fn shims_of_pods_and_monitors_of_containers_say_who_is_a_sandbox() {
        check(SHIM, Some(("abc", Ward::Sandbox)));
        let monitor = "/usr/bin/conmon -b /run/x -c abc --exit-dir /run/e -n";
        let pod = format!("{monitor} k8s_POD_web-1_shop_123_0 -P /run/p");
        check(&pod, Some(("abc", Ward::Sandbox)));
        let container = format!("{monitor} k8s_web_web-1_shop_123_0 -P /run/p");
        check(&container, Some(("abc", Ward::Container)));
    }

    #[test]
    fn nothing_is_read_into_other_lines() {
        check("", None);
        // One shim a container, of Docker and of old runtimes.
        check(&SHIM.replace("k8s.io", "moby"), None);
        check(&SHIM.replace("runc-v2", "runc-v1"), None);
        check(
            "/usr/bin/containerd-shim-runc-v2 -namespace k8s.io -id",
            None,
        );
        check("conmon -c abc -n podman-thing", None);
        check("conmon -n k8s_POD_x", None);
        check("sleep -namespace k8s.io -id abc", None);
    }

    #[test]
    fn only_root_outside_containers_is_believed() {
        let root = tempfile::tempdir().expect("temporary folder");
        let mut pid = 10;
        let mut add = |id: &str, (user, is_contained), name, group: &str| {
            pid += 1;
            let process = FakeProcess {
                pid,
                parent: 1,
                session: 1,
                name,
                user,
                group,
                is_contained,
            };
            fake::add(root.path(), &process);
            let line = SHIM.replace("abc", id).replace(' ', "\0");
            let path = root.path().join(format!("proc/{pid}/cmdline"));
            std::fs::write(path, line).expect("fake file");
        };
        let shim = "containerd-shim";
        let pod = "/kubepods/burstable/pod0123";
        let id = "a".repeat(64);
        add("true", (0, false), shim, "/system.slice/containerd.service");
        add("user", (1000, false), shim, "/");
        add("inner", (0, true), shim, "/");
        add("other", (0, false), "sleep", "/");
        add("shares-pids", (0, false), shim, &format!("{pod}/{id}"));
        add("below-it", (0, false), shim, &format!("{pod}/{id}/own"));
        add(
            "monitor",
            (0, false),
            shim,
            &format!("{pod}/crio-conmon-{id}"),
        );
        let found = wards(root.path(), &Home::default()).expect("a list");
        let believed = ["true", "monitor"].map(|id| (id.to_owned(), Ward::Sandbox));
        assert_eq!(found, HashMap::from(believed));
    }
}
