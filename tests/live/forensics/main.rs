//! Kills on the real kernel become incidents: whose limit, which victim, who sent the signal.
#![cfg(test)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command};

use brink_host::cgroup::events::MemoryEvents;
use brink_host::cgroup::membership::Membership;
use brink_host::cgroup::{Controller, Version};
use brink_host::zoneinfo::{Zone, Zoneinfo};
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::incident::{Cause, Confidence, Incident, LimitMethod, ZoneState};
use brink_stream::model::kind::Kind;
use brink_tests::{guest_only, lacks, skip, slowed, wait_until};

use crate::log::Log;
use crate::scene::{MIB, PATIENCE, Scene, end};

mod course;
mod foreign;
mod inferred;
mod log;
mod parts;
mod scene;
mod sharers;

/// A user who is not root.
const NOBODY: u32 = 65_534;

#[test]
fn a_cgroup_at_its_own_limit_is_one_incident_that_agrees_with_the_kernel() {
    let scene = match Scene::new(256) {
        Ok(scene) => scene,
        Err(why) => lacks!("{why}"),
    };
    let mut log = Log::from_now();
    scene.limit(&scene.web, 64);
    // What the group above has in use, and has taken, is more than what this one may have.
    let beside = scene.sandbox.group.child("beside").unwrap();
    let mut other = Scene::leak_in(&beside, 96);
    other.wait_touched(96 * MIB, PATIENCE).unwrap();
    let leak = scene.leak_of(NOBODY, 200);
    let pid = leak.pid().unsigned_abs();
    let opened = scene.about(Kind::OomKill, pid);
    assert_eq!(opened.cause, Cause::MemcgOom, "{opened:#?}");
    assert_eq!(opened.victims.len(), 1);
    let victim = &opened.victims[0];
    assert_eq!(victim.comm, "brink-hog");
    assert_eq!(victim.cgroup, Field::Value(scene.web.group().to_owned()));
    let anon = *victim.anon.value().unwrap();
    assert!((32 * MIB..=64 * MIB).contains(&anon), "{anon}");
    assert!(victim.start_ns.value().is_some());
    assert_eq!(victim.uid, Field::Value(NOBODY));
    let limit = opened.limit.value().unwrap();
    assert_eq!(limit.cgroup, scene.web.group());
    assert_eq!(
        (limit.method, limit.confidence),
        (LimitMethod::OomControl, Confidence::Exact)
    );
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
    assert!(trigger.gfp.value().is_some() && trigger.order.value().is_some());
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
    check_memory_stat(&closed);
    assert!(
        closed.top_of_node.value().is_some(),
        "{:?}",
        closed.top_of_node
    );
    check_workloads(&closed, &scene);
    let again = || {
        let leak = scene.leak(200);
        scene.about(Kind::OomKill, leak.pid().unsigned_abs())
    };
    if let Err(why) = log.agrees(&closed, again) {
        skip!("all but the kernel's own word: {why}");
    }
}

/// `memory.stat` is that of the group of 64 MiB, which the leak has filled page by page: nobody has had fewer faults, and what
/// lies above it has had more and holds more.
#[track_caller]
fn check_memory_stat(closed: &Incident) {
    let stat = &closed.memory_stat;
    let stat = stat.value().unwrap_or_else(|| panic!("{stat:?}"));
    // What was given back by then is not in it. v1 has another name for it.
    let anon = stat.get("anon").or_else(|| stat.get("rss"));
    assert!(anon.is_some_and(|anon| *anon <= 64 * MIB), "{stat:?}");
    let pages = 64 * MIB / 4096;
    let known = pages / 2..=pages * 3 / 2;
    let faults = stat.get("pgfault");
    assert!(
        faults.is_some_and(|faults| known.contains(faults)),
        "not in {known:?}: {stat:?}"
    );
}

/// The table of workloads has the one of the scene, with what its cgroup used at the kill, however old the warm figures are.
#[track_caller]
fn check_workloads(closed: &Incident, scene: &Scene) {
    let table = closed.workloads.value().expect("a roster came first");
    let [line] = &table.lines[..] else {
        panic!("not one workload: {table:?}");
    };
    assert_eq!((line.name.as_str(), table.more), ("web", 0));
    assert_eq!(line.cgroup.as_deref(), Some(scene.web.group()));
    let usage = line.usage.value();
    assert!(usage.is_some_and(|usage| *usage > 32 * MIB), "{line:?}");
    assert_eq!(line.usage_age_ms, Some(0));
}

