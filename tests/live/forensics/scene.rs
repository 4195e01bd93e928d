//! A workload in a bounded group, and a collector that knows it.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use brink::backend::build::{Builder, Scan};
use brink::config::{CgroupRule, Selection};
use brink::forensics::{Collector, Outlet, Over, Plan};
use brink::guard::files::NodePlan;
use brink::runtime::equipment::{Equipment, Loaded};
use brink_core::node::workload::ResourceList;
use brink_host::cgroup::glob::Glob;
use brink_host::cgroup::owned::OwnedCgroup;
use brink_host::cgroup::{CgroupDir, Controller};
use brink_host::clock::ClockPair;
use brink_host::hog::{HogSpec, Load};
use brink_host::probe::{Row, Wishes};
use brink_stream::model::field::Field;
use brink_stream::model::incident::{ForkRoot, Incident};
use brink_stream::model::kind::Kind;
use brink_tests::{Hog, Sandbox, slowed};

/// Longest wait for anything that should take milliseconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const MIB: u64 = 1 << 20;

struct Recording(Sender<(Kind, Incident)>);

impl Outlet for Recording {
    fn open(&self, of: Kind, mut incident: Incident, _group: Option<u64>) -> Option<Incident> {
        incident.id = format!("test-{}", incident.victims[0].pid);
        self.0.send((of, incident.clone())).ok()?;
        Some(incident)
    }

    fn close(&self, of: Kind, incident: &Incident) {
        let _nobody_listens = self.0.send((of, incident.clone()));
    }

    fn amend(&self, _uid: &str, _fill: &mut dyn FnMut(&mut Incident)) -> bool {
        false
    }

    fn fork_root(&self, order: u64, _uid: &str, root: &Field<ForkRoot>) {
        panic!("nothing was ordered: {order} {root:?}");
    }

    fn completed(&self, over: &Over) {
        panic!("nothing was ordered: {over:?}");
    }

    fn lost(&self, count: u64, total: u64) {
        panic!("{count} of {total} kills found no room");
    }
}

/// A workload in a bounded group, and a collector that knows it.
pub(crate) struct Scene {
    pub(crate) sandbox: Sandbox,
    pub(crate) web: OwnedCgroup,
    pub(crate) collector: Collector,
    pub(crate) told: Receiver<(Kind, Incident)>,
    thread: Option<JoinHandle<()>>,
    equipment: Option<Equipment>,
}

impl Scene {
    /// A group of so many MiB with a workload in it, or what this host lacks.
    pub(crate) fn new(mib: u64) -> Result<Self, String> {
        let wishes = Wishes {
            forensics: true,
            ..Wishes::default()
        };
        let mut equipment = Equipment::load(Path::new("/"), wishes);
        for name in ["oom_victim", "sigkill_sent"] {
            let program = equipment
                .programs
                .iter()
                .find(|program| program.name == name);
            match program.map(|program| &program.absent) {
                Some(None) => {}
                Some(Some(why)) => return Err(format!("{name}: {why}")),
                None => return Err(format!("{name} is not loaded")),
            }
        }
        let loaded = Arc::new(Loaded::default());
        loaded.fill(&mut equipment);
        let scene = Self::with(mib, loaded, Some(equipment))?;
        scene.collector.loaded();
        Ok(scene)
    }

    /// The same without the programs on kills: nobody tells the collector of the kernel's decision.
    pub(crate) fn without_decisions(mib: u64) -> Result<Self, String> {
        Self::with(mib, Arc::default(), None)
    }

    fn with(mib: u64, loaded: Arc<Loaded>, equipment: Option<Equipment>) -> Result<Self, String> {
        let sandbox =
            Sandbox::new(&[Controller::Memory], mib * MIB).map_err(|why| why.to_string())?;
        let web = sandbox.group.child("web").unwrap();
        let (outlet, told) = channel();
        let plan = Plan {
            root: Path::new("/").to_path_buf(),
            layout: sandbox.layout.clone(),
            node: NodePlan::default(),
            scope: "/".to_owned(),
            command_lines: true,
            loaded,
            clocks: ClockPair::now(),
            outlet: Box::new(Recording(outlet)),
        };
        let (collector, body) = Collector::new(plan).unwrap();
        let thread = Some(std::thread::spawn(body));
        let scene = Self {
            sandbox,
            web,
            collector,
            told,
            thread,
            equipment,
        };
        scene.follow();
        Ok(scene)
    }

