//! From runs to cells, and to the figures that must be reached.
use super::{
    super::units::{mebibytes, millis, signed},
    Runs, held,
    scene::Contender,
    trial::{Pages, Trial},
};
use crate::bench::registry::{Outcome, Settings};

/// Stages shown, in their order.
const STAGES: [&str; 10] = [
    "sampled",
    "submitted",
    "woke",
    "decided",
    "recorded",
    "firstSignal",
    "lastSignal",
    "firstMemoryBack",
    "aboveAgain",
    "gone",
];
const SIGNAL: &str = "crossing to SIGKILL";
const OVERSHOOT: &str = "overshoot";
const UNKILLED: &str = "runs without a kill";
const WRONG: &str = "runs with a wrong victim";
const PREMATURE: &str = "runs with a kill before the crossing";
const UNJUDGED: &str = "runs that could not be judged";
/// What no run may be.
const FAULTS: [&str; 3] = [UNKILLED, WRONG, PREMATURE];
/// So many runs of a case may be lost to what others on the machine do.
const LOST: f64 = 1.0;
const SPIKE: &str = "runs with a spike before the crossing";
/// What the kubelet's default leaves above the threshold's end: 100 MiB.
const DEFAULT_THRESHOLD: u64 = 100 << 20;

/// Adds the runs under one condition.
pub(super) fn add(outcome: &mut Outcome, condition: &str, runs: &Runs) {
    for ((contender, pages), tried) in runs {
        let case = case(condition, *pages, *contender);
        add_cells(outcome, &case, tried);
        if *contender == Contender::Brink {
            add_stages(outcome, &case, tried);
        }
    }
    for pages in [Pages::Base, Pages::Huge] {
        add_miss_rates(outcome, condition, pages, runs);
    }
}

/// Holds every case of Brink's that is planned to its figures, measured or not.
pub(in super::super) fn hold(outcome: &mut Outcome, settings: &Settings) {
    for (condition, pages) in held(settings) {
        let case = case(&condition.name(), pages, Contender::Brink);
        outcome.limit_median(&case, SIGNAL, settings.time(0.5));
        outcome.limit_tail(&case, SIGNAL, settings.time(2.0));
        if pages == Pages::Base {
            outcome.limit_tail(&case, OVERSHOOT, 16.0);
        }
        hold_faults(outcome, &case);
    }
}

/// Holds a case to no fault in any run, and to hardly a run that nobody could judge.
pub(super) fn hold_faults(outcome: &mut Outcome, case: &str) {
    for what in FAULTS {
        outcome.limit_sum(case, what, 0.0);
    }
    outcome.limit_sum(case, UNJUDGED, LOST);
}

/// As the tables name it.
fn case(condition: &str, pages: Pages, contender: Contender) -> String {
    format!("{condition}, {}: {}", pages.word(), contender.word())
}

fn add_cells(outcome: &mut Outcome, case: &str, tried: &[Option<Trial>]) {
    // What was not judged by a crossing has neither a time nor a distance from one.
    let trials = || tried.iter().flatten().filter(|trial| trial.has_crossing());
    let times = |of: fn(&Trial) -> Option<i64>| trials().filter_map(of).map(millis).collect();
    outcome.add(case, SIGNAL, "ms", times(|trial| trial.signal));
    outcome.add(
        case,
        "back above the threshold",
        "ms",
        times(|trial| trial.back),
    );
    let overshoot = trials().map(|trial| mebibytes(trial.overshoot));
    outcome.add(case, OVERSHOOT, "MiB", overshoot.collect());
    let rate = trials().map(|trial| mebibytes(signed(trial.rate)));
    outcome.add(case, "growth", "MiB/s", rate.collect());
    add_faults(outcome, case, tried);
    let spikes = trials().map(|trial| f64::from(trial.before_it));
    outcome.add(case, SPIKE, "", spikes.collect());
}

/// Adds what went wrong, run by run.
pub(super) fn add_faults(outcome: &mut Outcome, case: &str, tried: &[Option<Trial>]) {
    let flags = |of: fn(&Trial) -> bool| {
        let trials = tried.iter().flatten();
        trials.map(|trial| f64::from(of(trial))).collect()
    };
    outcome.add(case, UNKILLED, "", flags(Trial::is_unkilled));
    outcome.add(case, WRONG, "", flags(|trial| trial.wrong_victim));
    outcome.add(case, PREMATURE, "", flags(|trial| trial.premature));
    let unjudged = tried.iter().map(|trial| f64::from(trial.is_none()));
    outcome.add(case, UNJUDGED, "", unjudged.collect());
}

