//! The benchmarks' judge sees what the sampler sees, on its own.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed; only the functions marked as tests are known as such"
)]

use std::os::fd::AsRawFd as _;

use brink_host::probe::abi::Plain as _;
use brink_host::probe::abi::sample::{
    SOURCE_NODE_AVAILABLE, SOURCE_NODE_HEADROOM, SOURCE_SLOT_AVAILABLE, Watch,
};
use brink_host::probe::abi::truth::TruthWatch;
use brink_host::probe::truth::{Order, Truth};
use brink_host::probe::{Facts, Probe, Roots, Signal, Wishes, coverage};
use brink_tests::lacks;
use probe_support::{Group, MIB, arm, meminfo, next_sample, sampling, signal, signed, until};

mod probe_support;

/// The node by both signals, and the cgroup behind the descriptor.
fn orders(limit: i64, cgroup: i32) -> [TruthWatch; 3] {
    let of_node = |source, limit| TruthWatch {
        source,
        limit,
        ..TruthWatch::ZERO
    };
    let of_cgroup = TruthWatch {
        source: SOURCE_SLOT_AVAILABLE,
        fd: cgroup,
        limit: signed(156 * MIB),
        capacity: signed(256 * MIB),
        ..TruthWatch::ZERO
    };
    [
        of_node(SOURCE_NODE_AVAILABLE, limit),
        of_node(SOURCE_NODE_HEADROOM, 0),
        of_cgroup,
    ]
}

/// Waits until both name the same numbers for the node, whatever others allocate meanwhile.
fn agree(probe: &mut Probe, truth: &Truth) {
    let close = |a: i64, b: i64| a.abs_diff(b) < 4 * MIB;
    until("the judge to agree on the node", || {
        probe.tick().unwrap();
        let sample = probe.sample()?;
        let (available, headroom) = (truth.crossing(0).unwrap(), truth.crossing(1).unwrap());
        let same =
            close(available.value, sample.available) && close(headroom.value, sample.headroom);
        same.then_some(())
    });
}

#[test]
fn the_judge_and_the_sampler_see_the_same_crossing() {
    let (mut probe, group) = match (sampling(Wishes::default()), Group::new("truth")) {
        (Ok(probe), Ok(group)) => (probe, group),
        (Err(why), _) | (_, Err(why)) => lacks!("{why}"),
    };
    let facts = Facts::gather(&Roots::default());
    let mut truth = Truth::load(&coverage::settings(&facts, Wishes::default())).unwrap();
    group.set_limit(256 * MIB);
    let deferred = arm(&mut probe).deferred;
    let limit = next_sample(&probe).available - signed(100 * MIB);
    let handle = group.open();
    let watches = orders(limit, handle.as_raw_fd());
    let capacity = meminfo("MemTotal");
    truth
        .start(&Order {
            period_ns: 50_000,
            capacity,
            deferred,
            watches: &watches,
        })
        .unwrap();
    probe
        .set_watches(&[Watch {
            source: SOURCE_NODE_AVAILABLE,
            slot: 0,
            limit,
        }])
        .unwrap();
    agree(&mut probe, &truth);
    let shared = group.charge(200 * MIB);
    let record = signal(&mut probe, "the crossing", |found| match found {
        Signal::Crossing(record) => Some(*record),
        _ => None,
    });
    let seen = until("the judge to see it", || {
        Some(truth.crossing(0).unwrap()).filter(|seen| seen.crossed_ns > 0)
    });
    assert!(seen.before_ns < seen.crossed_ns, "{seen:?}");
    let late = record
        .head
        .at_ns
        .checked_signed_diff(seen.crossed_ns)
        .unwrap();
    assert!(
        (-20_000_000..20_000_000).contains(&late),
        "{late} ns after the truth"
    );
    println!("detected {late} ns after the truth");
    assert_eq!(truth.crossing(1).unwrap().crossed_ns, 0);
    assert!(truth.crossing(2).unwrap().overshoot > signed(90 * MIB));
    drop(shared);
    until("the way back", || {
        (truth.crossing(0).unwrap().back_ns > 0).then_some(())
    });
    truth.reset().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(truth.crossing(0).unwrap().crossed_ns, 0);
    let result = truth.result().unwrap();
    let mean = result.cost_ns / result.ticks;
    assert!(result.ticks > 100 && mean < 100_000, "{result:?}");
    println!("{mean} ns a tick of the judge");
}
