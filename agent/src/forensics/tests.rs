//! The collector's thread on this machine: what it is told, and the incidents that it tells.

mod orders;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use brink_core::node::workload::WorkloadTable;
use brink_host::cgroup::Layout;
use brink_host::clock::{ClockPair, monotonic_ns};
use brink_host::kill::pid_set::ProtectedPids;
use brink_host::probe::abi::Plain as _;
use brink_host::probe::abi::record::{Head, RECLAIM_MEMCG, UNKNOWN, VictimRecord};
use brink_stream::model::event::Time;
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::incident::{Cause, ForkRoot, Incident, NodeState};
use brink_stream::model::kind::Kind;

use super::choice::Choice;
use super::collector::WAITING;
use super::compose::blank;
use super::correlate::End;
use super::gather::victim::{self, Told};
use super::identity::Snapshot;
use super::scene::Scene;
use super::{Collector, Outlet, Over, Plan};
use crate::guard::files::NodePlan;
use crate::guard::roster::Roster;
use crate::runtime::equipment::Loaded;

/// Longest wait for anything that should take milliseconds.
const PATIENCE: Duration = Duration::from_mins(1);

/// Where incidents are told, with the answer of whoever asks for an order's.
struct Recording(Sender<(Kind, Incident)>, bool);

impl Outlet for Recording {
    fn open(&self, of: Kind, mut incident: Incident, _group: Option<u64>) -> Option<Incident> {
        incident.id = format!("test-{}", incident.at.monotonic_ns);
        self.0.send((of, incident.clone())).ok()?;
        Some(incident)
    }

    fn close(&self, of: Kind, incident: &Incident) {
        let _nobody_listens = self.0.send((of, incident.clone()));
    }

    fn amend(&self, _uid: &str, fill: &mut dyn FnMut(&mut Incident)) -> bool {
        let mut incident = eviction();
        fill(&mut incident);
        self.1 && self.0.send((Kind::EvictionOrdered, incident)).is_ok()
    }

    fn fork_root(&self, order: u64, uid: &str, root: &Field<ForkRoot>) {
        let incident = Incident {
            id: format!("{uid} {order}"),
            fork_root: root.clone(),
            ..eviction()
        };
        let _nobody_listens = self.0.send((Kind::EvictionOrdered, incident));
    }

    fn completed(&self, _over: &Over) {
        let _nobody_listens = self.0.send((Kind::EvictionCompleted, eviction()));
    }

    fn lost(&self, count: u64, total: u64) {
        panic!("{count} of {total} kills found no room");
    }
}

fn plan(outlet: Sender<(Kind, Incident)>) -> Plan {
    let root = Path::new("/");
    Plan {
        root: root.to_path_buf(),
        layout: Layout::detect(root).unwrap(),
        node: NodePlan::default(),
        scope: "/".to_owned(),
        command_lines: true,
        loaded: Arc::new(Loaded::default()),
        clocks: ClockPair::now(),
        outlet: Box::new(Recording(outlet, true)),
    }
}

struct Running {
    collector: Collector,
    told: Receiver<(Kind, Incident)>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start() -> Self {
        let (outlet, told) = channel();
        let (collector, body) = Collector::new(plan(outlet)).unwrap();
        Self {
            collector,
            told,
            thread: Some(std::thread::spawn(body)),
        }
    }

    fn next(&self, of: Kind) -> Incident {
        let (kind, incident) = self.told.recv_timeout(PATIENCE).expect("an incident");
        assert_eq!(kind, of, "{incident:?}");
        incident
    }

    fn stop(&mut self) {
        assert!(self.collector.stop());
        self.thread.take().unwrap().join().unwrap();
    }
}

/// A process that does nothing until it is killed. Its arguments are not there the moment it is.
fn idler() -> Child {
    let mut command = Command::new("cat");
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let child = command.spawn().unwrap();
    let arguments = format!("/proc/{}/cmdline", child.id());
    while std::fs::read(&arguments).unwrap().is_empty() {
        std::thread::yield_now();
    }
    child
}

fn chosen(child: &Child, reclaim_ns: u64) -> VictimRecord {
    let mut comm = [0; 16];
    comm[..3].copy_from_slice(b"cat");
    VictimRecord {
        head: Head {
            at_ns: monotonic_ns(),
            ..Head::ZERO
        },
        pid: child.id(),
        extended: 1,
        anon_rss: 100,
        cgroup: UNKNOWN,
        trigger_cgroup: UNKNOWN,
        trigger_tid: 7,
        trigger_tgid: 7,
        reclaim_gear: RECLAIM_MEMCG,
        reclaim_ns,
        retry_age_ns: UNKNOWN,
        comm,
        ..VictimRecord::ZERO
    }
}

