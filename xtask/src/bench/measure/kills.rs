//! Loads that look like trouble and are none: nobody may be killed for them.
//!
//! The node is a bounded cgroup. In the policy `confirmed`, the default, the count must be zero; the count of the
//! policy `kubelet`, which follows the kubelet's formula alone, is printed beside it. That each load is the trouble it
//! is named for is measured too: how short the node became, and how long processes stalled for memory.
use std::{fs, path::Path, thread::sleep, time::Duration};

use brink::guard::files::{NodeFiles, NodePlan, Scope};
use brink_host::hog::{HogSpec, Load};
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

/// A load, and how it is named.
struct Scenario {
    name: &'static str,
    load: Load,
    bytes: u64,
    /// Limit of the load's own group; none for the node's alone.
    limit: Option<u64>,
}

const SCENARIOS: [Scenario; 5] = [
    Scenario {
        name: "page-cache streaming, larger than the node",
        load: Load::CacheChurn,
        bytes: 2 * NODE,
        limit: None,
    },
    // Its pages become active, which the kubelet's formula counts as used.
    Scenario {
        name: "page-cache streaming, the same file again and again",
        load: Load::CacheChurn,
        bytes: NODE / 8 * 7,
        limit: None,
    },
    Scenario {
        name: "mmap churn",
        load: Load::AnonChurn,
        bytes: NODE / 4,
        limit: None,
    },
    // It thrashes against its own limit while the node has plenty.
    Scenario {
        name: "PSI storm, memory free",
        load: Load::CacheWriteChurn,
        bytes: 96 * MIB,
        limit: Some(24 * MIB),
    },
    Scenario {
        name: "near-miss spikes",
        load: Load::AnonChurn,
        bytes: NODE - THRESHOLD - MISS - 16 * MIB,
        limit: None,
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
    let spec = HogSpec::new(scenario.load, scenario.bytes, time);
    let mut hog = Hog::spawn(&programs::hog()?, Some(&group), &spec)?;
    // Whoever brings its end about.
    hog.wait(time + Duration::from_secs(5))?;
    let stalled = before.zip(stalled()).map(|(before, after)| after - before);
    let lowest = watch.finish()?;
    sleep(Duration::from_millis(300));
    Ok(Found {
        kills: agent.decisions()?.len(),
        lowest,
        stalled,
    })
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
