//! Who is protected in one roster after another, on a fake machine.

use std::fs;

use brink_core::node::workload::{Protection, ResourceList};
use brink_host::cgroup::glob::Glob;

use super::*;

/// A machine with one cgroup, `/work`, and this process outside.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        machine.write(
            "proc/self/mountinfo",
            "30 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        );
        machine.write(
            "proc/cgroups",
            "#subsys_name\thierarchy\tnum_cgroups\tenabled\n",
        );
        machine.write("sys/fs/cgroup/cgroup.controllers", "memory pids\n");
        machine.write("sys/fs/cgroup/work/memory.current", "0\n");
        machine.runs(std::process::id(), "brink", "/");
        machine
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A process of root's.
    fn runs(&self, pid: u32, name: &str, group: &str) {
        let stat = format!(
            "{pid} ({name}) S 0 {pid} {pid} 0 0 0 0 0 0 0 0 0 0 0 20 0 1 0 77 {}",
            "0 ".repeat(30)
        );
        self.write(&format!("proc/{pid}/stat"), &stat);
        let status = format!("Name:\t{name}\nUid:\t0\t0\t0\t0\nNSpid:\t{pid}\n");
        self.write(&format!("proc/{pid}/status"), &status);
        self.write(&format!("proc/{pid}/cgroup"), &format!("0::{group}\n"));
    }

    fn ends(&self, pid: u32) {
        fs::remove_dir_all(self.0.path().join(format!("proc/{pid}"))).unwrap();
    }
}

#[test]
fn a_workload_loses_its_protection_with_the_process_that_gave_it() {
    const PID: u32 = 4_000_000;
    let machine = Machine::new();
    let root = machine.0.path();
    let layout = Layout::detect(root).unwrap();
    let rule = CgroupRule {
        glob: Glob::new("/work").unwrap(),
        name: None,
        namespace: None,
        priority: None,
        termination_grace: None,
        requests: ResourceList::default(),
    };
    let mut builder = Builder::new(root, layout, "/", vec![rule], Selection::default());
    let mut check = |scan, expected| {
        let built = builder.build(&[], scan).unwrap();
        let of_work: Vec<_> = built
            .roster
            .table
            .workloads()
            .iter()
            .map(|one| one.protection)
            .collect();
        assert_eq!(of_work, [expected], "{scan:?}");
    };
    check(Scan::All, None);
    machine.runs(PID, "containerd", "/work");
    check(Scan::All, Some(Protection::Runtime));
    check(Scan::Cgroups, Some(Protection::Runtime));
    // Another program under the same id, and nobody.
    machine.runs(PID, "sleep", "/work");
    check(Scan::Cgroups, None);
    machine.runs(PID, "containerd", "/work");
    check(Scan::All, Some(Protection::Runtime));
    machine.ends(PID);
    check(Scan::Cgroups, None);
}
