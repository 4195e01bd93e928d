//! Pods of plain files: who is a container, who the sandbox, and who is nobody that is known.

use std::fs;

use brink_host::cgroup::Version;

use super::*;

const POD: &str = "/kubepods/burstable/pod7f4a";

/// An id that begins with this letter.
fn id(letter: char) -> String {
    letter.to_string().repeat(64)
}

/// A machine with one pod.
struct Machine {
    root: tempfile::TempDir,
    hierarchy: Hierarchy,
    groups: Vec<String>,
}

impl Machine {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("proc")).unwrap();
        let hierarchy = Hierarchy {
            version: Version::V2,
            path: root.path().join("cgroup"),
            mount_root: "/".to_owned(),
        };
        let machine = Self {
            root,
            hierarchy,
            groups: Vec::new(),
        };
        machine.with_group("", &[])
    }

    /// A cgroup below the pod's with these processes, and its path.
    fn with_group(mut self, name: &str, processes: &[(i32, &str)]) -> Self {
        let path = format!("{POD}/{name}").trim_end_matches('/').to_owned();
        let folder = self.hierarchy.folder(&path).unwrap();
        fs::create_dir_all(&folder).unwrap();
        let pids = processes.iter().map(|(pid, _)| pid.to_string());
        let list = pids.collect::<Vec<_>>().join("\n");
        fs::write(folder.join("cgroup.procs"), list).unwrap();
        for (pid, comm) in processes {
            let folder = self.root.path().join(format!("proc/{pid}"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("comm"), format!("{comm}\n")).unwrap();
        }
        self.groups.push(path);
        self
    }

    /// A shim of containerd's that has this sandbox in its care.
    fn with_shim(self, pid: i32, sandbox: &str) -> Self {
        let folder = self.root.path().join(format!("proc/{pid}"));
        fs::create_dir_all(&folder).unwrap();
        let stat = format!(
            "{pid} (containerd-shim) S 1 {pid} {pid} {}",
            "0 ".repeat(47)
        );
        fs::write(folder.join("stat"), stat).unwrap();
        let status = format!("Uid:\t0\t0\t0\t0\nNSpid:\t{pid}\n");
        fs::write(folder.join("status"), status).unwrap();
        let group = "0::/system.slice/containerd.service\n";
        fs::write(folder.join("cgroup"), group).unwrap();
        let line = format!("containerd-shim-runc-v2\0-namespace\0k8s.io\0-id\0{sandbox}\0");
        fs::write(folder.join("cmdline"), line).unwrap();
        self
    }

    fn judged(&self, ids: &[String], before: &Judged) -> (Parts, Judged) {
        let home = Home::default();
        let mut judge = Judge::new(self.root.path(), (&self.hierarchy, &home), before);
        let family: Vec<&str> = self.groups.iter().map(String::as_str).collect();
        let parts = judge.pod(&family, ids);
        assert_eq!(judge.troubles, [""; 0]);
        (parts, judge.now)
    }

    #[track_caller]
    fn check(&self, ids: &[String], containers: &[&str], sandboxes: &[&str], unknown: &[&str]) {
        let paths = |names: &[&str]| -> Vec<String> {
            let path = |name: &&str| format!("{POD}/{name}").trim_end_matches('/').to_owned();
            names.iter().map(path).collect()
        };
        let expected = Parts {
            containers: paths(containers),
            sandboxes: paths(sandboxes),
            unknown: paths(unknown),
        };
        assert_eq!(self.judged(ids, &Judged::new()).0, expected);
    }
}

#[test]
fn ids_of_the_status_are_containers_whatever_runs_in_them() {
    let (app, odd, pod) = (id('a'), id('b'), id('c'));
    let machine = Machine::new()
        .with_group(&app, &[(10, "java"), (11, "java")])
        .with_group(&odd, &[(12, "pause")])
        .with_group(&pod, &[(13, "pause")]);
    machine.check(&[app.clone(), odd.clone()], &[&app, &odd], &[&pod], &[]);
}

