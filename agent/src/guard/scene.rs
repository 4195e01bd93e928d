//! A guard over plain files, for tests: a node with one pod of a kubelet's, whose cgroups list processes that no signal reaches.

use std::fs;
use std::sync::Arc;

use brink_core::base::{Moment, Quantity, Span};
use brink_core::node::engine::{Engine, LiveSettings, MemoryPolicy};
use brink_core::node::input::{Confirmation, Input, Sample};
use brink_core::node::observe::{Layout as Disks, Observation, Observations};
use brink_core::node::policy::{Policy, Settings};
use brink_core::node::signal::Signal;
use brink_core::node::threshold::{Threshold, Value};
use brink_core::node::workload::{FsUsage, PodUsage, Workload, WorkloadTable};
use brink_host::cgroup::Layout;
use brink_host::clock::ClockPair;
use brink_host::kill::pid_set::ProtectedPids;
use brink_host::kill::{KillTarget, Killer};

use super::again::Newcomer;
use super::disks::{Role, Room};
use super::files::{NodeFiles, NodePlan, Scope};
use super::ports::{Ports, Report};
use super::roster::{Group, Member, Roster};
use super::storage::DiskUsage;
use super::turn::Awake;
use super::{Guard, Plan, Realtime, now};
use crate::backend::parts::Parts;
use crate::fake::{mount_unified, write};
use crate::ledger::{Author, Rung};

const MIB: i64 = 1 << 20;
/// The node, the guard, and the moment at which it began.
pub(super) struct Scene {
    root: tempfile::TempDir,
    layout: Layout,
    pub(super) guard: Guard,
    pub(super) begun: Moment,
}

impl Scene {
    /// The pod's uid.
    pub(super) const UID: &str = "0e1f2a3b-4c5d-6e7f-8091-a2b3c4d5e6f7";
    /// The grace of the threshold where the victim is asked first.
    const PATIENCE: Span = Span::from_secs(1);
    /// The grace of the pod.
    pub(super) const GRACE: Span = Span::from_secs(5);

    /// One whose victim is asked first.
    pub(super) fn asking() -> Self {
        Self::with(Signal::MemoryAvailable, Self::PATIENCE)
    }

    /// One whose victim is killed at once.
    pub(super) fn killing() -> Self {
        Self::with(Signal::MemoryAvailable, Span::ZERO)
    }

    /// One whose pod is known, by a measurement that is never too old, to hold 60 MiB of nodefs, of which nothing is known yet;
    /// 100 MiB are to be left of it.
    pub(super) fn filling() -> Self {
        let scene = Self::with(Signal::NodefsAvailable, Span::ZERO);
        let volumes = FsUsage {
            bytes: Some(60 << 20),
            inodes: Some(1),
        };
        let disks = &scene.guard.roster.disks;
        disks.get(0).unwrap().set(&DiskUsage {
            volumes,
            ..DiskUsage::default()
        });
        disks.note_round(Some(Moment::from_nanos(i64::MAX)));
        scene.guard.ports.disks.assign(Role::Nodefs, Some(0));
        scene
    }

    /// Has the guard see so many MiB left on it.
    pub(super) fn leave_on_disk(&mut self, mib: i64) {
        let room = Room {
            at: now(),
            bytes: (mib * MIB, 4096 * MIB),
            inodes: None,
        };
        self.guard.ports.disks.publish(0, Some(room));
        self.guard.awake = Awake::now();
        self.guard.look(now());
    }

    /// The pod has the containers `a`, in which somebody runs, and `idle`.
    fn with(signal: Signal, grace: Span) -> Self {
        let root = tempfile::tempdir().unwrap();
        mount_unified(root.path());
        write(
            root.path(),
            "proc/swaps",
            "Filename Type Size Used Priority\n",
        );
        write(root.path(), "sys/fs/cgroup/node/memory.max", "4294967296\n");
        for group in ["node", "pod"] {
            let file = |name: &str| format!("sys/fs/cgroup/{group}/{name}");
            write(root.path(), &file("memory.current"), "0\n");
            write(
                root.path(),
                &file("memory.stat"),
                "inactive_file 0\nactive_file 0\n",
            );
            write(root.path(), &file("cgroup.procs"), "");
        }
        container(&root, "a", "0\n");
        container(&root, "idle", "");
        let layout = Layout::detect(root.path()).unwrap();
        let begun = now();
        let plan = plan(&root, &layout, engine(signal, grace, begun));
        let files = NodeFiles::open(&plan.root, &layout, &plan.node).unwrap();
        let ports = Arc::new(Ports::new(16, 4).unwrap());
        let table = Arc::clone(&plan.roster.table);
        let mut guard = Guard::new(plan, files, ports);
        guard.feed(begun, &Input::Workloads(table));
        Self {
            root,
            layout,
            guard,
            begun,
        }
    }

    /// A sample with so many MiB available, where 100 are wanted.
    pub(super) fn sample(&mut self, at: Moment, available: i64) {
        let mut observations = Observations::default();
        observations[Signal::MemoryAvailable] = Some(Observation {
            available: available * MIB,
            capacity: 4096 * MIB,
            at: Some(at),
        });
        let usage = [Some(PodUsage {
            memory: Some(300 << 20),
            processes: Some(1),
            ..PodUsage::default()
        })];
        let sample = Sample {
            observations,
            confirmation: Confirmation::default(),
            usage: &usage,
        };
        self.guard.feed(at, &Input::Sample(&sample));
    }