#[test]
fn an_oom_is_told_as_it_opens_and_as_it_closes() {
    let mut all = Running::start();
    let mut child = idler();
    let mut record = chosen(&child, monotonic_ns());
    // More than anybody has, as the kernel had it before the node was looked at.
    record.anon_rss = 1 << 30;
    all.collector.chosen(&record);
    // The same once more, as another program of the kernel's might tell it.
    all.collector.chosen(&record);
    let opened = all.next(Kind::OomKill);
    assert_eq!((opened.revision, opened.is_final), (1, false));
    assert_eq!(opened.cause, Cause::MemcgOom);
    assert_eq!(opened.victims[0].pid, child.id());
    assert_eq!(opened.victims[0].anon, Field::Value(1 << 40));
    assert_eq!(opened.victims[0].argv, Field::Value(vec!["cat".to_owned()]));
    assert!(
        opened
            .cgroups
            .value()
            .is_some_and(|cgroups| !cgroups.is_empty())
    );
    assert_eq!(opened.top_of_node, Field::Missing(Missing::Pending));
    assert_eq!(opened.workloads, Field::Missing(Missing::Pending));
    child.kill().unwrap();
    child.wait().unwrap();
    let closed = all.next(Kind::IncidentClosed);
    assert_eq!((closed.revision, closed.is_final), (2, true));
    assert_eq!(closed.id, opened.id);
    assert_eq!(
        closed.course.end.as_deref(),
        Some("every victim has exited")
    );
    assert!(closed.course.exited.value().is_some() && closed.course.freed.value().is_some());
    assert!(closed.victims[0].exited.value().is_some());
    assert!(
        closed
            .top_of_node
            .value()
            .is_some_and(|lines| !lines.is_empty())
    );
    // It never had a roster.
    assert_eq!(closed.workloads, Field::Missing(Missing::BeforeStart));
    let lines = closed.top_of_node.value().unwrap();
    let victim = lines.iter().find(|line| line.pid == child.id());
    assert_eq!(victim.map(|line| line.rss), Some(1 << 40), "{lines:?}");
    all.stop();
    assert!(all.told.try_recv().is_err(), "nothing else was told");
}

#[test]
fn a_group_is_one_incident_with_all_its_victims() {
    let mut all = Running::start();
    let mut children = [(); 3].map(|()| idler());
    let reclaimed = monotonic_ns();
    for child in &children {
        all.collector.chosen(&chosen(child, reclaimed));
    }
    all.next(Kind::OomKill);
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let closed = all.next(Kind::IncidentClosed);
    let pids: Vec<u32> = closed.victims.iter().map(|victim| victim.pid).collect();
    assert_eq!(pids, children.each_ref().map(Child::id));
    assert_eq!(closed.cause, Cause::GroupOom);
    all.stop();
}

