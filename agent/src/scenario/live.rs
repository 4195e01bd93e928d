//! Running a scenario through the live engine: headroom, confirmation, credit, one order at a time, guards.
//!
//! A step is one sample. Between two steps only time goes by, so that graces and pauses end when they
//! should; every kill counts as delivered, and reclaim on the node as done a millisecond later.
//! Limits of local storage are looked at before the sample, as in the kubelet's loop; one goes in a step.

use std::sync::Arc;

use brink_core::base::{Moment, Reason, Span};
use brink_core::node::action::{Action, Actions};
use brink_core::node::condition::{Condition, ConditionSet};
use brink_core::node::decision::Decision;
use brink_core::node::engine::Engine;
use brink_core::node::grace;
use brink_core::node::input::{Delivery, Input, Sample};
use brink_core::node::limits::{Excess, exceeded, message};
use brink_core::node::message::{REASON, Victim, eviction_message};
use brink_core::node::observe::{Observation, Observations};
use brink_core::node::order::Phase;
use brink_core::node::rank::{Preferences, Ranking, rank};
use brink_core::node::reclaim;
use brink_core::node::safety::Mode;
use brink_core::node::threshold::ThresholdSet;
use brink_core::node::workload::{PodUsage, Workload};

use super::line::{EvictLine, Evicted, StepLine, name, thresholds};
use super::live_line::{LiveLine, Teller, word_of_mode};
use super::run::Pods;
use super::{Scenario, Step};

/// Ticks in one step at most; a scenario of years with graces of nanoseconds ends all the same.
const MOST_TICKS: usize = 100_000;

