//! A cgroup that runs out of memory: the kernel's victim and the reclaim before it reach us.

use brink_host::probe::abi::record::{RECLAIM_MEMCG, UNKNOWN};
use brink_host::probe::decode::name;
use brink_host::probe::{Evidence, Row, Signal, Wishes};
use brink_tests::skip;
use probe_support::{Group, MIB, sampling, signal, until};

mod probe_support;

#[test]
fn the_victim_of_a_cgroup_is_told() {
    let mut wishes = Wishes::default();
    wishes.knobs.stall_ns = 0;
    let (mut probe, group) = match (sampling(wishes), Group::new("oom")) {
        (Ok(probe), Ok(group)) => (probe, group),
        (Err(why), _) | (_, Err(why)) => skip!("{why}"),
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
