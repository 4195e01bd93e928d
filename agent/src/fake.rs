//! A machine of plain files, for tests.

use std::fs;
use std::path::Path;

use brink_core::node::workload::ResourceList;
use brink_host::cgroup::glob::Glob;

use crate::config::CgroupRule;

/// Writes a file below a root, with the folders it is in.
pub(crate) fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Has a process of root's run on a machine that is a folder, a service of its own with these arguments.
pub(crate) fn add_process(root: &Path, pid: u32, name: &str, arguments: &[&str]) {
    let zeroes = "0 ".repeat(46);
    let status =
        format!("Name:\t{name}\nTgid:\t{pid}\nUid:\t0\t0\t0\t0\nNSpid:\t{pid}\nThreads:\t1\n");
    let arguments: String = arguments.iter().flat_map(|one| [*one, "\0"]).collect();
    for (file, text) in [
        ("stat", format!("{pid} ({name}) S 0 {pid} {pid} {zeroes}\n")),
        ("status", status),
        ("cmdline", format!("/usr/bin/{name}\0{arguments}")),
        ("oom_score_adj", "0\n".to_owned()),
        ("cgroup", format!("0::/system.slice/{name}.service\n")),
    ] {
        write(root, &format!("proc/{pid}/{file}"), &text);
    }
}

/// Ends it.
pub(crate) fn end_process(root: &Path, pid: u32) {
    fs::remove_dir_all(root.join(format!("proc/{pid}"))).unwrap();
}

/// Mounts one tree of control groups at its usual place, with the controllers that a node needs.
pub(crate) fn mount_unified(root: &Path) {
    let mounts = "30 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    write(root, "proc/self/mountinfo", mounts);
    let none = "#subsys_name\thierarchy\tnum_cgroups\tenabled\n";
    write(root, "proc/cgroups", none);
    write(root, "sys/fs/cgroup/cgroup.controllers", "memory pids\n");
}

/// A rule by which these control groups are workloads, and nothing else is said of them.
pub(crate) fn rule(pattern: &str) -> CgroupRule {
    CgroupRule {
        glob: Glob::new(pattern).unwrap(),
        name: None,
        namespace: None,
        priority: None,
        termination_grace: None,
        requests: ResourceList::default(),
        directories: Vec::new(),
    }
}
