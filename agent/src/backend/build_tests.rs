//! Who is protected in one roster after another, on a fake machine.

use std::fs;

use brink_core::node::workload::{Preference, Protection, Volume, VolumeSource};

use super::*;
use crate::config::Pattern;
use crate::config::Storage;
use crate::fake::{self, mount_unified};
use crate::pod::Wish;

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

    /// A builder for which `/work` is a workload.
    fn builder(&self, selection: Selection) -> Builder {
        let rule = fake::rule("/work");
        let layout = Layout::detect(self.0.path()).unwrap();
        Builder::new(self.0.path(), layout, "/", vec![rule], selection)
    }
}

#[test]
fn a_workload_loses_its_protection_with_the_process_that_gave_it() {
    const PID: u32 = 4_000_000;
    let machine = Machine::new();
    let mut builder = machine.builder(Selection::default());
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

#[test]
fn a_roster_stands_while_all_that_nobody_tells_of_is_as_it_was() {
    const PID: u32 = 4_000_000;
    let machine = Machine::new();
    machine.write("sys/fs/cgroup/work/memory.stat", "inactive_file 0\n");
    machine.write("sys/fs/cgroup/work/cgroup.procs", "");
    machine.runs(PID, "containerd", "/work");
    let mut builder = machine.builder(Selection::default());
    assert!(!builder.stands(), "nobody has looked yet");
    let built = builder.build(&[], Scan::All).unwrap();
    assert_eq!((built.troubles, built.roster.members.len()), (vec![], 1));
    assert!(builder.stands());
    machine.runs(PID, "sleep", "/work");
    assert!(!builder.stands(), "it has another name");
    builder.build(&[], Scan::Cgroups).unwrap();
    assert!(builder.stands());

    // A look that fails is made again.
    let (groups, away) = ("sys/fs/cgroup", "sys/fs/away");
    let path = |name: &str| machine.0.path().join(name);
    fs::rename(path(groups), path(away)).unwrap();
    assert!(builder.build(&[], Scan::All).is_err());
    fs::rename(path(away), path(groups)).unwrap();
    assert!(!builder.stands());
    builder.build(&[], Scan::All).unwrap();
    assert!(builder.stands());

    // So is one that has found something wrong.
    fs::remove_file(path("sys/fs/cgroup/work/cgroup.procs")).unwrap();
    fs::remove_file(path("sys/fs/cgroup/work/memory.stat")).unwrap();
    assert_eq!(builder.build(&[], Scan::All).unwrap().troubles.len(), 1);
    assert!(!builder.stands());
}

#[test]
fn no_roster_stands_where_the_names_of_commands_matter() {
    let machine = Machine::new();
    machine.write("sys/fs/cgroup/work/memory.stat", "inactive_file 0\n");
    machine.write("sys/fs/cgroup/work/cgroup.procs", "");
    let mut builder = machine.builder(Selection {
        avoid: vec![Pattern::new("postgres").unwrap()],
        ..Selection::default()
    });
    builder.build(&[], Scan::All).unwrap();
    assert!(!builder.stands());
}

#[test]
fn who_is_outside_of_the_pods_is_known_as_soon_as_a_kubelet_has_made_its_group() {
    let machine = Machine::new();
    let builder = machine.builder(Selection::default());
    let mut builder = builder.with_pods_in(PodsGroup::Kubelets);
    let mut is_outside = || {
        let built = builder.build(&[], Scan::Cgroups).unwrap();
        built.roster.table.workloads()[0].outside_pods
    };
    assert!(!is_outside(), "nobody knows of pods");
    machine.write("sys/fs/cgroup/kubepods.slice/memory.current", "0\n");
    assert!(is_outside(), "/work is none of them");
    fs::remove_dir_all(machine.0.path().join("sys/fs/cgroup/kubepods.slice")).unwrap();
    assert!(!is_outside(), "it is gone");
}

#[test]
fn a_roster_says_of_which_group_it_has_told_and_another_group_makes_another_roster() {
    const SYSTEMD: &str = "/kubepods.slice";
    const CGROUPFS: &str = "/kubepods";
    let machine = Machine::new();
    machine.write("sys/fs/cgroup/work/memory.stat", "inactive_file 0\n");
    machine.write("sys/fs/cgroup/work/cgroup.procs", "");
    let runs_in = |group: &str, populated: u8| {
        let file = format!("sys/fs/cgroup{group}/cgroup.events");
        machine.write(&file, &format!("populated {populated}\n"));
    };
    let builder = machine.builder(Selection::default());
    let mut builder = builder.with_pods_in(PodsGroup::Kubelets);
    let mut check = |group: Option<&str>, stands: bool, changed: bool| {
        assert_eq!(builder.stands(), stands, "before {group:?}");
        let built = builder.build(&[], Scan::All).unwrap();
        assert_eq!(built.roster.pods_group.as_deref(), group);
        assert_eq!(builder.changed(), changed, "{group:?}");
    };
    check(None, false, true);
    check(None, true, false);
    runs_in(SYSTEMD, 1);
    check(Some(SYSTEMD), false, true);
    runs_in(CGROUPFS, 0);
    check(Some(SYSTEMD), true, false);
    // The kubelet has come back with the other driver: `/work` is outside of both.
    runs_in(SYSTEMD, 0);
    runs_in(CGROUPFS, 1);
    check(Some(CGROUPFS), false, true);
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
        wish: None,
        site: crate::config::document::Site::whole(crate::config::document::Origins::DEFAULT),
    }
}

