//! The sampler against the kernel's own files, and against memory that truly crosses a limit.

use std::time::{Duration, Instant};

use brink_host::probe::abi::command::Terms;
use brink_host::probe::abi::sample::{
    NODE_KNOWN, SOURCE_NODE_AVAILABLE, SOURCE_NODE_HEADROOM, SOURCE_SLOT_AVAILABLE,
    SOURCE_SLOT_HEADROOM, USAGE_FRESH, Watch,
};
use brink_host::probe::{Row, Signal, Wishes};
use brink_tests::skip;
use probe_support::{Group, MIB, meminfo, next_sample, sampling, signal, signed, until};

mod probe_support;

/// capacity − (anon + file − inactive file), from /proc/meminfo.
fn available() -> i64 {
    let file = meminfo("Cached") + meminfo("Buffers") + meminfo("SwapCached");
    signed(meminfo("MemTotal")) - signed(meminfo("AnonPages")) - signed(file)
        + signed(meminfo("Inactive(file)"))
}

#[test]
fn numbers_are_those_of_the_files() {
    let mut probe = match sampling(Wishes::default()) {
        Ok(probe) => probe,
        Err(why) => skip!("{why}"),
    };
    // The smallest of what the cross-check allows: others allocate while we read.
    let close = |kernel: i64, file: i64| kernel.abs_diff(file) < 16 * MIB;
    until("equal numbers", || {
        probe.tick().unwrap();
        let sample = probe.sample()?;
        assert_ne!(sample.flags & NODE_KNOWN, 0);
        let fits = close(sample.available, available())
            && close(sample.anon, signed(meminfo("AnonPages")))
            && close(sample.inactive_file, signed(meminfo("Inactive(file)")))
            && close(sample.active_file, signed(meminfo("Active(file)")))
            && close(sample.dirty, signed(meminfo("Dirty")))
            && close(sample.reclaimable, signed(meminfo("KReclaimable")))
            && close(sample.free, signed(meminfo("MemFree")));
        fits.then_some(())
    });
    let sample = probe.sample().unwrap();
    let clean =
        (sample.active_file + sample.inactive_file - sample.dirty - sample.writeback).max(0);
    assert_eq!(
        sample.headroom,
        sample.spare + sample.deferred + clean + sample.reclaimable
    );
    assert!(sample.spare + sample.deferred <= sample.free);
}

