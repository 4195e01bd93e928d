//! From the agent's start, with the node short already, to SIGKILL: a crossing that holds is not waited for again.
use std::time::Duration;

use brink_host::hog::{HogSpec, Load};
use brink_tests::Hog;

use super::super::{
    random::SplitMix64,
    registry::{Measured, Outcome, Settings},
};
use super::{
    agent::{Agent, Setup, time_of},
    arena::Arena,
    programs,
    units::{MIB, between, millis},
};

const WORKLOADS: usize = 110;
const NODE: u64 = 2048 * MIB;
/// What the victim holds.
const HELD: u64 = 768 * MIB;
/// With the victim the node is below it, without it above.
const THRESHOLD: u64 = NODE - HELD / 2;
const PATIENCE: Duration = Duration::from_secs(20);
/// Each start is put off by up to this.
const PHASE_NS: u64 = 20_000_000;
const WHAT: &str = "start of the process to SIGKILL";
const WRONG: &str = "runs with a wrong victim or none";

/// Runs it.
pub(super) fn run(settings: &Settings) -> anyhow::Result<Measured> {
    super::in_both_cases(settings, |case, random, outcome| {
        let arena = Arena::new(NODE, WORKLOADS)?;
        let storms = if case.storm {
            arena.storm()?
        } else {
            Vec::new()
        };
        let (mut times, mut wrong) = (Vec::new(), Vec::new());
        for _ in 0..settings.runs(5, 100) {
            let found = start(&arena, random)?;
            times.extend(found.map(millis));
            wrong.push(f64::from(found.is_none()));
        }
        drop(storms);
        outcome.add(case.name, WHAT, "ms", times);
        outcome.add(case.name, WRONG, "", wrong);
        Ok(())
    })
}

/// Holds it to its figures.
pub(super) fn hold(outcome: &mut Outcome, settings: &Settings) {
    for case in ["idle", "storms"] {
        outcome.limit_tail(case, WHAT, settings.time(50.0));
        outcome.limit_sum(case, WRONG, 0.0);
    }
}

/// One start, in nanoseconds; nothing if the one that holds the memory was not the first to go.
fn start(arena: &Arena, random: &mut SplitMix64) -> anyhow::Result<Option<i64>> {
    let victim = arena.next_victim()?;
    let spec = HogSpec::new(Load::Anon, HELD, PATIENCE);
    let mut hog = Hog::spawn(&programs::hog()?, Some(&victim), &spec)?;
    hog.wait_touched(HELD, PATIENCE)?;
    std::thread::sleep(Duration::from_nanos(random.below(PHASE_NS)));
    let (agent, began) = Agent::launch(Setup::of(arena), &[("memory.available", THRESHOLD)])?;
    let record = agent.decision_since(began, PATIENCE);
    let victim = victim.group();
    let record = record.filter(|record| record.order == 1 && record.victim.name.ends_with(victim));
    let signal = record.and_then(|record| time_of(&record, "firstSignal"));
    Ok(signal.map(|signal| between(began, signal)))
}
