//! The benchmarks' judge sees what the sampler sees, on its own.

use std::os::fd::AsRawFd as _;

use brink_host::probe::abi::Plain as _;
use brink_host::probe::abi::sample::{
    SOURCE_NODE_AVAILABLE, SOURCE_NODE_HEADROOM, SOURCE_SLOT_AVAILABLE, Watch,
};
use brink_host::probe::abi::truth::TruthWatch;
use brink_host::probe::truth::{Order, Truth};
use brink_host::probe::{Facts, Roots, Signal, Wishes, coverage};
use brink_tests::skip;
use probe_support::{Group, MIB, arm, meminfo, next_sample, sampling, signal, signed, until};

mod probe_support;

#[test]
fn the_judge_and_the_sampler_see_the_same_crossing() {
    let (mut probe, group) = match (sampling(Wishes::default()), Group::new("truth")) {
        (Ok(probe), Ok(group)) => (probe, group),
        (Err(why), _) | (_, Err(why)) => skip!("{why}"),
    };
    let facts = Facts::gather(&Roots::default());
    let mut truth = Truth::load(&coverage::settings(&facts, Wishes::default())).unwrap();
    group.set_limit(256 * MIB);
    let armed = arm(&mut probe);
    let limit = next_sample(&probe).available - signed(100 * MIB);
    let handle = group.open();
    let of_node = |source, limit| TruthWatch {
        source,
        limit,
        ..TruthWatch::ZERO
    };
    let watches = [
        of_node(SOURCE_NODE_AVAILABLE, limit),
        of_node(SOURCE_NODE_HEADROOM, 0),
        TruthWatch {
            source: SOURCE_SLOT_AVAILABLE,
            fd: handle.as_raw_fd(),
            limit: signed(156 * MIB),
            capacity: signed(256 * MIB),
            ..TruthWatch::ZERO
        },
    ];
    let order = Order {
        period_ns: 50_000,
        capacity: meminfo("MemTotal"),
        deferred: armed.deferred,
        watches: &watches,
    };
    truth.start(&order).unwrap();
    probe
        .set_watches(&[Watch {
            source: SOURCE_NODE_AVAILABLE,
            slot: 0,
            limit,
        }])
        .unwrap();
    until("the judge to agree on the node", || {
        probe.tick().unwrap();
        let sample = probe.sample()?;
        let judged = (
            truth.crossing(0).unwrap().value,
            truth.crossing(1).unwrap().value,
        );
        let close = |a: i64, b: i64| a.abs_diff(b) < 4 * MIB;
        (close(judged.0, sample.available) && close(judged.1, sample.headroom)).then_some(())
    });
    let shared = group.charge(200 * MIB);
    let record = signal(&mut probe, "the crossing", |found| match found {
        Signal::Crossing(record) => Some(*record),
        _ => None,
    });
    let seen = truth.crossing(0).unwrap();
    assert!(
        seen.crossed_ns > 0 && seen.before_ns < seen.crossed_ns,
        "{seen:?}"
    );
    let late = record
        .head
        .at_ns
        .checked_signed_diff(seen.crossed_ns)
        .unwrap();
    assert!(
        (-1_000_000..20_000_000).contains(&late),
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
    assert!(
        result.ticks > 100 && result.cost_ns / result.ticks < 10_000,
        "{result:?}"
    );
    println!("{} ns a tick of the judge", result.cost_ns / result.ticks);
}
