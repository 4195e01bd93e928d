//! The collector's thread on this machine: what it is told, and the incidents that it tells.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use brink_host::cgroup::Layout;
use brink_host::clock::{ClockPair, monotonic_ns};
use brink_host::probe::abi::Plain as _;
use brink_host::probe::abi::record::{Head, RECLAIM_MEMCG, UNKNOWN, VictimRecord};
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::incident::{Cause, Incident};
use brink_stream::model::kind::Kind;

use super::{Collector, Outlet, Plan};
use crate::guard::files::NodePlan;
use crate::runtime::equipment::Loaded;

/// Longest wait for anything that should take milliseconds.
const PATIENCE: Duration = Duration::from_mins(1);

struct Recording(Sender<(Kind, Incident)>);

impl Outlet for Recording {
    fn open(&self, of: Kind, mut incident: Incident) -> Option<Incident> {
        incident.id = format!("test-{}", incident.at.monotonic_ns);
        self.0.send((of, incident.clone())).ok()?;
        Some(incident)
    }

    fn close(&self, of: Kind, incident: &Incident) {
        let _nobody_listens = self.0.send((of, incident.clone()));
    }

    fn lost(&self, count: u64, total: u64) {
        panic!("{count} of {total} kills found no room");
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
        let root = Path::new("/");
        let plan = Plan {
            root: root.to_path_buf(),
            layout: Layout::detect(root).unwrap(),
            node: NodePlan::default(),
            scope: "/".to_owned(),
            command_lines: true,
            loaded: Arc::new(Loaded::default()),
            clocks: ClockPair::now(),
            outlet: Box::new(Recording(outlet)),
        };
        let (collector, body) = Collector::new(plan).unwrap();
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
        self.collector.stop();
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
    let record = chosen(&child, monotonic_ns());
    all.collector.chosen(&record);
    // The same once more, as another program of the kernel's might tell it.
    all.collector.chosen(&record);
    let opened = all.next(Kind::OomKill);
    assert_eq!((opened.revision, opened.is_final), (1, false));
    assert_eq!(opened.cause, Cause::MemcgOom);
    assert_eq!(opened.victims[0].pid, child.id());
    assert_eq!(opened.victims[0].anon, Field::Value(100 << 10));
    assert_eq!(opened.victims[0].argv, Field::Value(vec!["cat".to_owned()]));
    assert!(
        opened
            .cgroups
            .value()
            .is_some_and(|cgroups| !cgroups.is_empty())
    );
    assert_eq!(opened.top_of_node, Field::Missing(Missing::Pending));
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
