//! What the runs come to: a row a tool, and a cell a tool and load.
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    contender::{Contender, LIMIT},
    host::Trial,
    wire::Found,
    workload::Workload,
};
use crate::bench::{
    machine::Machine,
    measure::units::{mebibytes, millis},
    stats,
    table::{figure, markdown},
};

/// The form of the raw file; it grows by one when a reader would have to know.
const SCHEMA: u32 = 1;

/// Everything that was found, as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    schema: u32,
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
    /// Runs that were planned.
    pub(super) planned: usize,
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
        let own = [Workload::Near.word(), Workload::Spikes.word()];
        runs.filter(move |run| run.quiet && run.contender == contender.word())
            .filter(move |run| !(run.crossed && own.contains(&run.workload)))
    }

    /// A row a tool.
    pub(super) fn tools(&self) -> String {
        let head = [
            "tool",
            "runs",
            "kernel first, or lock-up",
            "right pod first",
            "others killed",
            "crossing → signal p50, ms",
            "p99, ms",
            "signal → free p50, ms",
            "overshoot p50, MiB",
            "worst, MiB",
            "false kills",
            "processor when idle, %",
            "memory, MiB",
        ];
        let rows = Contender::ALL.map(|contender| self.tool(contender));
        markdown(head, &rows)
    }

    fn tool(&self, contender: Contender) -> [String; 13] {
        let runs: Vec<&Found> = self.loud(contender).collect();
        let lost = runs.iter().filter(|run| run.is_lost()).count();
        let shot: Vec<&&Found> = runs
            .iter()
            .filter(|run| run.right_first.is_some())
            .collect();
        let right = shot
            .iter()
            .filter(|run| run.right_first == Some(true))
            .count();
        let others: usize = runs.iter().map(|run| run.wrong + run.oom_bystanders).sum();
        let delays = delays(&runs);
        let freed: Vec<f64> = runs
            .iter()
            .filter_map(|run| run.freed)
            .map(millis)
            .collect();
        let below: Vec<f64> = runs
            .iter()
            .filter_map(|run| run.overshoot)
            .map(mebibytes)
            .collect();
        let quiet: Vec<&Found> = self.quiet(contender).collect();
        let false_kills = quiet.iter().filter(|run| run.right + run.wrong > 0).count();
        let idle = |run: &&Found| {
            let [spent, lasted] = run.cpu?;
            (run.workload == Workload::Idle.word()).then(|| 100.0 * millis(spent) / millis(lasted))
        };
        let idle: Vec<f64> = self.quiet(contender).filter_map(|run| idle(&run)).collect();
        let share = |run: &&Found| run.memory.map(|[_, share]| mebibytes(share));
        let memory: Vec<f64> = runs.iter().filter_map(share).collect();
        let acts = contender != Contender::Nothing;
        let dash = |text: String| if acts { text } else { "–".to_owned() };
        [
            contender.word().to_owned(),
            runs.len().to_string(),
            part(lost, runs.len()),
            dash(part(right, shot.len())),
            others.to_string(),
            dash(quantile(&delays, 50)),
            dash(quantile(&delays, 99)),
            dash(quantile(&freed, 50)),
            quantile(&below, 50),
            quantile(&below, 100),
            dash(part(false_kills, quiet.len())),
            dash(quantile(&idle, 50)),
            dash(quantile(&memory, 50)),
        ]
    }

    /// A row a load, a column a tool: how many runs were lost, and the median of the others.
    pub(super) fn loads(&self) -> String {
        let mut head = vec!["load".to_owned()];
        head.extend(Contender::ALL.map(|contender| contender.word().to_owned()));
        let mut text = row(&head);
        text += &row(&head.iter().map(|_| "---".to_owned()).collect::<Vec<_>>());
        for workload in Workload::FULL {
            let mut cells = vec![workload.word()];
            cells.extend(Contender::ALL.map(|contender| self.cell(contender, workload)));
            if cells.iter().skip(1).any(|cell| !cell.is_empty()) {
                text += &row(&cells);
            }
        }
        text
    }

    fn cell(&self, contender: Contender, workload: Workload) -> String {
        let is_it = |run: &&Found| run.workload == workload.word();
        if workload.is_quiet() {
            let runs: Vec<&Found> = self.quiet(contender).filter(is_it).collect();
            let kills = runs.iter().filter(|run| run.right + run.wrong > 0).count();
            return match runs.len() {
                0 => String::new(),
                all => format!("{kills} of {all} killed"),
            };
        }
        let runs: Vec<&Found> = self.loud(contender).filter(is_it).collect();
        let lost = runs.iter().filter(|run| run.is_lost()).count();
        let kept: Vec<f64> = delays(&runs)
            .into_iter()
            .filter(|delay| delay.is_finite())
            .collect();
        match (runs.len(), stats::quantile(&kept, 50)) {
            (0, _) => String::new(),
            (all, None) => format!("{lost} of {all} lost"),
            (_, Some(delay)) if lost == 0 => format!("{} ms", figure(delay)),
            (all, Some(delay)) => format!("{} ms, {lost} of {all} lost", figure(delay)),
        }
    }

    /// Runs that have no delay, by tool.
    pub(super) fn without_crossing(&self) -> Vec<(Contender, usize)> {
        let unseen = |contender| self.loud(contender).filter(|run| run.is_unseen());
        let count = |contender| (contender, unseen(contender).count());
        let counts = Contender::ALL.map(count);
        counts.into_iter().filter(|(_, runs)| *runs > 0).collect()
    }

    /// A row a tool on the machine itself.
    pub(super) fn on_host(&self) -> Option<String> {
        let host = self.host.as_ref()?;
        let head = [
            "tool",
            "runs",
            "p50, ms",
            "p90, ms",
            "worst, ms",
            "Brink is faster, p50",
        ];
        let own = host_median(host, Contender::Brink);
        let rows: Vec<[String; 6]> = [Contender::Brink, Contender::Earlyoom, Contender::Kubelet]
            .into_iter()
            .map(|contender| {
                let delays = host_delays(host, contender);
                let median = stats::quantile(&delays, 50);
                let ratio = median
                    .zip(own)
                    .map(|(median, own)| format!("{} times", figure(median / own)));
                [
                    contender.word().to_owned(),
                    delays.len().to_string(),
                    quantile(&delays, 50),
                    quantile(&delays, 90),
                    quantile(&delays, 100),
                    ratio
                        .filter(|_| contender != Contender::Brink)
                        .unwrap_or_default(),
                ]
            })
            .collect();
        Some(markdown(head, &rows))
    }
}

