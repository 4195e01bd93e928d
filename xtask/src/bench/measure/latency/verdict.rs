//! From runs to cells, and to the figures that must be reached.
use super::{
    super::units::{mebibytes, millis, signed},
    Runs,
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
const SPIKE: &str = "runs with a spike before the crossing";
/// What the kubelet's default leaves above the threshold's end: 100 MiB.
const DEFAULT_THRESHOLD: u64 = 100 << 20;

/// Adds the runs under one condition.
pub(super) fn add(outcome: &mut Outcome, condition: &str, runs: &Runs) {
    for ((contender, pages), trials) in runs {
        let case = format!("{condition}, {}: {}", pages.word(), contender.word());
        add_cells(outcome, &case, trials);
        if *contender == Contender::Brink {
            add_stages(outcome, &case, trials);
        }
    }
    for pages in [Pages::Base, Pages::Huge] {
        add_miss_rates(outcome, condition, pages, runs);
    }
}

/// Holds every case of Brink's to its figures.
pub(in super::super) fn hold(outcome: &mut Outcome, settings: &Settings) {
    let ends = |case: &str, pages: Pages| {
        case.ends_with(&format!(", {}: {}", pages.word(), Contender::Brink.word()))
    };
    let of_brink = |case: &str| ends(case, Pages::Base) || ends(case, Pages::Huge);
    let cells = outcome.cells.iter();
    let held = cells.filter(|cell| cell.what == SIGNAL && of_brink(&cell.case));
    let cases: Vec<String> = held.map(|cell| cell.case.clone()).collect();
    for case in cases {
        outcome.limit_median(&case, SIGNAL, settings.time(0.5));
        outcome.limit_tail(&case, SIGNAL, settings.time(2.0));
        if ends(&case, Pages::Base) {
            outcome.limit_tail(&case, OVERSHOOT, 16.0);
        }
        outcome.limit_sum(&case, UNKILLED, 0.0);
        outcome.limit_sum(&case, WRONG, 0.0);
    }
}

fn add_cells(outcome: &mut Outcome, case: &str, trials: &[Trial]) {
    let times = |of: fn(&Trial) -> Option<i64>| trials.iter().filter_map(of).map(millis).collect();
    outcome.add(case, SIGNAL, "ms", times(|trial| trial.signal));
    outcome.add(
        case,
        "back above the threshold",
        "ms",
        times(|trial| trial.back),
    );
    let overshoot = trials.iter().map(|trial| mebibytes(trial.overshoot));
    outcome.add(case, OVERSHOOT, "MiB", overshoot.collect());
    let rate = trials.iter().map(|trial| mebibytes(signed(trial.rate)));
    outcome.add(case, "growth", "MiB/s", rate.collect());
    let flags = |of: fn(&Trial) -> bool| trials.iter().map(|trial| f64::from(of(trial))).collect();
    outcome.add(case, UNKILLED, "", flags(|trial| trial.signal.is_none()));
    outcome.add(case, WRONG, "", flags(|trial| trial.wrong_victim));
    outcome.add(case, SPIKE, "", flags(|trial| trial.before_it));
}

/// Adds when each stage of a decision was reached, after the crossing.
pub(super) fn add_stages(outcome: &mut Outcome, case: &str, trials: &[Trial]) {
    let uncertain = trials.iter().map(|trial| millis(trial.uncertain));
    outcome.add(case, "truth's own resolution", "ms", uncertain.collect());
    let waited = trials.iter().map(|trial| millis(trial.waited));
    outcome.add(case, "woke to SIGKILL, not running", "ms", waited.collect());
    let files = trials.iter().filter_map(|trial| {
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
        let found = trials
            .iter()
            .filter_map(|trial| trial.stages.iter().find(|(name, _)| name == stage));
        let values = found.map(|(_, at)| millis(*at)).collect();
        outcome.add(case, &format!("stage: {stage}"), "ms", values);
    }
}

/// How often the kubelet's default of 100 MiB would have been used up before the signal, at the speed of each run.
fn add_miss_rates(outcome: &mut Outcome, condition: &str, pages: Pages, runs: &Runs) {
    let mut lines: Vec<String> = Vec::new();
    let share = |trials: &[Trial]| {
        let late = trials.iter().filter(|trial| {
            let allowed =
                u128::from(DEFAULT_THRESHOLD) * 1_000_000_000 / u128::from(trial.rate.max(1));
            let in_time = |delay| !u128::try_from(delay).is_ok_and(|delay| delay > allowed);
            !trial.signal.is_some_and(in_time)
        });
        format!("{} of {}", late.count(), trials.len())
    };
    for contender in Contender::ALL {
        if let Some(trials) = runs.get(&(contender, pages)) {
            lines.push(format!("{} {}", contender.word(), share(trials)));
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
