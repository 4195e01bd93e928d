//! What holds for the live engine whatever happens to it: any inputs, in any order, at any time.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::super::action::Action;
use super::super::input::{Confirmation, Control, Delivery, Recalled, Sample, Unfinished};
use super::super::observe::{Layout, Observation, Observations};
use super::super::order::{PATIENCE, PATIENCE_DISK, Phase, Stake};
use super::super::policy::Settings;
use super::super::safety::Limits;
use super::super::signal::{PerSignal, Signal};
use super::super::threshold::{Threshold, Value};
use super::super::workload::{Origin, PodUsage, Protection, Workload};
use super::*;
use crate::base::{Quantity, Span};

const LIMITS: Limits = Limits {
    burst: 4,
    refill: Span::from_secs(2),
    most: 6,
    window: Span::from_secs(60),
};

/// One thing that happens, so many milliseconds after the last.
#[derive(Clone, Debug)]
enum Event {
    Sample {
        available: Vec<Option<i64>>,
        headroom: Option<i64>,
        usage: Vec<Option<(u64, u64)>>,
    },
    Workloads(Vec<Workload>),
    Gone(usize, u64),
    Dying(usize, u64),
    Outcome(Delivery),
    Control(Control),
    Recall(Recalled),
    Reclaimed,
    ReclaimedInPart,
    WouldReclaim(u64),
    Tick,
}

fn any_workloads() -> impl Strategy<Value = Vec<Workload>> {
    let origin = prop_oneof![
        4 => Just(Origin::Api),
        1 => Just(Origin::Static),
        1 => Just(Origin::Mirror)
    ];
    let protection = prop_oneof![
        4 => Just(None),
        1 => Just(Some(Protection::OomdOmit)),
        1 => Just(Some(Protection::Annotated)),
        1 => Just(Some(Protection::Runtime))
    ];
    let priority = proptest::sample::select(&[None, Some(-1), Some(7), Some(2_000_000_000)][..]);
    let one = (origin, protection, priority, 0u8..20);
    proptest::collection::vec(one, 0..8).prop_map(|many| {
        let build = |(origin, protection, priority, name): (_, _, _, u8)| Workload {
            name: name.to_string(),
            uid: name.to_string(),
            origin,
            protection,
            priority,
            ..Workload::default()
        };
        let mut all: Vec<Workload> = many.into_iter().map(build).collect();
        all.sort_by(|a, b| a.uid.cmp(&b.uid));
        all.dedup_by(|a, b| a.uid == b.uid);
        all
    })
}

/// What an agent that ended can have left.
fn any_unfinished() -> impl Strategy<Value = Unfinished> {
    let signal = proptest::sample::select(&Signal::ALL[..]);
    let (order, workload) = (1u64..5, 0usize..9);
    let threshold = proptest::option::of(0usize..8);
    let ages = (0i64..2000, -1000i64..2000, any::<bool>(), any::<bool>());
    (order, workload, threshold, signal, ages).prop_map(
        |(order, workload, threshold, signal, (opened, then, is_killed, is_sent))| {
            let at = |millis: i64| Moment::START + Span::from_millis(millis);
            Unfinished {
                order,
                workload,
                threshold,
                signal,
                opened: at(-opened),
                phase: if is_killed {
                    Phase::Killed { at: at(-opened) }
                } else {
                    Phase::Asked { until: at(then) }
                },
                is_sent,
                charged: 300,
            }
        },
    )
}

