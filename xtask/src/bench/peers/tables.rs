//! The tables of the comparison: a row a tool, a cell a tool and load, and what was found without guests.
use super::{
    contender::Contender,
    host::Trial,
    report::{Host, Report, delays},
    wire::{Found, Run},
    workload::Workload,
};
use crate::bench::{
    measure::units::{mebibytes, millis},
    stats,
    table::{figure, markdown},
};

/// Who is compared without guests.
pub(super) const ON_MACHINE: [Contender; 3] =
    [Contender::Brink, Contender::Earlyoom, Contender::Kubelet];

/// A row a tool.
pub(super) fn of_tools(report: &Report) -> String {
    let head = [
        "tool",
        "runs",
        "kernel first, or lock-up",
        "right pod first",
        "others killed",
        "crossing → signal p50, ms",
        "p99, ms",
        "crossing → kill p50, ms (runs)",
        "signal → free p50, ms",
        "overshoot p50, MiB",
        "worst, MiB",
        "false kills, or lock-up",
        "processor when idle, %",
        "memory, MiB",
        "longest stall, ms",
    ];
    let rows = report.tools().into_iter();
    let rows: Vec<_> = rows.map(|contender| tool(report, contender)).collect();
    markdown(head, &rows)
}

fn tool(report: &Report, contender: Contender) -> [String; 15] {
    let runs: Vec<&Found> = report.loud(contender).collect();
    let lost = runs.iter().filter(|run| run.is_lost()).count();
    let first = || runs.iter().filter_map(|run| run.right_first);
    let right = first().filter(|is_right| *is_right).count();
    let others: usize = runs.iter().map(|run| run.wrong + run.oom_bystanders).sum();
    let delays = delays(&runs);
    let amounts = |of: &dyn Fn(&Found) -> Option<f64>| -> Vec<f64> {
        runs.iter().filter_map(|run| of(run)).collect()
    };
    let freed = amounts(&|run| run.freed.map(millis));
    let below = amounts(&|run| run.overshoot.map(mebibytes));
    let memory = amounts(&|run| run.memory.map(|[_, share]| mebibytes(share)));
    let stalls = amounts(&|run| Some(millis(run.stall)));
    let quiet: Vec<&Found> = report.quiet(contender).collect();
    let acts = contender != Contender::Nothing;
    let dash = |text: String| if acts { text } else { "–".to_owned() };
    [
        contender.word().to_owned(),
        runs.len().to_string(),
        part(lost, runs.len()),
        dash(part(right, first().count())),
        others.to_string(),
        dash(quantile(&delays, 50)),
        dash(tail(&delays)),
        dash(kills(&runs)),
        dash(quantile(&freed, 50)),
        quantile(&below, 50),
        quantile(&below, 100),
        dash(part(disturbed(&quiet), quiet.len())),
        dash(quantile(&idle(report, contender), 50)),
        dash(quantile(&memory, 50)),
        quantile(&stalls, 100),
    ]
}

/// The median to the first SIGKILL, over the runs that had one or were lost; where SIGTERM was enough there is none.
fn kills(runs: &[&Found]) -> String {
    let seen = runs.iter().filter(|run| !run.is_unseen());
    let delay = |run: &&Found| match run.killed {
        _ if run.is_lost() => Some(f64::INFINITY),
        killed => killed.map(millis),
    };
    let delays: Vec<f64> = seen.filter_map(delay).collect();
    match delays.len() {
        0 => "–".to_owned(),
        n => format!("{} ({n})", quantile(&delays, 50)),
    }
}

/// Percent of a processor while nothing happened, a value a run.
pub(super) fn idle(report: &Report, contender: Contender) -> Vec<f64> {
    let runs = report.quiet(contender);
    let idle = runs.filter(|run| run.workload == Workload::Idle.word());
    idle.filter_map(|run| run.cpu)
        .map(|[spent, lasted]| 100.0 * millis(spent) / millis(lasted))
        .collect()
}

/// A row a load, a column a tool: the median of the runs that were not lost, how many were, and of how many runs.
pub(super) fn of_loads(report: &Report) -> String {
    let mut head = vec!["load".to_owned()];
    let tools = report.tools();
    head.extend(tools.iter().map(|contender| contender.word().to_owned()));
    let mut text = row(&head);
    text += &row(&head.iter().map(|_| "---".to_owned()).collect::<Vec<_>>());
    for workload in Workload::FULL {
        let mut cells = vec![workload.word()];
        let of_tools = tools.iter();
        cells.extend(of_tools.map(|contender| cell(report, *contender, workload)));
        if cells.iter().skip(1).any(|cell| !cell.is_empty()) {
            text += &row(&cells);
        }
    }
    text
}