/// Stacks of users' programs are told by build id and offset, so that they can be named anywhere.
#[test]
fn the_triggers_user_stack_has_the_build_id_of_its_program() {
    let scene = match Scene::new(256) {
        Ok(scene) => scene,
        Err(why) => lacks!("{why}"),
    };
    let Some(own) = build_id(Path::new(env!("CARGO_BIN_EXE_brink-hog"))) else {
        skip!("the linker gives programs no build id here");
    };
    scene.limit(&scene.web, 64);
    let leak = scene.leak(200);
    let opened = scene.about(Kind::OomKill, leak.pid().unsigned_abs());
    let trigger = opened.trigger.value().unwrap();
    assert_eq!(trigger.pid, leak.pid().unsigned_abs(), "who leaks is alone");
    let stack = trigger.user_stack.value();
    let stack = stack.unwrap_or_else(|| panic!("{trigger:#?}"));
    let mut ids = stack.iter().filter_map(|frame| frame.build_id.as_ref());
    assert!(ids.any(|id| *id == own), "{own} is not in {stack:#?}");
}

/// The build id of a program, from the note that its linker wrote.
fn build_id(program: &Path) -> Option<String> {
    const NOTE: &[u8] = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0";
    let bytes = fs::read(program).unwrap();
    let place = bytes
        .windows(NOTE.len())
        .position(|window| window == NOTE)?;
    let id = bytes[place..].get(NOTE.len()..NOTE.len() + 20)?;
    let digits = id.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits
        .map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

#[test]
fn a_limit_above_the_victims_cgroup_is_found() {
    let scene = match Scene::new(64) {
        Ok(scene) => scene,
        Err(why) => lacks!("{why}"),
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
        Err(why) => lacks!("{why}"),
    };
    let dir = scene.memory();
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
    let mut victims = closed.victims.iter();
    assert!(
        victims.all(|victim| victim.exited.value().is_some()),
        "{closed:#?}"
    );
    assert_eq!(closed.course.container_survived, Field::Value(false));
    idlers.into_iter().for_each(end);
    let again = || {
        let leak = Scene::leak_in(&inner[0], 200);
        scene.about(Kind::OomKill, leak.pid().unsigned_abs())
    };
    if let Err(why) = log.agrees(closed, again) {
        skip!("all but the kernel's own word: {why}");
    }
}

#[test]
fn the_node_out_of_memory_is_one_incident_for_no_cgroups_limit() {
    guest_only!("the kernel's OOM killer is let loose on the machine");
    let scene = match Scene::new(256) {
        Ok(scene) => scene,
        Err(why) => lacks!("{why}"),
    };
    let mut log = Log::from_now();
    let zones = Zoneinfo::read(Path::new("/")).unwrap().zones;
    let exhaust = || {
        let mut hog = Scene::exhaust();
        assert!(!hog.wait(PATIENCE).unwrap().success());
        hog.pid().unsigned_abs()
    };
    let pid = exhaust();
    let closed = scene.about(Kind::IncidentClosed, pid);
    assert_eq!(closed.cause, Cause::GlobalOom, "{closed:#?}");
    let limit = closed.limit.value().unwrap();
    assert_eq!(
        (limit.cgroup.as_str(), limit.method, limit.confidence),
        ("/", LimitMethod::OomControl, Confidence::Exact)
    );
    let victim = &closed.victims[0];
    assert_eq!((closed.victims.len(), victim.pid), (1, pid));
    assert_eq!(victim.oom_score_adj, Field::Value(1000));
    assert!(victim.anon.value().is_some_and(|anon| *anon > 256 * MIB));
    let node = closed.node.value().unwrap();
    check_zones(node.zones.value().expect("they can be read"), &zones);
    let top = closed.top_of_node.value().expect("it was made");
    assert_eq!(top[0].pid, pid, "the largest by far: {top:?}");
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
    let again = || scene.about(Kind::OomKill, exhaust());
    if let Err(why) = log.agrees(&closed, again) {
        skip!("all but the kernel's own word: {why}");
    }
}

/// The zones are those of before, and so are their watermarks, but for a boost, which is the same in all three of a zone.
#[track_caller]
fn check_zones(told: &[ZoneState], known: &[Zone]) {
    assert!(!told.is_empty() && told.len() == known.len(), "{told:#?}");
    for (told, known) in told.iter().zip(known) {
        assert_eq!((told.node, &told.zone), (known.node, &known.name));
        assert!(told.min <= told.low && told.low <= told.high, "{told:?}");
        let apart = (told.low - told.min, told.high - told.low);
        let expected = (known.low - known.min, known.high - known.low);
        assert_eq!(apart, expected, "{told:?} {known:?}");
        // At the most half as much again as the highest watermark (vm.watermark_boost_factor), or one block of pages.
        let least = known.min - known.boost;
        let most = least + ((known.high - known.boost) * 3 / 2).max(512);
        assert!((least..=most).contains(&told.min), "{told:?} {known:?}");
    }
}

/// Memory that is throttled is no kill; who then ends it is told, beside what the kernel counted.
#[test]
fn being_slowed_down_above_memory_high_is_no_incident_until_somebody_kills() {
    let scene = match Scene::new(256) {
        Ok(scene) => scene,
        Err(why) => lacks!("{why}"),
    };
    let layout = &scene.sandbox.layout;
    let dir = scene.web.dir(layout, Controller::Memory).unwrap();
    if dir.version() == Version::V1 {
        skip!("cgroup v1 has no memory.high");
    }
    fs::write(dir.path().join("memory.high"), (16 * MIB).to_string()).unwrap();
    let leak = scene.leak(64);
    let counted = || {
        let text = fs::read(dir.path().join("memory.events")).unwrap();
        let counted = MemoryEvents::parse(&text).unwrap();
        (counted.high > Some(0)).then_some(counted)
    };
    let counted = wait_until(PATIENCE, counted).expect("a throttle");
    assert_eq!((counted.oom, counted.oom_kill), (Some(0), Some(0)));
    let pid = leak.pid().unsigned_abs();
    let mut killer = Command::new("kill").args(["-9", &pid.to_string()]).spawn();
    assert!(killer.as_mut().unwrap().wait().unwrap().success());
    let told = scene.all_about(Kind::IncidentClosed, &[pid]);
    let [closed, opened] = &told[..] else {
        panic!("being slowed down was told as something: {told:#?}");
    };
    assert_eq!(
        (opened.cause, closed.cause),
        (Cause::ForeignKill, Cause::ForeignKill)
    );
    assert_eq!(opened.limit.value(), None, "{opened:#?}");
    let own = &opened.cgroups.value().unwrap()[0];
    assert_eq!(own.high, Field::Value(Some(16 * MIB)));
    let events = own.events.value().unwrap();
    assert!(events["high"] > 0 && events["oom_kill"] == 0, "{events:?}");
}

#[test]
fn a_kill_by_somebody_else_names_its_sender_and_one_of_ours_is_none() {
    let scene = match Scene::new(256) {
        Ok(scene) => scene,
        Err(why) => lacks!("{why}"),
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
    // A shell that has exited by the time it is looked at is told as in the root by its files, where it never was.
    match &trigger.cgroup {
        Field::Value(cgroup) => {
            let layout = &scene.sandbox.layout;
            let own = Membership::read(Path::new("/"), layout.home(), "self").unwrap();
            let own = own.of(layout, Controller::Memory);
            assert_eq!(Some(cgroup.as_str()), own);
        }
        Field::Missing(reason) => assert_eq!(*reason, Missing::ProcessGone),
    }
    assert_eq!(opened.workload.value().unwrap().name, "web");
    let closed = scene.about(Kind::IncidentClosed, pid);
    assert!(closed.course.exited.value().is_some());
    // By which way the sender came to it.
    let trigger = closed.trigger.value().unwrap();
    let (kernel, user) = (&trigger.kernel_stack, &trigger.user_stack);
    let is_whole = |stack: &Vec<String>| {
        stack.iter().any(|frame| frame.contains("kill"))
            && !stack.iter().any(|frame| frame.contains("bpf"))
    };
    assert!(kernel.value().is_some_and(is_whole), "{kernel:#?}");
    assert!(
        user.value().is_some_and(|stack| !stack.is_empty()),
        "{user:#?}"
    );
    end(theirs);
}

#[test]
fn fifty_ooms_in_a_row_are_fifty_incidents() {
    let scene = match Scene::new(256) {
        Ok(scene) => scene,
        Err(why) => lacks!("{why}"),
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
        // Well before the test's own deadline, or nobody would learn which is missing.
        let next = scene.told.recv_timeout(slowed(PATIENCE) / 4);
        let (kind, incident) = next.unwrap_or_else(|_| {
            let missing: Vec<_> = killed.difference(&closed).collect();
            panic!(
                "{missing:?} of {killed:?}, opened {opened:?}; {}",
                scene.losses()
            )
        });
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
