//! Pods as a kubelet makes them: containers go, the sandbox and strangers stay, and what is started again goes too.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::kinds::told;
use crate::support::{MIB, Node, PATIENCE, gone_after, lives};
use brink::record::DecisionRecord;
use brink_host::cgroup::owned::OwnedCgroup;
use brink_host::hog::{HogSpec, Load};
use brink_stream::model::incident::Incident;
use brink_stream::model::kind::Kind;
use brink_tests::{Hog, lacks, wait_until};
use rustix::fs::statfs;
use rustix::process::Signal;

pub(crate) const UID: &str = "0e1f2a3b-4c5d-6e7f-8091-a2b3c4d5e6f7";
/// What a container that is started again may hold before it is killed.
const LITTLE: u64 = 16 * MIB;
/// The kernel's number of tmpfs.
const TMPFS: u64 = 0x0102_1994;

/// A container's id.
pub(crate) fn id(letter: char) -> String {
    letter.to_string().repeat(64)
}

/// A node with one pod as a kubelet and containerd make it with the cgroupfs driver: a sandbox, and containers that its
/// status knows.
pub(crate) struct Kubelets {
    pause: Child,
    containers: Vec<OwnedCgroup>,
    pod: OwnedCgroup,
    pub(crate) node: Node,
}

impl Kubelets {
    pub(crate) fn new(mib: u64, known: &[char], settings: &str) -> Self {
        let node = Node::new(mib);
        let mut pod = None;
        for name in ["kubepods", "burstable", &format!("pod{UID}")] {
            let above = pod.as_ref().unwrap_or(&node.sandbox.group);
            let below = above.child(name).unwrap();
            // What is above lives as long as the node.
            std::mem::forget(pod.replace(below));
        }
        let pod = pod.unwrap();
        let sandbox = pod.child(&id('f')).unwrap();
        let program = node.path("pause");
        symlink(env!("CARGO_BIN_EXE_brink-hog"), &program).unwrap();
        let rest = HogSpec {
            parent: Some(std::process::id()),
            join: sandbox.entrances(),
            ..HogSpec::new(Load::Anon, 4096, HogSpec::LONGEST)
        };
        let mut pause = Command::new(program);
        pause.args(rest.to_args()).stdin(Stdio::null());
        let pause = pause.stdout(Stdio::null()).spawn().unwrap();
        let joined = || (!sandbox.processes().unwrap().is_empty()).then_some(());
        wait_until(PATIENCE, joined).expect("the sandbox runs");
        let kubelets = Self {
            pause,
            containers: vec![sandbox],
            pod,
            node,
        };
        let statuses = known.iter().map(|letter| {
            format!(
                "{{name: {letter}, containerID: 'containerd://{}'}}",
                id(*letter)
            )
        });
        let statuses: Vec<String> = statuses.collect();
        let manifest = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: web, namespace: shop, uid: {UID}}}, spec: {{containers: [{{name: c}}]}}, \
             status: {{phase: Running, containerStatuses: [{}]}}}}",
            statuses.join(", ")
        );
        fs::write(kubelets.manifest(), manifest).unwrap();
        kubelets
            .node
            .configure("enforce", &format!("memoryPolicy: kubelet\n{settings}"));
        kubelets
    }

    /// Gives the pod another `spec`.
    pub(crate) fn specify(&self, spec: &str) {
        let text = fs::read_to_string(self.manifest()).unwrap();
        let other = text.replace("containers: [{name: c}]", spec);
        assert_ne!(text, other);
        fs::write(self.manifest(), other).unwrap();
    }

    fn manifest(&self) -> std::path::PathBuf {
        self.node.path("manifests/web.yaml")
    }

    /// A group below the pod's, as a runtime makes one for a container.
    pub(crate) fn make(&mut self, name: &str) -> usize {
        self.containers.push(self.pod.child(name).unwrap());
        self.containers.len() - 1
    }

    fn hog(&self, container: usize, mib: u64) -> Hog {
        let spec = HogSpec::new(Load::Anon, mib * MIB, Duration::from_mins(1));
        let program = std::path::Path::new(env!("CARGO_BIN_EXE_brink-hog"));
        Hog::spawn(program, Some(&self.containers[container]), &spec).unwrap()
    }

    pub(crate) fn holding(&self, container: usize, mib: u64) -> Hog {
        let mut hog = self.hog(container, mib);
        hog.wait_touched(mib * MIB, PATIENCE).unwrap();
        hog
    }

    /// A process in a container that takes more than the limit which the container has from now on.
    pub(crate) fn beyond_its_limit(&self, container: usize, mib: u64) -> Hog {
        let layout = &self.node.sandbox.layout;
        let group = &self.containers[container];
        group.limit_memory(layout, mib * MIB).unwrap();
        self.hog(container, 2 * mib)
    }

    pub(crate) fn is_sandbox_alive(&mut self) -> bool {
        self.pause.try_wait().unwrap().is_none()
    }

    /// The only decision there is, once what was started again has been killed so often.
    fn killed_again(&self, kills: u32) -> DecisionRecord {
        let found = wait_until(PATIENCE, || {
            let record = self.node.decisions().pop()?;
            let again = record.again.as_ref().map_or(0, |again| again.kills);
            (again >= kills).then_some(record)
        });
        let found = found.unwrap_or_else(|| panic!("{}", self.node.log()));
        assert_eq!(found.order, 1, "{}", self.node.log());
        found
    }
}

