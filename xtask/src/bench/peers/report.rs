//! Everything that was found, and which of it counts for what.
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    contender::{Contender, LIMIT},
    host::{self, Trial},
    plan::Form,
    wire::{Found, Run},
    workload::Workload,
};
use crate::{
    bench::{machine::Machine, measure::units::millis, stats},
    when::When,
};

/// The form of the raw file; it grows by one when a reader would have to know. The second holds the plan, and judges whoever
/// acts, and everybody who was there before the load.
const SCHEMA: u32 = 2;

/// Everything that was found, as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    schema: u32,
    /// When it was found and of which commit, of what is published. Not kept until 2026-11-27.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) when: Option<When>,
    /// Seed of everything that was random.
    pub(super) seed: u64,
    pub(super) short: bool,
    /// Bytes that everybody was told to keep free.
    pub(super) limit: u64,
    /// Of the tools' packages.
    pub(super) versions: Vec<(String, String)>,
    pub(super) guests: Guests,
    pub(super) host: Option<Host>,
}

/// What was found in guests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub(super) struct Guests {
    pub(super) machine: Option<Machine>,
    /// How many there were, one after the other or side by side.
    pub(super) count: usize,
    /// Of each: bytes a second at the most, by load.
    pub(super) rates: Vec<BTreeMap<String, u64>>,
    /// Runs that were planned: how many, and which.
    pub(super) planned: usize,
    #[serde(default)]
    pub(super) plan: Vec<Run>,
    /// Runs that could not be judged, and why.
    pub(super) failed: Vec<(usize, String)>,
    pub(super) runs: Vec<Found>,
}

/// What was found on the machine itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Host {
    pub(super) machine: Machine,
    /// Load average of the last minute, before and after.
    pub(super) load: [Option<f64>; 2],
    /// Runs of each tool that were to be made.
    #[serde(default)]
    pub(super) planned: BTreeMap<String, usize>,
    /// How often a run was made again, because others had disturbed it; unknown where that was not counted yet.
    #[serde(default)]
    pub(super) made_again: Option<usize>,
    pub(super) trials: Vec<Trial>,
}

impl Report {
    pub(super) fn new(
        (seed, short): (u64, bool),
        versions: Vec<(String, String)>,
        guests: Guests,
        host: Option<Host>,
    ) -> Self {
        Self {
            schema: SCHEMA,
            when: None,
            seed,
            short,
            limit: LIMIT,
            versions,
            guests,
            host,
        }
    }

    /// The runs of one tool under loads that have to be answered.
    pub(super) fn loud(&self, contender: Contender) -> impl Iterator<Item = &Found> {
        let runs = self.guests.runs.iter();
        runs.filter(move |run| !run.quiet && run.contender == contender.word())
    }

    /// Those under loads that nobody may answer; where a pod that should have stayed away came below the limit of the
    /// tool's own signal, its run shows nothing.
    pub(super) fn quiet(&self, contender: Contender) -> impl Iterator<Item = &Found> {
        let runs = self.guests.runs.iter();
        runs.filter(move |run| run.quiet && run.contender == contender.word())
            .filter(|run| !run.shows_nothing())
    }

    /// Quiet runs that show nothing, by tool.
    pub(super) fn left_out(&self, contender: Contender) -> usize {
        let runs = self.guests.runs.iter();
        let all = runs.filter(|run| run.quiet && run.contender == contender.word());
        all.count() - self.quiet(contender).count()
    }

    /// Runs of one tool that were made again, because they showed nothing.
    pub(super) fn discarded(&self, contender: Contender) -> impl Iterator<Item = &Found> {
        let runs = self.guests.runs.iter();
        let of_it = runs.filter(move |run| run.contender == contender.word());
        of_it.flat_map(|run| &run.discarded)
    }

    /// Runs of one tool under one load that were planned.
    pub(super) fn planned(&self, contender: Contender, workload: Workload) -> usize {
        let plan = self.guests.plan.iter();
        plan.filter(|run| run.contender == contender && run.workload == workload)
            .count()
    }

    /// The tools that were to run: values that are older than a tool lack it.
    pub(super) fn tools(&self) -> Vec<Contender> {
        let all = Contender::ALL.into_iter();
        all.filter(|each| self.is_planned(*each)).collect()
    }

