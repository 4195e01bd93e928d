//! Orders of ours as the collector hears of them: what is seen of one, how it ends, and who else kills meanwhile.

use std::collections::VecDeque;

use brink_host::kill::pid_set::ProtectedPids;
use brink_host::probe::forensics::{Actor, Kill, Process, SignalCode};

use super::super::collector::{MOST_STEPS, Step};
use super::super::correlate::{Answer, Killed, Sender as Sent, Who};
use super::super::worker::Worker;
use super::*;
use crate::record::DecisionRecord;

/// The record of an order that is over.
fn order() -> DecisionRecord {
    let sample = include_str!("../../../../tests/events/v1alpha1/eviction-completed.json");
    let sample: serde_json::Value = serde_json::from_str(sample).unwrap();
    serde_json::from_value(sample["data"]["decision"]["value"].clone()).unwrap()
}

/// The cgroup of this process.
fn own_group() -> String {
    let layout = Layout::detect(Path::new("/")).unwrap();
    let own = std::process::id().cast_signed();
    let group = victim::membership(Path::new("/"), &layout, own);
    group.value().unwrap().clone()
}

/// A worker that is told by that collector, and its outlet answers so whether an order's incident is open.
fn worker(collector: &Collector, outlet: Sender<(Kind, Incident)>, is_open: bool) -> Worker {
    let mut plan = plan(outlet.clone());
    plan.outlet = Box::new(Recording(outlet, is_open));
    Worker::new(plan, collector.inbox())
}

#[test]
fn an_order_of_ours_is_amended_by_what_is_seen_of_it() {
    let group = own_group();
    let (outlet, _told) = channel();
    let mut scene = Scene::new(&plan(outlet));
    assert!(
        scene.eviction("web", None, &VecDeque::new()).is_none(),
        "nobody of that name"
    );
    scene.follow(Snapshot::of_one("web", &group));
    let mut seen = scene.eviction("web", None, &VecDeque::new()).unwrap();
    let mut incident = eviction();
    let mut identity = scene.identities.identity(&group).unwrap();
    identity.owner_missing = Some(Missing::Pending);
    (identity.qos, identity.request) = (None, None);
    incident.workload = Field::Value(identity);
    seen.fill(&mut incident);
    let found = incident.cgroups.value().expect("they are there");
    assert_eq!(found[0].path, group);
    assert!(!incident.victims.is_empty());
    let identity = incident.workload.value();
    let owner = identity.map(|identity| (&identity.owner, identity.owner_missing));
    assert_eq!(owner, Some((&None, Some(Missing::NotApplicable))));
    let known = identity.map(|identity| (identity.qos.as_deref(), identity.request));
    assert_eq!(known, Some((Some("Burstable"), Some(7))));
    let node = incident.node.value().unwrap();
    assert_eq!(node.available, Field::Value(7), "it was known better");
    assert!(node.meminfo.value().is_some() && node.vmstat.value().is_some());
    assert!(node.zones.value().is_some());
}

/// A sandbox and whoever is protected stay, and are no victims.
#[test]
fn whom_an_eviction_spares_is_no_victim() {
    let group = own_group();
    let own = std::process::id();
    let (outlet, _told) = channel();
    let mut scene = Scene::new(&plan(outlet));
    let mut seen = |snapshot: Snapshot| {
        scene.follow(snapshot);
        let mut seen = scene.eviction("web", None, &VecDeque::new()).unwrap();
        let mut incident = eviction();
        seen.fill(&mut incident);
        let is_victim = incident.victims.iter().any(|one| one.pid == own);
        (is_victim, incident.victims.len(), incident.more_victims)
    };
    let pod = || Snapshot::of_one("web", &group);
    assert!(seen(pod()).0);
    let container = format!("{}/container", group.trim_end_matches('/'));
    assert_eq!(seen(pod().killing(&[&container])), (false, 0, 0));
    let protected = ProtectedPids::new(Path::new("/"), []);
    assert!(!seen(pod().protecting(protected)).0);
}