#[test]
fn what_is_open_when_the_agent_ends_is_told_as_it_is() {
    let mut all = Running::start();
    let mut child = idler();
    all.collector.chosen(&chosen(&child, monotonic_ns()));
    all.next(Kind::OomKill);
    all.stop();
    let closed = all.next(Kind::IncidentClosed);
    assert_eq!(closed.course.exited, Field::Missing(Missing::Lost));
    assert!(closed.is_final);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A victim whose cgroup nobody knows any more: nothing of it is told as if it did not apply.
#[test]
fn a_victim_whose_cgroup_is_gone_says_so_everywhere() {
    let (outlet, _told) = channel();
    let mut scene = Scene::new(&plan(outlet));
    let mut child = idler();
    let choice = Choice::marked(&chosen(&child, monotonic_ns()), Missing::ProgramNotLoaded);
    child.kill().unwrap();
    child.wait().unwrap();
    let victim = scene.victim(&choice.victim, choice.cgroup);
    let opened = scene.oom(&choice, victim, &Time::new(0, 0)).incident;
    assert_eq!(opened.limit, Field::Missing(Missing::ProcessGone));
    assert_eq!(opened.workload, Field::Missing(Missing::ProcessGone));
    assert_eq!(opened.cgroups, Field::Missing(Missing::ProcessGone));
}

/// It runs, and `/proc` is hidden from us: nothing of it is told as gone.
#[test]
fn a_victim_whose_cgroup_cannot_be_read_says_why_everywhere() {
    let (outlet, _told) = channel();
    let root = tempfile::tempdir().unwrap();
    let mut plan = plan(outlet);
    plan.root = root.path().to_path_buf();
    let mut scene = Scene::new(&plan);
    let child = idler();
    let mut record = chosen(&child, monotonic_ns());
    record.cgroup = 7;
    let choice = Choice::marked(&record, Missing::ProgramNotLoaded);
    let victim = scene.victim(&choice.victim, choice.cgroup);
    let mut open = scene.oom(&choice, victim, &Time::new(0, 0));
    assert_eq!(open.group_id, Some(7), "its recording goes by that");
    open.close(End::TimedOut);
    let told = &open.incident;
    let hidden = Missing::NotPermitted;
    assert_eq!(told.victims[0].cgroup, Field::Missing(hidden));
    assert_eq!(told.cgroups, Field::Missing(hidden));
    assert_eq!(told.memory_stat, Field::Missing(hidden));
    assert_eq!(told.top_of_cgroup, Field::Missing(hidden));
    assert_eq!(told.workload, Field::Missing(hidden));
    assert_eq!(told.limit, Field::Missing(hidden));
    assert_eq!(told.course.freed, Field::Missing(hidden));
    assert_eq!(told.course.container_survived, Field::Missing(hidden));
    end(child);
}

/// A pod that is killed before a roster has it: whose it was is told when a roster does.
#[test]
fn a_pod_killed_right_after_its_start_gets_its_name_in_the_end() {
    let (outlet, _told) = channel();
    let mut scene = Scene::new(&plan(outlet));
    let pod = "/kubepods/pod7f4a1b2c-0d3e-4f56-8a9b-0c1d2e3f4a5b";
    let mut incident = eviction();
    let told = Told::default();
    let mut victim = scene.victim(&told, None);
    victim.cgroup = Field::Value(format!("{pod}/{}", "ab".repeat(32)));
    incident.victims.push(victim);
    incident.workload = Field::Missing(Missing::Pending);
    scene.identify(&mut incident);
    assert_eq!(incident.workload, Field::Missing(Missing::Pending));
    scene.follow(Snapshot::of_one("web", pod));
    scene.identify(&mut incident);
    let id = "ab".repeat(32);
    let container = |incident: &Incident| {
        let identity = incident.workload.value().expect("it is known now");
        assert_eq!(identity.container_missing, None);
        assert_eq!(identity.container_id.as_deref(), Some(&*id));
        identity.container.clone()
    };
    assert_eq!(container(&incident).as_deref(), Some(&*id), "no status yet");
    // The container's name comes with its pod's status, and stays when the pod is gone.
    scene.follow(Snapshot::of_one("web", pod).with_container("app", &id));
    scene.identify(&mut incident);
    assert_eq!(container(&incident).as_deref(), Some("app"));
    scene.follow(Snapshot::of_one("web", pod));
    scene.identify(&mut incident);
    assert_eq!(container(&incident).as_deref(), Some("app"));
}

/// Those that are taken in together have their numbers in the order in which they were killed.
#[test]
fn kills_of_one_moment_are_told_in_their_order() {
    let (outlet, told) = channel();
    let (collector, body) = Collector::new(plan(outlet)).unwrap();
    let children = [(); 8].map(|()| idler());
    for child in &children {
        collector.chosen(&chosen(child, monotonic_ns()));
    }
    // All of them wait when it begins.
    let thread = std::thread::spawn(body);
    for child in &children {
        let (kind, incident) = told.recv_timeout(PATIENCE).expect("an incident");
        assert_eq!((kind, incident.victims[0].pid), (Kind::OomKill, child.id()));
    }
    assert!(collector.stop());
    thread.join().unwrap();
    children.into_iter().for_each(end);
}

/// More notes than there is room for: kills are counted, and of the rosters none is needed but the newest.
#[test]
fn a_roster_is_never_lost_and_only_kills_are_counted_as_kills() {
    let (outlet, _told) = channel();
    let (collector, _thread) = Collector::new(plan(outlet)).unwrap();
    let child = idler();
    let record = chosen(&child, 0);
    for _ in 0..WAITING {
        collector.chosen(&record);
    }
    let inbox = collector.inbox();
    assert_eq!(inbox.kills_lost(), 0);
    let nobody = Roster::new(
        WorkloadTable::new(Vec::new(), 1),
        Vec::new(),
        ProtectedPids::new(Path::new("/"), []),
    );
    collector.follow(&nobody);
    collector.loaded();
    assert_eq!(inbox.kills_lost(), 0);
    collector.chosen(&record);
    assert_eq!(inbox.kills_lost(), 1);
    let beside = inbox.beside();
    assert!(beside.roster.is_some() && beside.is_loaded);
    assert!(inbox.beside().roster.is_none(), "once");
    end(child);
}

/// Whoever takes part in a group's death beyond those that are named is watched by nobody.
#[test]
fn an_end_speaks_of_those_it_knows() {
    let check = |more_victims, end, expected: &str| {
        let (outlet, _told) = channel();
        let mut scene = Scene::new(&plan(outlet));
        let child = idler();
        let choice = Choice::marked(&chosen(&child, monotonic_ns()), Missing::ProgramNotLoaded);
        let victim = scene.victim(&choice.victim, choice.cgroup);
        let mut open = scene.oom(&choice, victim, &Time::new(0, 0));
        open.incident.more_victims = more_victims;
        open.close(end);
        assert_eq!(open.incident.course.end.as_deref(), Some(expected));
        self::end(child);
    };
    check(0, End::Exited, "every victim has exited");
    check(3, End::Exited, "every victim that is named has exited");
    let late = "after 30 s, 1 of the victims that are named had not exited";
    check(3, End::TimedOut, late);
}

/// The kernel names a group's victims one by one, slower than they die where its console is slow: what was so of all of them is not
/// when one more is named.
#[test]
fn memory_is_back_and_victims_are_gone_when_it_is_so_of_those_named_last_too() {
    let (outlet, _told) = channel();
    let mut scene = Scene::new(&plan(outlet));
    let children = [(); 3].map(|()| idler());
    let [first, second, third] = children.each_ref().map(|child| {
        let choice = Choice::marked(&chosen(child, 7), Missing::ProgramNotLoaded);
        let victim = scene.victim(&choice.victim, choice.cgroup);
        (choice, victim)
    });
    let time = |nanos| Time::new(0, nanos);
    let pending = Field::Missing(Missing::Pending);
    let pid = |child: usize| children[child].id();

    let mut open = scene.oom(&first.0, first.1, &time(1));
    open.release(&time(2));
    open.exited(pid(0), &time(3));
    open.ended(&time(3));
    assert_eq!(open.incident.course.memory_back, Field::Value(time(2)));
    open.join(second.1);
    let course = &open.incident.course;
    assert_eq!((&course.memory_back, &course.exited), (&pending, &pending));
    // The memory of the third is the second's, and comes back once.
    open.share(third.1, pid(1));
    open.release(&time(4));
    let course = &open.incident.course;
    assert_eq!(course.memory_back, Field::Value(time(4)));
    assert_eq!(course.exited, pending);
    open.exited(pid(1), &time(5));
    open.exited(pid(2), &time(6));
    open.ended(&time(6));
    let course = &open.incident.course;
    assert_eq!(course.exited, Field::Value(time(6)));
    assert_eq!(course.memory_back, Field::Value(time(4)));
    children.into_iter().for_each(end);
}

/// Whoever is named when all others are gone, and lives, is no part of what ended with them.
#[test]
fn a_victim_that_lives_keeps_an_incident_from_having_ended() {
    let (outlet, _told) = channel();
    let mut scene = Scene::new(&plan(outlet));
    let children = [(); 2].map(|()| idler());
    let [first, second] = children.each_ref().map(|child| {
        let choice = Choice::marked(&chosen(child, 7), Missing::ProgramNotLoaded);
        let victim = scene.victim(&choice.victim, choice.cgroup);
        (choice, victim)
    });
    let mut open = scene.oom(&first.0, first.1, &Time::new(0, 1));
    open.exited(children[0].id(), &Time::new(0, 2));
    open.ended(&Time::new(0, 2));
    open.join(second.1);
    open.close(End::TimedOut);
    let course = &open.incident.course;
    let never = Field::Missing(Missing::NotApplicable);
    assert_eq!((&course.exited, &course.memory_back), (&never, &never));
    children.into_iter().for_each(end);
}

/// Kills and reaps a process of ours.
fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The incident of an order of ours as it opens.
fn eviction() -> Incident {
    let node = NodeState {
        available: Field::Value(7),
        headroom: Field::Missing(Missing::Pending),
        capacity: Field::Missing(Missing::Pending),
        usable_swap: Field::Missing(Missing::Pending),
        meminfo: Field::Missing(Missing::Pending),
        vmstat: Field::Missing(Missing::Pending),
        zones: Field::Missing(Missing::Pending),
        pressure: Field::Missing(Missing::Pending),
        reclaim_ns: Field::Missing(Missing::Pending),
    };
    let victim = victim::read(
        victim::Reader {
            root: Path::new("/"),
            layout: &Layout::detect(Path::new("/")).unwrap(),
            command_lines: false,
        },
        &Told::default(),
        0,
    );
    let mut incident = blank(Cause::Eviction, &Time::new(0, 0), victim, node);
    incident.victims.clear();
    incident.cgroups = Field::Missing(Missing::Pending);
    incident
}
