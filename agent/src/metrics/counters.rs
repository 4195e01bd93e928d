//! What is counted while the agent runs: told by the clerk, read by whoever asks for the metrics.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brink_core::base::{Moment, Reason};
use brink_core::node::action::Action;
use brink_core::node::limits::LimitKind;
use brink_core::node::order::End;
use brink_core::node::policy::Policy;
use brink_core::node::safety::Mode;
use brink_core::node::signal::Signal;
use brink_host::probe::shortage::Shortage;

use super::events::EventCounts;
use super::histogram::{AGES, Histogram, STAGES};
use crate::guard::step::Step;
use crate::ledger::entry::{Completion, Record, Stages};

/// Orders that may still be told again.
const ORDERS: usize = 64;

/// The stages that have a histogram: the word for each, and what it lies between.
pub const CHAIN: [(&str, Between); 11] = [
    ("crossing", |of| (of.above, of.sampled)),
    ("submit", |of| (of.sampled, of.submitted)),
    ("wake", |of| (of.submitted.or(of.sampled), of.woke)),
    ("decide", |of| (of.woke, of.decided)),
    ("record", |of| (of.decided, of.recorded)),
    ("ask", |of| (of.recorded, of.asked)),
    ("first_signal", |of| {
        (at_once(of, of.recorded), of.first_signal)
    }),
    ("last_signal", |of| (of.first_signal, of.last_signal)),
    ("memory_back", |of| (of.first_signal, of.first_back)),
    ("relief", |of| (of.first_signal, of.above_again)),
    ("gone", |of| (of.first_signal, of.gone)),
];

/// Where a stage begins and where it ends.
type Between = fn(&Stages) -> (Option<Moment>, Option<Moment>);

/// The signal's whole way: from the sample below the threshold to the first SIGKILL of an order that waits for no grace.
const WAY: Between = |of| (at_once(of, of.sampled), of.first_signal);

/// A grace lies between a SIGTERM and its SIGKILL, which is nobody's latency.
fn at_once(stages: &Stages, from: Option<Moment>) -> Option<Moment> {
    from.filter(|_| stages.asked.is_none())
}

/// Every reason for which an order can be over.
pub const ENDS: [End; 9] = [
    End::MemoryBack,
    End::Gone,
    End::Relieved,
    End::Stalled,
    End::UnderReserve,
    End::Overtaken,
    End::Failed,
    End::DryRun,
    End::Stopped,
];

/// Counts since the start of the agent; locked for moments only, and never by the guard.
#[derive(Debug, Default)]
pub struct Counters {
    tally: Mutex<Tally>,
    /// Events that were told.
    pub events: Arc<EventCounts>,
}

/// The counts.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Evictions by signal: carried out, and would-be.
    pub evictions: [[u64; 2]; Signal::COUNT],
    /// The same for limits of local storage, by [`LimitKind::ALL`].
    pub limits: [[u64; 2]; LimitKind::ALL.len()],
    /// Age of what a decision rested on, by signal.
    pub ages: [Histogram; Signal::COUNT],
    /// Thresholds that were crossed, by signal: hard and soft.
    pub crossings: [[u64; 2]; Signal::COUNT],
    /// The stages of [`CHAIN`].
    pub stages: [Histogram; CHAIN.len()],
    /// From a sample below its threshold to the first SIGKILL.
    pub way: Histogram,
    /// Orders that are over, by [`ENDS`].
    pub ends: [u64; ENDS.len()],
    /// Bytes that came back.
    pub freed: u64,
    /// Processes that the kernel killed: for the node, for a cgroup's limit, and for what is not known.
    pub oom_kills: [u64; 3],
    /// Whether the last reload was taken, and when that was on the wall clock, in nanoseconds; none before the first.
    pub reloaded: Option<(bool, i64)>,
    orders: VecDeque<Told>,
}

/// What of an order has been counted, a bit for each: the stages in their order, and what follows.
#[derive(Clone, Copy, Debug)]
struct Told {
    order: u64,
    things: u32,
}

const WHOLE_WAY: usize = CHAIN.len();
const STATS_AGE: usize = WHOLE_WAY + 1;
const EVICTION: usize = STATS_AGE + 1;
const END: usize = EVICTION + 1;
const _: () = assert!(END < 32);

impl Told {
    /// Whether something is told for the first time; from now on it was.
    fn is_new(&mut self, thing: usize) -> bool {
        let bit = 1 << thing;
        let is_new = self.things & bit == 0;
        self.things |= bit;
        is_new
    }
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            evictions: [[0; 2]; Signal::COUNT],
            limits: [[0; 2]; LimitKind::ALL.len()],
            ages: [const { Histogram::new(AGES) }; Signal::COUNT],
            crossings: [[0; 2]; Signal::COUNT],
            stages: [const { Histogram::new(STAGES) }; CHAIN.len()],
            way: Histogram::new(STAGES),
            ends: [0; ENDS.len()],
            freed: 0,
            oom_kills: [0; 3],
            reloaded: None,
            orders: VecDeque::with_capacity(ORDERS),
        }
    }
}

impl Counters {
    /// Takes the engine's answers to a step.
    pub fn step(&self, policy: &Policy, step: &Step) {
        if !step.actions.is_empty() {
            self.lock().step(policy, step);
        }
    }