/// However late it is looked for: what an order ended with comes after everything that was seen of it.
#[test]
fn an_order_of_ours_ends_when_all_that_was_seen_of_it_is_told() {
    let record = order();
    let snapshot = Snapshot::of_one(&record.victim.uid, &own_group());

    let mut running = Running::start();
    let roster = Box::new(snapshot);
    let inbox = running.collector.inbox();
    inbox.put(|beside| beside.roster = Some(roster));
    running.collector.ordered(&record);
    assert!(running.collector.completed(&record, None));
    let seen = running.next(Kind::EvictionOrdered);
    assert!(!seen.victims.is_empty());
    let table = running.next(Kind::EvictionOrdered).top_of_node;
    assert!(table.value().is_some(), "{table:?}");
    running.next(Kind::EvictionCompleted);

    // Of a workload that nobody knows nothing is waited for.
    let mut unknown = record;
    unknown.victim.uid = "nobody".to_owned();
    running.collector.ordered(&unknown);
    assert!(running.collector.completed(&unknown, None));
    running.next(Kind::EvictionCompleted);
    running.stop();
    assert!(!Collector::default().completed(&unknown, None), "it is off");
}

/// Of orders for process ids alone, and also that nobody knows.
#[test]
fn where_processes_came_from_is_told_with_the_number_of_the_order_that_was_for_them() {
    let check = |signal: &str, is_known: bool, expected: &[Missing]| {
        let (sender, told) = channel();
        let (collector, _thread) = Collector::new(plan(channel().0)).unwrap();
        let mut worker = worker(&collector, sender, false);
        let mut record = order();
        record.threshold.signal = signal.to_owned();
        let uid = record.victim.uid.clone();
        if is_known {
            worker.scene.follow(Snapshot::of_one(&uid, &own_group()));
        }
        collector.ordered(&record);
        worker.look_beside();
        let told: Vec<Incident> = told.try_iter().map(|(_, incident)| incident).collect();
        let roots: Vec<Missing> = told
            .iter()
            .filter_map(|incident| incident.fork_root.missing())
            .collect();
        assert_eq!(roots, expected, "{signal}");
        let id = format!("{uid} {}", record.order);
        assert!(told.iter().all(|incident| incident.id == id), "{told:?}");
    };
    check("pid.available", true, &[Missing::ProgramNotLoaded]);
    check("pid.available", false, &[Missing::Lost]);
    check("memory.available", true, &[]);
}

/// SIGKILL from a shell to a process in the cgroup with that id.
fn kill_of(child: &Child, cgroup: u64) -> Kill {
    let target = Process {
        tgid: child.id(),
        tid: child.id(),
        comm: "cat".to_owned(),
        cgroup: Some(cgroup),
        ..Process::default()
    };
    let sender = Actor {
        tgid: 77,
        tid: 77,
        comm: "sh".to_owned(),
        uid: 0,
        cgroup: None,
        unified: None,
    };
    Kill {
        at_ns: monotonic_ns(),
        target,
        sender,
        code: SignalCode::User,
        is_group: true,
        stacks: None,
    }
}

/// A kill by somebody else is told with our order for that workload, and by itself where the order's incident is over. Only of one
/// whose end was told it is known when that was.
#[test]
fn who_else_kills_while_we_had_ordered_is_told() {
    let check = |is_open: bool, is_told: bool| {
        let (sender, told) = channel();
        let (collector, _thread) = Collector::new(plan(channel().0)).unwrap();
        let mut worker = worker(&collector, sender, is_open);
        let group = own_group();
        worker.scene.follow(Snapshot::of_one("web", &group));
        worker.scene.identities.learn(7, &group, 0);
        worker.correlator.ordered("web".into());
        if is_told {
            worker.correlator.completed("web", monotonic_ns());
        }
        let child = idler();
        let kill = kill_of(&child, 7);
        worker.kill(kill.clone());
        worker.kill(kill);
        let amended: Vec<Incident> = told.try_iter().map(|(_, incident)| incident).collect();
        let open = worker.open.values().map(|open| open.incident.clone());
        let mut open: Vec<Incident> = open.collect();
        end(child);
        assert_eq!(
            (amended.len(), open.len()),
            (usize::from(is_open), usize::from(!is_open))
        );
        if is_open {
            let other = &amended[0].other_kills[0];
            assert_eq!((other.sender_pid, other.sender_comm.as_str()), (77, "sh"));
            assert_eq!((other.comm.as_str(), other.signal_code), ("cat", 0));
        } else {
            let alone = open.remove(0);
            assert_eq!(alone.cause, Cause::ForeignKill);
            let says_so = alone.evidence[1].contains("our order for its workload had just ended");
            assert_eq!(says_so, is_told, "{:?}", alone.evidence);
        }
    };
    check(true, false);
    check(false, true);
    check(false, false);
}

