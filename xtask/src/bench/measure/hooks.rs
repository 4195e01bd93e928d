//! What the hooks on fork and exit cost a storm of forks: the same storm with the agent's programs and without, in pairs.
use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use brink_host::{
    hog::{HogSpec, Load},
    probe::{Probe, Wishes},
};
use brink_tests::Hog;
use rustix::process::Pid;

use super::super::{
    random::SplitMix64,
    registry::{Measured, Outcome, Settings},
    stats,
};
use super::{arena::Arena, programs, units::micros};

/// Forks of one storm.
const FORKS: u64 = 500;
/// Storms of one half of a pair, of which the fastest counts: whatever else ran cost the others more than the hooks do.
const STORMS: usize = 6;
const PATIENCE: Duration = Duration::from_secs(30);
const CASE: &str = "fork, exit, wait";
const RATIO: &str = "ratio of each pair";

/// Runs it.
pub(super) fn run(settings: &Settings) -> anyhow::Result<Measured> {
    if let Some(refusal) = super::refusal() {
        return Ok(refusal);
    }
    let mut random = SplitMix64::new(settings.seed);
    let arena = Arena::new(512 << 20, 0)?;
    let mut pairs = Vec::new();
    for _ in 0..settings.runs(12, 200) {
        let mut pair = [0.0; 2];
        let mut order = [0, 1];
        random.shuffle(&mut order);
        for place in order {
            let probe = (place == 0).then(programs).transpose()?;
            pair[place] = fastest(&arena)?;
            drop(probe);
        }
        pairs.push((pair[0], pair[1]));
    }
    let mut outcome = Outcome::default();
    let column = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).collect::<Vec<f64>>();
    outcome.add(CASE, "with the programs", "µs", column(|pair| pair.0));
    outcome.add(CASE, "without", "µs", column(|pair| pair.1));
    outcome.add(CASE, RATIO, "", column(|pair| pair.0 / pair.1));
    Ok(Measured::Ran(outcome))
}

/// Holds it to its figure.
pub(super) fn hold(outcome: &mut Outcome, settings: &Settings) {
    let median = stats::quantile(outcome.values(CASE, RATIO), 50);
    outcome.limit_value(
        "fork storm with the programs over without: median of the pairs",
        "",
        settings.figure(1.15, 1.01),
        median,
    );
}

/// Every program of the agent, loaded and attached; the sampler stands still.
fn programs() -> anyhow::Result<Probe> {
    let probe = brink::equip::probe(Path::new("/"), Wishes::default());
    probe.map_err(|why| anyhow::anyhow!("the programs cannot be loaded: {why}"))
}

/// The fastest of several storms.
fn fastest(arena: &Arena) -> anyhow::Result<f64> {
    let mut fastest = f64::INFINITY;
    for _ in 0..STORMS {
        fastest = fastest.min(time_a_fork(arena)?);
    }
    Ok(fastest)
}

/// Microseconds from one fork to the next.
fn time_a_fork(arena: &Arena) -> anyhow::Result<f64> {
    let spec = HogSpec {
        hold: false,
        wait: true,
        ..HogSpec::new(Load::ForkChurn, FORKS, PATIENCE)
    };
    let mut hog = Hog::spawn(&programs::hog()?, Some(&arena.beside), &spec)?;
    // Ahead of what else runs, which would cost one half of a pair more than the hooks do.
    rustix::process::setpriority_process(Pid::from_raw(hog.pid()), -20)?;
    std::thread::sleep(Duration::from_millis(20));
    let began = Instant::now();
    hog.start();
    hog.wait(PATIENCE)?;
    let progress = hog.progress()?;
    anyhow::ensure!(began.elapsed() < PATIENCE, "the storm is too slow");
    let nanos = progress.finished_ns.checked_sub(progress.started_ns);
    let nanos = i64::try_from(nanos.context("the storm did not finish")?)?;
    Ok(micros(nanos) / f64::from(u32::try_from(progress.touched.max(1))?))
}
