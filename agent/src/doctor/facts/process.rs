//! This process: its rights, its limits, and whether it sees the machine or only a container.

use std::path::{Path, PathBuf};

use brink_host::capabilities::Capabilities;
use rustix::process::{Resource, getrlimit};

use super::kernel::page_size;
use super::source::{Known, known, number};

/// This process.
#[derive(Debug, Clone)]
pub struct Process {
    /// Its effective user.
    pub user: u32,
    /// The program, for commands that are about it.
    pub program: Option<PathBuf>,
    /// Its capabilities.
    pub capabilities: Known<Capabilities>,
    /// Its namespaces.
    pub namespaces: Namespaces,
    /// Its limits.
    pub limits: Limits,
    /// Its address space, bytes: what `mlockall` holds against the limit of locked memory.
    pub address_space: Known<u64>,
}

/// Whether it is in the namespaces that the machine booted with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespaces {
    /// Process ids: otherwise only the container's processes are seen.
    pub pid: Known<bool>,
    /// Control groups: otherwise only the container's groups are seen.
    pub cgroup: Known<bool>,
    /// Users: otherwise root and capabilities are the container's.
    pub user: Known<bool>,
}

/// Limits; `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// `RLIMIT_MEMLOCK`, bytes.
    pub locked_memory: Option<u64>,
    /// The hard `RLIMIT_NOFILE`.
    pub open_files: Option<u64>,
}

/// Inode numbers of the first namespaces (`include/linux/proc_ns.h`), fixed since they can be looked at.
const FIRST_USER: u64 = 0xEFFF_FFFD;
const FIRST_PID: u64 = 0xEFFF_FFFC;
const FIRST_CGROUP: u64 = 0xEFFF_FFFB;

impl Process {
    /// Reads what the files under a root and the kernel say of this process.
    pub fn read(root: &Path) -> Self {
        Self {
            user: rustix::process::geteuid().as_raw(),
            program: std::env::current_exe().ok(),
            capabilities: known(Capabilities::of_self(root)),
            namespaces: Namespaces {
                pid: is_first(root, "pid", FIRST_PID),
                cgroup: is_first(root, "cgroup", FIRST_CGROUP),
                user: is_first(root, "user", FIRST_USER),
            },
            limits: Limits {
                locked_memory: getrlimit(Resource::Memlock).current,
                open_files: getrlimit(Resource::Nofile).maximum,
            },
            address_space: number::<u64>(root, "/proc/self/statm")
                .map(|pages| pages.saturating_mul(page_size())),
        }
    }
}

/// `pid:[4026531836]`
fn is_first(root: &Path, name: &str, first: u64) -> Known<bool> {
    let path = root.join("proc/self/ns").join(name);
    let target =
        std::fs::read_link(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let target = target.to_string_lossy();
    let number = target
        .strip_prefix(name)
        .and_then(|rest| rest.strip_prefix(":["))
        .and_then(|rest| rest.strip_suffix(']'))
        .and_then(|number| number.parse::<u64>().ok());
    match number {
        Some(number) => Ok(number == first),
        None => Err(format!("{}: {target:?} is no namespace", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_namespaces_are_told_from_a_containers() {
        fn check(target: &str, expected: Option<bool>) {
            let root = tempfile::tempdir().unwrap();
            let folder = root.path().join("proc/self/ns");
            std::fs::create_dir_all(&folder).unwrap();
            std::os::unix::fs::symlink(target, folder.join("pid")).unwrap();
            let found = is_first(root.path(), "pid", FIRST_PID);
            assert_eq!(found.ok(), expected, "{target}");
        }
        check("pid:[4026531836]", Some(true));
        check("pid:[4026532281]", Some(false));
        check("mnt:[4026531836]", None);
        check("pid:[x]", None);
        assert!(is_first(Path::new("/nonexistent"), "pid", FIRST_PID).is_err());
    }
}
