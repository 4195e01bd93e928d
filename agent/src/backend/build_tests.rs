//! Who is protected in one roster after another, on a fake machine.

use std::fs;

use brink_core::node::workload::{Protection, ResourceList};
use brink_host::cgroup::glob::Glob;

use super::*;
use crate::fake::{self, mount_unified};

/// A machine with one cgroup, `/work`, and this process outside.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        mount_unified(machine.0.path());
        machine.write("sys/fs/cgroup/work/memory.current", "0\n");
        machine.runs(std::process::id(), "brink", "/");
        machine
    }

    fn write(&self, path: &str, text: &str) {
        fake::write(self.0.path(), path, text);
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
        directories: Vec::new(),
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

/// A pod as an API server knows it, with these containers.
fn pod(uid: &str, ids: &[&str]) -> Manifest {
    let container = |id: &&str| ("app".to_owned(), (*id).to_owned());
    Manifest {
        workload: Workload {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            uid: uid.to_owned(),
            ..Workload::default()
        },
        cgroup: None,
        owner: None,
        container_ids: ids.iter().map(container).collect(),
        is_observed: true,
        files: crate::pod::PodFiles::default(),
        site: crate::config::document::Site::whole(crate::config::document::Origins::DEFAULT),
    }
}

#[test]
fn of_a_kubelets_pod_only_what_is_known_is_killed() {
    const UID: &str = "0a1b";
    let machine = Machine::new();
    let id = "ab".repeat(32);
    let folder = format!("sys/fs/cgroup/kubepods/pod{UID}");
    machine.write(&format!("{folder}/memory.current"), "0\n");
    machine.write(&format!("{folder}/memory.stat"), "inactive_file 0\n");
    machine.write(&format!("{folder}/cgroup.procs"), "");
    machine.write(&format!("{folder}/{id}/cgroup.procs"), "7\n");
    let root = machine.0.path();
    let layout = Layout::detect(root).unwrap();
    let mut builder = Builder::new(root, layout, "/", Vec::new(), Selection::default());
    let path = format!("/kubepods/pod{UID}/{id}");
    let mut check = |ids: &[&str], victims: &[&str], protection, troubles| {
        let built = builder.build(&[pod(UID, ids)], Scan::Cgroups).unwrap();
        let roster = &built.roster;
        let found: Vec<&str> = roster
            .victims_of(0)
            .map(|target| target.dir().group())
            .collect();
        assert_eq!(found, victims);
        let workload = &roster.table.workloads()[0];
        assert!(workload.by_kubelet);
        assert_eq!(workload.protection, protection);
        let names: Vec<(String, String)> = pod(UID, ids).container_ids;
        assert_eq!(roster.containers_of(0), names, "for incidents in them");
        let is_strange = protection.is_some();
        assert_eq!(roster.left_alone[0].len(), usize::from(is_strange));
        assert_eq!(built.troubles.len(), troubles, "{:?}", built.troubles);
        builder.changed()
    };
    assert!(check(&[], &[], Some(Protection::Unrecognized), 1));
    assert!(
        !check(&[], &[], Some(Protection::Unrecognized), 0),
        "it was said"
    );
    assert!(check(&[&id], &[&path], None, 0));
    machine.write(&format!("{folder}/{}/cgroup.procs", "cd".repeat(32)), "");
    assert!(!check(&[&id], &[&path], None, 0), "nobody is in it yet");
}
