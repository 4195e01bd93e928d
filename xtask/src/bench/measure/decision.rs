//! How long a decision takes by the number of workloads: figures gathered, ranked, verified, and a victim chosen.
//!
//! In memory: the tables of a node, the guard's own order of work on them, nothing read and nothing killed. What the
//! guard's real decisions took, files included, is among the stages of `latency`.
use std::time::Instant;

use brink_core::{
    base::{Moment, Quantity, Span},
    node::{
        action::{Action, Actions},
        engine::{Engine, LiveSettings, MemoryPolicy},
        input::{Confirmation, Input, Sample},
        observe::{Layout, Observation, Observations},
        policy::{Policy, Settings as PolicySettings},
        rank::{Preferences, Ranking, rank_head},
        signal::Signal,
        threshold::{Threshold, Value},
        workload::{PodUsage, Workload, WorkloadTable},
    },
};

use super::super::{
    random::SplitMix64,
    registry::{Measured, Outcome, Settings},
    stats,
};
use super::units::{MIB, micros, signed};

const SIZES: [usize; 3] = [110, 500, 5_000];
const WHAT: &str = "figures to decision";
const CAPACITY: u64 = 4096 * MIB;
/// How many of the ranking the guard puts in order and looks at before a decision.
const HEAD: usize = 64;
/// What is left at the crossing.
const LEFT: u64 = 99 * MIB;

/// Runs it.
pub(super) fn run(settings: &Settings) -> anyhow::Result<Measured> {
    let mut random = SplitMix64::new(settings.seed);
    let mut outcome = Outcome::default();
    let rounds = settings.runs(300, 2_000);
    let mut values = vec![Vec::with_capacity(rounds); SIZES.len()];
    for place in random.rounds(SIZES.len(), rounds) {
        values[place].push(decide(SIZES[place], &mut random)?);
    }
    for (size, values) in SIZES.into_iter().zip(values) {
        outcome.add(&case(size), WHAT, "µs", values);
    }
    Ok(Measured::Ran(outcome))
}

/// Holds it to its figures.
pub(super) fn hold(outcome: &mut Outcome, settings: &Settings) {
    outcome.limit_tail(&case(110), WHAT, settings.time(200.0));
    outcome.limit_tail(&case(500), WHAT, settings.time(1_000.0));
    let median = |size| stats::quantile(outcome.values(&case(size), WHAT), 50);
    let growth = median(5_000)
        .zip(median(500))
        .map(|(large, small)| large / small);
    outcome.limit_value(
        "5,000 workloads against 500: ratio of medians",
        "",
        settings.figure(12.0, 10.0),
        growth,
    );
}

fn case(size: usize) -> String {
    format!("{size} workloads")
}

/// One decision of an engine that has seen the table and nothing else, in microseconds.
fn decide(size: usize, random: &mut SplitMix64) -> anyhow::Result<f64> {
    let table = table(size, random)?;
    let figures: Vec<u64> = (0..size).map(|_| random.below(64 * MIB)).collect();
    let mut engine = engine();
    let mut actions = Actions::default();
    let at = Moment::from_secs(1);
    engine.step(
        at,
        Input::Workloads(std::sync::Arc::clone(&table)),
        &mut actions,
    );
    let mut usage: Vec<Option<PodUsage>> = Vec::with_capacity(size);
    let mut order = Vec::with_capacity(size);
    let began = Instant::now();
    gather(&figures, &mut usage);
    let ranking = Ranking {
        signal: Signal::MemoryAvailable,
        layout: Layout::Single,
        preferences: Preferences::Respect,
    };
    rank_head(ranking, &table, &usage, &mut order, HEAD);
    let sample = sample(&usage, at);
    engine.step(at, Input::Sample(&sample), &mut actions);
    let elapsed = began.elapsed();
    let killed = actions
        .as_slice()
        .iter()
        .any(|action| matches!(action, Action::Kill { .. }));
    anyhow::ensure!(
        killed,
        "the engine did not decide: {:?}",
        actions.as_slice()
    );
    Ok(micros(i64::try_from(elapsed.as_nanos())?))
}

/// What the guard does with the sampler's figures.
fn gather(figures: &[u64], usage: &mut Vec<Option<PodUsage>>) {
    usage.clear();
    usage.resize(figures.len(), None);
    for (slot, bytes) in usage.iter_mut().zip(figures) {
        slot.get_or_insert_with(PodUsage::default).memory = Some(*bytes);
    }
}

fn engine() -> Engine {
    let threshold = Threshold {
        signal: Signal::MemoryAvailable,
        grace: Span::ZERO,
        value: Value::Quantity(Quantity::from_bytes(signed(100 * MIB))),
        min_reclaim: None,
    };
    let policy = Policy::new(vec![threshold], Layout::Single, PolicySettings::default());
    let settings = LiveSettings {
        enforce: true,
        memory: MemoryPolicy::Confirmed,
        ..LiveSettings::default()
    };
    Engine::new(policy, settings, Moment::START)
}

fn table(size: usize, random: &mut SplitMix64) -> anyhow::Result<std::sync::Arc<WorkloadTable>> {
    let mut workloads = Vec::with_capacity(size);
    for number in 0..size {
        workloads.push(Workload {
            namespace: format!("namespace-{}", number % 20),
            name: format!("workload-{number}"),
            uid: format!("{:016x}", random.next_u64()),
            priority: Some(i32::try_from(random.below(4))? * 1000),
            ..Workload::default()
        });
    }
    Ok(std::sync::Arc::new(WorkloadTable::new(workloads, 1)))
}

fn sample(usage: &[Option<PodUsage>], at: Moment) -> Sample<'_> {
    let mut observations = Observations::default();
    observations[Signal::MemoryAvailable] = Some(Observation {
        available: signed(LEFT),
        capacity: signed(CAPACITY),
        at: Some(at),
    });
    Sample {
        observations,
        confirmation: Confirmation {
            node: Some(signed(LEFT)),
            ..Confirmation::default()
        },
        usage,
    }
}
