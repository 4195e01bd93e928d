//! What the agent costs when nothing happens: time on a processor, resident memory, memory of its maps.
use std::{
    collections::BTreeMap,
    fs,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::Context as _;

use super::super::registry::{Measured, Outcome, Settings};
use super::{
    agent::{Agent, Setup},
    arena::Arena,
    ticks,
    units::{MIB, mebibytes, micros, millis, signed},
};

const WORKLOADS: usize = 110;
const CASE: &str = "110 workloads";
const TICK: &str = "sampler, mean of a tick in 5 s";
const WINDOW: Duration = Duration::from_secs(5);
/// From the start to the beginning of the measurement.
const SETTLING: Duration = Duration::from_secs(5);

/// Runs it.
pub(super) fn run(settings: &Settings) -> anyhow::Result<Measured> {
    if let Some(refusal) = super::refusal() {
        return Ok(refusal);
    }
    let arena = Arena::new(2048 * MIB, WORKLOADS)?;
    let agent = Agent::start(Setup {
        node: None,
        ..Setup::of(&arena)
    })?;
    sleep(SETTLING);
    let began = Instant::now();
    let mut costs = vec![Cost::read(&agent)?];
    for _ in 0..settings.runs(3, 12) {
        sleep(WINDOW);
        costs.push(Cost::read(&agent)?);
    }
    let mut outcome = Outcome::default();
    add_time(&mut outcome, settings, &costs, began.elapsed());
    add_memory(&mut outcome, agent.pid())?;
    drop(agent);
    ticks::add(&mut outcome, settings)?;
    outcome.limit_median(ticks::CASE, ticks::FASTEST, settings.time(1.0));
    Ok(Measured::Ran(outcome))
}

/// The time of threads and sampler between the first reading and the last.
fn add_time(outcome: &mut Outcome, settings: &Settings, costs: &[Cost], elapsed: Duration) {
    let (Some(before), Some(after)) = (costs.first(), costs.last()) else {
        return;
    };
    let share = |nanos: u64| millis(signed(nanos)) / (elapsed.as_secs_f64() * 10.0);
    let threads = after.threads.saturating_sub(before.threads);
    let sampler = after.sampler.saturating_sub(before.sampler);
    let unit = "% of a core";
    outcome.add(CASE, "threads", unit, vec![share(threads)]);
    outcome.add(CASE, "sampler in the kernel", unit, vec![share(sampler)]);
    outcome.add(CASE, TICK, "µs", means(costs));
    outcome.limit_value(
        "time on a processor, threads and sampler, 110 workloads",
        unit,
        settings.time(0.1),
        Some(share(threads + sampler)),
    );
    outcome.notes.push(format!(
        "over {:.0} s, {} ticks; threads' share by name: {}",
        elapsed.as_secs_f64(),
        after.ticks.saturating_sub(before.ticks),
        by_name(before, after, share)
    ));
}

/// What is resident, and the maps.
fn add_memory(outcome: &mut Outcome, pid: u32) -> anyhow::Result<()> {
    let resident = resident(pid)?;
    let maps = maps(pid)?;
    outcome.add(CASE, "resident", "MiB", vec![mebibytes(signed(resident))]);
    outcome.add(CASE, "maps", "MiB", vec![mebibytes(signed(maps))]);
    outcome.limit_value(
        "resident memory and maps, 110 workloads",
        "MiB",
        16.0,
        Some(mebibytes(signed(resident + maps))),
    );
    Ok(())
}

/// The sampler's mean time a tick in each window, in microseconds.
fn means(costs: &[Cost]) -> Vec<f64> {
    let windows = costs.windows(2).filter_map(|pair| {
        let [before, after] = pair else { return None };
        let spent = after.sampler.saturating_sub(before.sampler);
        let mean = spent.checked_div(after.ticks.saturating_sub(before.ticks));
        mean.map(|nanos| micros(signed(nanos)))
    });
    windows.collect()
}

/// What was spent since the start, in nanoseconds.
struct Cost {
    threads: u64,
    by_name: BTreeMap<String, u64>,
    sampler: u64,
    ticks: u64,
}

impl Cost {
    fn read(agent: &Agent) -> anyhow::Result<Self> {
        let sampler = agent
            .status()?
            .sampler
            .context("the sampler does not run")?;
        let mut by_name = BTreeMap::new();
        for entry in fs::read_dir(format!("/proc/{}/task", agent.pid()))? {
            let folder = entry?.path();
            let name = fs::read_to_string(folder.join("comm"))?.trim().to_owned();
            let stat = fs::read_to_string(folder.join("schedstat"))?;
            let first = stat.split_whitespace().next().context("schedstat")?;
            *by_name.entry(name).or_insert(0) += first.parse::<u64>()?;
        }
        Ok(Self {
            threads: by_name.values().sum(),
            by_name,
            sampler: sampler.mean_ns.saturating_mul(sampler.ticks),
            ticks: sampler.ticks,
        })
    }
}

fn by_name(before: &Cost, after: &Cost, share: impl Fn(u64) -> f64) -> String {
    let spent = after.by_name.iter().map(|(name, nanos)| {
        let before = before.by_name.get(name).copied().unwrap_or(0);
        format!("{name} {:.4} %", share(nanos.saturating_sub(before)))
    });
    spent.collect::<Vec<_>>().join(", ")
}

/// Resident memory of a process, in bytes.
fn resident(pid: u32) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    Ok(kib.context("VmRSS")?.parse::<u64>()? << 10)
}

/// Kernel memory of the maps a process holds, each counted once, in bytes.
fn maps(pid: u32) -> anyhow::Result<u64> {
    let mut maps = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        // A descriptor may have been closed meanwhile.
        let Ok(text) = fs::read_to_string(entry?.path()) else {
            continue;
        };
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key))?;
            line.trim().parse::<u64>().ok()
        };
        if let (Some(id), Some(bytes)) = (value("map_id:"), value("memlock:")) {
            maps.insert(id, bytes);
        }
    }
    anyhow::ensure!(!maps.is_empty(), "the agent holds no maps");
    Ok(maps.values().sum())
}