fn host_delays(host: &Host, contender: Contender) -> Vec<f64> {
    let own = host
        .trials
        .iter()
        .filter(|trial| trial.contender == contender.word());
    own.map(|trial| {
        trial
            .signalled
            .map_or(f64::INFINITY, |at| millis(at.max(0)))
    })
    .collect()
}

pub(super) fn host_median(host: &Host, contender: Contender) -> Option<f64> {
    stats::quantile(&host_delays(host, contender), 50)
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

fn quantile(values: &[f64], percent: usize) -> String {
    match stats::quantile(values, percent) {
        None => "–".to_owned(),
        Some(value) if value.is_infinite() => "never".to_owned(),
        Some(value) => figure(value),
    }
}

fn part(count: usize, all: usize) -> String {
    match all {
        0 => "–".to_owned(),
        _ => format!("{count} of {all}"),
    }
}

fn row(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
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

    pub(in super::super) fn report(runs: Vec<Found>) -> Report {
        let guests = Guests {
            machine: None,
            count: 1,
            rates: Vec::new(),
            planned: runs.len(),
            failed: Vec::new(),
            runs,
        };
        Report::new((1, true), Vec::new(), guests, None)
    }

    #[test]
    fn a_run_without_a_kill_took_for_ever() {
        const ANON: Workload = Workload::Anon(100);
        let runs = vec![
            run(Contender::Earlyoom, ANON, Some(50_000_000)),
            run(Contender::Earlyoom, ANON, None),
        ];
        let report = report(runs);
        let row = report.tool(Contender::Earlyoom);
        assert_eq!(&row[1..7], ["2", "1 of 2", "1 of 1", "0", "50.0", "never"]);
        assert!(
            report.loads().contains("50.0 ms, 1 of 2 lost"),
            "{}",
            report.loads()
        );
    }

    #[test]
    fn a_run_whose_crossing_nobody_saw_has_no_delay() {
        const ANON: Workload = Workload::Anon(100);
        let seen = run(Contender::Brink, ANON, Some(1_000_000));
        let unseen = Found {
            crossed: false,
            ..run(Contender::Brink, ANON, Some(430_000_000))
        };
        let report = report(vec![seen, unseen, run(Contender::Brink, ANON, None)]);
        let runs: Vec<&Found> = report.loud(Contender::Brink).collect();
        assert_eq!(delays(&runs), [1.0, f64::INFINITY]);
        assert_eq!(report.without_crossing(), [(Contender::Brink, 1)]);
    }

    #[test]
    fn a_pod_that_came_too_near_shows_nothing() {
        let near = Found {
            right: 1,
            crossed: true,
            ..run(Contender::Oomd, Workload::Near, None)
        };
        assert_eq!(report(vec![near.clone()]).quiet(Contender::Oomd).count(), 0);
        let cache = Found {
            workload: Workload::Streaming.word(),
            ..near
        };
        assert_eq!(report(vec![cache]).quiet(Contender::Oomd).count(), 1);
    }
}