fn any_event() -> impl Strategy<Value = Event> {
    let amount = || proptest::option::weighted(0.9, -5i64..1200);
    let used = proptest::option::weighted(0.9, (0u64..500, 0u64..3));
    let sample = (
        proptest::collection::vec(amount(), Signal::COUNT),
        amount(),
        proptest::collection::vec(used, 0..9),
    );
    let delivered = prop_oneof![
        (0u32..100).prop_map(|processes| Delivery::Done { processes }),
        Just(Delivery::Empty),
        Just(Delivery::Failed)
    ];
    let control = prop_oneof![
        Just(Control::Pause(None)),
        Just(Control::Pause(Some(Span::from_millis(300)))),
        Just(Control::Unpause),
        Just(Control::Resume),
        any::<bool>().prop_map(Control::Standby),
        any::<bool>().prop_map(Control::Enforce)
    ];
    prop_oneof![
        12 => sample.prop_map(|(available, headroom, usage)| Event::Sample { available, headroom, usage }),
        1 => any_workloads().prop_map(Event::Workloads),
        2 => (0usize..9, 0u64..500).prop_map(|(workload, unseen)| Event::Gone(workload, unseen)),
        1 => (0usize..9, 0u64..500).prop_map(|(workload, charged)| Event::Dying(workload, charged)),
        2 => delivered.prop_map(Event::Outcome),
        2 => control.prop_map(Event::Control),
        3 => any_recalled().prop_map(Event::Recall),
        1 => any_reclaimed(),
        2 => Just(Event::Tick)
    ]
}

fn any_reclaimed() -> impl Strategy<Value = Event> {
    prop_oneof![
        Just(Event::Reclaimed),
        Just(Event::ReclaimedInPart),
        (0u64..1200).prop_map(Event::WouldReclaim)
    ]
}

fn any_recalled() -> impl Strategy<Value = Recalled> {
    let missed = (0i64..500).prop_map(Span::from_millis);
    prop_oneof![
        (0u64..5).prop_map(Recalled::LastOrder),
        missed.prop_map(Recalled::Missed),
        any_unfinished().prop_map(Recalled::Unfinished)
    ]
}

fn any_thresholds() -> impl Strategy<Value = Vec<Threshold>> {
    let one = (
        proptest::sample::select(&Signal::ALL[..]),
        0i64..3,
        1i64..1100,
    );
    proptest::collection::vec(one, 1..8).prop_map(|many| {
        let build = |(signal, grace, amount)| Threshold {
            signal,
            grace: Span::from_secs(grace),
            value: Value::Quantity(Quantity::from_bytes(amount)),
            min_reclaim: None,
        };
        many.into_iter().map(build).collect()
    })
}

/// An engine, and what has been seen of it so far.
struct Run {
    engine: Engine,
    now: Moment,
    mode: Mode,
    open: Option<u64>,
    last: u64,
    kills: Vec<Moment>,
    log: Vec<Action>,
}

impl Run {
    fn new(thresholds: Vec<Threshold>, memory: MemoryPolicy) -> Self {
        let settings = LiveSettings {
            enforce: true,
            memory,
            limits: LIMITS,
            disks: Disks::Ours,
        };
        let policy = Policy::new(thresholds, Layout::Split, Settings::default());
        Self {
            engine: Engine::new(policy, settings, Moment::START),
            now: Moment::START,
            mode: Mode::Enforcing,
            open: None,
            last: 0,
            kills: Vec::new(),
            log: Vec::new(),
        }
    }

    fn apply(&mut self, pause: i64, event: &Event) -> Result<(), TestCaseError> {
        self.now = self.now + Span::from_millis(pause);
        match event {
            Event::Sample {
                available,
                headroom,
                usage,
            } => self.sample(available, *headroom, usage),
            Event::Workloads(workloads) => {
                let generation = self.engine.table().generation() + 1;
                let table = WorkloadTable::new(workloads.clone(), generation);
                self.step(Input::Workloads(Arc::new(table)))
            }
            Event::Gone(workload, unseen) => self.step(Input::Gone {
                workload: *workload,
                kept: 0,
                unseen: *unseen,
            }),
            Event::Dying(workload, charged) => self.step(Input::Dying {
                workload: *workload,
                charged: *charged,
            }),
            Event::Outcome(delivered) => self.step(Input::Outcome {
                order: self.open.unwrap_or(0),
                delivered: *delivered,
            }),
            Event::Control(control) => self.step(Input::Control(*control)),
            Event::Recall(Recalled::Unfinished(before)) => self.take_up(before),
            Event::Recall(recalled) => self.step(Input::Recall(*recalled)),
            Event::Reclaimed => self.step(Input::Reclaimed),
            Event::ReclaimedInPart => self.step(Input::ReclaimedInPart),
            Event::WouldReclaim(bytes) => self.step(Input::WouldReclaim { bytes: *bytes }),
            Event::Tick => self.step(Input::Tick),
        }
    }

