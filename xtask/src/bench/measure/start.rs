//! From the agent's start, with the node short already, to SIGKILL.
//!
//! A crossing that holds is not waited for again, be it the first start of an agent or the one after a kill of it.
use std::{thread::sleep, time::Duration};

use anyhow::Context as _;
use brink_host::{
    cgroup::owned::OwnedCgroup,
    hog::{HogSpec, Load},
};
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
/// The case of an agent that is killed during a crossing that holds.
const KILLED: &str = "after kill -9";
const WRONG: &str = "runs with a wrong victim or none";

/// Runs it.
pub(super) fn run(settings: &Settings) -> anyhow::Result<Measured> {
    let mut measured = super::in_both_cases(settings, |case, random, outcome| {
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
    })?;
    if let Measured::Ran(outcome) = &mut measured {
        add_restarts(settings, outcome)?;
    }
    Ok(measured)
}

/// One agent after the other in the same folder, each killed in the place of the one before it.
fn add_restarts(settings: &Settings, outcome: &mut Outcome) -> anyhow::Result<()> {
    let mut random = SplitMix64::new(settings.seed);
    let arena = Arena::new(NODE, WORKLOADS)?;
    // It finds its victim there, and that is the decision that the ledger has when the first of them is killed.
    let (_victim, hog) = victim(&arena)?;
    let (mut agent, began) = Agent::launch(Setup::of(&arena), &[("memory.available", THRESHOLD)])?;
    let first = agent.decision_since(began, PATIENCE);
    let mut order = first.context("the agent decided nothing")?.order;
    drop(hog);
    let (mut times, mut wrong) = (Vec::new(), Vec::new());
    for _ in 0..settings.runs(5, 100) {
        let found = restart(&arena, &mut agent, &mut order, &mut random)?;
        times.extend(found.map(millis));
        wrong.push(f64::from(found.is_none()));
    }
    outcome.add(KILLED, WHAT, "ms", times);
    outcome.add(KILLED, WRONG, "", wrong);
    Ok(())
}

/// Holds it to its figures.
pub(super) fn hold(outcome: &mut Outcome, settings: &Settings) {
    for case in ["idle", "storms", KILLED] {
        outcome.limit_tail(case, WHAT, settings.time(50.0));
        outcome.limit_sum(case, WRONG, 0.0);
    }
}

/// One start, in nanoseconds; nothing if the one that holds the memory was not the first to go.
fn start(arena: &Arena, random: &mut SplitMix64) -> anyhow::Result<Option<i64>> {
    let (victim, _hog) = victim(arena)?;
    sleep(Duration::from_nanos(random.below(PHASE_NS)));
    let (agent, began) = Agent::launch(Setup::of(arena), &[("memory.available", THRESHOLD)])?;
    Ok(first_signal(&agent, began, 1, &victim))
}

/// One start after a kill, in nanoseconds. The agent is warm, stands on its rung and has no order open; it is stopped before the
/// crossing, so that it can only be killed during it, and never has acted on it.
fn restart(
    arena: &Arena,
    agent: &mut Agent,
    order: &mut u64,
    random: &mut SplitMix64,
) -> anyhow::Result<Option<i64>> {
    agent.wait_on_its_rung()?;
    agent.freeze();
    let (victim, _hog) = victim(arena)?;
    let began = agent.start_again(Duration::from_nanos(random.below(PHASE_NS)))?;
    *order += 1;
    Ok(first_signal(agent, began, *order, &victim))
}

/// A workload that holds so much that the node is short.
fn victim(arena: &Arena) -> anyhow::Result<(OwnedCgroup, Hog)> {
    let victim = arena.next_victim()?;
    let spec = HogSpec::new(Load::Anon, HELD, PATIENCE);
    let mut hog = Hog::spawn(&programs::hog()?, Some(&victim), &spec)?;
    hog.wait_touched(HELD, PATIENCE)?;
    Ok((victim, hog))
}

/// From `began` to the first signal of the order with this number, which must be against this victim. An agent that has not
/// recalled its ledger would count from one.
fn first_signal(agent: &Agent, began: u64, order: u64, victim: &OwnedCgroup) -> Option<i64> {
    let record = agent.decision_since(began, PATIENCE)?;
    let is_right = record.order == order && record.victim.name.ends_with(victim.group());
    let signal = time_of(&record, "firstSignal").filter(|_| is_right)?;
    Some(between(began, signal))
}
