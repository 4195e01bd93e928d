//! From SIGKILL to a gibibyte of 4K pages back, with the agent's release pool (`process_mrelease`) and without, in pairs.
use std::{thread::sleep, time::Duration};

use anyhow::Context as _;
use brink_host::{
    cgroup::{CgroupDir, Controller},
    hog::{HogSpec, Load},
    kill::{KillTarget, Killer},
};
use brink_tests::{Hog, wait_until};

use super::super::{
    random::SplitMix64,
    registry::{Measured, Outcome, Settings},
    stats,
};
use super::{
    arena::Arena,
    programs,
    units::{MIB, between, millis, signed},
    witness::Witness,
};

/// What the victim holds.
const SIZE: u64 = 1024 * MIB;
/// Its memory is back when no more than this is left: its page tables go with the process itself.
const LEFT: u64 = 16 * MIB;
/// With a processor to itself the victim frees at once, in the same order and behind the same locks as its helper: there
/// is little to gain, and nothing may be lost.
const NEVER_SLOWER: f64 = 1.0;
const PATIENCE: Duration = Duration::from_secs(20);
const RATIO: &str = "ratio of each pair";

/// Runs it.
pub(super) fn run(settings: &Settings) -> anyhow::Result<Measured> {
    super::in_both_cases(settings, |case, random, outcome| {
        let pairs = pairs(case.storm, settings.runs(5, 60), random)?;
        let column = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).collect::<Vec<f64>>();
        outcome.add(
            case.name,
            "1 GiB back, with process_mrelease",
            "ms",
            column(|pair| pair.0),
        );
        outcome.add(
            case.name,
            "1 GiB back, without",
            "ms",
            column(|pair| pair.1),
        );
        outcome.add(case.name, RATIO, "", column(|pair| pair.0 / pair.1));
        Ok(())
    })
}

/// Holds it to its figures.
pub(super) fn hold(outcome: &mut Outcome, settings: &Settings) {
    for (case, most) in [
        ("idle", settings.figure(1.25, NEVER_SLOWER)),
        ("storms", settings.figure(0.85, 0.6)),
    ] {
        let median = stats::quantile(outcome.values(case, RATIO), 50);
        outcome.limit_value(
            &format!("1 GiB back with process_mrelease over without, {case}: median of the pairs"),
            "",
            most,
            median,
        );
    }
}

/// Milliseconds with help and without, pair by pair, each pair in random order.
fn pairs(storm: bool, count: usize, random: &mut SplitMix64) -> anyhow::Result<Vec<(f64, f64)>> {
    let arena = Arena::new(2 * SIZE, 0)?;
    let storms = if storm { arena.storm()? } else { Vec::new() };
    let mut witness = Witness::new(false)?;
    let mut pairs = Vec::new();
    for _ in 0..count {
        let mut pair = [0.0; 2];
        let mut order = [0, 1];
        random.shuffle(&mut order);
        for place in order {
            pair[place] = time_to_free(&arena, &mut witness, place == 0)?;
        }
        pairs.push((pair[0], pair[1]));
    }
    drop(storms);
    Ok(pairs)
}

/// From the first signal to the memory back, in milliseconds.
fn time_to_free(arena: &Arena, witness: &mut Witness, help: bool) -> anyhow::Result<f64> {
    let group = arena.next_victim()?;
    let hierarchy = arena.layout.require(Controller::Memory)?;
    let dir = CgroupDir::open(hierarchy, group.group())?;
    let target = KillTarget::open(&arena.layout, group.group())?;
    // The pool as the agent has it; without it, the same killer.
    let mut killer = if help {
        brink::equip::killer(std::path::Path::new("/"), &arena.layout, true, true)?
    } else {
        Killer::new(&arena.layout, None)?
    };
    let spec = HogSpec::new(Load::Anon, SIZE, PATIENCE);
    let mut hog = Hog::spawn(&programs::hog()?, Some(&group), &spec)?;
    hog.wait_touched(SIZE, PATIENCE)?;
    sleep(Duration::from_millis(50));
    witness.aim_at_usage(&dir, signed(LEFT))?;
    let outcome = killer.kill(&target);
    let signal = outcome
        .times
        .before_first_signal
        .context("nobody was killed")?;
    let back = wait_until(PATIENCE, || witness.first().ok()?.first?.back);
    let back = back.context("the memory did not come back")?;
    hog.wait(PATIENCE)?;
    anyhow::ensure!(
        outcome.signalled == 1 && outcome.releasing == u32::from(help),
        "{outcome:?}"
    );
    Ok(millis(between(signal, back)))
}