    /// Whether a tool was to run at all.
    pub(super) fn is_planned(&self, contender: Contender) -> bool {
        let mut plan = self.guests.plan.iter();
        plan.any(|run| run.contender == contender)
    }

    /// Runs that showed nothing each time they were made.
    pub(super) fn empty(&self) -> Vec<Run> {
        let empty = self.guests.runs.iter().filter(|run| run.shows_nothing());
        empty
            .filter_map(|run| self.guests.plan.get(run.number).copied())
            .collect()
    }

    /// Runs that could not be judged.
    pub(super) fn unjudged(&self) -> Vec<Run> {
        let failed = self.guests.failed.iter();
        failed
            .filter_map(|(number, _)| self.guests.plan.get(*number).copied())
            .collect()
    }

    /// Runs that were planned and never begun, or were cut off by the end of the time.
    pub(super) fn never_begun(&self) -> Vec<Run> {
        let judged = self.guests.runs.iter().map(|run| run.number);
        let failed = self.guests.failed.iter().map(|(number, _)| *number);
        let done: BTreeSet<usize> = judged.chain(failed).collect();
        let plan = self.guests.plan.iter();
        plan.filter(|run| !done.contains(&run.number))
            .copied()
            .collect()
    }

    /// Whether the runs were judged by the rules of the first form.
    pub(super) fn is_of_first_form(&self) -> bool {
        self.schema < SCHEMA
    }

    /// Old raw values do not hold their plan, which follows from seed and form.
    ///
    /// # Errors
    /// When that is not the plan that was run.
    pub(super) fn with_plan(mut self) -> anyhow::Result<Self> {
        if let Some(host) = self.host.as_mut().filter(|host| host.planned.is_empty()) {
            host.planned = host::planned(self.short);
        }
        if !self.is_of_first_form() {
            return Ok(self);
        }
        let plan = Form::whole(self.short).plan(self.seed);
        let is_planned = |found: &Found| {
            plan.get(found.number).is_some_and(|run| {
                run.contender.word() == found.contender && run.workload.word() == found.workload
            })
        };
        anyhow::ensure!(
            plan.len() == self.guests.planned && self.guests.runs.iter().all(is_planned),
            "the plan of seed {} was another one when these values were measured",
            self.seed
        );
        self.guests.plan = plan;
        Ok(self)
    }
}

impl Host {
    /// The runs of one tool.
    pub(super) fn of(&self, contender: Contender) -> impl Iterator<Item = &Trial> {
        let trials = self.trials.iter();
        trials.filter(move |trial| trial.contender == contender.word())
    }

    /// Runs of one tool that were to be made.
    pub(super) fn planned(&self, contender: Contender) -> usize {
        self.planned
            .get(contender.word())
            .copied()
            .unwrap_or_default()
    }

    /// From the crossing to the first signal, in milliseconds; a run without one took for ever, and one that was answered
    /// before the truth saw its crossing took no time.
    pub(super) fn delays(&self, contender: Contender) -> Vec<f64> {
        let delay = |trial: &Trial| {
            let signalled = trial.signalled;
            signalled.map_or(f64::INFINITY, |at| millis(at.max(0)))
        };
        self.of(contender).map(delay).collect()
    }

    /// The slowest but one in a hundred of them; with fewer than a hundred the slowest.
    pub(super) fn tail(&self, contender: Contender) -> Option<f64> {
        stats::quantile(&self.delays(contender), 99)
    }

    /// The middle one of them.
    pub(super) fn median(&self, contender: Contender) -> Option<f64> {
        stats::quantile(&self.delays(contender), 50)
    }
}