#[test]
fn a_sign_of_life_comes_each_second() {
    let mut probe = match sampling(Wishes::default()) {
        Ok(probe) => probe,
        Err(why) => skip!("{why}"),
    };
    let mut beats = Vec::new();
    let end = Instant::now() + Duration::from_millis(3_600);
    while Instant::now() < end {
        probe.drain_signals(usize::MAX, |found| {
            if let Signal::Heartbeat(record) = found {
                beats.push(record.head.at_ns);
            }
        });
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!((3..=4).contains(&beats.len()), "{beats:?}");
    for pair in beats.windows(2) {
        let gap = pair[1] - pair[0];
        assert!((1_000_000_000..1_300_000_000).contains(&gap), "{gap}");
    }
}

#[test]
fn a_crossing_of_the_node_is_told_with_its_numbers() {
    let (mut probe, group) = match (sampling(Wishes::default()), Group::new("cross")) {
        (Ok(probe), Ok(group)) => (probe, group),
        (Err(why), _) | (_, Err(why)) => skip!("{why}"),
    };
    group.set_limit(256 * MIB);
    let limit = next_sample(&probe).available - signed(100 * MIB);
    let watch = |source, limit| Watch {
        source,
        slot: 0,
        limit,
    };
    probe
        .set_watches(&[
            watch(SOURCE_NODE_AVAILABLE, limit),
            watch(SOURCE_NODE_HEADROOM, 0),
        ])
        .unwrap();
    let shared = group.charge(200 * MIB);
    let record = signal(&mut probe, "the crossing", |found| match found {
        Signal::Crossing(record) => Some(*record),
        _ => None,
    });
    let sample = record.sample;
    assert_eq!((sample.below, sample.changed, sample.unknown), (1, 1, 0));
    assert!(sample.available < limit, "{} {limit}", sample.available);
    assert_eq!(sample.values[0], sample.available);
    assert!(sample.period_ns < 5_000_000, "{}", sample.period_ns);
    drop(shared);
    let back = signal(&mut probe, "the way back", |found| match found {
        Signal::Crossing(record) => Some(record.sample),
        _ => None,
    });
    assert_eq!((back.below, back.changed), (0, 1));
    assert!(back.available >= limit);
}

#[test]
fn a_crossing_of_a_cgroup_is_told_with_fresh_usage() {
    let (mut probe, group) = match (sampling(Wishes::default()), Group::new("slot")) {
        (Ok(probe), Ok(group)) => (probe, group),
        (Err(why), _) | (_, Err(why)) => skip!("{why}"),
    };
    group.set_limit(256 * MIB);
    let terms = Terms {
        limit: signed(256 * MIB),
        inactive_file: 0,
        reclaimable: signed(10 * MIB),
    };
    let reply = probe
        .arm_slot(3, 77, std::os::fd::AsFd::as_fd(&group.open()), terms)
        .unwrap();
    assert_eq!((reply.cgroup, reply.level), (group.id(), 1));
    let watch = |source, limit| Watch {
        source,
        slot: 3,
        limit: signed(limit),
    };
    probe
        .set_watches(&[
            watch(SOURCE_SLOT_AVAILABLE, 150 * MIB),
            watch(SOURCE_SLOT_HEADROOM, 50 * MIB),
        ])
        .unwrap();
    let _shared = group.charge(140 * MIB);
    let record = signal(&mut probe, "the crossing", |found| match found {
        Signal::Crossing(record) if record.sample.below & 1 != 0 => Some(*record),
        _ => None,
    });
    assert_ne!(record.sample.flags & USAGE_FRESH, 0);
    assert_eq!(record.sample.below, 1);
    assert_eq!(
        record.sample.values[1] - record.sample.values[0],
        signed(10 * MIB)
    );
}

#[test]
fn bands_are_told_as_the_slack_shrinks() {
    let (mut probe, group) = match (sampling(Wishes::default()), Group::new("band")) {
        (Ok(probe), Ok(group)) => (probe, group),
        (Err(why), _) | (_, Err(why)) => skip!("{why}"),
    };
    group.set_limit(256 * MIB);
    let limit = next_sample(&probe).available - signed(400 * MIB);
    probe
        .set_watches(&[Watch {
            source: SOURCE_NODE_AVAILABLE,
            slot: 0,
            limit,
        }])
        .unwrap();
    next_sample(&probe);
    let _shared = group.charge(250 * MIB);
    let slack = signal(&mut probe, "a band change", |found| match found {
        Signal::Band(record) => Some(record.sample.slack),
        _ => None,
    });
    assert!((0..signed(200 * MIB)).contains(&slack), "{slack}");
}

#[test]
fn every_tick_is_accounted_for_and_cheap() {
    let mut wishes = Wishes::default();
    wishes.knobs.max_period_ns = 1_000_000;
    let mut probe = match sampling(wishes) {
        Ok(probe) => probe,
        Err(why) => skip!("{why}"),
    };
    let meters = probe.take_meters().unwrap();
    std::thread::sleep(Duration::from_millis(1_500));
    let meter = meters.sampler().unwrap();
    assert!(meter.ticks > 700, "{meter:?}");
    let mean = meter.cost_ns / meter.ticks;
    assert!(mean < 5_000, "{mean} ns a tick");
    let loss = until("a moment between two ticks", || {
        let loss = meters.loss(Row::SamplerSignals).unwrap();
        (loss.seen == loss.sent + loss.dropped + loss.filtered).then_some(loss)
    });
    assert!(loss.sent >= 1 && loss.dropped == 0, "{loss:?}");
    println!(
        "{mean} ns a tick, {} ns late on average",
        meter.late_ns / meter.ticks
    );
}