/// Adds when each stage of a decision was reached, after the crossing.
pub(super) fn add_stages(outcome: &mut Outcome, case: &str, tried: &[Option<Trial>]) {
    let trials = || tried.iter().flatten().filter(|trial| trial.has_crossing());
    let uncertain = trials().filter_map(|trial| trial.uncertain).map(millis);
    outcome.add(case, "truth's own resolution", "ms", uncertain.collect());
    let waited = trials().map(|trial| millis(trial.waited));
    outcome.add(case, "woke to SIGKILL, not running", "ms", waited.collect());
    let files = trials().filter_map(|trial| {
        let at = |stage| {
            let mut stages = trial.stages.iter();
            stages.find(|(name, _)| name == stage).map(|(_, at)| *at)
        };
        Some(millis(at("decided")? - at("woke")?))
    });
    outcome.add(
        case,
        "woke to decided, files included",
        "ms",
        files.collect(),
    );
    for stage in STAGES {
        let found =
            trials().filter_map(|trial| trial.stages.iter().find(|(name, _)| name == stage));
        let values = found.map(|(_, at)| millis(*at)).collect();
        outcome.add(case, &format!("stage: {stage}"), "ms", values);
    }
}

/// How often the kubelet's default of 100 MiB would have been used up before the signal, at the speed of each run with a
/// crossing.
fn add_miss_rates(outcome: &mut Outcome, condition: &str, pages: Pages, runs: &Runs) {
    let mut lines: Vec<String> = Vec::new();
    let share = |tried: &[Option<Trial>]| {
        let trials = || tried.iter().flatten().filter(|trial| trial.has_crossing());
        let late = trials().filter(|trial| {
            let allowed =
                u128::from(DEFAULT_THRESHOLD) * 1_000_000_000 / u128::from(trial.rate.max(1));
            let in_time = |delay| !u128::try_from(delay).is_ok_and(|delay| delay > allowed);
            !trial.signal.is_some_and(in_time)
        });
        format!("{} of {}", late.count(), trials().count())
    };
    for contender in Contender::ALL {
        if let Some(tried) = runs.get(&(contender, pages)) {
            lines.push(format!("{} {}", contender.word(), share(tried)));
        }
    }
    if !lines.is_empty() {
        outcome.notes.push(format!(
            "{condition}, {}: runs in which 100 MiB would have been used up before the signal, at the run's own speed: {}",
            pages.word(),
            lines.join("; ")
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::registry::Limit;

    #[test]
    fn a_planned_case_that_was_not_measured_misses_its_figures() {
        for (short, base, huge) in [(true, 6, 2), (false, 6, 6)] {
            let mut outcome = Outcome::default();
            hold(&mut outcome, &Settings { short, seed: 1 });
            let (times, overshoot) = (2, 1);
            let runs = FAULTS.len() + 1;
            let expected = (base + huge) * (times + runs) + base * overshoot;
            assert_eq!(outcome.limits.len(), expected, "short: {short}");
            assert!(outcome.limits.iter().all(Limit::is_missed));
        }
    }

    #[test]
    fn one_run_with_a_fault_misses_the_figure_of_it() {
        const CASE: &str = "machine, idle, 4K: Brink";
        let good = Trial {
            signal: Some(400_000),
            uncertain: Some(50_000),
            ..Trial::default()
        };
        let missed = |odd: Option<Trial>| {
            let mut tried = vec![Some(good.clone()); 19];
            // One that could not be judged may be somebody else's doing.
            tried.extend([odd.clone(), odd]);
            let runs = Runs::from([((Contender::Brink, Pages::Base), tried)]);
            let settings = Settings {
                short: true,
                seed: 1,
            };
            let mut outcome = Outcome::default();
            add(&mut outcome, "machine, idle", &runs);
            hold(&mut outcome, &settings);
            let limits = outcome.limits.into_iter();
            let missed = limits.filter(|limit| limit.name.contains(CASE) && limit.is_missed());
            missed.map(|limit| limit.name).collect::<Vec<_>>()
        };
        assert!(missed(Some(good.clone())).is_empty());
        let unkilled = Trial {
            signal: None,
            ..good.clone()
        };
        let wrong = Trial {
            wrong_victim: true,
            ..Trial::default()
        };
        let premature = Trial {
            premature: true,
            ..Trial::default()
        };
        for (odd, what) in [
            (Some(unkilled), UNKILLED),
            (Some(wrong), WRONG),
            (Some(premature), PREMATURE),
            (None, UNJUDGED),
        ] {
            assert_eq!(missed(odd), [format!("{what}, {CASE}")]);
        }
    }
}