#[test]
fn a_shim_says_who_the_sandbox_is_and_the_rest_are_containers() {
    let (app, helper, pod) = (id('a'), id('b'), id('c'));
    let machine = Machine::new()
        .with_group(&format!("cri-containerd-{app}.scope"), &[(10, "java")])
        .with_group(&format!("cri-containerd-{helper}.scope"), &[(11, "pause")])
        .with_group(&format!("cri-containerd-{pod}.scope"), &[(12, "my-init")])
        .with_shim(9, &pod);
    let name = |id: &str| format!("cri-containerd-{id}.scope");
    machine.check(&[], &[&name(&app), &name(&helper)], &[&name(&pod)], &[]);
}

#[test]
fn without_a_word_of_the_runtime_the_only_pause_is_the_sandbox() {
    let (app, pod) = (id('a'), id('c'));
    let machine = Machine::new()
        .with_group(&format!("docker-{app}.scope"), &[(10, "sh"), (11, "pause")])
        .with_group(&format!("docker-{pod}.scope"), &[(12, "pause")]);
    let name = |id: &str| format!("docker-{id}.scope");
    machine.check(&[], &[&name(&app)], &[&name(&pod)], &[]);
}

#[test]
fn who_cannot_be_told_apart_is_nobody_that_is_known() {
    let (one, two, app) = (id('a'), id('b'), id('c'));
    let machine = Machine::new()
        .with_group(&one, &[(10, "pause")])
        .with_group(&two, &[(11, "pause")])
        .with_group(&app, &[(12, "java")]);
    machine.check(&[], &[], &[], &[&one, &two, &app]);
    machine.check(std::slice::from_ref(&app), &[&app], &[], &[&one, &two]);
}

#[test]
fn a_sandbox_that_has_ended_vouches_for_nobody() {
    let (old, new) = (id('a'), id('b'));
    let machine = Machine::new()
        .with_group(&old, &[])
        .with_group(&new, &[(10, "runc:[2:INIT]")])
        .with_shim(9, &old);
    // It may be the sandbox that is made in the old one's place.
    machine.check(&[], &[], &[&old], &[&new]);
    machine
        .with_shim(8, &new)
        .check(&[], &[], &[&old, &new], &[]);
}

#[test]
fn monitors_and_strangers_are_left_alone() {
    let (app, pod) = (id('a'), id('c'));
    let machine = Machine::new()
        .with_group(&format!("crio-{app}.scope"), &[(10, "java")])
        .with_group(&format!("crio-{app}.scope/container"), &[(11, "java")])
        .with_group(&format!("crio-conmon-{app}.scope"), &[(12, "conmon")])
        .with_group(&format!("crio-{pod}.scope"), &[(13, "pause")])
        .with_group("init.scope", &[(14, "qemu")])
        .with_group("idle.scope", &[])
        .with_group(&id('d'), &[]);
    let name = |id: &str| format!("crio-{id}.scope");
    machine.check(
        std::slice::from_ref(&app),
        &[&name(&app), &id('d')],
        &[&name(&pod)],
        &["init.scope"],
    );
}

#[test]
fn whoever_lives_beside_the_containers_is_nobody_that_is_known() {
    let app = id('a');
    let mut machine = Machine::new()
        .with_group(&app, &[(10, "java")])
        .with_group("", &[(11, "stray")]);
    // It was there already.
    machine.groups.pop();
    machine.check(std::slice::from_ref(&app), &[&app], &[], &[""]);
}

#[test]
fn what_was_found_out_once_stands() {
    let (app, pod) = (id('a'), id('c'));
    let machine = Machine::new()
        .with_group(&app, &[(10, "java")])
        .with_group(&pod, &[(12, "pause")])
        .with_shim(9, &pod);
    let (first, judged) = machine.judged(&[], &Judged::new());
    fs::remove_dir_all(machine.root.path().join("proc/9")).unwrap();
    let (second, _) = machine.judged(&[], &judged);
    assert_eq!(first, second);
    assert_eq!(judged[&format!("{POD}/{pod}")], Ward::Sandbox);
}