/// From the crossing to the first signal, in milliseconds; a run that was lost took for ever. One whose crossing the truth
/// did not see has no delay.
pub(super) fn delays(runs: &[&Found]) -> Vec<f64> {
    let of = |run: &&Found| match run.signalled {
        Some(signalled) if !run.is_lost() => millis(signalled),
        _ => f64::INFINITY,
    };
    let seen = runs.iter().filter(|run| !run.is_unseen());
    seen.map(of).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bench::peers::wire::Run;

    pub(in super::super) fn run(
        contender: Contender,
        workload: Workload,
        signalled: Option<i64>,
    ) -> Found {
        let run = Run {
            number: 0,
            contender,
            workload,
            seed: 0,
        };
        let is_shot = signalled.is_some();
        Found {
            signalled,
            right: usize::from(is_shot),
            right_first: is_shot.then_some(true),
            crossed: is_shot,
            ..Found::of(&run)
        }
    }

    pub(in super::super) fn report(mut runs: Vec<Found>) -> Report {
        let all = Contender::ALL.into_iter();
        let cells = all.flat_map(|each| Workload::FULL.map(|load| (each, load)));
        let cells: Vec<(Contender, Workload)> = cells.collect();
        let planned = |(number, found): (usize, &mut Found)| {
            found.number = number;
            let is_it = |(each, load): &&(Contender, Workload)| {
                each.word() == found.contender && load.word() == found.workload
            };
            let (contender, workload) = *cells.iter().find(is_it).unwrap();
            Run {
                number,
                contender,
                workload,
                seed: 0,
            }
        };
        let plan: Vec<Run> = runs.iter_mut().enumerate().map(planned).collect();
        let guests = Guests {
            count: 1,
            planned: plan.len(),
            plan,
            runs,
            ..Guests::default()
        };
        Report::new((1, true), Vec::new(), guests, None)
    }

    pub(in super::super) fn trial(
        contender: Contender,
        signalled: Option<i64>,
        wrong: bool,
    ) -> Trial {
        Trial {
            contender: contender.word().to_owned(),
            signalled,
            overshoot: 1 << 20,
            wrong,
        }
    }

    fn planned(trials: &[Trial]) -> BTreeMap<String, usize> {
        let mut planned = BTreeMap::new();
        for trial in trials {
            *planned.entry(trial.contender.clone()).or_default() += 1;
        }
        planned
    }

    pub(in super::super) fn host(trials: Vec<Trial>) -> Host {
        Host {
            machine: Machine::read(std::path::Path::new("/")),
            load: [None; 2],
            planned: planned(&trials),
            made_again: Some(0),
            trials,
        }
    }

    #[test]
    fn a_run_whose_crossing_nobody_saw_has_no_delay() {
        const ANON: Workload = Workload::Anon(100);
        let seen = run(Contender::Brink, ANON, Some(1_000_000));
        let unseen = Found {
            crossed: false,
            ..run(Contender::Brink, ANON, Some(430_000_000))
        };
        let early = run(Contender::Brink, ANON, Some(-1));
        let report = report(vec![seen, unseen, early, run(Contender::Brink, ANON, None)]);
        let runs: Vec<&Found> = report.loud(Contender::Brink).collect();
        assert_eq!(delays(&runs), [1.0, f64::INFINITY]);
    }

    #[test]
    fn a_pod_that_came_too_near_shows_nothing_and_is_counted() {
        let near = Found {
            right: 1,
            crossed: true,
            ..run(Contender::Oomd, Workload::Near, None)
        };
        let count = |runs| {
            let report = report(runs);
            let quiet = report.quiet(Contender::Oomd).count();
            (quiet, report.left_out(Contender::Oomd))
        };
        assert_eq!(count(vec![near.clone()]), (0, 1));
        let cache = Found {
            workload: Workload::Streaming.word(),
            ..near
        };
        assert_eq!(count(vec![cache]), (1, 0));
    }

    #[test]
    fn what_was_planned_is_judged_unjudged_or_never_begun() {
        let mut report = report(vec![run(Contender::Brink, Workload::Idle, None); 4]);
        report.guests.runs.truncate(2);
        report.guests.failed = vec![(3, "why".to_owned())];
        let numbers = |runs: Vec<Run>| runs.iter().map(|run| run.number).collect::<Vec<_>>();
        assert_eq!(numbers(report.unjudged()), [3]);
        assert_eq!(numbers(report.never_begun()), [2]);
        assert_eq!(report.planned(Contender::Brink, Workload::Idle), 4);
        assert!(report.is_planned(Contender::Brink) && !report.is_planned(Contender::Oomd));
    }

    #[test]
    fn the_plan_of_old_values_is_made_again_or_refused() {
        let plan = Form::whole(true).plan(1);
        let found = plan.iter().map(Found::of).collect();
        let mut old = Report {
            schema: 1,
            ..report(found)
        };
        old.guests.plan.clear();
        assert_eq!(old.clone().with_plan().unwrap().guests.plan, plan);
        let other = Report { seed: 2, ..old };
        assert!(other.with_plan().is_err());
    }
}
