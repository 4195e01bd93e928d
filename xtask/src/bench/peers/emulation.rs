//! What emulation makes of the figures: those of guests beside those of a real processor.
use std::path::Path;

use anyhow::Context as _;

use super::{
    contender::Contender,
    report::{Report, delays},
    tables::{ON_MACHINE, idle, time},
    wire::Found,
    workload::Workload,
};
use crate::bench::{
    page, raw, stats,
    table::{figure, markdown},
};

/// The load that the machine has too: 4K pages as fast as they can be taken.
const SAME: Workload = Workload::Anon(100);
/// The benchmark that has the agent's idle cost on a machine, and its cells.
const IDLE: &str = "idle.json";
const CASE: &str = "110 workloads";
const THREADS: &str = "threads";
const SAMPLER: &str = "sampler in the kernel";

/// The agent's idle cost on a machine, in percent of a core: of its threads, and of its sampler.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Idle {
    threads: f64,
    sampler: f64,
}

impl Idle {
    /// From the published values of the other benchmarks.
    ///
    /// # Errors
    /// When they do not have it.
    pub(super) fn read(root: &Path) -> anyhow::Result<Self> {
        let results = raw::Results::read(&root.join(page::RAW).join(IDLE))?;
        let median = |what| {
            let values = results.outcome.values(CASE, what);
            stats::quantile(values, 50).with_context(|| format!("{IDLE} has no {what}, {CASE}"))
        };
        Ok(Self {
            threads: median(THREADS)?,
            sampler: median(SAMPLER)?,
        })
    }
}

/// The agent's idle cost in guests beside that on a machine; nothing if it was not measured in guests.
pub(super) fn of_idle(report: &Report, machine: Idle) -> Option<String> {
    let own = stats::quantile(&idle(report, Contender::Brink), 50)?;
    let Idle { threads, sampler } = machine;
    Some(format!(
        "What a tool takes of a processor when idle is emulated here, and no figure of a real one. Brink's {} % stand beside \
         {} % of a core on a real one, with 110 workloads ([idle](../benchmarks.md#idle-what-the-agent-costs-when-nothing-happens)): \
         a guest shows {} times as much, as far as two agents of different days can be compared. Both are its threads \
         alone; the sampler in the kernel, which no group is charged, is another {} % there. No other tool's was measured on a real one.",
        figure(own),
        figure(threads),
        figure(own / threads),
        figure(sampler)
    ))
}

/// Medians in guests by those on the machine, a row a tool, and the factor between two tools in both.
pub(super) fn of_medians(report: &Report) -> Option<String> {
    let host = report.host.as_ref()?;
    let median = |contender, is_same: bool| {
        let runs = report.loud(contender);
        let runs = runs.filter(|run| !is_same || run.workload == SAME.word());
        let runs: Vec<&Found> = runs.collect();
        stats::quantile(&delays(&runs), 50)
    };
    let medians = ON_MACHINE.map(|contender| {
        let guests = [median(contender, false), median(contender, true)];
        (contender, [guests[0], guests[1], host.median(contender)])
    });
    let (_, own) = medians[0];
    let mut rows: Vec<[String; 6]> = Vec::new();
    for (contender, medians) in medians {
        rows.push(line(contender.word().to_owned(), medians));
    }
    for (peer, medians) in medians.into_iter().skip(1) {
        let name = format!("{} by {}", peer.word(), Contender::Brink.word());
        let factors = std::array::from_fn(|at| ratio(medians[at], own[at]));
        rows.push(line(name, factors));
    }
    let same = format!("guests, {}", SAME.word());
    let head = [
        "p50",
        "guests, all loads",
        &same,
        "machine",
        "guest over machine, all loads",
        "the same load",
    ];
    Some(markdown(head, &rows))
}

fn line(name: String, medians: [Option<f64>; 3]) -> [String; 6] {
    let [all, same, machine] = medians;
    let shown = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), time);
    [
        name,
        shown(all),
        shown(same),
        shown(machine),
        shown(ratio(all, machine)),
        shown(ratio(same, machine)),
    ]
}

/// Nothing by what is unknown, and nothing known by for ever.
fn ratio(value: Option<f64>, by: Option<f64>) -> Option<f64> {
    let by = by.filter(|by| by.is_finite() && *by > 0.0)?;
    Some(value? / by)
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::{host, report, run, trial};
    use super::*;

    #[test]
    fn a_median_and_a_factor_stand_beside_those_of_the_machine() {
        let ms = |count: i64| Some(count * 1_000_000);
        let mut report = report(vec![
            run(Contender::Brink, SAME, ms(1)),
            run(Contender::Earlyoom, SAME, ms(60)),
            run(Contender::Earlyoom, Workload::ForkBomb, ms(50)),
            run(Contender::Kubelet, SAME, None),
        ]);
        assert_eq!(of_medians(&report), None);
        report.host = Some(host(vec![
            trial(Contender::Brink, Some(500_000), false),
            trial(Contender::Earlyoom, ms(100), false),
        ]));
        let table = of_medians(&report).unwrap();
        let row = |name: &str| -> Vec<String> {
            let mut lines = table.lines().map(|line| line.split('|').map(str::trim));
            let found = lines.find(|cells| cells.clone().nth(1) == Some(name));
            let cells = found.unwrap().skip(2).map(str::to_owned);
            cells.take(5).collect()
        };
        assert_eq!(row("Brink"), ["1.00", "1.00", "0.500", "2.00", "2.00"]);
        assert_eq!(row("earlyoom"), ["50.0", "60.0", "100", "0.500", "0.600"]);
        assert_eq!(
            row("earlyoom by Brink"),
            ["50.0", "60.0", "200", "0.250", "0.300"]
        );
        assert_eq!(row("kubelet (model)"), ["never", "never", "–", "–", "–"]);
    }

    #[test]
    fn what_an_idle_guest_shows_is_said_to_be_emulated() {
        let idle = Found {
            cpu: Some([2_000_000, 1_000_000_000]),
            ..run(Contender::Brink, Workload::Idle, None)
        };
        let machine = Idle {
            threads: 0.05,
            sampler: 0.01,
        };
        let told = of_idle(&report(vec![idle]), machine).unwrap();
        for part in ["emulated", "0.200 %", "0.0500 %", "4.00 times", "0.0100 %"] {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert_eq!(of_idle(&report(Vec::new()), machine), None);
    }
}
