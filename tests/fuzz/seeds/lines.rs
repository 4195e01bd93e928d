//! Journals: what an engine was told and answered, and lines that no agent writes.

use brink::guard::step::Kind;
use brink::record::DecisionRecord;
use brink::runtime::journal::{Clocks, Line, StepLine};
use brink_core::base::{Moment, Quantity, Span};
use brink_core::node::engine::{LiveSettings, MemoryPolicy};
use brink_core::node::input::{Confirmation, Control, Delivery, Recalled, Reconfiguration};
use brink_core::node::observe::{Layout, Observation, Observations};
use brink_core::node::policy::{Policy, Settings};
use brink_core::node::safety::Limits;
use brink_core::node::signal::Signal;
use brink_core::node::threshold::{Threshold, Value};
use brink_core::node::workload::{PodUsage, Workload};

use super::slots::{completion, record};
use super::write;

fn policy() -> Policy {
    let threshold = |grace, value| Threshold {
        signal: Signal::MemoryAvailable,
        grace,
        value,
        min_reclaim: None,
    };
    let hard = threshold(Span::ZERO, Value::Quantity(Quantity::from_bytes(100 << 20)));
    let soft = threshold(Span::from_secs(90), Value::Fraction(0.2));
    Policy::new(vec![hard, soft], Layout::Single, Settings::default())
}

fn live() -> LiveSettings {
    LiveSettings {
        enforce: true,
        memory: MemoryPolicy::Kubelet,
        ..LiveSettings::default()
    }
}

fn start(live: LiveSettings) -> Line {
    Line::Start {
        at: Moment::from_secs(1),
        clocks: Clocks {
            monotonic_ns: 1_000_000_000,
            realtime_ns: 1_795_000_000_000_000_000,
        },
        policy: Box::new(policy()),
        live,
        continues: false,
    }
}

fn table() -> Line {
    let workload = |name: &str| Workload {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        uid: name.to_owned(),
        ..Workload::default()
    };
    Line::Table {
        generation: 1,
        workloads: vec![workload("web"), workload("leak")],
    }
}

/// A step without figures, whose answers nobody has written down.
fn step(at: i64, kind: Kind) -> Line {
    Line::Step(Box::new(StepLine {
        number: 0,
        at: Moment::from_secs(at),
        kind,
        generation: 1,
        observations: Observations::default(),
        confirmation: Confirmation::default(),
        usage: Vec::new(),
        actions: Vec::new(),
    }))
}

fn sample(at: i64, mebibytes: i64) -> Line {
    let mut observations = Observations::default();
    observations[Signal::MemoryAvailable] = Some(Observation {
        available: mebibytes << 20,
        capacity: 1 << 30,
        at: Some(Moment::from_secs(at)),
    });
    let usage = PodUsage {
        memory: Some(500 << 20),
        processes: Some(1),
        ..PodUsage::default()
    };
    Line::Step(Box::new(StepLine {
        number: 0,
        at: Moment::from_secs(at),
        kind: Kind::Sample,
        generation: 1,
        observations,
        confirmation: Confirmation::default(),
        usage: vec![Some(usage); 2],
        actions: Vec::new(),
    }))
}

fn lines(name: &str, lines: &[Line]) {
    let texts = lines
        .iter()
        .map(|line| serde_json::to_string(line).unwrap_or_default() + "\n");
    write("journal", name, texts.collect::<String>().as_bytes());
}

pub(super) fn journal() {
    let decision = DecisionRecord::new(&record(), Some(&completion()));
    let new = Reconfiguration {
        policy: policy(),
        live: live(),
    };
    let outcome = Kind::Outcome {
        order: 1,
        delivered: Delivery::Done { processes: 3 },
    };
    lines(
        "a-kill",
        &[
            start(live()),
            table(),
            step(1, Kind::Workloads),
            sample(2, 900),
            sample(3, 50),
            step(3, outcome),
            Line::Decision(Box::new(decision)),
            step(
                4,
                Kind::Gone {
                    workload: 1,
                    kept: 0,
                    unseen: 0,
                },
            ),
            sample(5, 150),
        ],
    );
    lines(
        "changes",
        &[
            start(live()),
            step(2, Kind::Control(Control::Pause(Some(Span::from_secs(60))))),
            step(3, Kind::Control(Control::Resume)),
            Line::Reconfiguration(Box::new(new)),
            step(4, Kind::Reconfigure),
            Line::Lost { steps: 3 },
            step(
                5,
                Kind::Dying {
                    workload: 0,
                    charged: 1 << 20,
                },
            ),
            step(
                6,
                Kind::Recall(Recalled::Met {
                    threshold: 1,
                    since: Moment::from_secs(1),
                }),
            ),
            step(7, Kind::Recall(Recalled::Missed(Span::from_secs(1)))),
            step(7, Kind::Reclaimed),
            step(8, Kind::Tick),
        ],
    );
    unlikely();
}

/// What once made a replay panic.
fn unlikely() {
    let for_ever = Kind::Control(Control::Pause(Some(Span::MAX)));
    lines(
        "regression-pause-of-292-years",
        &[start(live()), step(2, for_ever)],
    );
    let uncounted = Line::Lost { steps: u64::MAX };
    lines(
        "regression-lost-beyond-count",
        &[start(live()), uncounted.clone(), uncounted],
    );
    let limits = Limits {
        most: usize::MAX,
        ..Limits::default()
    };
    lines(
        "regression-room-for-any-number-of-kills",
        &[start(LiveSettings { limits, ..live() })],
    );
    let last = Kind::Recall(Recalled::LastOrder(u64::MAX));
    let after_the_last = [
        start(live()),
        table(),
        step(1, Kind::Workloads),
        step(1, last),
        sample(2, 50),
    ];
    lines("regression-order-after-the-last", &after_the_last);
}
