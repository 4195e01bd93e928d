//! Loads that look like trouble and are none: nobody may be killed for them.
//!
//! The node is a bounded cgroup. In the policy `confirmed`, the default, the count must be zero; the count of the
//! policy `kubelet`, which follows the kubelet's formula alone, is printed beside it. That each load is the trouble it
//! is named for is measured too: how short the node became, and how long processes stalled for memory. A load that did not
//! take what its name says, and for which nobody was killed, is an error.
use std::{
    env, fs,
    path::Path,
    process::ExitStatus,
    thread::sleep,
    time::{Duration, Instant},
};

use brink::guard::files::{NodeFiles, NodePlan, Scope};
use brink_host::hog::{HogSpec, Load, Progress};
use brink_tests::Hog;

use super::super::registry::{Measured, Outcome, Settings};
use super::{
    agent::{Agent, Setup},
    arena::Arena,
    lowest::{Lowest, Watch},
    programs,
    units::{MIB, mebibytes, millis},
};

const WORKLOADS: usize = 10;
const NODE: u64 = 768 * MIB;
const THRESHOLD: u64 = 200 * MIB;
const KILLS: &str = "kills";
/// The policy that is held to none.
const HELD: &str = "confirmed";
/// How near a near miss comes to the threshold.
const MISS: u64 = 24 * MIB;
/// How long a load may take until it is the trouble that it is named for.
const PATIENCE: Duration = Duration::from_secs(20);

/// A load, and how it is named.
struct Scenario {
    name: &'static str,
    load: Load,
    bytes: u64,
    /// Limit of the load's own group; none for the node's alone.
    limit: Option<u64>,
    /// Bytes that it has to take in all, or it is not what its name says.
    least: u64,
}

impl Scenario {
    /// Whether a load that took so much was what its name says. One that is over by itself has failed, or stopped because the
    /// machine runs short: it was to go on.
    const fn has_worked(&self, touched: u64, is_over: bool) -> bool {
        touched >= self.least && !is_over
    }
}

const SCENARIOS: [Scenario; 5] = [
    Scenario {
        name: "page-cache streaming, larger than the node",
        load: Load::CacheChurn,
        bytes: 2 * NODE,
        limit: None,
        least: 2 * NODE,
    },
    // Its pages become active, which the kubelet's formula counts as used.
    Scenario {
        name: "page-cache streaming, the same file again and again",
        load: Load::CacheChurn,
        bytes: NODE / 8 * 7,
        limit: None,
        least: 2 * (NODE / 8 * 7),
    },
    Scenario {
        name: "mmap churn",
        load: Load::AnonChurn,
        bytes: NODE / 4,
        limit: None,
        least: 2 * (NODE / 4),
    },
    // It thrashes against its own limit while the node has plenty.
    Scenario {
        name: "PSI storm, memory free",
        load: Load::CacheWriteChurn,
        bytes: 96 * MIB,
        limit: Some(24 * MIB),
        least: 2 * (24 * MIB),
    },
    Scenario {
        name: "near-miss spikes",
        load: Load::AnonChurn,
        bytes: NODE - THRESHOLD - MISS - 16 * MIB,
        limit: None,
        least: NODE - THRESHOLD - MISS - 16 * MIB,
    },
];

/// What one scenario did under one policy.
struct Found {
    kills: usize,
    lowest: Lowest,
    /// Nanoseconds in which some process stalled for memory, on the whole machine; none without PSI.
    stalled: Option<i64>,
}

/// Runs it.
pub(super) fn run(settings: &Settings) -> anyhow::Result<Measured> {
    if let Some(refusal) = super::refusal() {
        return Ok(refusal);
    }
    let time = Duration::from_secs(if settings.short { 2 } else { 30 });
    let mut outcome = Outcome::default();
    for scenario in &SCENARIOS {
        for policy in [HELD, "kubelet"] {
            let found = play(scenario, policy, time)?;
            let kills = f64::from(u32::try_from(found.kills)?);
            let case = format!("{}, {policy}", scenario.name);
            outcome.add(&case, KILLS, "", vec![kills]);
            let amount = |bytes: Option<i64>| bytes.into_iter().map(mebibytes).collect();
            let lowest = found.lowest;
            outcome.add(&case, "least available", "MiB", amount(lowest.available));
            outcome.add(&case, "least headroom", "MiB", amount(lowest.headroom));
            let stalled = found.stalled.into_iter().map(millis).collect();
            outcome.add(&case, "stalled for memory", "ms", stalled);
        }
    }
    outcome.notes.push(format!(
        "a node of {} MiB with a threshold of {} MiB; each load for {} s",
        NODE / MIB,
        THRESHOLD / MIB,
        time.as_secs()
    ));
    Ok(Measured::Ran(outcome))
}