    /// What became of the kernel's records of kills, for whoever misses one.
    pub(crate) fn losses(&self) -> String {
        let meters = self.equipment.as_ref().and_then(|own| own.meters.as_ref());
        let Some(meters) = meters else {
            return "no counters".to_owned();
        };
        let rows = [Row::OomKills, Row::SignalKills, Row::KillEnds];
        let losses = rows.map(|row| format!("{row:?}: {:?}", meters.loss(row)));
        losses.join("; ")
    }

    /// Tells the collector of the workload.
    pub(crate) fn follow(&self) {
        let rule = CgroupRule {
            glob: Glob::new(self.web.group()).unwrap(),
            name: Some("web".to_owned()),
            namespace: Some("test".to_owned()),
            priority: Some(7),
            termination_grace: None,
            requests: ResourceList::default(),
            directories: Vec::new(),
        };
        let layout = self.sandbox.layout.clone();
        let mut builder = Builder::new(
            Path::new("/"),
            layout,
            "/",
            vec![rule],
            Selection::default(),
        );
        let built = builder.build(&[], Scan::All).unwrap();
        assert_eq!(built.roster.members.len(), 1, "{:?}", built.troubles);
        self.collector.follow(&built.roster);
    }

    /// The workload's group in the hierarchy of memory.
    pub(crate) fn memory(&self) -> &CgroupDir {
        self.web
            .dir(&self.sandbox.layout, Controller::Memory)
            .unwrap()
    }

    pub(crate) fn limit(&self, group: &OwnedCgroup, mib: u64) {
        group.limit_memory(&self.sandbox.layout, mib * MIB).unwrap();
    }

    pub(crate) fn leak(&self, mib: u64) -> Hog {
        Self::leak_in(&self.web, mib)
    }

    pub(crate) fn leak_in(group: &OwnedCgroup, mib: u64) -> Hog {
        let spec = HogSpec::new(Load::Anon, mib * MIB, Duration::from_mins(1));
        let program = Path::new(env!("CARGO_BIN_EXE_brink-hog"));
        Hog::spawn(program, Some(group), &spec).unwrap()
    }

    /// The same by another user.
    pub(crate) fn leak_of(&self, user: u32, mib: u64) -> Hog {
        let spec = HogSpec {
            user: Some(user),
            ..HogSpec::new(Load::Anon, mib * MIB, Duration::from_mins(1))
        };
        let program = Path::new(env!("CARGO_BIN_EXE_brink-hog"));
        Hog::spawn(program, Some(&self.web), &spec).unwrap()
    }

    /// Who takes all memory of the machine until the kernel kills it before anybody else.
    pub(crate) fn exhaust() -> Hog {
        Hog::exhaust(Path::new(env!("CARGO_BIN_EXE_brink-hog"))).unwrap()
    }

    /// A process of the workload that does nothing.
    pub(crate) fn idler(&self) -> Child {
        Self::idler_in(&self.web)
    }

    pub(crate) fn idler_in(group: &OwnedCgroup) -> Child {
        let child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        group.add_process(child.id()).unwrap();
        child
    }

    /// The next event of that kind about the process; those of other tests' kills are passed over.
    pub(crate) fn about(&self, of: Kind, pid: u32) -> Incident {
        self.all_about(of, &[pid]).remove(0)
    }

    /// Everything that is told of these processes up to an event of that kind, which is the first of the list.
    pub(crate) fn all_about(&self, of: Kind, pids: &[u32]) -> Vec<Incident> {
        let until = Instant::now() + slowed(PATIENCE);
        let mut told = Vec::new();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let next = self.told.recv_timeout(left);
            let (kind, incident) =
                next.unwrap_or_else(|_| panic!("{of:?} of {pids:?} did not come: {told:#?}"));
            let mut victims = incident.victims.iter();
            if !victims.any(|victim| pids.contains(&victim.pid)) {
                continue;
            }
            told.push(incident);
            if kind == of {
                told.reverse();
                return told;
            }
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.collector.stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(
                ended.is_ok() || std::thread::panicking(),
                "the collector died"
            );
        }
    }
}

/// Kills and reaps a process of ours.
pub(crate) fn end(mut child: Child) {
    let _gone_already = child.kill();
    child.wait().unwrap();
}
