//! The sampler against the kernel's own files, and against memory that truly crosses a limit.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brink::guard::files::{NodeFiles, NodePlan};
use brink::guard::kernel::Kernel;
use brink::guard::pods::PodsGroup;
use brink::guard::watches::Terrain;
use brink::recorder::NODE_PERIOD_NS;
use brink_core::base::{Quantity, Span};
use brink_core::node;
use brink_core::node::engine::MemoryPolicy;
use brink_core::node::policy::{Policy, Settings};
use brink_core::node::threshold::{Threshold, Value};
use brink_host::cgroup::Layout;
use brink_host::probe::abi::command::Terms;
use brink_host::probe::abi::sample::{
    NODE_KNOWN, SOURCE_NODE_AVAILABLE, SOURCE_NODE_HEADROOM, SOURCE_SLOT_AVAILABLE,
    SOURCE_SLOT_HEADROOM, USAGE_FRESH, Watch,
};
use brink_host::probe::{Facts, Probe, Roots, Row, Signal, Wishes};
use brink_tests::{lacks, skip, slowed};
use probe_support::{
    Group, MIB, Meminfo, meminfo, next_sample, probe, sampling, signal, signed, until, waiting,
    within,
};

mod probe_support;

/// capacity − (anon + file − inactive file), from one reading of `/proc/meminfo`.
fn available(files: &Meminfo) -> i64 {
    let of = |key: &str| signed(files.get(key));
    let file = of("Cached") + of("Buffers") + of("SwapCached");
    of("MemTotal") - of("AnonPages") - file + of("Inactive(file)")
}

/// Bytes free above each populated zone's minimum, any boost left out, and largest protection, from one reading of
/// `/proc/zoneinfo`. A boost stays for as long as nobody has to reclaim.
fn spare(zones: &str, page: i64) -> i64 {
    let number = |zone: &str, key: &str| {
        let line = zone
            .lines()
            .find_map(|line| line.trim_start().strip_prefix(key));
        line.and_then(|rest| rest.trim().parse::<i64>().ok())
    };
    let of_zone = |zone: &str| {
        if number(zone, "managed ").unwrap_or(0) == 0 {
            return 0;
        }
        let line = zone
            .lines()
            .find_map(|line| line.trim_start().strip_prefix("protection: ("));
        let protections = line.unwrap_or_default().trim_end_matches(')').split(", ");
        let largest = protections
            .filter_map(|pages| pages.parse::<i64>().ok())
            .max()
            .unwrap_or(0);
        let boost = number(zone, "boost ").unwrap_or(0);
        let kept = number(zone, "min ").unwrap_or(0) - boost + largest;
        (number(zone, "pages free ").unwrap_or(0) - kept).max(0) * page
    };
    zones.split("\nNode ").map(of_zone).sum()
}

/// Whether the kernel's number lies between two readings of the files. Both are of the same counters, so the sum of a
/// few pages per CPU and the time between them is all the difference there may be.
fn between(before: i64, kernel: i64, after: i64) -> bool {
    let slack = signed(2 * MIB);
    (before.min(after) - slack..=before.max(after) + slack).contains(&kernel)
}

fn zoneinfo() -> String {
    std::fs::read_to_string("/proc/zoneinfo").unwrap_or_default()
}

#[test]
fn numbers_are_those_of_the_files() {
    let mut probe = match sampling(Wishes::default()) {
        Ok(probe) => probe,
        Err(why) => lacks!("{why}"),
    };
    let page = signed(Facts::gather(&Roots::default()).page_size);
    let sample = until("equal numbers", || {
        let before = (Meminfo::read(), zoneinfo());
        probe.tick().unwrap();
        let after = (Meminfo::read(), zoneinfo());
        let sample = probe.sample()?;
        assert_ne!(sample.flags & NODE_KNOWN, 0);
        let pairs = [
            ("AnonPages", sample.anon),
            ("Inactive(file)", sample.inactive_file),
            ("Active(file)", sample.active_file),
            ("Dirty", sample.dirty),
            ("Writeback", sample.writeback),
            ("KReclaimable", sample.reclaimable),
            ("MemFree", sample.free),
        ];
        let mut fits = between(spare(&before.1, page), sample.spare, spare(&after.1, page));
        let (before, after) = (before.0, after.0);
        fits &= between(available(&before), sample.available, available(&after));
        for (key, kernel) in pairs {
            fits &= between(signed(before.get(key)), kernel, signed(after.get(key)));
        }
        fits.then_some(sample)
    });
    let clean =
        (sample.active_file + sample.inactive_file - sample.dirty - sample.writeback).max(0);
    assert_eq!(
        sample.headroom,
        sample.spare + sample.deferred + clean + sample.reclaimable
    );
    assert!(sample.spare + sample.deferred <= sample.free);
}