fn cell(report: &Report, contender: Contender, workload: Workload) -> String {
    let is_it = |run: &&Found| run.workload == workload.word();
    let runs: Vec<&Found> = if workload.is_quiet() {
        report.quiet(contender).filter(is_it).collect()
    } else {
        report.loud(contender).filter(is_it).collect()
    };
    let shown = if workload.is_quiet() {
        calm(&runs)
    } else {
        loud(&runs)
    };
    match (runs.len(), report.planned(contender, workload)) {
        (_, 0) => String::new(),
        (0, planned) => format!("– (0 of {planned})"),
        (n, planned) if n == planned => format!("{shown} ({n})"),
        (n, planned) => format!("{shown} ({n} of {planned})"),
    }
}

/// Quiet runs with a kill, and those that ended in a lock-up.
fn calm(runs: &[&Found]) -> String {
    let killed = runs.iter().filter(|run| run.has_kill()).count();
    match runs.iter().filter(|run| run.lock_up.is_some()).count() {
        0 => format!("{killed} killed"),
        hung => format!("{killed} killed, {hung} locked up"),
    }
}

fn loud(runs: &[&Found]) -> String {
    let lost = runs.iter().filter(|run| run.is_lost()).count();
    let mut kept = delays(runs);
    kept.retain(|delay| delay.is_finite());
    match stats::quantile(&kept, 50) {
        None => format!("{lost} lost"),
        Some(delay) if lost == 0 => format!("{} ms", figure(delay)),
        Some(delay) => format!("{} ms, {lost} lost", figure(delay)),
    }
}

/// A row a tool on the machine itself.
pub(super) fn of_machine(report: &Report) -> Option<String> {
    let host = report.host.as_ref()?;
    let head = [
        "tool",
        "runs",
        "p50, ms",
        "p90, ms",
        "worst, ms",
        "before the crossing",
        "overshoot p50, MiB",
        "worst, MiB",
        "took one that was ruled out",
        "Brink is faster, p50",
    ];
    Some(markdown(
        head,
        &ON_MACHINE.map(|contender| on_machine(host, contender)),
    ))
}

fn on_machine(host: &Host, contender: Contender) -> [String; 10] {
    let delays = host.delays(contender);
    let of_all = |count: usize| part(count, delays.len());
    let is_early = |trial: &&Trial| trial.signalled.is_some_and(|at| at <= 0);
    let early = host.of(contender).filter(is_early).count();
    let wrong = host.of(contender).filter(|trial| trial.wrong).count();
    let below: Vec<f64> = host
        .of(contender)
        .map(|trial| mebibytes(trial.overshoot))
        .collect();
    let own = host.median(Contender::Brink);
    let faster = host.median(contender).zip(own);
    let faster = faster.map(|(median, own)| format!("{} times", figure(median / own)));
    [
        contender.word().to_owned(),
        part(delays.len(), host.planned(contender)),
        quantile(&delays, 50),
        quantile(&delays, 90),
        quantile(&delays, 100),
        of_all(early),
        quantile(&below, 50),
        quantile(&below, 100),
        of_all(wrong),
        faster
            .filter(|_| contender != Contender::Brink)
            .unwrap_or_default(),
    ]
}

/// Runs by tool and load, as `Brink: idle (1), fork bomb (2); nohang: idle (1)`.
pub(super) fn by_cell(runs: &[Run]) -> String {
    let count = |contender, workload| {
        let of = |run: &&Run| run.contender == contender && run.workload == workload;
        runs.iter().filter(of).count()
    };
    let loads = |contender: Contender| -> Vec<String> {
        let counts = Workload::FULL.map(|load| (load, count(contender, load)));
        let some = counts.into_iter().filter(|(_, count)| *count > 0);
        some.map(|(load, count)| format!("{} ({count})", load.word()))
            .collect()
    };
    let tools = Contender::ALL.map(|contender| (contender, loads(contender)));
    let some = tools.into_iter().filter(|(_, loads)| !loads.is_empty());
    let lines: Vec<String> = some
        .map(|(contender, loads)| format!("{}: {}", contender.word(), loads.join(", ")))
        .collect();
    lines.join("; ")
}