impl Drop for Kubelets {
    fn drop(&mut self) {
        self.node.stop(Signal::TERM);
        // One that has ended already needs no end.
        let _ended = self.pause.kill();
        let _reaped = self.pause.wait();
    }
}

const HARD: &str = "evictionHard: {memory.available: 60Mi}";

#[test]
fn the_containers_of_a_pod_go_and_its_sandbox_and_a_stranger_stay() {
    let settings = format!("{HARD}\nevents: {{enabled: true}}");
    let mut kubelets = Kubelets::new(300, &['a', 'b'], &settings);
    let (leaker, helper) = (kubelets.make(&id('a')), kubelets.make(&id('b')));
    let stranger = kubelets.make("kata_overhead");
    let helper = kubelets.holding(helper, 10);
    let stranger = kubelets.holding(stranger, 4);
    kubelets.node.start(&[]);
    let leak = kubelets.hog(leaker, 290);
    gone_after(&leak);
    gone_after(&helper);
    let record = kubelets.node.finished(1);
    assert_eq!(record.victim_name(), "shop/web");
    assert_eq!(record.kill.as_ref().unwrap().signalled, 2, "{record:#?}");
    assert_eq!(record.end.as_deref(), Some("memory-back"), "{record:#?}");
    let left_alone = format!("{}/kata_overhead", kubelets.pod.group());
    assert_eq!(record.left_alone, [left_alone.as_str()]);
    assert!(kubelets.node.log().contains("nobody knows what runs there"));
    assert!(lives(&stranger) && kubelets.is_sandbox_alive());
    let told = wait_until(PATIENCE, || {
        let mut told = told(&kubelets.node)?.into_iter();
        told.find(|event| event.of == Kind::EvictionCompleted)
    });
    let told = told.unwrap_or_else(|| panic!("{}", kubelets.node.log()));
    let incident: Incident = serde_json::from_str(told.data.get()).unwrap();
    let victims: BTreeSet<u32> = incident.victims.iter().map(|one| one.pid).collect();
    let killed = [&leak, &helper].map(|hog| hog.pid().unsigned_abs());
    assert_eq!(victims, BTreeSet::from(killed), "{incident:#?}");
    assert_eq!(incident.more_victims, 0);
}

#[test]
fn a_pod_of_strangers_alone_is_never_evicted() {
    let mut kubelets = Kubelets::new(300, &[], HARD);
    let stranger = kubelets.make("kata_overhead");
    let leak = kubelets.holding(stranger, 250);
    kubelets.node.start(&[]);
    let met = wait_until(PATIENCE, || {
        let status = kubelets.node.status()?;
        let mut thresholds = status.thresholds.iter();
        thresholds
            .any(|threshold| threshold.held.as_deref() == Some("nobody"))
            .then_some(())
    });
    assert!(met.is_some(), "{}", kubelets.node.log());
    assert!(lives(&leak) && kubelets.node.decisions().is_empty());
}

/// Starts a container in an evicted pod again and again, as a kubelet does that has not heard of the eviction.
fn start_again(settings: &str) {
    let mut kubelets = Kubelets::new(300, &['a'], &format!("{HARD}\n{settings}"));
    let leaker = kubelets.make(&id('a'));
    kubelets.node.start(&[]);
    gone_after(&kubelets.hog(leaker, 290));
    kubelets.node.finished(1);
    for (letter, kills) in [('b', 1), ('c', 2), ('d', 3)] {
        let container = kubelets.make(&id(letter));
        // A runtime has more to do before it starts the program.
        sleep(Duration::from_millis(10));
        let again = kubelets.hog(container, 150);
        gone_after(&again);
        let held = again.progress().unwrap().touched;
        assert!(held <= LITTLE, "{letter} held {held} bytes");
        let record = kubelets.killed_again(kills);
        assert_eq!(record.again.unwrap().kills, kills);
    }
    assert_eq!(kubelets.node.decisions().len(), 1);
    assert!(kubelets.is_sandbox_alive());
    // Who has no such pod any more evicts nobody in it.
    fs::remove_file(kubelets.manifest()).unwrap();
    let left = wait_until(PATIENCE, || {
        let status = kubelets.node.status()?;
        (status.workloads == 0).then_some(())
    });
    assert!(left.is_some(), "{}", kubelets.node.log());
    let container = kubelets.make(&id('e'));
    let later = kubelets.holding(container, 20);
    sleep(Duration::from_millis(200));
    assert!(lives(&later));
}