    /// Recalls an order, which only an engine is told that has given none.
    fn take_up(&mut self, before: &Unfinished) -> Result<(), TestCaseError> {
        if self.last > 0 {
            return Ok(());
        }
        self.step(Input::Recall(Recalled::Kill {
            at: before.opened,
            ids: 0,
        }))?;
        // It is open without a word, if its victim was asked: only then does a word come of it.
        let mut actions = Actions::default();
        let recalled = Input::Recall(Recalled::Unfinished(*before));
        self.engine.step(self.now, recalled, &mut actions);
        let is_open = self.engine.open_order().is_some();
        prop_assert!(!is_open || self.mode == Mode::Enforcing);
        let is_asked = matches!(before.phase, Phase::Asked { .. });
        prop_assert!(!is_open || is_asked);
        let orders = || actions.as_slice().iter().filter_map(order_of);
        prop_assert!(orders().all(|order| is_open && order == (before.order, before.workload)));
        self.open = self.engine.open_order().map(|order| order.id);
        self.last = before.order;
        self.log.extend_from_slice(actions.as_slice());
        self.step(Input::Tick)
    }

    fn sample(
        &mut self,
        available: &[Option<i64>],
        headroom: Option<i64>,
        usage: &[Option<(u64, u64)>],
    ) -> Result<(), TestCaseError> {
        let at = Some(self.now);
        let observations: Observations = PerSignal::from_fn(|signal| {
            available[signal as usize].map(|available| Observation {
                available,
                capacity: 1000,
                at,
            })
        });
        let used = |&(memory, processes): &(u64, u64)| PodUsage {
            memory: Some(memory),
            processes: Some(processes),
            ..PodUsage::default()
        };
        let usage: Vec<_> = usage.iter().map(|one| one.as_ref().map(used)).collect();
        let sample = Sample {
            observations,
            confirmation: Confirmation {
                node: headroom,
                pods: headroom,
                swap: 0,
                pods_swap: 0,
                reserve: 10,
                unreaped: None,
                parked: None,
            },
            usage: &usage,
        };
        let blind = available.iter().all(Option::is_none);
        let before = self.log.len();
        self.step(Input::Sample(&sample))?;
        let orders = self.log[before..]
            .iter()
            .filter(|action| order_of(action).is_some());
        // A grace that is over ends in a kill, whatever is known then.
        let new = orders
            .filter(|action| !matches!(action, Action::Kill { .. }))
            .count();
        prop_assert!(!blind || new == 0, "nothing is known, so nobody goes");
        Ok(())
    }

    fn step(&mut self, input: Input<'_>) -> Result<(), TestCaseError> {
        let mut actions = Actions::default();
        self.engine.step(self.now, input, &mut actions);
        prop_assert_eq!(actions.lost(), 0);
        for action in actions.as_slice() {
            self.check(action)?;
            self.log.push(*action);
        }
        prop_assert_eq!(self.engine.open_order().map(|order| order.id), self.open);
        prop_assert!(
            self.engine
                .next_wake(self.now)
                .is_none_or(|at| at > self.now)
        );
        Ok(())
    }

    fn check(&mut self, action: &Action) -> Result<(), TestCaseError> {
        match *action {
            Action::Mode(mode) => self.mode = mode,
            Action::Ended { order, .. } => {
                prop_assert_eq!(self.open.take(), Some(order), "the open one ended");
            }
            _ => {}
        }
        let Some((order, workload)) = order_of(action) else {
            return Ok(());
        };
        let row = &self.engine.table().rows()[workload];
        let of = &self.engine.table().workloads()[workload];
        let spared = row.is_critical || of.protection.is_some() || of.origin != Origin::Api;
        prop_assert!(!spared, "{of:?} is never ordered");
        let dry = matches!(action, Action::WouldEvict { .. });
        if self.open == Some(order) {
            prop_assert!(
                matches!(action, Action::Kill { .. }),
                "a soft order turned hard"
            );
            return Ok(());
        }
        prop_assert_eq!(self.open, None, "one order at a time");
        prop_assert!(order > self.last, "numbers rise");
        prop_assert_eq!(dry, self.mode != Mode::Enforcing, "only who enforces kills");
        self.open = Some(order);
        self.last = order;
        if !dry {
            self.kills.push(self.now);
        }
        Ok(())
    }
}

