//! Slots of a ledger: whole, torn, and with figures that no agent writes.

use brink::ledger::entry::{Crossed, Kill, Means, Place, ReclaimCost, Seen, Stages};
use brink::ledger::{Completion, Record, Rung};
use brink_core::base::{Moment, Reason};
use brink_core::node::decision::{PLACES, Standing};
use brink_core::node::engine::MemoryPolicy;
use brink_core::node::input::Confirmation;
use brink_core::node::order::End;
use brink_core::node::rank::Excess;
use brink_core::node::safety::Mode;
use brink_core::node::signal::{PerSignal, Signal};
use brink_core::node::workload::{Preference, PreferenceBy};
use brink_host::ledger::MARKS;

use brink_fuzz::LEDGER_SHAPE;

use super::write;

fn place<'a>(name: &'a str, uid: &'a str, usage: i64) -> Place<'a> {
    Place {
        namespace: "shop",
        name,
        uid,
        standing: Standing {
            preference: Preference::Normal,
            preference_by: PreferenceBy::Annotation,
            excess: Excess::Over,
            priority: -1,
            usage: Some(usage),
            request: 64 << 20,
        },
        refusal: None,
    }
}

pub(super) fn record() -> Record<'static> {
    let seen = Seen {
        available: 90 << 20,
        capacity: 16 << 30,
        at: Some(Moment::from_secs(9956)),
    };
    let victim = place("web", "7f4a1b2c-0d3e-4f56-8a9b-0c1d2e3f4a5b", 300 << 20);
    let refuses = Place {
        refusal: Some(Reason::Annotated),
        ..place("db", "8f4a1b2c-0d3e-4f56-8a9b-0c1d2e3f4a5b", 900 << 20)
    };
    let mut ranking = [None; PLACES];
    for (slot, place) in ranking.iter_mut().zip([refuses, victim]) {
        *slot = Some(place);
    }
    Record {
        order: 17,
        boot: [7; 16],
        wall_of_zero: 1_795_000_000_000_000_000,
        rung: Rung::KernelSampler,
        reason: Reason::Hard,
        mode: Mode::Enforcing,
        policy: MemoryPolicy::Confirmed,
        limit: None,
        crossed: Crossed {
            signal: Signal::MemoryAvailable,
            grace: 0,
            quantity: 100 << 20,
            seen,
        },
        signals: PerSignal::from_fn(|signal| (signal == Signal::MemoryAvailable).then_some(seen)),
        confirmation: Confirmation {
            node: Some(80 << 20),
            reserve: 45 << 20,
            ..Confirmation::default()
        },
        credit: 0,
        candidates: 2,
        victim,
        ranking,
        stages: Stages {
            sampled: Some(Moment::from_secs(9956)),
            decided: Some(Moment::from_nanos(9_956_000_100_000)),
            ..Stages::default()
        },
        until: Some(Moment::from_secs(9986)),
    }
}

pub(super) fn completion() -> Completion {
    Completion {
        stages: Stages {
            sampled: Some(Moment::from_secs(9956)),
            decided: Some(Moment::from_nanos(9_956_000_100_000)),
            first_signal: Some(Moment::from_nanos(9_956_000_200_000)),
            gone: Some(Moment::from_nanos(9_956_010_000_000)),
            ..Stages::default()
        },
        kill: Some(Kill {
            means: Means::CgroupKill,
            passes: 2,
            signalled: 3,
            waited_ns: Some(250_000),
            ..Kill::default()
        }),
        freed: 290 << 20,
        reclaim: Some(ReclaimCost {
            node: 3,
            node_ns: 4_000_000,
            cgroup: 1,
            cgroup_ns: 90_000,
            pages: 96,
        }),
        end: Some(End::MemoryBack),
    }
}

/// Slots as the entry point's small ledger has them: two numbers, the marks, the record, the completion.
pub(super) fn ledger() {
    const FRONT: usize = 8 * (2 + MARKS);
    const RECORD: usize = LEDGER_SHAPE.record as usize;
    const COMPLETION: usize = LEDGER_SHAPE.completion as usize;
    let slot = |sequence: u64, completed: u64, completion: &Completion| {
        let asked_at: u64 = 9_956_000_150_000;
        let numbers = [sequence, completed, asked_at].map(u64::to_ne_bytes);
        let mut bytes = numbers.concat();
        bytes.resize(FRONT + RECORD + COMPLETION, 0);
        let _fits = postcard::to_slice(&record(), &mut bytes[FRONT..FRONT + RECORD]).map(drop);
        let _fits = postcard::to_slice(completion, &mut bytes[FRONT + RECORD..]).map(drop);
        bytes
    };
    let file = |slots: &[Vec<u8>]| [vec![0u8], slots.concat()].concat();
    let whole = slot(1, 1, &completion());
    write(
        "ledger",
        "one-decision",
        &file(std::slice::from_ref(&whole)),
    );
    let torn = slot(2, 1, &completion());
    write("ledger", "torn-completion", &file(&[whole, torn]));
    write(
        "ledger",
        "torn-record",
        &file(&[slot(0, 0, &completion()), slot(2, 2, &completion())]),
    );
    let cost = ReclaimCost {
        node: u64::MAX,
        cgroup: 1,
        ..ReclaimCost::default()
    };
    let costly = Completion {
        reclaim: Some(cost),
        ..completion()
    };
    write(
        "ledger",
        "regression-reclaims-beyond-count",
        &file(&[slot(1, 1, &costly)]),
    );
    // The largest number there is; the last of the three slots is the one that can have been given it.
    let last = (1 << 48) - 1;
    let empty = || slot(0, 0, &completion());
    write(
        "ledger",
        "regression-last-number",
        &file(&[empty(), empty(), slot(last, last, &completion())]),
    );
}
