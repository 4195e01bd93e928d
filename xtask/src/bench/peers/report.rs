//! What the runs come to: a row a tool, a cell a tool and load, and the figures that must be reached.
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
    registry::{Limit, Must},
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

    /// The figures that must be reached.
    pub(super) fn limits(&self) -> Vec<Limit> {
        let mut limits = match self.guests.planned {
            0 => Vec::new(),
            _ => self.guest_limits(),
        };
        limits.extend(self.host.as_ref().map_or_else(Vec::new, host_limits));
        limits
    }

    fn guest_limits(&self) -> Vec<Limit> {
        let runs: Vec<&Found> = self.loud(Contender::Brink).collect();
        let of_all = |count: usize| (!runs.is_empty()).then(|| percent(count, runs.len()));
        let lost = runs.iter().filter(|run| run.is_lost()).count();
        let right = runs
            .iter()
            .filter(|run| run.right_first == Some(true) && run.wrong == 0)
            .count();
        let quiet: Vec<&Found> = self.quiet(Contender::Brink).collect();
        let killed = quiet.iter().filter(|run| run.right + run.wrong > 0).count();
        let killed = (!quiet.is_empty()).then(|| percent(killed, quiet.len()));
        let mut limits = vec![
            limit(
                "guests: runs in which the kernel came first",
                "%",
                Must::AtMost(0.0),
                of_all(lost),
            ),
            limit(
                "guests: runs in which the right pod went and nobody else",
                "%",
                Must::AtLeast(100.0),
                of_all(right),
            ),
            limit(
                "guests: quiet runs with a kill",
                "%",
                Must::AtMost(0.0),
                killed,
            ),
        ];
        let own = stats::quantile(&delays(&runs), 99);
        for peer in Contender::ALL {
            let theirs: Vec<&Found> = self.loud(peer).collect();
            if matches!(peer, Contender::Brink | Contender::Nothing) || theirs.is_empty() {
                continue;
            }
            let ratio = own
                .zip(stats::quantile(&delays(&theirs), 99))
                .map(|(own, theirs)| own / theirs);
            let name = format!(
                "guests: crossing to signal, p99 of Brink by that of {}",
                peer.word()
            );
            limits.push(limit(&name, "", Must::AtMost(1.0), ratio));
        }
        limits
    }
}

fn host_limits(host: &Host) -> Vec<Limit> {
    let own = host_median(host, Contender::Brink);
    let ratio = |peer| {
        host_median(host, peer)
            .zip(own)
            .map(|(theirs, own)| theirs / own)
    };
    let name = |peer: &str| format!("host: crossing to signal, p50 of {peer} by that of Brink");
    vec![
        limit(
            &name("earlyoom"),
            "",
            Must::AtLeast(20.0),
            ratio(Contender::Earlyoom),
        ),
        limit(
            &name("the kubelet's model"),
            "",
            Must::AtLeast(500.0),
            ratio(Contender::Kubelet),
        ),
    ]
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

fn host_median(host: &Host, contender: Contender) -> Option<f64> {
    stats::quantile(&host_delays(host, contender), 50)
}

/// From the crossing to the first signal, in milliseconds; a run that was lost took for ever.
pub(super) fn delays(runs: &[&Found]) -> Vec<f64> {
    let of = |run: &&Found| match run.signalled {
        Some(signalled) if !run.is_lost() => millis(signalled),
        _ => f64::INFINITY,
    };
    runs.iter().map(of).collect()
}

fn limit(name: &str, unit: &str, must: Must, measured: Option<f64>) -> Limit {
    Limit {
        name: name.to_owned(),
        unit: unit.to_owned(),
        must,
        measured,
    }
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

#[expect(clippy::cast_precision_loss, reason = "counts of runs")]
fn percent(count: usize, all: usize) -> f64 {
    100.0 * count as f64 / all as f64
}

fn row(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::peers::wire::Run;

    fn run(contender: Contender, workload: Workload, signalled: Option<i64>) -> Found {
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

    fn report(runs: Vec<Found>) -> Report {
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

    fn check(runs: Vec<Found>, missed: &[&str]) {
        let limits = report(runs).limits();
        let found: Vec<&str> = limits
            .iter()
            .filter(|limit| !limit.is_reached())
            .map(|limit| limit.name.as_str())
            .collect();
        assert_eq!(found, missed);
    }

    #[test]
    fn what_must_be_reached_is_missed_by_one_run() {
        const ANON: Workload = Workload::Anon(100);
        let good = || run(Contender::Brink, ANON, Some(1_000_000));
        let calm = || run(Contender::Brink, Workload::Near, None);
        check(vec![good(), calm()], &[]);
        let late = Found {
            oom: Some(500),
            ..good()
        };
        check(
            vec![late, calm()],
            &["guests: runs in which the kernel came first"],
        );
        let wrong = Found { wrong: 1, ..good() };
        check(
            vec![wrong, calm()],
            &["guests: runs in which the right pod went and nobody else"],
        );
        let nervous = Found { right: 1, ..calm() };
        check(vec![good(), nervous], &["guests: quiet runs with a kill"]);
        let faster = run(Contender::Earlyoom, ANON, Some(900_000));
        check(
            vec![good(), calm(), faster],
            &["guests: crossing to signal, p99 of Brink by that of earlyoom"],
        );
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