#[test]
fn a_sign_of_life_comes_after_each_silence() {
    let mut wishes = Wishes::default();
    wishes.knobs.heartbeat_ns = 2_500_000_000;
    let mut probe = match sampling(wishes) {
        Ok(probe) => probe,
        Err(why) => lacks!("{why}"),
    };
    let mut beats = Vec::new();
    let end = Instant::now() + Duration::from_millis(8_200);
    while Instant::now() < end {
        probe.drain_signals(usize::MAX, |found| {
            if let Signal::Heartbeat(record) = found {
                beats.push(record.head.at_ns);
            }
        });
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!((2..=4).contains(&beats.len()), "{beats:?}");
    for pair in beats.windows(2) {
        let gap = pair[1] - pair[0];
        assert!((2_500_000_000..4_000_000_000).contains(&gap), "{gap}");
    }
}

#[test]
fn no_sign_of_life_comes_while_ticks_are_asked_for() {
    let mut wishes = Wishes::default();
    wishes.knobs.heartbeat_ns = 1_000_000_000;
    let mut probe = match sampling(wishes) {
        Ok(probe) => probe,
        Err(why) => lacks!("{why}"),
    };
    let mut beats = 0;
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        probe.tick().unwrap();
        probe.drain_signals(usize::MAX, |found| {
            beats += u32::from(matches!(found, Signal::Heartbeat(_)));
        });
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(beats <= 1, "{beats}: one may come before anybody has asked");
}

#[test]
fn ticks_are_further_apart_where_no_growth_can_use_the_slack_up() {
    let far = Watch {
        source: SOURCE_NODE_AVAILABLE,
        slot: 0,
        limit: 0,
    };
    let period = |slack_per_ns| {
        let mut wishes = Wishes::default();
        wishes.knobs.slack_per_ns = slack_per_ns;
        let mut probe = sampling(wishes)?;
        probe.set_watches(&[far]).unwrap();
        Ok::<_, String>(next_sample(&probe).period_ns)
    };
    // As if an eighth of a byte a nanosecond were the fastest growth, and as if there were no bound to it.
    match (period(1), period(u64::MAX)) {
        (Ok(slow), Ok(fast)) => assert_eq!((slow, fast), (200_000_000, 200_000)),
        (Err(why), _) | (_, Err(why)) => lacks!("{why}"),
    }
}

#[test]
fn a_crossing_of_the_node_is_told_with_its_numbers() {
    let (mut probe, group) = match (sampling(Wishes::default()), Group::new("cross")) {
        (Ok(probe), Ok(group)) => (probe, group),
        (Err(why), _) | (_, Err(why)) => lacks!("{why}"),
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
    let back = within(|| {
        waiting(&mut probe, |found| match found {
            Signal::Crossing(record) => Some(record.sample),
            _ => None,
        })
    });
    match back {
        Some(back) => {
            assert_eq!((back.below, back.changed), (0, 1));
            assert!(back.available >= limit);
        }
        None if available(&Meminfo::read()) < limit => skip!("others took the memory given back"),
        None => panic!("the way back was not told"),
    }
}

#[test]
fn a_crossing_of_a_cgroup_is_told_with_fresh_usage() {
    let (mut probe, group) = match (sampling(Wishes::default()), Group::new("slot")) {
        (Ok(probe), Ok(group)) => (probe, group),
        (Err(why), _) | (_, Err(why)) => lacks!("{why}"),
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
fn a_watch_that_is_below_already_is_told_at_once() {
    for wishes in with_and_without_the_recorder() {
        match sampling(wishes) {
            Ok(probe) => check_that_one_below_is_told_at_once(probe),
            Err(why) => lacks!("{why}"),
        }
    }
}

/// With the flight recorder most ticks compare nothing, and must not stand in the way of one that does.
fn with_and_without_the_recorder() -> [Wishes; 2] {
    [
        Wishes::default(),
        Wishes::default().recording(NODE_PERIOD_NS),
    ]
}

#[expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
fn check_that_one_below_is_told_at_once(mut probe: Probe) {
    let below = [Watch {
        source: SOURCE_NODE_AVAILABLE,
        slot: 0,
        limit: i64::MAX,
    }];
    // Without a watch the next tick may be 200 ms away. The quickest of some tries tells how long it truly takes.
    let quickest = (0..10).map(|_| {
        probe.set_watches(&[]).unwrap();
        std::thread::sleep(Duration::from_millis(210));
        waiting(&mut probe, |_| None::<()>);
        let began = Instant::now();
        probe.set_watches(&below).unwrap();
        signal(&mut probe, "the crossing", |found| match found {
            Signal::Crossing(_) => Some(()),
            _ => None,
        });
        began.elapsed()
    });
    let quickest = quickest.min().unwrap();
    assert!(quickest < slowed(Duration::from_millis(10)), "{quickest:?}");
}

#[test]
fn another_capacity_and_another_cgroup_bring_the_next_tick_at_once() {
    for wishes in with_and_without_the_recorder() {
        match (sampling(wishes), Group::new("hurry")) {
            (Ok(probe), Ok(group)) => check_that_a_change_brings_a_tick(probe, &group),
            (Err(why), _) | (_, Err(why)) => lacks!("{why}"),
        }
    }
}

#[expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
fn check_that_a_change_brings_a_tick(mut probe: Probe, group: &Group) {
    let folder = group.open();
    let mut quickest = |change: &mut dyn FnMut(&mut Probe, u32)| {
        let tries = (0..10).map(|number| {
            // Without a watch the next tick may be 200 ms away, and this one has just been.
            next_sample(&probe);
            let before = probe.sample().map_or(0, |sample| sample.tick);
            let began = Instant::now();
            change(&mut probe, number);
            until("a tick", || {
                probe.sample().filter(|sample| sample.tick > before)
            });
            began.elapsed()
        });
        tries.min().unwrap()
    };
    let total = meminfo("MemTotal");
    let capacity = quickest(&mut |probe, number| {
        let capacity = total - MIB * u64::from(number + 1);
        probe.arm_node(capacity, || Ok(meminfo("MemFree"))).unwrap();
    });
    let slot = quickest(&mut |probe, number| {
        let fd = std::os::fd::AsFd::as_fd(&folder);
        probe.arm_slot(3, number, fd, Terms::default()).unwrap();
    });
    let bound = slowed(Duration::from_millis(10));
    assert!(capacity < bound && slot < bound, "{capacity:?} {slot:?}");
}

/// The machine without swap, with a group of all pods of so many bytes if there is one.
fn of_machine(pods_capacity: Option<i64>) -> Terrain {
    Terrain {
        capacity: signed(meminfo("MemTotal")),
        pods_capacity,
        node_is_group: false,
        swap: 0,
        pods_swap: 0,
        memory: MemoryPolicy::Kubelet,
    }
}

#[test]
fn a_group_of_all_pods_that_cannot_be_had_leaves_the_node_to_the_sampler() {
    let (mut probe, group) = match (probe(Wishes::default()), Group::new("pods")) {
        (Ok(probe), Ok(group)) => (probe, group),
        (Err(why), _) | (_, Err(why)) => lacks!("{why}"),
    };
    let meters = Arc::new(probe.take_meters().unwrap());
    let mut kernel = Kernel::new(probe, Some(meters));
    let threshold = Threshold {
        signal: node::signal::Signal::AllocatableMemoryAvailable,
        grace: Span::ZERO,
        value: Value::Quantity(Quantity::from_bytes(signed(16 * MIB))),
        min_reclaim: None,
    };
    let policy = Policy::new(
        vec![threshold],
        node::observe::Layout::Single,
        Settings::default(),
    );
    let terrain = of_machine(Some(signed(64 * MIB)));
    let open = |group: &Group| {
        group.set_limit(64 * MIB);
        let name = group.path().file_name().unwrap().to_str().unwrap();
        let plan = NodePlan {
            pods: PodsGroup::Named(format!("/{name}")),
            ..NodePlan::default()
        };
        let root = Path::new("/");
        NodeFiles::open(root, &Layout::detect(root).unwrap(), &plan).unwrap()
    };
    let gone = open(&group);
    drop(group);
    kernel.arm(&gone, &policy, terrain).unwrap();
    assert!(kernel.without_pods().is_some());
    assert!(!kernel.tells_of_pods(&policy));
    kernel.probe().tick().unwrap();
    let figures = kernel.figures(&kernel.sample().unwrap());
    assert!(figures.memory.is_some() && figures.pods.is_none());
    // A kubelet has made it anew.
    let group = Group::new("pods-anew").unwrap();
    kernel.arm(&open(&group), &policy, terrain).unwrap();
    assert_eq!(kernel.without_pods(), None);
    assert!(kernel.tells_of_pods(&policy));
    let pods = until("figures of the pods", || {
        kernel.probe().tick().ok()?;
        kernel.figures(&kernel.sample()?).pods
    });
    assert_eq!(pods.capacity, signed(64 * MIB));
}

#[test]
fn a_timer_that_does_not_run_is_started_whatever_was_asked_for() {
    let mut probe = match probe(Wishes::default()) {
        Ok(probe) => probe,
        Err(why) => lacks!("{why}"),
    };
    let meters = Arc::new(probe.take_meters().unwrap());
    let mut kernel = Kernel::new(probe, Some(Arc::clone(&meters)));
    let plan = NodePlan::default();
    let root = Path::new("/");
    let files = NodeFiles::open(root, &Layout::detect(root).unwrap(), &plan).unwrap();
    let policy = Policy::new(
        Vec::new(),
        node::observe::Layout::Single,
        Settings::default(),
    );
    let terrain = of_machine(None);
    // As each pass cross-checks.
    kernel.probe().tick().unwrap();
    assert_eq!(meters.sampler().unwrap().fired_ns, 0);
    kernel.arm(&files, &policy, terrain).unwrap();
    let fired = until("the timer", || {
        let fired = meters.sampler().unwrap().fired_ns;
        (fired > 0).then_some(fired)
    });
    // It fires again by itself.
    until("the timer", || {
        (meters.sampler().unwrap().fired_ns > fired).then_some(())
    });
}

#[test]
fn bands_are_told_as_the_slack_shrinks() {
    let (mut probe, group) = match (sampling(Wishes::default()), Group::new("band")) {
        (Ok(probe), Ok(group)) => (probe, group),
        (Err(why), _) | (_, Err(why)) => lacks!("{why}"),
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
        // Others may free memory meanwhile, which widens it.
        Signal::Band(record) if record.sample.slack < signed(200 * MIB) => {
            Some(record.sample.slack)
        }
        _ => None,
    });
    assert!(slack >= 0, "{slack}");
}

#[test]
fn every_tick_is_accounted_for_and_cheap() {
    let mut wishes = Wishes::default();
    wishes.knobs.max_period_ns = 1_000_000;
    let mut probe = match sampling(wishes) {
        Ok(probe) => probe,
        Err(why) => lacks!("{why}"),
    };
    let meters = probe.take_meters().unwrap();
    std::thread::sleep(Duration::from_millis(1_500));
    let meter = meters.sampler().unwrap();
    assert!(meter.ticks > 200, "{meter:?}");
    let mean = meter.cost_ns / meter.ticks;
    // A rough bound: the benchmark has the real one.
    let bound = slowed(Duration::from_micros(20));
    assert!(u128::from(mean) < bound.as_nanos(), "{mean} ns a tick");
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
