//! The guard with the event stream and without, in pairs: one agent at a time, each started for its half.
use std::{thread::JoinHandle, time::Duration};

use brink_tests::lines::Lines;

use super::super::units::millis;
use super::{
    basis::Disturbed,
    scene::{Contender, Node, Scene},
    trial::{self, Pages, Trial},
    verdict,
};
use crate::bench::{
    random::SplitMix64,
    registry::{Outcome, Settings},
    stats,
};

/// Readers that follow everything.
const READERS: usize = 10;
/// Longer than one half of a pair.
const PATIENCE: Duration = Duration::from_mins(1);
const CASE: &str = "guard, cgroup, 4K";
/// The halves of a pair: with events, and without.
const HALVES: [&str; 2] = [
    "guard, cgroup, 4K, with events",
    "guard, cgroup, 4K, without",
];
const WITH: &str = "crossing to SIGKILL with events";
const WITHOUT: &str = "crossing to SIGKILL without";
const RATIO: &str = "ratio of each pair";
const INTERVAL: &str = "95 % interval of their median";

/// Adds the pairs.
pub(in crate::bench::measure) fn with_and_without(
    outcome: &mut Outcome,
    settings: &Settings,
) -> anyhow::Result<()> {
    let mut random = SplitMix64::new(settings.seed);
    let mut scene = Scene::new(Node::Group, std::iter::empty())?;
    let (mut with, mut without, mut pairs) = (Vec::new(), Vec::new(), Vec::new());
    let mut told = 0;
    let mut disturbed = Disturbed::default();
    // Of one half of a pair, of which the median counts.
    let runs = settings.runs(3, 7);
    for _ in 0..settings.runs(2, 20) {
        let mut order = [Contender::Brink, Contender::Silent];
        random.shuffle(&mut order);
        let mut pair = (f64::NAN, f64::NAN);
        for contender in order {
            scene.change_to(contender)?;
            let readers = readers(&scene)?;
            let half = (contender, runs);
            let tried = tried(&mut scene, half, &mut random, &mut disturbed)?;
            let median = stats::quantile(&signals(&tried), 50).unwrap_or(f64::NAN);
            if contender == Contender::Brink {
                pair.0 = median;
                with.extend(tried);
            } else {
                pair.1 = median;
                without.extend(tried);
            }
            // The end of the agent is theirs.
            scene.end_agents();
            let of_each = readers.into_iter().map(|reader| reader.join().unwrap_or(0));
            told += of_each.sum::<usize>();
        }
        pairs.push(pair);
    }
    outcome.add(CASE, WITH, "ms", signals(&with));
    outcome.add(CASE, WITHOUT, "ms", signals(&without));
    let ratios = pairs.iter().map(|(with, without)| with / without);
    let ratios: Vec<f64> = ratios.collect();
    let interval = stats::interval_of_median(&ratios);
    outcome.add(CASE, RATIO, "", ratios);
    if let Some((from, to)) = interval {
        outcome.add(CASE, INTERVAL, "", vec![from, to]);
    }
    for (half, tried) in HALVES.into_iter().zip([&with, &without]) {
        verdict::add_faults(outcome, half, tried);
        verdict::add_stages(outcome, half, tried);
    }
    outcome.notes.push(format!(
        "guard: {runs} runs in each half of a pair, of which the median counts; {READERS} readers were told {told} events; {}",
        disturbed.note()
    ));
    Ok(())
}

/// Holds the median of the pairs' ratios, and that it cannot be told from one: the interval that it lies in begins no later.
/// The short form has too few pairs for one. A run that killed nobody, or not the right one in time, says nothing of either
/// half, so there may be none.
pub(in crate::bench::measure) fn hold(outcome: &mut Outcome, settings: &Settings) {
    outcome.limit_median(CASE, RATIO, settings.figure(1.5, 1.1));
    if !settings.short {
        let interval = stats::interval_of_median(outcome.values(CASE, RATIO));
        let name = format!("{INTERVAL}, {CASE}: lower end");
        outcome.limit_value(&name, "", 1.0, interval.map(|(from, _)| from));
    }
    for half in HALVES {
        verdict::hold_faults(outcome, half);
    }
}

/// Some runs; none in the place of one that could not be judged.
fn tried(
    scene: &mut Scene,
    (contender, runs): (Contender, usize),
    random: &mut SplitMix64,
    disturbed: &mut Disturbed,
) -> anyhow::Result<Vec<Option<Trial>>> {
    let mut tried = Vec::new();
    for _ in 0..runs {
        let found = trial::undisturbed(scene, contender, Pages::Base, random, disturbed)?;
        tried.push(found);
    }
    Ok(tried)
}

/// Milliseconds from crossing to SIGKILL, of the runs that had one.
fn signals(tried: &[Option<Trial>]) -> Vec<f64> {
    let signals = tried.iter().flatten().filter_map(|trial| trial.signal);
    signals.map(millis).collect()
}

/// Readers of the agent's events, if it tells any: each counts what it is told until the agent ends.
fn readers(scene: &Scene) -> anyhow::Result<Vec<JoinHandle<usize>>> {
    let Some(agent) = scene.agent(Contender::Brink) else {
        return Ok(Vec::new());
    };
    let start = |_| {
        let mut lines = Lines::ask(&agent.events(), "follow=1", PATIENCE)?;
        Ok(std::thread::spawn(move || {
            let mut told = 0;
            while let Ok(Some(_)) = lines.take() {
                told += 1;
            }
            told
        }))
    };
    (0..READERS).map(start).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::registry::Limit;

    #[test]
    fn a_run_of_either_half_without_a_kill_misses_a_figure() {
        let kill = Trial {
            signal: Some(400_000),
            uncertain: Some(50_000),
            ..Trial::default()
        };
        let settings = Settings {
            short: false,
            seed: 1,
        };
        let missed = |odd: Option<Trial>| {
            let mut outcome = Outcome::default();
            outcome.add(CASE, RATIO, "", vec![1.0; 20]);
            for half in HALVES {
                let tried = [Some(kill.clone()), odd.clone(), odd.clone()];
                verdict::add_faults(&mut outcome, half, &tried);
            }
            hold(&mut outcome, &settings);
            let missed = outcome.limits.into_iter().filter(Limit::is_missed);
            missed.map(|limit| limit.name).collect::<Vec<_>>()
        };
        assert!(missed(Some(kill.clone())).is_empty());
        let of_both = |what: &str| HALVES.map(|half| format!("{what}, {half}"));
        assert_eq!(
            missed(Some(Trial::default())),
            of_both("runs without a kill")
        );
        assert_eq!(missed(None), of_both("runs that could not be judged"));
    }
}