fn order_of(action: &Action) -> Option<(u64, usize)> {
    match *action {
        Action::Kill { order, workload }
        | Action::Ask {
            order, workload, ..
        }
        | Action::WouldEvict { order, workload } => Some((order, workload)),
        _ => None,
    }
}

impl Run {
    /// When the open order is over at the latest, if nothing more is freed: its grace first, then its patience.
    fn latest_end(&self) -> Option<Moment> {
        let order = self.engine.open_order()?;
        let threshold = self.engine.policy().thresholds().get(order.threshold)?;
        let is_disk = Stake::of(threshold.signal) == Stake::Disk;
        let patience = if is_disk { PATIENCE_DISK } else { PATIENCE };
        Some(order.next_wake().max(self.now) + patience)
    }

    /// Looks at a node that nobody gives anything back to, the workloads changing in between, until the order that is
    /// open now must be over.
    fn wait_for_the_end(&mut self, tables: &[Vec<Workload>]) -> Result<(), TestCaseError> {
        const PACE: i64 = 150;
        let (Some(order), Some(latest)) = (self.open, self.latest_end()) else {
            return Ok(());
        };
        let mut tables = tables.iter();
        // A grace that is over is seen at one look, the end of the patience at another.
        while self.now <= latest + Span::from_millis(3 * PACE) {
            if let Some(table) = tables.next() {
                self.apply(0, &Event::Workloads(table.clone()))?;
            }
            self.apply(
                PACE,
                &Event::Sample {
                    available: Vec::from([Some(-5); Signal::COUNT]),
                    headroom: Some(100),
                    usage: Vec::new(),
                },
            )?;
            if self.open != Some(order) {
                return Ok(());
            }
        }
        let reason = format!("order {order} is still open after {latest:?}");
        Err(TestCaseError::fail(reason))
    }
}

proptest! {
    #[test]
    fn an_open_order_ends_whatever_the_tables_do(
        thresholds in any_thresholds(),
        first in any_workloads(),
        events in proptest::collection::vec((0i64..400, any_event()), 1..40),
        tables in proptest::collection::vec(any_workloads(), 0..4),
    ) {
        let mut run = Run::new(thresholds, MemoryPolicy::Kubelet);
        run.apply(0, &Event::Workloads(first))?;
        for (pause, event) in &events {
            run.apply(*pause, event)?;
        }
        run.wait_for_the_end(&tables)?;
    }

    #[test]
    fn whatever_happens(
        thresholds in any_thresholds(),
        confirmed in any::<bool>(),
        first in any_workloads(),
        events in proptest::collection::vec((0i64..400, any_event()), 1..60),
    ) {
        let memory = if confirmed { MemoryPolicy::Confirmed } else { MemoryPolicy::Kubelet };
        let mut run = Run::new(thresholds.clone(), memory);
        run.apply(0, &Event::Workloads(first.clone()))?;
        for (pause, event) in &events {
            run.apply(*pause, event)?;
        }
        let empty = events.iter().filter(|(_, event)| matches!(event, Event::Outcome(Delivery::Empty))).count();
        let lifted = events.iter().filter(|(_, event)| matches!(event, Event::Control(Control::Resume))).count();
        prop_assert!(run.kills.len() <= LIMITS.most * (1 + lifted) + empty, "no more than the guards allow");

        let mut again = Run::new(thresholds, memory);
        again.apply(0, &Event::Workloads(first))?;
        for (pause, event) in &events {
            again.apply(*pause, event)?;
        }
        prop_assert_eq!(run.log, again.log, "the same inputs, the same actions");
    }
}