#[test]
fn what_a_kubelet_starts_again_is_killed_before_it_holds_much() {
    start_again("");
}

#[test]
fn the_same_without_kernel_programs() {
    start_again("kernelPrograms: false");
}

#[test]
fn what_is_started_again_during_a_pause_lives() {
    let settings = format!("{HARD}\nhousekeepingInterval: 1s");
    let mut kubelets = Kubelets::new(300, &['a'], &settings);
    let leaker = kubelets.make(&id('a'));
    kubelets.node.start(&[]);
    gone_after(&kubelets.hog(leaker, 290));
    kubelets.node.finished(1);
    let paused = kubelets.node.said(&["pause"]);
    assert!(paused.status.success(), "{paused:?}");
    let container = kubelets.make(&id('b'));
    let again = kubelets.holding(container, 20);
    sleep(Duration::from_millis(200));
    assert!(lives(&again), "{}", kubelets.node.log());
    kubelets.node.resumed();
    gone_after(&again);
}

#[test]
fn what_was_started_again_while_no_agent_ran_is_killed_by_the_next_one() {
    let mut kubelets = Kubelets::new(300, &['a'], HARD);
    let leaker = kubelets.make(&id('a'));
    kubelets.node.start(&[]);
    gone_after(&kubelets.hog(leaker, 290));
    kubelets.node.finished(1);
    kubelets.node.stop(Signal::KILL);
    let container = kubelets.make(&id('b'));
    let again = kubelets.holding(container, 20);
    kubelets.node.start(&[]);
    gone_after(&again);
    kubelets.killed_again(1);
    assert!(kubelets.is_sandbox_alive());
}

#[test]
fn memory_that_a_volume_keeps_is_waited_for_before_anybody_else_goes() {
    if statfs("/dev/shm")
        .ok()
        .and_then(|found| u64::try_from(found.f_type).ok())
        != Some(TMPFS)
    {
        lacks!("needs a tmpfs on /dev/shm");
    }
    let mut kubelets = Kubelets::new(400, &['a'], "evictionHard: {memory.available: 150Mi}");
    let bystander = kubelets
        .node
        .workload("bystander", "containers: [{name: c}]");
    let leaker = kubelets.make(&id('a'));
    kubelets.node.start(&[]);
    let volume = tempfile::tempdir_in("/dev/shm").unwrap();
    fill(
        &kubelets.containers[leaker],
        &volume.path().join("file"),
        120,
    );
    let first = kubelets.node.holding(bystander, 90);
    let leak = kubelets.hog(leaker, 80);
    gone_after(&leak);
    let record = kubelets.node.finished(1);
    assert_eq!(record.victim_name(), "shop/web");
    // Room for it is only in the volume now.
    let second = kubelets.node.holding(bystander, 60);
    let held = |reason: Option<&str>| {
        wait_until(PATIENCE, || {
            let status = kubelets.node.status()?;
            let is_held = status.thresholds.iter().find_map(|one| one.held.clone());
            (is_held.as_deref() == reason).then_some(())
        })
    };
    assert!(held(Some("credited")).is_some(), "{}", kubelets.node.log());
    sleep(Duration::from_secs(1));
    assert!(lives(&first) && lives(&second), "{}", kubelets.node.log());
    volume.close().unwrap();
    assert!(held(None).is_some(), "{}", kubelets.node.log());
    assert!(lives(&first) && lives(&second), "{}", kubelets.node.log());
    assert_eq!(kubelets.node.decisions().len(), 1);
}

/// Writes a file from inside a group, which is charged for it from then on.
fn fill(group: &OwnedCgroup, file: &std::path::Path, mib: u64) {
    let entrances = group.entrances();
    let joins = entrances
        .iter()
        .map(|path| format!("echo 0 > {}", path.display()));
    let writes = format!(
        "exec dd if=/dev/zero of={} bs=1M count={mib} status=none",
        file.display()
    );
    let script = joins.chain([writes]).collect::<Vec<_>>().join(" && ");
    let status = Command::new("sh").args(["-c", &script]).status().unwrap();
    assert!(status.success());
}
