//! Kills on the real kernel become incidents: whose limit, which victim, who sent the signal.
#![cfg(test)]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use brink::backend::build::{Builder, Scan};
use brink::config::{CgroupRule, Selection};
use brink::forensics::{Collector, Outlet, Plan};
use brink::guard::files::NodePlan;
use brink::runtime::equipment::{Equipment, Loaded};
use brink_core::node::workload::ResourceList;
use brink_host::cgroup::glob::Glob;
use brink_host::cgroup::owned::OwnedCgroup;
use brink_host::cgroup::{Controller, Version};
use brink_host::clock::ClockPair;
use brink_host::hog::{HogSpec, Load};
use brink_host::probe::Wishes;
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::incident::{Cause, Confidence, Incident, LimitMethod};
use brink_stream::model::kind::Kind;
use brink_tests::{Hog, Sandbox, guest_only, skip, slowed};

/// Longest wait for anything that should take milliseconds.
const PATIENCE: Duration = Duration::from_secs(30);
const MIB: u64 = 1 << 20;

struct Recording(Sender<(Kind, Incident)>);

impl Outlet for Recording {
    fn open(&self, of: Kind, mut incident: Incident) -> Option<Incident> {
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

    fn lost(&self, count: u64, total: u64) {
        panic!("{count} of {total} kills found no room");
    }
}

/// A workload in a bounded group, and a collector that knows it.
struct Scene {
    sandbox: Sandbox,
    web: OwnedCgroup,
    collector: Collector,
    told: Receiver<(Kind, Incident)>,
    thread: Option<JoinHandle<()>>,
    _equipment: Equipment,
}

impl Scene {
    /// A group of so many MiB with a workload in it, or what this host lacks.
    fn new(mib: u64) -> Result<Self, String> {
        let sandbox =
            Sandbox::new(&[Controller::Memory], mib * MIB).map_err(|why| why.to_string())?;
        let web = sandbox.group.child("web").unwrap();
        let loaded = Arc::new(Loaded::default());
        let root = Path::new("/");
        let wishes = Wishes {
            forensics: true,
            ..Wishes::default()
        };
        let mut equipment = Equipment::load(root, wishes);
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
        loaded.fill(&mut equipment);
        let (outlet, told) = channel();
        let plan = Plan {
            root: root.to_path_buf(),
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
        collector.loaded();
        let scene = Self {
            sandbox,
            web,
            collector,
            told,
            thread,
            _equipment: equipment,
        };
        scene.follow();
        Ok(scene)
    }

    /// Tells the collector of the workload.
    fn follow(&self) {
        let rule = CgroupRule {
            glob: Glob::new(self.web.group()).unwrap(),
            name: Some("web".to_owned()),
            namespace: Some("test".to_owned()),
            priority: Some(7),
            termination_grace: None,
            requests: ResourceList::default(),
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

    fn limit(&self, group: &OwnedCgroup, mib: u64) {
        group.limit_memory(&self.sandbox.layout, mib * MIB).unwrap();
    }

    fn leak(&self, mib: u64) -> Hog {
        Self::leak_in(&self.web, mib)
    }

    fn leak_in(group: &OwnedCgroup, mib: u64) -> Hog {
        let spec = HogSpec::new(Load::Anon, mib * MIB, Duration::from_mins(1));
        let program = Path::new(env!("CARGO_BIN_EXE_brink-hog"));
        Hog::spawn(program, Some(group), &spec).unwrap()
    }

    /// A process of the workload that does nothing.
    fn idler(&self) -> Child {
        Self::idler_in(&self.web)
    }

    fn idler_in(group: &OwnedCgroup) -> Child {
        let child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        group.add_process(child.id()).unwrap();
        child
    }

    /// The next event of that kind about the process; those of other tests' kills are passed over.
    fn about(&self, of: Kind, pid: u32) -> Incident {
        self.all_about(of, &[pid]).remove(0)
    }

    /// Everything that is told of these processes up to an event of that kind, which is the first of the list.
    fn all_about(&self, of: Kind, pids: &[u32]) -> Vec<Incident> {
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

/// The kernel's log from now on, where it may be read.
struct Log(Option<File>);

impl Log {
    fn from_now() -> Self {
        let mut options = File::options();
        options.read(true).custom_flags(nonblocking());
        let file = options.open("/dev/kmsg").ok();
        Self(file.and_then(|mut file| file.seek(SeekFrom::End(0)).is_ok().then_some(file)))
    }

    /// `oom_memcg=` of the kill of a process, `global_oom` for the node's, if the log has its line: the kernel writes only so
    /// many in a time.
    fn limit_of(&mut self, pid: u32) -> Option<String> {
        let file = self.0.as_mut()?;
        let wanted = format!(",pid={pid},");
        let mut record = vec![0; 8192];
        loop {
            // One record a read; what was overwritten meanwhile is skipped, and the end is an error.
            let length = match file.read(&mut record) {
                Ok(length) => length,
                Err(error) if error.raw_os_error() == Some(EPIPE) => continue,
                Err(_) => return None,
            };
            let line = String::from_utf8_lossy(&record[..length]).into_owned();
            if line.contains(&wanted) {
                let limit = line.split(',').find_map(|word| match word {
                    "global_oom" => Some(word),
                    _ => word.strip_prefix("oom_memcg="),
                });
                return limit.map(str::to_owned);
            }
        }
    }
}

const EPIPE: i32 = 32;

const fn nonblocking() -> i32 {
    rustix::fs::OFlags::NONBLOCK.bits().cast_signed()
}

#[test]
fn a_cgroup_at_its_own_limit_is_one_incident_that_agrees_with_the_kernel() {
    let scene = match Scene::new(256) {
        Ok(scene) => scene,
        Err(why) => skip!("{why}"),
    };
    let mut log = Log::from_now();
    scene.limit(&scene.web, 64);
    let leak = scene.leak(200);
    let pid = leak.pid().unsigned_abs();
    let opened = scene.about(Kind::OomKill, pid);
    assert_eq!(opened.cause, Cause::MemcgOom, "{opened:#?}");
    assert_eq!(opened.victims.len(), 1);
    let victim = &opened.victims[0];
    assert_eq!(victim.comm, "brink-hog");
    assert_eq!(victim.cgroup, Field::Value(scene.web.group().to_owned()));
    let anon = *victim.anon.value().unwrap();
    assert!((32 * MIB..=64 * MIB).contains(&anon), "{anon}");
    assert!(victim.start_ns.value().is_some() && victim.uid == Field::Value(0));
    let limit = opened.limit.value().unwrap();
    assert_eq!(limit.cgroup, scene.web.group());
    assert_eq!(
        (limit.method, limit.confidence),
        (LimitMethod::OomControl, Confidence::Exact)
    );
    if let Some(logged) = log.limit_of(pid) {
        assert_eq!(logged, limit.cgroup, "the kernel's own word");
    }
    let identity = opened.workload.value().unwrap();
    assert_eq!(
        (
            identity.namespace.as_str(),
            identity.name.as_str(),
            identity.priority
        ),
        ("test", "web", 7)
    );
    let cgroups = opened.cgroups.value().unwrap();
    assert_eq!(cgroups[0].max, Field::Value(Some(64 * MIB)));
    assert!(
        cgroups[0]
            .usage
            .value()
            .is_some_and(|usage| *usage > 32 * MIB)
    );
    assert_eq!(cgroups[1].max, Field::Value(Some(256 * MIB)));
    assert_eq!(cgroups.last().unwrap().path, "/");
    let closed = scene.about(Kind::IncidentClosed, pid);
    assert_eq!((closed.revision, closed.is_final), (2, true));
    assert_eq!(closed.id, opened.id);
    let course = &closed.course;
    assert!(course.exited.value().is_some() && course.memory_back.value().is_some());
    assert!(
        course.freed.value().is_some_and(|freed| *freed >= 32 * MIB),
        "{course:?}"
    );
    assert_eq!(course.container_survived, Field::Value(false));
    let trigger = closed.trigger.value().unwrap();
    assert!(
        trigger
            .kernel_stack
            .value()
            .is_some_and(|stack| stack.len() > 3),
        "{trigger:?}"
    );
    assert!(trigger.gfp.value().is_some());
    // Memory that a process takes is always charged by an allocation that may reclaim.
    match &trigger.gfp_flags {
        Field::Value(flags) => assert!(
            flags
                .iter()
                .any(|flag| flag.starts_with("GFP_") || flag.contains("RECLAIM")),
            "{flags:?}"
        ),
        Field::Missing(reason) => assert_eq!(*reason, Missing::KernelLacksIt),
    }
    assert!(victim.page_tables.value().is_some() && victim.age_ns.value().is_some());
    // They lie in its own memory, which may be given back before anybody has read them.
    match &victim.argv {
        Field::Value(argv) => assert!(argv[0].ends_with("brink-hog"), "{argv:?}"),
        Field::Missing(reason) => assert_eq!(*reason, Missing::ProcessGone),
    }
    assert_eq!(identity.owner_missing, Some(Missing::NotApplicable));
    assert!(
        closed.memory_stat.value().is_some(),
        "{:?}",
        closed.memory_stat
    );
    assert!(
        closed.top_of_node.value().is_some(),
        "{:?}",
        closed.top_of_node
    );
}

#[test]
fn a_limit_above_the_victims_cgroup_is_found() {
    let scene = match Scene::new(64) {
        Ok(scene) => scene,
        Err(why) => skip!("{why}"),
    };
    let idler = scene.idler();
    let leak = scene.leak(200);
    let pid = leak.pid().unsigned_abs();
    let opened = scene.about(Kind::OomKill, pid);
    let limit = opened.limit.value().unwrap();
    assert_eq!(limit.cgroup, scene.sandbox.group.group(), "{opened:#?}");
    let top = opened.top_of_cgroup.value().unwrap();
    assert_eq!(top[0].pid, pid, "the largest by far");
    assert!(top.iter().any(|line| line.pid == idler.id()), "{top:?}");
    let closed = scene.about(Kind::IncidentClosed, pid);
    assert_eq!(closed.course.container_survived, Field::Value(true));
    end(idler);
}

#[test]
fn a_group_that_is_killed_whole_is_one_incident() {
    let scene = match Scene::new(256) {
        Ok(scene) => scene,
        Err(why) => skip!("{why}"),
    };
    let dir = scene
        .web
        .dir(&scene.sandbox.layout, Controller::Memory)
        .unwrap();
    if dir.version() == Version::V1 {
        skip!("cgroup v1 never kills a group whole");
    }
    fs::write(dir.path().join("memory.oom.group"), "1").unwrap();
    scene.limit(&scene.web, 64);
    // Its processes lie in two cgroups below it, and go together all the same.
    let inner = ["one", "other"].map(|name| scene.web.child(name).unwrap());
    scene.follow();
    let idlers = [Scene::idler_in(&inner[0]), Scene::idler_in(&inner[1])];
    let mut log = Log::from_now();
    let leak = Scene::leak_in(&inner[0], 200);
    let pid = leak.pid().unsigned_abs();
    let expected: Vec<u32> = idlers.iter().map(Child::id).chain([pid]).collect();
    let told = scene.all_about(Kind::IncidentClosed, &expected);
    let [closed, opened] = &told[..] else {
        panic!("not one that opens and closes: {told:#?}");
    };
    assert_eq!(closed.id, opened.id);
    assert_eq!(closed.cause, Cause::GroupOom, "{closed:#?}");
    let found: BTreeSet<u32> = closed.victims.iter().map(|victim| victim.pid).collect();
    assert_eq!(found, expected.into_iter().collect());
    let limit = closed.limit.value().expect("it is known");
    assert_eq!(limit.cgroup, scene.web.group());
    let first = closed.victims[0].pid;
    if let Some(logged) = log.limit_of(first) {
        assert_eq!(logged, limit.cgroup, "the kernel's own word");
    }
    let mut victims = closed.victims.iter();
    assert!(
        victims.all(|victim| victim.exited.value().is_some()),
        "{closed:#?}"
    );
    assert_eq!(closed.course.container_survived, Field::Value(false));
    idlers.into_iter().for_each(end);
}

#[test]
fn the_node_out_of_memory_is_one_incident_for_no_cgroups_limit() {
    guest_only!("the kernel's OOM killer is let loose on the machine");
    let scene = match Scene::new(256) {
        Ok(scene) => scene,
        Err(why) => skip!("{why}"),
    };
    let mut log = Log::from_now();
    let mut spec = HogSpec::new(Load::Anon, 64 << 30, Duration::from_mins(5));
    (spec.floor, spec.wait) = (0, true);
    let mut hog = Hog::spawn(Path::new(env!("CARGO_BIN_EXE_brink-hog")), None, &spec).unwrap();
    let pid = hog.pid().unsigned_abs();
    fs::write(format!("/proc/{pid}/oom_score_adj"), "1000").unwrap();
    hog.start();
    assert!(!hog.wait(PATIENCE).unwrap().success());
    let closed = scene.about(Kind::IncidentClosed, pid);
    assert_eq!(closed.cause, Cause::GlobalOom, "{closed:#?}");
    let limit = closed.limit.value().unwrap();
    assert_eq!(
        (limit.cgroup.as_str(), limit.method, limit.confidence),
        ("/", LimitMethod::OomControl, Confidence::Exact)
    );
    if let Some(logged) = log.limit_of(pid) {
        assert_eq!(logged, "global_oom", "the kernel's own word");
    }
    let victim = &closed.victims[0];
    assert_eq!((closed.victims.len(), victim.pid), (1, pid));
    assert_eq!(victim.oom_score_adj, Field::Value(1000));
    assert!(victim.anon.value().is_some_and(|anon| *anon > 256 * MIB));
    let node = closed.node.value().unwrap();
    assert!(node.zones.value().is_some_and(|zones| !zones.is_empty()));
    let top = closed.top_of_node.value().expect("it was made");
    assert!(!top.is_empty());
    // In whose context memory ran out is anybody's, and its allocation is told all the same.
    let trigger = closed.trigger.value().unwrap();
    assert!(trigger.gfp.value().is_some() && trigger.order.value().is_some());
    assert!(
        closed
            .course
            .freed
            .value()
            .is_some_and(|freed| *freed > 256 * MIB),
        "{:?}",
        closed.course
    );
}

#[test]
fn a_kill_by_somebody_else_names_its_sender_and_one_of_ours_is_none() {
    let scene = match Scene::new(256) {
        Ok(scene) => scene,
        Err(why) => skip!("{why}"),
    };
    let (ours, theirs) = (scene.idler(), scene.idler());
    let pid = theirs.id();
    // This process is the agent's, so what it kills itself is told with its order.
    let own = ours.id();
    end(ours);
    let mut killer = Command::new("sh")
        .args(["-c", &format!("kill -9 {pid}")])
        .spawn()
        .unwrap();
    let sender = killer.id();
    assert!(killer.wait().unwrap().success());
    let mut told = Vec::new();
    let opened = loop {
        let (kind, incident) = scene
            .told
            .recv_timeout(slowed(PATIENCE))
            .expect("an incident");
        let is_it = incident.victims[0].pid == pid;
        told.extend(incident.victims.iter().map(|victim| victim.pid));
        if is_it {
            assert_eq!(kind, Kind::KillObserved, "{incident:#?}");
            break incident;
        }
    };
    assert!(!told.contains(&own), "our own kill is no incident");
    assert_eq!(opened.cause, Cause::ForeignKill);
    let trigger = opened.trigger.value().unwrap();
    assert_eq!((trigger.pid, trigger.comm.as_str()), (sender, "sh"));
    assert_eq!(trigger.signal_code, Field::Value(0));
    assert_eq!(opened.workload.value().unwrap().name, "web");
    let closed = scene.about(Kind::IncidentClosed, pid);
    assert!(closed.course.exited.value().is_some());
    end(theirs);
}

#[test]
fn fifty_ooms_in_a_row_are_fifty_incidents() {
    let scene = match Scene::new(256) {
        Ok(scene) => scene,
        Err(why) => skip!("{why}"),
    };
    scene.limit(&scene.web, 32);
    let mut killed = BTreeSet::new();
    for _ in 0..50 {
        let mut leak = scene.leak(100);
        killed.insert(leak.pid().unsigned_abs());
        leak.wait(PATIENCE).unwrap();
    }
    let (mut opened, mut closed) = (Vec::new(), BTreeSet::new());
    while closed.len() < killed.len() {
        let next = scene.told.recv_timeout(slowed(PATIENCE));
        let (kind, incident) = next.unwrap_or_else(|_| panic!("{opened:?} of {killed:?}"));
        let pid = incident.victims[0].pid;
        if !killed.contains(&pid) {
            continue;
        }
        assert_eq!(incident.victims.len(), 1, "{incident:#?}");
        let limit = incident.limit.value().expect("it is known");
        assert_eq!(limit.cgroup, scene.web.group());
        if kind == Kind::OomKill {
            opened.push(pid);
        } else {
            closed.insert(pid);
        }
    }
    let once: BTreeSet<u32> = opened.iter().copied().collect();
    assert_eq!((opened.len(), &once), (killed.len(), &killed));
}

/// Kills and reaps a process of ours.
fn end(mut child: Child) {
    let _gone_already = child.kill();
    child.wait().unwrap();
}
