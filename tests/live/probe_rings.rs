//! A ring that is full loses records, says how many, and blocks nobody.

use std::fs;

use brink_host::probe::abi::sample::{SOURCE_NODE_AVAILABLE, Watch};
use brink_host::probe::forensics::Told;
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

#[test]
fn what_kills_are_lost_is_counted() {
    let wishes = Wishes {
        forensics: true,
        forensics_ring: 4096,
        ..Wishes::default()
    };
    let (mut probe, group) = match (sampling(wishes), Group::new("kills")) {
        (Ok(probe), Ok(group)) => (probe, group),
        (Err(why), _) | (_, Err(why)) => lacks!("{why}"),
    };
    let meters = probe.take_meters().unwrap();
    let Some(mut kills) = probe.take_forensics() else {
        lacks!("no ring of kills");
    };
    for _ in 0..60 {
        let mut killed = group.run("kill -9 $$");
        assert!(!killed.wait().unwrap().success());
    }
    let rows = [Row::OomKills, Row::SignalKills, Row::KillEnds];
    let all = until("a quiet moment", || {
        let all = rows.map(|row| meters.loss(row).unwrap());
        let quiet = all
            .iter()
            .all(|loss| loss.seen == loss.sent + loss.dropped + loss.filtered);
        quiet.then_some(all)
    });
    let [_, signals, _] = &all;
    assert!(signals.seen >= 60 && signals.dropped > 0, "{all:?}");
    let sent: u64 = all.iter().map(|loss| loss.sent).sum();
    assert_eq!(kills.drain().count() as u64, sent, "{all:?}");
    // Room again: what comes now arrives.
    let mut killed = group.run("kill -9 $$");
    let pid = killed.id();
    assert!(!killed.wait().unwrap().success());
    until("a kill after the loss", || {
        let is_it = |told: Told| matches!(told, Told::Kill(kill) if kill.target.tgid == pid);
        kills.drain().any(is_it).then_some(())
    });
}