/// Holds it to its figure.
pub(super) fn hold(outcome: &mut Outcome, _settings: &Settings) {
    let cells = outcome.cells.iter();
    let held = cells.filter(|cell| cell.what == KILLS && cell.case.ends_with(HELD));
    let kills: Vec<f64> = held.flat_map(|cell| cell.values.clone()).collect();
    let total = (!kills.is_empty()).then(|| kills.iter().sum());
    outcome.limit_value("false kills, policy confirmed", "", 0.0, total);
}

fn play(scenario: &Scenario, policy: &'static str, time: Duration) -> anyhow::Result<Found> {
    let arena = Arena::new(NODE, WORKLOADS)?;
    let agent = Agent::start(Setup {
        policy,
        ..Setup::of(&arena)
    })?;
    agent.arm(&[("memory.available", THRESHOLD)])?;
    let group = arena.next_victim()?;
    if let Some(limit) = scenario.limit {
        group.limit_memory(&arena.layout, limit)?;
    }
    agent.wait_known(group.group())?;
    let plan = NodePlan {
        scope: Scope::Group(arena.node.group().to_owned()),
        ..NodePlan::default()
    };
    let watch = Watch::start(NodeFiles::open(Path::new("/"), &arena.layout, &plan)?);
    let before = stalled();
    let spec = HogSpec::new(scenario.load, scenario.bytes, time + PATIENCE);
    let began = Instant::now();
    let mut hog = Hog::spawn(&programs::hog()?, Some(&group), &spec)?;
    // It may be killed meanwhile, or never come so far: what it did is looked at when it is over.
    let _come = hog.wait_touched(scenario.least, PATIENCE);
    let ended = hog.wait(time.saturating_sub(began.elapsed())).ok();
    let progress = hog.progress()?;
    drop(hog);
    let stalled = before.zip(stalled()).map(|(before, after)| after - before);
    let lowest = watch.finish()?;
    sleep(Duration::from_millis(300));
    let kills = agent.decisions()?.len();
    if kills == 0 {
        check_load(scenario, policy, &progress, ended)?;
    }
    Ok(Found {
        kills,
        lowest,
        stalled,
    })
}

/// Fails where nobody was killed because the load was no trouble. `ended` is how it ended by itself, if it did.
fn check_load(
    scenario: &Scenario,
    policy: &str,
    progress: &Progress,
    ended: Option<ExitStatus>,
) -> anyhow::Result<()> {
    // A load that stops early says so, and ends.
    let is_over = ended.is_some() || progress.finished_ns > 0;
    if scenario.has_worked(progress.touched, is_over) {
        return Ok(());
    }
    let end = ended.map_or_else(String::new, |status| format!(", and ended ({status})"));
    anyhow::bail!(
        "{}, {policy}: nobody was killed, and the load was not what its name says: it took {} MiB of {} at least{end}. Have {} MiB \
         free beside the node, below which a load stops, and room in {}; then measure again: cargo xtask bench kills",
        scenario.name,
        progress.touched / MIB,
        scenario.least / MIB,
        HogSpec::FLOOR / MIB,
        env::temp_dir().display()
    )
}

/// Nanoseconds in which some process stalled for memory, since the machine's start.
fn stalled() -> Option<i64> {
    let text = fs::read_to_string("/proc/pressure/memory").ok()?;
    let some = text.lines().find(|line| line.starts_with("some "))?;
    let total = some
        .split(' ')
        .find_map(|word| word.strip_prefix("total="))?;
    Some(total.parse::<i64>().ok()? * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_that_did_less_than_its_name_says_proves_nothing() {
        for scenario in &SCENARIOS {
            let Scenario {
                name, least, limit, ..
            } = *scenario;
            // More than its own limit lets it keep, or all of its file or mapping.
            let enough = limit.map_or(scenario.bytes, |limit| limit + 1);
            assert!(least >= enough, "{name}");
            assert!(scenario.has_worked(least, false), "{name}");
            assert!(!scenario.has_worked(least - 1, false), "{name}");
            assert!(!scenario.has_worked(least, true), "{name}: it ended");
        }
    }
}
