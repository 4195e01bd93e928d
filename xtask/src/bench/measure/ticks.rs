//! What one tick of the sampler takes, at its fastest pace and at slower ones, by its own clock.
use std::{io, path::Path, thread::sleep, time::Duration};

use anyhow::Context as _;
use brink_host::{
    meminfo::MeminfoReader,
    probe::{
        Meters, Probe, Wishes,
        abi::sample::{SOURCE_NODE_AVAILABLE, SOURCE_NODE_HEADROOM, Watch},
    },
};

use super::super::registry::{Outcome, Settings};
use super::units::{micros, signed};

/// The case of these rows.
pub(super) const CASE: &str = "the machine, two thresholds";
/// The pace under pressure.
pub(super) const FASTEST: &str = "sampler, mean of a tick at 0.2 ms";
/// That one, one on the way there, and the one at rest.
const PACES: [(&str, Duration); 3] = [
    (FASTEST, Duration::from_micros(200)),
    ("sampler, mean of a tick at 1 ms", Duration::from_millis(1)),
    (
        "sampler, mean of a tick at 50 ms",
        Duration::from_millis(50),
    ),
];
/// Ticks whose mean is one value.
const TICKS: u32 = 100;

/// Adds one row for each pace.
pub(super) fn add(outcome: &mut Outcome, settings: &Settings) -> anyhow::Result<()> {
    for (name, pace) in PACES {
        let windows = if pace > Duration::from_millis(10) {
            1
        } else {
            settings.runs(5, 30)
        };
        outcome.add(CASE, name, "µs", means(pace, windows)?);
    }
    Ok(())
}

/// The mean of a tick in each window, in microseconds.
fn means(pace: Duration, windows: usize) -> anyhow::Result<Vec<f64>> {
    let mut wishes = Wishes::default();
    let pace_ns = u64::try_from(pace.as_nanos())?;
    wishes.knobs.max_period_ns = pace_ns;
    let mut probe = brink::equip::probe(Path::new("/"), wishes)
        .map_err(|why| anyhow::anyhow!("the programs cannot be loaded: {why}"))?;
    let meters = probe.take_meters().context("the counters are taken")?;
    start(&mut probe)?;
    sleep(pace * TICKS);
    let mut means = Vec::new();
    for _ in 0..windows {
        means.push(mean(&meters, pace)?);
    }
    Ok(means)
}

/// Arms the machine as the node, with two thresholds that are never met.
fn start(probe: &mut Probe) -> anyhow::Result<()> {
    let file = MeminfoReader::open(Path::new("/"))?;
    let total = file.read()?.total;
    let free = || file.read().map(|info| info.free).map_err(io::Error::other);
    probe.arm_node(total, free)?;
    let watch = |source| Watch {
        source,
        slot: 0,
        limit: 1 << 20,
    };
    probe.set_watches(&[watch(SOURCE_NODE_AVAILABLE), watch(SOURCE_NODE_HEADROOM)])?;
    probe.start()?;
    Ok(())
}

fn mean(meters: &Meters, pace: Duration) -> anyhow::Result<f64> {
    let before = meters.sampler()?;
    sleep(pace * TICKS);
    let after = meters.sampler()?;
    let spent = after.cost_ns.saturating_sub(before.cost_ns);
    let ticks = after.ticks.saturating_sub(before.ticks);
    let mean = spent
        .checked_div(ticks)
        .context("the sampler stands still")?;
    Ok(micros(signed(mean)))
}