/// Evaluates every step and hands its line to `tell`, which can stop it by an error.
///
/// # Errors
/// What `tell` returns.
pub fn run_live<E>(
    scenario: &Scenario,
    mut tell: impl FnMut(&LiveLine<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut run = LiveRun::new(scenario);
    for step in &scenario.steps {
        let line = run.step(step);
        tell(&line)?;
    }
    Ok(())
}

struct LiveRun {
    engine: Engine,
    pods: Pods,
    now: Moment,
    met: ThresholdSet,
    conditions: ConditionSet,
    mode: Mode,
    buffer: Actions,
    done: Vec<(Moment, Action)>,
}

impl LiveRun {
    fn new(scenario: &Scenario) -> Self {
        let start = scenario
            .steps
            .first()
            .map_or(Moment::START, |step| step.now);
        let policy = scenario.policy.on_layout(scenario.layout);
        let mut run = Self {
            engine: Engine::new(policy, scenario.live, start),
            pods: Pods::new(&with_uids(&scenario.pods)),
            now: start,
            met: ThresholdSet::EMPTY,
            conditions: ConditionSet::EMPTY,
            mode: if scenario.live.enforce {
                Mode::Enforcing
            } else {
                Mode::Observing(Reason::Observing)
            },
            buffer: Actions::default(),
            done: Vec::new(),
        };
        run.send_table(start);
        run
    }

    fn send_table(&mut self, now: Moment) {
        let table = Arc::new(self.pods.table.clone());
        self.send(now, Input::Workloads(table));
    }

    /// Sends one input, notes the answers, and answers those that want it.
    fn send(&mut self, now: Moment, input: Input<'_>) {
        let mut buffer = std::mem::take(&mut self.buffer);
        self.engine.step(now, input, &mut buffer);
        self.now = now;
        let mut orders = Vec::new();
        for &action in buffer.as_slice() {
            match action {
                Action::Crossed { threshold } => self.met.insert(threshold),
                Action::Cleared { threshold } => self.met.remove(threshold),
                Action::Conditions(conditions) => self.conditions = conditions,
                Action::Mode(mode) => self.mode = mode,
                Action::Kill { order, .. } | Action::Ask { order, .. } => orders.push(order),
                _ => {}
            }
            self.done.push((now, action));
        }
        self.buffer = buffer;
        for order in orders {
            let delivered = Delivery::Done { processes: 0 };
            self.send(now, Input::Outcome { order, delivered });
        }
    }

    fn step<'a>(&'a mut self, step: &'a Step) -> LiveLine<'a> {
        self.done.clear();
        for _ in 0..MOST_TICKS {
            match self.engine.next_wake(self.now) {
                Some(wake) if wake < step.now => self.send(wake, Input::Tick),
                _ => break,
            }
        }
        for &workload in &step.gone {
            self.send(
                step.now,
                Input::Gone {
                    workload,
                    kept: 0,
                    unseen: 0,
                },
            );
        }
        if self.pods.end(&step.gone) {
            self.send_table(step.now);
        }
        self.send_limits(step);
        self.send_sample(step.now, step, &step.seen);
        let asked = self.done.iter().rev().find_map(|(_, action)| match action {
            Action::Reclaim { threshold } => Some(*threshold),
            _ => None,
        });
        if asked.is_some() {
            self.send(step.now, Input::Reclaimed);
            let later = step.now + Span::from_millis(1);
            self.send_sample(later, step, &later_than(&step.after_reclaim, later));
        }
        self.line(step, asked)
    }

    fn send_limits(&mut self, step: &Step) {
        let layout = self.engine.policy().layout();
        let found = exceeded(layout, &self.pods.table, &step.usage, &step.details);
        let found: Vec<Excess> = found.collect();
        for Excess {
            workload, limit, ..
        } in found
        {
            let workload = workload as usize;
            let used = step.usage.get(workload).and_then(Option::as_ref);
            let input = Input::Exceeded {
                workload,
                limit,
                memory: used.and_then(|used| used.memory),
            };
            self.send(step.now, input);
        }
    }

    fn send_sample(&mut self, now: Moment, step: &Step, observations: &Observations) {
        // No processes given is not known to be empty: whoever is listed in `pods` runs until it is gone.
        let running = |usage: &Option<PodUsage>| {
            let mut usage = (*usage)?;
            usage.processes = usage.processes.filter(|&count| count > 0);
            Some(usage)
        };
        let usage: Vec<_> = step.usage.iter().map(running).collect();
        let sample = Sample {
            observations: *observations,
            confirmation: step.confirmation,
            usage: &usage,
        };
        self.send(now, Input::Sample(&sample));
    }

    fn line<'a>(&'a self, step: &'a Step, reclaimed: Option<usize>) -> LiveLine<'a> {
        let policy = self.engine.policy();
        let is_over = |index: &usize| {
            let grace = policy.thresholds()[*index].grace;
            let first = self.engine.gate().first_observed(*index);
            first.is_some_and(|first| self.now.since(first) >= grace)
        };
        let ways = reclaimed.map_or(&[][..], |index| {
            reclaim::functions(policy.layout(), policy.thresholds()[index].signal)
        });
        let evict = self.evicted(step);
        let ranking = match evict {
            Evicted::Nobody => Vec::new(),
            _ => self.ranking(step),
        };
        let teller = Teller {
            policy,
            names: &self.pods.names,
        };
        let (order, actions) = (self.engine.open_order(), self.done.iter());
        LiveLine {
            step: StepLine {
                at: &step.at,
                met: thresholds(policy, self.met),
                ready: thresholds(policy, self.met.iter().filter(is_over).collect()),
                conditions: self.conditions.iter().map(Condition::name).collect(),
                reclaim: ways.iter().map(|way| way.name()).collect(),
                ranking,
                evict,
            },
            mode: word_of_mode(self.mode),
            order: order.map(|order| teller.order(order)),
            actions: actions
                .map(|&(at, action)| teller.action(at, action))
                .collect(),
        }
    }

    /// The order given in this step, if one was.
    fn evicted(&self, step: &Step) -> Evicted<'_> {
        let new = |decision: &&Decision| decision.at >= step.now;
        let Some(decision) = self.engine.decision().filter(new) else {
            return Evicted::Nobody;
        };
        let seconds = match self.engine.open_order().map(|order| order.phase) {
            Some(Phase::Asked { until }) => until.since(decision.at).as_secs(),
            _ => grace::IMMEDIATE,
        };
        let index = usize::try_from(decision.victim.workload).unwrap_or(usize::MAX);
        let (Some(pod), Some(detail)) = (
            self.pods.table.workloads().get(index),
            step.details.get(index),
        ) else {
            return Evicted::Nobody;
        };
        let victim = Victim {
            pod,
            usage: step.usage.get(index).and_then(Option::as_ref),
            detail,
        };
        let (signal, message) = if let Some(limit) = &decision.limit {
            let part = limit.part(pod).unwrap_or_default();
            (limit.kind.name(), message(limit.kind, part, limit.limit))
        } else {
            let seen = Some(&decision.observation);
            let said = eviction_message(&decision.crossed, seen, victim);
            (decision.crossed.signal.name(), said.text)
        };
        Evicted::One(EvictLine {
            pod: name(&self.pods.names, decision.victim.workload),
            signal,
            grace_period_seconds: seconds,
            reason: REASON,
            message,
        })
    }

    fn ranking(&self, step: &Step) -> Vec<&str> {
        let by_threshold = |decision: &&Decision| decision.limit.is_none();
        let Some(decision) = self.engine.decision().filter(by_threshold) else {
            return Vec::new();
        };
        let ranking = Ranking {
            signal: decision.crossed.signal,
            layout: self.engine.policy().layout(),
            preferences: Preferences::Respect,
        };
        let mut order = Vec::new();
        rank(ranking, &self.pods.table, &step.usage, &mut order);
        order
            .into_iter()
            .map(|index| name(&self.pods.names, index))
            .collect()
    }
}

/// The engine knows workloads by uid over tables. A missing one sorts before all others, and then by
/// namespace and name, as it would without.
fn with_uids(pods: &[Workload]) -> Vec<Workload> {
    let mut pods = pods.to_vec();
    for pod in &mut pods {
        if pod.uid.is_empty() {
            pod.uid = format!("\0{}\0{}", pod.namespace, pod.name);
        }
    }
    pods
}

/// What is measured after reclaim is newer than what was measured before.
fn later_than(observations: &Observations, at: Moment) -> Observations {
    Observations::from_fn(|signal| {
        let seen = observations[signal]?;
        Some(Observation {
            at: Some(at),
            ..seen
        })
    })
}