/// What a high quantile of so many values is: fewer than a hundred have none but their largest.
pub(super) fn tail_of(n: usize) -> String {
    match n {
        100.. => "p99".to_owned(),
        _ => format!("worst of {n}"),
    }
}

fn tail(values: &[f64]) -> String {
    match values.len() {
        0 => "–".to_owned(),
        100.. => quantile(values, 99),
        n => format!("{} ({})", quantile(values, 99), tail_of(n)),
    }
}

fn disturbed(quiet: &[&Found]) -> usize {
    quiet.iter().filter(|run| run.is_disturbed()).count()
}

pub(super) fn quantile(values: &[f64], percent: usize) -> String {
    stats::quantile(values, percent).map_or_else(|| "–".to_owned(), time)
}

/// A time, which may be for ever.
pub(super) fn time(value: f64) -> String {
    if value.is_infinite() {
        "never".to_owned()
    } else {
        figure(value)
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
mod tests {
    use super::super::report::tests::{host, report, run, trial};
    use super::*;

    const ANON: Workload = Workload::Anon(100);

    #[test]
    fn a_run_without_a_kill_took_for_ever() {
        let kept = Found {
            killed: Some(60_000_000),
            ..run(Contender::Earlyoom, ANON, Some(50_000_000))
        };
        let report = report(vec![kept, run(Contender::Earlyoom, ANON, None)]);
        let row = tool(&report, Contender::Earlyoom);
        let expected = [
            "2",
            "1 of 2",
            "1 of 1",
            "0",
            "50.0",
            "never (worst of 2)",
            "60.0 (2)",
        ];
        assert_eq!(&row[1..8], expected);
        let loads = of_loads(&report);
        assert!(loads.contains("| 50.0 ms, 1 lost (2) |"), "{loads}");
    }

    #[test]
    fn what_ends_by_sigterm_has_no_kill_and_a_hundred_runs_have_a_tail() {
        let term = || run(Contender::Earlyoom, ANON, Some(50_000_000));
        let row = tool(&report(vec![term(); 100]), Contender::Earlyoom);
        assert_eq!(&row[5..8], ["50.0", "50.0", "–"]);
    }

    #[test]
    fn a_cell_tells_how_many_of_its_runs_were_judged() {
        let mut report = report(vec![run(Contender::Brink, Workload::Near, None); 4]);
        assert_eq!(
            cell(&report, Contender::Brink, Workload::Near),
            "0 killed (4)"
        );
        report.guests.runs.truncate(3);
        assert_eq!(
            cell(&report, Contender::Brink, Workload::Near),
            "0 killed (3 of 4)"
        );
        report.guests.runs.clear();
        assert_eq!(
            cell(&report, Contender::Brink, Workload::Near),
            "– (0 of 4)"
        );
        assert_eq!(cell(&report, Contender::Oomd, Workload::Near), "");
        let never = by_cell(&report.never_begun());
        assert_eq!(never, "Brink: near the limit (4)");
    }

    #[test]
    fn a_quiet_run_in_which_the_kernel_killed_or_the_guest_died_is_a_false_kill() {
        let near = || run(Contender::Nohang, Workload::Near, None);
        let by_kernel = Found {
            oom_victims: 2,
            ..near()
        };
        let hung = Found {
            lock_up: Some("the guest".to_owned()),
            ..near()
        };
        let report = report(vec![near(), by_kernel, hung]);
        assert_eq!(tool(&report, Contender::Nohang)[11], "2 of 3");
        assert_eq!(
            cell(&report, Contender::Nohang, Workload::Near),
            "1 killed, 1 locked up (3)"
        );
    }

    #[test]
    fn a_signal_before_the_crossing_and_a_wrong_victim_are_counted() {
        let of = |signalled, wrong| trial(Contender::Brink, signalled, wrong);
        let trials = vec![
            of(Some(-5), false),
            of(Some(2_000_000), true),
            of(None, false),
        ];
        let row = on_machine(&host(trials), Contender::Brink);
        let expected = [
            "3 of 3", "2.00", "never", "never", "1 of 3", "1.00", "1.00", "1 of 3", "",
        ];
        assert_eq!(&row[1..], expected);
    }
}