/// The groups that a kubelet has made for a pod with one container, and the folder they are in.
fn made(machine: &Machine, uid: &str, id: &str) -> String {
    let folder = format!("sys/fs/cgroup/kubepods/pod{uid}");
    machine.write(&format!("{folder}/memory.current"), "0\n");
    machine.write(&format!("{folder}/memory.stat"), "inactive_file 0\n");
    machine.write(&format!("{folder}/cgroup.procs"), "");
    machine.write(&format!("{folder}/{id}/cgroup.procs"), "7\n");
    folder
}

#[test]
fn what_a_pod_asks_for_counts_by_its_namespace_and_from_the_roster_after_a_reload() {
    const UID: &str = "0a1b";
    let machine = Machine::new();
    let id = "ab".repeat(32);
    made(&machine, UID, &id);
    let root = machine.0.path();
    let layout = Layout::detect(root).unwrap();
    let mut builder = Builder::new(root, layout.clone(), "/", Vec::new(), Selection::default());
    let look = |builder: &mut Builder, wish, ids: &[&str]| {
        let asking = Manifest {
            wish: Some(wish),
            ..pod(UID, ids)
        };
        let built = builder.build(&[asking], Scan::Cgroups).unwrap();
        let workload = &built.roster.table.workloads()[0];
        let found = (workload.protection, workload.preference);
        (found, built.remarks.len(), builder.changed())
    };
    let allow = |builder: &mut Builder, namespaces: &[&str]| {
        let names = namespaces.iter().map(|name| (*name).to_owned());
        let selection = Selection {
            annotation_namespaces: names.collect(),
            ..Selection::default()
        };
        builder.reconfigure(Vec::new(), selection);
    };
    let known = [id.as_str()];
    let unheard = (None, Preference::Normal);
    assert_eq!(look(&mut builder, Wish::Never, &known), (unheard, 1, true));
    let again = look(&mut builder, Wish::Never, &known);
    assert_eq!(again, (unheard, 0, false), "it was said");
    allow(&mut builder, &["shop"]);
    let never = (Some(Protection::Annotated), Preference::Normal);
    assert_eq!(look(&mut builder, Wish::Never, &known), (never, 0, true));
    let last = (None, Preference::Avoid);
    assert_eq!(look(&mut builder, Wish::Last, &known), (last, 0, true));
    allow(&mut builder, &["team"]);
    assert_eq!(look(&mut builder, Wish::Never, &known), (unheard, 1, true));
    // To a builder that has never known whose container it is.
    let mut other = Builder::new(root, layout, "/", Vec::new(), Selection::default());
    allow(&mut other, &["shop"]);
    let strange = (Some(Protection::Unrecognized), Preference::Normal);
    let found = look(&mut other, Wish::Never, &[]);
    assert_eq!(found, (strange, 0, true), "a stronger reason");
}

#[test]
fn of_a_kubelets_pod_only_what_is_known_is_killed() {
    const UID: &str = "0a1b";
    let machine = Machine::new();
    let id = "ab".repeat(32);
    let folder = made(&machine, UID, &id);
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

#[test]
fn volumes_are_where_the_kubelet_says_unless_the_configuration_does() {
    const PID: u32 = 4_000_000;
    let machine = Machine::new();
    let root = machine.0.path();
    let layout = Layout::detect(root).unwrap();
    let mut pod = pod("0a1b", &[]);
    pod.workload.volumes = vec![Volume {
        name: "data".to_owned(),
        source: VolumeSource::ConfigMap,
    }];
    let pods = [pod];
    let check = |builder: &mut Builder, scan, folder: &str| {
        let built = builder.build(&pods, scan).unwrap();
        let piece = &built.roster.owned[0].pieces[0];
        let volumes = root.join(folder).join("pods/0a1b/volumes");
        assert!(
            piece.folder.path.starts_with(&volumes),
            "{piece:?}, not in {volumes:?}"
        );
    };
    let new = || Builder::new(root, layout.clone(), "/", Vec::new(), Selection::default());
    let named = Storage {
        kubelet_root: Some("/named".into()),
        ..Storage::default()
    };
    let (mut builder, mut configured) = (new(), new().with_places(Places::new(root, &named)));
    check(&mut builder, Scan::All, "var/lib/kubelet");
    machine.runs(PID, "kubelet", "/system.slice/kubelet.service");
    let line = "/usr/bin/kubelet\0--root-dir=/srv/kubelet\0";
    machine.write(&format!("proc/{PID}/cmdline"), line);
    check(&mut builder, Scan::All, "srv/kubelet");
    assert!(builder.changed(), "they are measured elsewhere");
    check(&mut configured, Scan::All, "named");
    // It is being restarted.
    machine.ends(PID);
    check(&mut builder, Scan::Cgroups, "srv/kubelet");
    // And comes back without the flag.
    machine.runs(PID, "kubelet", "/system.slice/kubelet.service");
    machine.write(&format!("proc/{PID}/cmdline"), "/usr/bin/kubelet\0--v=2\0");
    check(&mut builder, Scan::All, "var/lib/kubelet");
}
