//! Where memory was short when the kernel killed, by evidence: a limit, a group taken whole, the node, or no kill at all.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed; only the functions marked as tests are known as such"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use brink_host::cgroup::events::MemoryEvents;
use brink_host::cgroup::{Controller, Layout, Version};
use brink_host::probe::abi::record::{RECLAIM_MEMCG, UNKNOWN, VictimRecord};
use brink_host::probe::forensics::{Limit, Told};
use brink_host::probe::shortage::{Shortage, fell_together};
use brink_host::probe::{Evidence, Probe, Signal, Wishes};
use brink_tests::{Hog, guest_only, lacks, skip, slowed};
use probe_support::{Group, MIB, sampling, signal, until, waiting};

mod probe_support;

fn victim(found: &Signal) -> Option<VictimRecord> {
    match found {
        Signal::Victim(record) => Some(*record),
        _ => None,
    }
}

/// Whether memory is on cgroup v1, which has neither memory.high nor memory.oom.group.
fn is_v1() -> bool {
    let layout = Layout::detect(Path::new("/")).unwrap();
    let memory = layout.hierarchy(Controller::Memory);
    memory.is_some_and(|memory| memory.version == Version::V1)
}

/// A group with a probe that watches, or why there can be none.
fn watched(label: &str) -> Result<(Probe, Group), String> {
    let mut wishes = Wishes::default();
    wishes.knobs.stall_ns = 0;
    Ok((sampling(wishes)?, Group::new(label)?))
}

fn events(group: &Group) -> MemoryEvents {
    let text = fs::read(group.path().join("memory.events")).unwrap();
    MemoryEvents::parse(&text).unwrap()
}

fn set(group: &Group, file: &str, value: &str) {
    fs::write(group.path().join(file), value).unwrap();
}

#[test]
fn a_group_that_is_taken_whole_is_one_decision() {
    if is_v1() {
        skip!("cgroup v1 has neither memory.high nor memory.oom.group");
    }
    let (mut probe, group) = match watched("whole") {
        Ok(both) => both,
        Err(why) => lacks!("{why}"),
    };
    group.set_limit(32 * MIB);
    set(&group, "memory.oom.group", "1");
    let mut beside = [(); 2].map(|()| group.run("exec sleep 600"));
    until("the others to be in", || {
        (group.processes() == 2).then_some(())
    });
    let mut glutton = group.run("exec tail /dev/zero");
    let mut victims = Vec::new();
    until("three victims", || {
        probe.drain_signals(usize::MAX, |found| victims.extend(victim(found)));
        (victims.len() == 3).then_some(())
    });
    let pids: BTreeSet<u32> = victims.iter().map(|record| record.pid).collect();
    let expected = [&beside[0], &beside[1], &glutton].map(std::process::Child::id);
    assert_eq!(pids, BTreeSet::from(expected));
    for record in &victims {
        assert_eq!(Shortage::of(record), Shortage::Cgroup, "{record:?}");
        assert!(fell_together(&victims[0], record), "{victims:#?}");
        assert_eq!(record.cgroup, group.id());
    }
    for child in beside.iter_mut().chain([&mut glutton]) {
        assert!(!child.wait().unwrap().success());
    }
    // The kernel's own count of kills has the one it chose twice.
    let counted = events(&group);
    assert!(counted.oom_kill >= Some(3), "{counted:?}");
    assert!(
        matches!(counted.oom_group_kill, None | Some(1)),
        "{counted:?}"
    );
    // The next one is a decision of its own.
    set(&group, "memory.oom.group", "0");
    let mut again = group.run("exec tail /dev/zero");
    let alone = signal(&mut probe, "a victim of its own", victim);
    assert!(!again.wait().unwrap().success());
    assert_eq!(Shortage::of(&alone), Shortage::Cgroup);
    assert!(!fell_together(&victims[0], &alone));
}

#[test]
fn being_slowed_down_is_no_kill() {
    if is_v1() {
        skip!("cgroup v1 has neither memory.high nor memory.oom.group");
    }
    let (mut probe, group) = match watched("high") {
        Ok(both) => both,
        Err(why) => lacks!("{why}"),
    };
    let meters = probe.take_meters().unwrap();
    let mut evidence = probe.take_evidence().unwrap();
    group.set_limit(256 * MIB);
    set(&group, "memory.high", &(16 * MIB).to_string());
    let mut slowed_down = group.run("exec tail /dev/zero");
    let stalled = until("a reclaim above memory.high", || {
        let mut found = None;
        evidence.drain(usize::MAX, |each| match each {
            Evidence::Reclaim(record) if record.cgroup == group.id() => found = Some(*record),
            _ => {}
        });
        found
    });
    assert_eq!(
        (stalled.gear, stalled.tgid),
        (RECLAIM_MEMCG, slowed_down.id())
    );
    until("the kernel's own count", || {
        (events(&group).high > Some(0)).then_some(())
    });
    let meter = meters.cgroup(group.id()).unwrap().unwrap();
    assert!(meter.memcg > 0 && meter.memcg_ns > 0, "{meter:?}");
    std::thread::sleep(slowed(Duration::from_millis(300)));
    let counted = events(&group);
    assert_eq!((counted.oom, counted.oom_kill), (Some(0), Some(0)));
    assert!(waiting(&mut probe, victim).is_none(), "nobody was chosen");
    assert_eq!(slowed_down.try_wait().unwrap(), None, "it lives on");
    slowed_down.kill().unwrap();
    slowed_down.wait().unwrap();
}

#[test]
fn the_node_out_of_memory_is_told_from_a_cgroup_at_its_limit() {
    guest_only!("the kernel's OOM killer is let loose on the machine");
    let wishes = Wishes {
        forensics: true,
        ..Wishes::default()
    };
    let mut probe = match sampling(wishes) {
        Ok(probe) => probe,
        Err(why) => lacks!("{why}"),
    };
    let mut kills = probe.take_forensics().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_brink-hog"));
    let mut hog = Hog::exhaust(program).unwrap();
    let mut record = None;
    while record.is_none() && hog.wait(Duration::ZERO).is_err() {
        record = waiting(&mut probe, victim);
        std::thread::sleep(Duration::from_millis(5));
    }
    let record = record.unwrap_or_else(|| signal(&mut probe, "the victim", victim));
    assert!(!hog.wait(Duration::from_secs(20)).unwrap().success());
    assert_eq!(i64::from(record.pid), i64::from(hog.pid()));
    assert_eq!(Shortage::of(&record), Shortage::Node, "{record:?}");
    let decision = until("the decision", || {
        kills.drain().find_map(|told| match told {
            Told::Oom(oom) if oom.victim.tgid == record.pid => Some(oom.decision),
            _ => None,
        })
    });
    assert_eq!(decision.map(|decision| decision.limit), Some(Limit::Node));
    // The last station before it was passed by.
    let bound = slowed(Duration::from_secs(5)).as_nanos();
    assert_ne!(record.retry_age_ns, UNKNOWN);
    assert!(u128::from(record.retry_age_ns) < bound, "{record:?}");
}
