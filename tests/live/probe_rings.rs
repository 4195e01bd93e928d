//! A ring that is full loses records, says how many, and blocks nobody.

use std::fs;

use brink_host::probe::abi::sample::{SOURCE_NODE_AVAILABLE, Watch};
use brink_host::probe::{Evidence, Row, Signal, Wishes};
use brink_tests::lacks;
use probe_support::{Group, sampling, until};

mod probe_support;

#[test]
fn what_evidence_is_lost_is_counted() {
    let wishes = Wishes {
        evidence_ring: 4096,
        ..Wishes::default()
    };
    let (mut probe, group) = match (sampling(wishes), Group::new("ring")) {
        (Ok(probe), Ok(group)) => (probe, group),
        (Err(why), _) | (_, Err(why)) => lacks!("{why}"),
    };
    let meters = probe.take_meters().unwrap();
    let mut evidence = probe.take_evidence().unwrap();
    for number in 0..50 {
        let path = group.path().join(number.to_string());
        fs::create_dir(&path).unwrap();
        fs::remove_dir(&path).unwrap();
    }
    let loss = until("a quiet moment", || {
        let loss = meters.loss(Row::CgroupEvidence).unwrap();
        (loss.seen == loss.sent + loss.dropped + loss.filtered).then_some(loss)
    });
    assert!(loss.dropped >= 80 && loss.seen >= 100, "{loss:?}");
    let (mut read, mut paths) = (0, Vec::new());
    evidence.drain(usize::MAX, |each| {
        read += 1;
        if let Evidence::Cgroup(change) = each {
            assert!(!change.cut);
            paths.push(String::from_utf8(change.path.to_vec()).unwrap());
        }
    });
    assert_eq!(read, loss.sent);
    let name = group.path().file_name().unwrap().to_str().unwrap();
    assert!(
        paths.iter().any(|path| *path == format!("/{name}/0")),
        "{paths:?}"
    );
    // Room again: what comes now arrives.
    fs::create_dir(group.path().join("after")).unwrap();
    fs::remove_dir(group.path().join("after")).unwrap();
    assert_eq!(evidence.drain(usize::MAX, |_| {}), 2);
    assert_eq!(evidence.undecoded(), 0);
}

#[test]
fn what_signals_are_lost_is_counted() {
    let mut wishes = Wishes {
        signal_ring: 4096,
        ..Wishes::default()
    };
    wishes.knobs.max_period_ns = 1_000_000;
    let mut probe = match sampling(wishes) {
        Ok(probe) => probe,
        Err(why) => lacks!("{why}"),
    };
    let meters = probe.take_meters().unwrap();
    let below = [Watch {
        source: SOURCE_NODE_AVAILABLE,
        slot: 0,
        limit: i64::MAX,
    }];
    until("the ring to be full", || {
        // Each setting of the watches tells again what is below.
        probe.set_watches(&below).unwrap();
        (meters.loss(Row::SamplerSignals).unwrap().dropped > 3).then_some(())
    });
    let mut crossings = 0;
    let taken = probe.drain_signals(usize::MAX, |found| {
        crossings += u32::from(matches!(found, Signal::Crossing(_)));
    });
    assert!((7..=9).contains(&taken), "{taken}");
    assert!(crossings > 5);
    probe.set_watches(&below).unwrap();
    until("a crossing after the loss", || {
        (probe.drain_signals(9, |_| {}) > 0).then_some(())
    });
    let loss = until("a quiet moment", || {
        let loss = meters.loss(Row::SamplerSignals).unwrap();
        (loss.seen == loss.sent + loss.dropped + loss.filtered).then_some(loss)
    });
    assert!(loss.sent >= 8 && loss.dropped > 3, "{loss:?}");
    assert_eq!(probe.undecoded(), 0);
}
