//! Evicted pods of plain files: what is made in them is told, once, and only if it is a container.

use std::fs;

use super::*;
use crate::backend::parts::Parts;
use crate::fake::{self, mount_unified};

const UID: &str = "0e1f2a3b-4c5d-6e7f-8091-a2b3c4d5e6f7";

fn id(letter: char) -> String {
    letter.to_string().repeat(64)
}

/// A machine with one pod: a sandbox and a container.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        mount_unified(machine.0.path());
        machine.write("proc/12/comm", "pause\n");
        machine.group("", "");
        machine.write(&format!("{}/memory.current", Self::folder("")), "0\n");
        machine.write(
            &format!("{}/memory.stat", Self::folder("")),
            "inactive_file 0\n",
        );
        machine.group(&id('a'), "");
        machine.group(&id('f'), "12\n");
        machine
    }

    fn folder(name: &str) -> String {
        format!("sys/fs/cgroup/kubepods/pod{UID}/{name}")
    }

    fn write(&self, path: &str, text: &str) {
        fake::write(self.0.path(), path, text);
    }

    /// A cgroup that is there with its list at once, as the kernel makes one.
    fn group(&self, name: &str, processes: &str) {
        let made = self.0.path().join("made");
        fs::create_dir(&made).unwrap();
        fs::write(made.join("cgroup.procs"), processes).unwrap();
        let place = self.0.path().join(Self::folder(name));
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::rename(made, place).unwrap();
    }

    fn sentry(&self) -> (Sentry, Arc<Group>) {
        let layout = Layout::detect(self.0.path()).unwrap();
        let pod = format!("/kubepods/pod{UID}");
        let known = Parts {
            containers: vec![format!("{pod}/{}", id('a'))],
            sandboxes: vec![format!("{pod}/{}", id('f'))],
            unknown: Vec::new(),
        };
        let below: Vec<&str> = known
            .containers
            .iter()
            .chain(&known.sandboxes)
            .map(String::as_str)
            .collect();
        let group = Arc::new(Group::open(&layout, (&pod, &below), Some(&known)).unwrap());
        let ports = Arc::new(Ports::new(4, 1).unwrap());
        (Sentry::new(self.0.path(), layout, ports), group)
    }
}

fn told(sentry: &Sentry) -> Vec<String> {
    let mut names = Vec::new();
    while let Some(command) = sentry.ports.commands.take() {
        if let Command::Newcomer(newcomer) = command {
            let group = newcomer.target.dir().group();
            names.push(group.rsplit('/').next().unwrap().to_owned());
        }
    }
    names
}

#[test]
fn what_was_made_before_the_watch_began_is_told_once() {
    let machine = Machine::new();
    let (mut sentry, group) = machine.sentry();
    machine.group(&id('b'), "");
    sentry.follow(Arc::clone(&group));
    assert_eq!(told(&sentry), [id('b')]);
    sentry.follow(group);
    assert_eq!(told(&sentry), [""; 0]);
    assert_eq!(sentry.watched.len(), 1);
}

#[test]
fn a_container_is_told_when_it_is_made_and_a_stranger_is_not() {
    let machine = Machine::new();
    let (mut sentry, group) = machine.sentry();
    sentry.follow(group);
    sentry.hear();
    assert_eq!(told(&sentry), [""; 0]);
    fs::create_dir(machine.0.path().join(Machine::folder("init.scope"))).unwrap();
    fs::create_dir(machine.0.path().join(Machine::folder(&id('c')))).unwrap();
    sentry.hear();
    assert_eq!(told(&sentry), [id('c')]);
    sentry.hear();
    assert_eq!(told(&sentry), [""; 0]);
}

#[test]
fn a_pod_that_is_gone_is_watched_no_longer() {
    let machine = Machine::new();
    let (mut sentry, group) = machine.sentry();
    sentry.follow(group);
    fs::remove_dir_all(machine.0.path().join(Machine::folder(""))).unwrap();
    sentry.hear();
    sentry.prune();
    assert!(sentry.watched.is_empty());
}

#[test]
fn it_ends_when_it_is_told_to() {
    let machine = Machine::new();
    let (sentry, group) = machine.sentry();
    let ports = Arc::clone(&sentry.ports);
    assert!(ports.evicted.send(Some(group)).is_ok());
    assert!(ports.evicted.send(None).is_ok());
    std::thread::spawn(|| sentry.run()).join().unwrap();
}