/// The kernel kills as many as there is room for while an order begins and ends: both are heard of, and in that order.
#[test]
fn an_order_has_its_room_however_many_the_kernel_kills() {
    let (outlet, _told) = channel();
    let (collector, _thread) = Collector::new(plan(outlet.clone())).unwrap();
    let mut worker = worker(&collector, outlet, true);
    let record = order();
    let uid = &record.victim.uid;
    worker.scene.follow(Snapshot::of_one(uid, &own_group()));
    let child = idler();
    let chosen = chosen(&child, 0);
    for _ in 0..WAITING {
        collector.chosen(&chosen);
    }
    collector.ordered(&record);
    assert!(collector.completed(&record, None));
    assert_eq!(collector.inbox().kills_lost(), 0);
    worker.look_beside();
    assert_eq!(worker.evictions.len(), 1);
    assert!(
        worker
            .evictions
            .iter()
            .all(|eviction| eviction.over.is_some())
    );
    let later = Killed {
        at: monotonic_ns() + 3_000_000_000,
        who: Who {
            pid: child.id(),
            start: None,
        },
        sender: Sent::Process(77),
        workload: Some(uid.as_str().into()),
    };
    let answer = worker.correlator.killed(&later);
    assert!(matches!(answer, Answer::Opened(_)), "{answer:?}");
    end(child);
}

/// What cannot be taken is given back to whoever tells it then, and nothing grows without end.
#[test]
fn what_waits_of_orders_is_bounded() {
    let (outlet, _told) = channel();
    let (collector, _thread) = Collector::new(plan(outlet)).unwrap();
    let record = order();
    collector.ordered(&record);
    let taken = (0..MOST_STEPS).filter(|_| collector.completed(&record, None));
    assert_eq!(taken.count(), MOST_STEPS - 1);
    let inbox = collector.inbox();
    assert_eq!(inbox.kills_lost(), 0);
    collector.ordered(&record);
    assert_eq!(inbox.kills_lost(), 1);
    let steps = inbox.beside().steps;
    assert!(matches!(steps[..], [Step::Given(_), Step::Over(_), ..]));
    assert_eq!(steps.len(), MOST_STEPS);
    assert!(collector.completed(&record, None), "there is room again");
}

/// Whoever is ordered anew is done with the order before, and one whose incident is open no more is over, although nobody told so.
#[test]
fn an_order_whose_end_was_lost_is_followed_no_longer() {
    let check = |is_open: bool, expected: usize| {
        let (outlet, _told) = channel();
        let (collector, _thread) = Collector::new(plan(outlet.clone())).unwrap();
        let mut worker = worker(&collector, outlet.clone(), true);
        let record = order();
        worker
            .scene
            .follow(Snapshot::of_one(&record.victim.uid, &own_group()));
        for _ in 0..3 {
            collector.ordered(&record);
            worker.look_beside();
            assert_eq!(worker.evictions.len(), 1, "one of a workload");
        }
        worker.outlet = Box::new(Recording(outlet, is_open));
        let who = Who {
            pid: 1,
            start: None,
        };
        worker.exited(who, monotonic_ns());
        assert_eq!(worker.evictions.len(), expected);
    };
    check(true, 1);
    check(false, 0);
}