    /// Has the pod asked to end; when that was.
    pub(super) fn ask(&mut self) -> Moment {
        let at = self.begun + Self::PATIENCE;
        self.sample(self.begun, 50);
        self.sample(at, 50);
        let open = self.guard.engine.open_order().unwrap();
        assert_eq!(open.deadline(), Some(at + Self::GRACE));
        at
    }

    /// Another roster in which the pod has these containers; none, and it has no pod.
    pub(super) fn roster(&self, containers: &[&str]) -> Box<Roster> {
        let generation = self.guard.engine.table().generation() + 1;
        roster(&self.root, &self.layout, generation, containers)
    }

    /// A container that is made in the pod, with one process.
    pub(super) fn newcomer(&self, name: &str) -> Newcomer {
        container(&self.root, name, "0\n");
        let pod = KillTarget::open(&self.layout, "/pod").unwrap();
        Newcomer {
            pod: pod.id().0,
            target: KillTarget::open(&self.layout, &format!("/pod/{name}")).unwrap(),
        }
    }

    /// Has so many processes run in a container.
    pub(super) fn runs(&self, name: &str, processes: usize) {
        let list = folder(&self.root, name).join("cgroup.procs");
        fs::write(list, "0\n".repeat(processes)).unwrap();
    }

    /// How many processes were killed each time that is told of what was started again; everything that is told is taken.
    pub(super) fn told_again(&self) -> Vec<u32> {
        let reports = std::iter::from_fn(|| self.guard.ports.reports.take());
        let again = reports.filter_map(|report| match report {
            Report::Again(again) => Some(again.processes),
            _ => None,
        });
        again.collect()
    }

    /// Whether a container was killed.
    pub(super) fn is_killed(&self, name: &str) -> bool {
        let kill = folder(&self.root, name).join("cgroup.kill");
        fs::read_to_string(kill).unwrap() == "1"
    }
}

fn folder(root: &tempfile::TempDir, name: &str) -> std::path::PathBuf {
    root.path().join("sys/fs/cgroup/pod").join(name)
}

fn container(root: &tempfile::TempDir, name: &str, processes: &str) {
    let folder = folder(root, name);
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("cgroup.procs"), processes).unwrap();
    fs::write(folder.join("cgroup.kill"), "").unwrap();
}

fn plan(root: &tempfile::TempDir, layout: &Layout, engine: Engine) -> Plan {
    Plan {
        root: root.path().to_owned(),
        layout: layout.clone(),
        node: NodePlan {
            scope: Scope::Group("/node".to_owned()),
            ..NodePlan::default()
        },
        engine,
        first: Vec::new(),
        evicted: Vec::new(),
        interrupted: None,
        memory: MemoryPolicy::Kubelet,
        without_sampler: "a test".to_owned(),
        killer: Killer::new(layout, None).unwrap(),
        ledger: None,
        author: Author {
            boot: [0; 16],
            clocks: ClockPair::now(),
            policy: MemoryPolicy::Kubelet,
            rung: Rung::Poll,
        },
        realtime: Realtime {
            priority: None,
            may_move: false,
        },
        housekeeping: Span::from_secs(10),
        roster: roster(root, layout, 1, &["a", "idle"]),
    }
}

fn engine(signal: Signal, grace: Span, begun: Moment) -> Engine {
    let threshold = Threshold {
        signal,
        grace,
        value: Value::Quantity(Quantity::from_bytes(100 * MIB)),
        min_reclaim: None,
    };
    let settings = Settings {
        max_pod_grace: Scene::GRACE.as_nanos() / 1_000_000_000,
        ..Settings::default()
    };
    let live = LiveSettings {
        enforce: true,
        memory: MemoryPolicy::Kubelet,
        ..LiveSettings::default()
    };
    Engine::new(
        // There the node has nothing to give back for nodefs.
        Policy::new(vec![threshold], Disks::DedicatedImagefs, settings),
        live,
        begun,
    )
}

fn roster(
    root: &tempfile::TempDir,
    layout: &Layout,
    generation: u64,
    containers: &[&str],
) -> Box<Roster> {
    let protected = ProtectedPids::new(root.path(), []);
    if containers.is_empty() {
        let table = WorkloadTable::new(Vec::new(), generation);
        return Box::new(Roster::new(table, Vec::new(), protected));
    }
    let pod = Workload {
        name: "web".to_owned(),
        uid: Scene::UID.to_owned(),
        by_kubelet: true,
        ..Workload::default()
    };
    let parts = Parts {
        containers: containers
            .iter()
            .map(|name| format!("/pod/{name}"))
            .collect(),
        ..Parts::default()
    };
    let member = Member {
        workload: 0,
        group: Arc::new(Group::open(layout, ("/pod", &[]), Some(&parts)).unwrap()),
    };
    let table = WorkloadTable::new(vec![pod], generation);
    Box::new(Roster::new(table, vec![member], protected))
}
