//! A cgroup that runs out of memory: the kernel's victim and the reclaim before it reach us.

use std::sync::atomic::{AtomicBool, Ordering};

use brink_host::probe::abi::record::{CGROUP_ATTACH, RECLAIM_MEMCG, UNKNOWN};
use brink_host::probe::decode::name;
use brink_host::probe::shortage::Shortage;
use brink_host::probe::{Evidence, Row, Signal, Wishes};
use brink_tests::lacks;
use probe_support::{Group, MIB, sampling, signal, until};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

mod probe_support;

#[test]
fn the_victim_of_a_cgroup_is_told() {
    let mut wishes = Wishes::default();
    wishes.knobs.stall_ns = 0;
    let (mut probe, group) = match (sampling(wishes), Group::new("oom")) {
        (Ok(probe), Ok(group)) => (probe, group),
        (Err(why), _) | (_, Err(why)) => lacks!("{why}"),
    };
    let meters = probe.take_meters().unwrap();
    let mut evidence = probe.take_evidence().unwrap();
    group.set_limit(32 * MIB);
    // `tail` keeps all of an endless line.
    let mut glutton = group.run("exec tail /dev/zero");
    let pid = glutton.id();
    let record = signal(&mut probe, "the victim", |found| match found {
        Signal::Victim(record) => Some(*record),
        _ => None,
    });
    assert!(!glutton.wait().unwrap().success());
    assert_eq!((record.pid, record.trigger_tgid), (pid, pid));
    assert_eq!(
        (record.cgroup, record.trigger_cgroup),
        (group.id(), group.id())
    );
    assert_eq!(record.retry_age_ns, UNKNOWN, "not an OOM of the node");
    assert_eq!(Shortage::of(&record), Shortage::Cgroup);
    if record.extended == 1 {
        assert_eq!(name(&record.comm), "tail");
        assert!(
            (20 << 10..33 << 10).contains(&record.anon_rss),
            "{} KiB",
            record.anon_rss
        );
        assert_eq!(record.uid, 0);
    }
    let stalled = until("a reclaim of the cgroup", || {
        let mut found = None;
        evidence.drain(usize::MAX, |each| match each {
            Evidence::Reclaim(record) if record.cgroup == group.id() => found = Some(*record),
            _ => {}
        });
        found
    });
    assert_eq!((stalled.gear, stalled.tgid), (RECLAIM_MEMCG, pid));
    let meter = meters.cgroup(group.id()).unwrap().unwrap();
    assert!(meter.memcg > 0 && meter.memcg_ns > 0, "{meter:?}");
    // The sampler was hurried by it.
    assert!(meters.sampler().unwrap().pulls > 0);
    let loss = meters.loss(Row::OomSignals).unwrap();
    assert_eq!((loss.sent, loss.dropped), (loss.seen, 0));
}

#[test]
fn a_reader_is_woken_for_a_cgroup_behind_reclaim_that_woke_nobody() {
    let mut wishes = Wishes::default();
    wishes.knobs.stall_ns = 0;
    let (mut probe, group) = match (sampling(wishes), Group::new("wake")) {
        (Ok(probe), Ok(group)) => (probe, group),
        (Err(why), _) | (_, Err(why)) => lacks!("{why}"),
    };
    let meters = probe.take_meters().unwrap();
    let mut evidence = probe.take_evidence().unwrap();
    group.set_limit(32 * MIB);
    let mut glutton = group.run("sleep 0.5; exec tail /dev/zero");
    until("the process to be in its group", || {
        let mut entered = false;
        evidence.drain(usize::MAX, |each| {
            entered |= matches!(each, Evidence::Cgroup(change)
                if change.change == CGROUP_ATTACH && change.id == group.id());
        });
        entered.then_some(())
    });
    let woken = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut polled = [PollFd::from_borrowed_fd(evidence.fd(), PollFlags::IN)];
            let longer_than_the_test_waits = Timespec {
                tv_sec: 20,
                tv_nsec: 0,
            };
            poll(&mut polled, Some(&longer_than_the_test_waits)).unwrap();
            woken.store(true, Ordering::Release);
        });
        assert!(!glutton.wait().unwrap().success());
        assert!(meters.loss(Row::ReclaimEvidence).unwrap().sent > 0);
        until("the end of the group's last process to wake", || {
            woken.load(Ordering::Acquire).then_some(())
        });
    });
}