    /// Takes a decision with what is known of it so far; each thing is counted once, however often it is told.
    pub fn decision(&self, record: &Record<'_>, completion: Option<&Completion>) {
        self.lock().decision(record, completion);
    }

    /// Takes a kill of the kernel's.
    pub fn oom_kill(&self, shortage: Shortage) {
        let place = match shortage {
            Shortage::Node => 0,
            Shortage::Cgroup => 1,
            Shortage::Unknown => 2,
        };
        self.lock().oom_kills[place] += 1;
    }

    /// Takes the outcome of a reload; the time is the wall clock's, in nanoseconds.
    pub fn reloaded(&self, taken: bool, at: i64) {
        self.lock().reloaded = Some((taken, at));
    }

    /// The counts as they are now.
    pub fn read(&self) -> Tally {
        self.lock().clone()
    }

    /// A thread that died with it locked left counts behind: at worst one is missing.
    fn lock(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tally {
    fn step(&mut self, policy: &Policy, step: &Step) {
        for action in &step.actions {
            let (Action::Crossed { threshold } | Action::Held { threshold, .. }) = *action else {
                continue;
            };
            let Some(threshold) = policy.thresholds().get(threshold) else {
                continue;
            };
            let place = threshold.signal as usize;
            match *action {
                Action::Held {
                    reason: Reason::Nobody,
                    ..
                } => {
                    // The kubelet counts this too: it had ranked everybody.
                    let seen = step.observations[threshold.signal];
                    self.age(threshold.signal, seen.and_then(|seen| seen.at), step.at);
                }
                Action::Crossed { .. } => {
                    self.crossings[place][usize::from(!threshold.is_hard())] += 1;
                }
                _ => {}
            }
        }
    }

    fn decision(&mut self, record: &Record<'_>, completion: Option<&Completion>) {
        let mut told = self.told(record.order);
        let stages = completion.map_or(record.stages, |completion| completion.stages);
        self.chain(&stages, &mut told);
        let signal = record.crossed.signal;
        // What a limit is held against is no signal.
        let decided = stages.decided.filter(|_| record.limit.is_none());
        if let Some(decided) = decided.filter(|_| told.is_new(STATS_AGE)) {
            self.age(signal, record.crossed.seen.at, decided);
        }
        if let Some(would) = evicted(record, completion).filter(|_| told.is_new(EVICTION)) {
            let counts = match &record.limit {
                Some(limit) => &mut self.limits[limit.exceeded.kind as usize],
                None => &mut self.evictions[signal as usize],
            };
            counts[usize::from(would)] += 1;
        }
        let end = completion.and_then(|completion| Some((completion.end?, completion.freed)));
        if let Some((end, freed)) = end.filter(|_| told.is_new(END)) {
            let counts = ENDS.iter().zip(&mut self.ends);
            for (_, count) in counts.filter(|(known, _)| **known == end) {
                *count += 1;
            }
            self.freed = self.freed.saturating_add(freed);
        }
        self.remember(told);
    }

    /// The stages that were reached; one that ends before it begins took no time.
    fn chain(&mut self, stages: &Stages, told: &mut Told) {
        let ways = CHAIN.iter().map(|(_, between)| between).chain([&WAY]);
        let histograms = self.stages.iter_mut().chain([&mut self.way]);
        for (thing, (between, histogram)) in ways.zip(histograms).enumerate() {
            let (from, to) = between(stages);
            let nanos = from.zip(to).map(|(from, to)| to.since(from).as_nanos());
            if let Some(nanos) = nanos.filter(|_| told.is_new(thing)) {
                histogram.observe(u64::try_from(nanos).unwrap_or(0));
            }
        }
    }

    fn age(&mut self, signal: Signal, measured: Option<Moment>, at: Moment) {
        let nanos = measured.map(|measured| at.since(measured).as_nanos());
        if let Some(nanos) = nanos {
            // A figure of the kernel's may be a moment newer than the step it belongs to.
            self.ages[signal as usize].observe(u64::try_from(nanos).unwrap_or(0));
        }
    }

    /// What of an order has been counted so far.
    fn told(&self, order: u64) -> Told {
        let known = self.orders.iter().find(|told| told.order == order);
        known.copied().unwrap_or(Told { order, things: 0 })
    }

    /// Remembers it; the oldest order is forgotten for a new one.
    fn remember(&mut self, told: Told) {
        let mut orders = self.orders.iter_mut();
        if let Some(known) = orders.find(|known| known.order == told.order) {
            *known = told;
            return;
        }
        if self.orders.len() == ORDERS {
            self.orders.pop_front();
        }
        self.orders.push_back(told);
    }
}

/// Whether a workload was evicted by it (false), or would have been (true); none while neither is known.
fn evicted(record: &Record<'_>, completion: Option<&Completion>) -> Option<bool> {
    if record.mode != Mode::Enforcing {
        return Some(true);
    }
    let completion = completion?;
    let killed = completion.kill.is_some_and(|kill| kill.signalled > 0);
    let left = completion.stages.asked.is_some()
        && !matches!(completion.end, None | Some(End::Failed | End::Stopped));
    (killed || left).then_some(false)
}
