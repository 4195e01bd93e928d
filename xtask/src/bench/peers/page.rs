//! The page of the comparison, its raw values and its plots, each made from the one before.
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
};

use anyhow::Context as _;

use super::{
    contender::Contender,
    emulation::{self, Idle},
    limits, plot,
    report::{Guests, Report},
    tables,
    wire::Found,
};
use crate::{
    bench::{measure::units::millis, page::told_of, table},
    marks,
};

/// The folder of raw values and plots, from the workspace's directory.
pub(super) const FOLDER: &str = "docs/benchmarks/peers";
/// The page, from the workspace's directory.
const PAGE: &str = "docs/benchmarks/peers.md";
const RAW: &str = "raw.json";
/// What makes a part of the page.
const BY: &str = "cargo xtask bench --peers --publish";

/// What is to be known of values that were measured by the first form of the judgement.
const FIRST_FORM: &str = "\
These values were judged by older rules: a run in which a tool acted before headroom or `MemAvailable` came to the limit was
thrown away, and every process but those that stay in the pods counted as the load's.

";

/// Writes the raw values and the plots.
///
/// # Errors
/// When a file cannot be written.
pub(super) fn write(folder: &Path, report: &Report) -> anyhow::Result<()> {
    let context = || format!("writing {}", folder.display());
    fs::create_dir_all(folder).with_context(context)?;
    let mut text = serde_json::to_string(report)?;
    text.push('\n');
    fs::write(folder.join(RAW), text).with_context(context)?;
    for (name, svg) in plots(report) {
        fs::write(folder.join(name), svg).with_context(context)?;
    }
    println!("raw values and plots: {}", folder.display());
    Ok(())
}

fn plots(report: &Report) -> [(&'static str, String); 2] {
    [
        ("delays.svg", plot::of_delays(report)),
        ("losses.svg", plot::of_losses(report)),
    ]
}

/// Writes the tables into the page.
///
/// # Errors
/// When a file cannot be read or written, or the page has no place for them.
pub(in crate::bench) fn publish(root: &Path) -> anyhow::Result<()> {
    let report = read(root)?;
    let file = root.join(PAGE);
    fs::write(&file, fresh(root, &report)?).with_context(|| format!("writing {}", file.display()))
}

fn read(root: &Path) -> anyhow::Result<Report> {
    let file = root.join(FOLDER).join(RAW);
    let context = || format!("reading {}", file.display());
    let text = fs::read_to_string(&file).with_context(context)?;
    let report: Report = serde_json::from_str(&text).with_context(context)?;
    report.with_plan().with_context(context)
}

fn fresh(root: &Path, report: &Report) -> anyhow::Result<String> {
    let page = fs::read_to_string(root.join(PAGE)).with_context(|| format!("reading {PAGE}"))?;
    marks::put((PAGE, &page), BY, &made(report, Idle::read(root)?))
}

/// Everything that is made from the raw values, and the agent's idle cost on a machine, which another benchmark has.
fn made(report: &Report, idle: Idle) -> String {
    let limits: Vec<_> = limits::of(report).iter().map(table::limit_row).collect();
    let mut parts = vec![
        head(report),
        format!(
            "### Must reach\n\n{}",
            table::markdown(table::LIMIT_HEAD, &limits)
        ),
        format!("### By tool\n\n{}", tables::of_tools(report)),
        notes(report),
    ];
    parts.extend(emulation::of_idle(report, idle));
    parts.push(format!(
        "### By load\n\nIn brackets: how many runs were judged, and of how many where more were planned.\n\n{}",
        tables::of_loads(report)
    ));
    parts.extend(machine(report));
    if let Some(rows) = emulation::of_medians(report) {
        parts.push(format!(
            "### What emulation makes of it\n\nCrossing → signal, p50, in ms, and one tool by another. Where the last columns are \
             not 1, a guest's time is no real one; where they differ from tool to tool, its factor between two tools is none \
             either.\n\n{rows}"
        ));
    }
    let parts: Vec<&str> = parts.iter().map(|part| part.trim_end()).collect();
    parts.join("\n\n") + "\n"
}

/// What was run where, and what was not.
fn head(report: &Report) -> String {
    let guests = &report.guests;
    let versions = report.versions.iter();
    let versions: Vec<String> = versions
        .map(|(name, version)| format!("{name} {version}"))
        .collect();
    let form = if report.short { "short" } else { "full" };
    let mut text = format!(
        "{}. {} of {} planned runs were judged, in {} guests: {form} form, seed {}.{}\n\n",
        versions.join(", "),
        guests
            .runs
            .iter()
            .filter(|run| !run.shows_nothing())
            .count(),
        guests.planned,
        guests.count,
        report.seed,
        report.when.as_ref().map(told_of).unwrap_or_default()
    );
    let (unjudged, never) = (report.unjudged(), report.never_begun());
    let empty = report.empty();
    // Writing to a `String` cannot fail.
    let _written = writeln!(
        text,
        "- {} showed nothing, each time they were made{}\n- {} could not be judged{}\n- {} were never begun, or cut off by the \
         end of the time{}\n",
        empty.len(),
        listed(&tables::by_cell(&empty)),
        unjudged.len(),
        listed(&tables::by_cell(&unjudged)) + &reasons(guests),
        never.len(),
        listed(&tables::by_cell(&never))
    );
    if report.is_of_first_form() {
        text += FIRST_FORM;
    }
    if let Some(machine) = &guests.machine {
        let _written = writeln!(text, "{machine}.");
    }
    if !guests.rates.is_empty() {
        let _written = writeln!(text, "{}", fastest(&guests.rates));
    }
    text
}

/// The fastest rates of all guests.
fn fastest(guests: &[BTreeMap<String, u64>]) -> String {
    let mut ranges: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
    for (kind, &rate) in guests.iter().flatten() {
        let range = ranges.entry(kind).or_insert([rate, rate]);
        *range = [range[0].min(rate), range[1].max(rate)];
    }
    let told = ranges.into_iter().map(|(kind, range)| {
        let [least, most] = range.map(|bytes| bytes >> 20);
        if least == most {
            format!("{kind} {most} MiB/s")
        } else {
            format!("{kind} {least} to {most} MiB/s")
        }
    });
    let told = told.collect::<Vec<_>>().join(", ");
    format!("At the most: {told}. Percentages are of what a run's own guest measured.")
}

fn listed(what: &str) -> String {
    if what.is_empty() {
        String::new()
    } else {
        format!(": {what}")
    }
}

/// Why runs could not be judged, each reason once.
fn reasons(guests: &Guests) -> String {
    let first = |why: &str| why.lines().next().unwrap_or_default().to_owned();
    let reasons: BTreeSet<String> = guests.failed.iter().map(|(_, why)| first(why)).collect();
    let lines = reasons.iter().map(|why| format!("\n  - \"{why}\""));
    lines.collect::<Vec<_>>().concat()
}

/// What the rows of the tools leave out.
fn notes(report: &Report) -> String {
    let by_tool = |count: &dyn Fn(Contender) -> usize| {
        let counts = Contender::ALL.map(|each| (each, count(each)));
        let some = counts.into_iter().filter(|(_, count)| *count > 0);
        let told: Vec<String> = some
            .map(|(each, count)| format!("{} {count}", each.word()))
            .collect();
        if told.is_empty() {
            "none".to_owned()
        } else {
            told.join(", ")
        }
    };
    let loud =
        |of: fn(&Found) -> bool| by_tool(&|each| report.loud(each).filter(|run| of(run)).count());
    let quiet =
        |of: fn(&Found) -> bool| by_tool(&|each| report.quiet(each).filter(|run| of(run)).count());
    format!(
        "- Runs without a delay, because a tool acted though the truth saw no crossing of its signal before: {}. Of those with \
         no reason by any figure: {}.\n\
         - Quiet runs in which the kernel's OOM killer killed: {}. That ended in a lock-up, or with the guest: {}.\n\
         - Quiet runs that were made again, because the pod that should have stayed away came below the limit: {}. Of those with \
         a kill: {}. Quiet runs that were left out, because it did so each time: {}.\n{}{}",
        loud(Found::is_unseen),
        loud(Found::is_premature),
        quiet(|run| run.oom_victims > 0),
        quiet(|run| run.lock_up.is_some()),
        by_tool(&|each| report.discarded(each).count()),
        by_tool(&|each| report.discarded(each).filter(|run| run.has_kill()).count()),
        by_tool(&|each| report.left_out(each)),
        unproven(report),
        losers(report).join("\n")
    )
}

/// What is to be known of values that are older than the look at what quiet loads did.
fn unproven(report: &Report) -> String {
    let runs = report.guests.runs.iter();
    match runs.filter(|run| run.is_unproven()).count() {
        0 => String::new(),
        n => format!(
            "- Quiet runs without a kill that were measured before it was looked at whether their load took anything: {n}.\n"
        ),
    }
}

/// Of each tool that was too late: how long it had, by its own signal.
fn losers(report: &Report) -> Vec<String> {
    let peers = Contender::ALL
        .into_iter()
        .filter(|each| *each != Contender::Nothing);
    let line = |each: Contender| {
        let lost: Vec<&Found> = report.loud(each).filter(|run| run.is_lost()).collect();
        let uncrossed = lost.iter().filter(|run| !run.crossed).count();
        let times = lost
            .iter()
            .filter(|run| run.crossed)
            .filter_map(|run| run.oom);
        let times: Vec<f64> = times.map(millis).collect();
        (!lost.is_empty()).then(|| {
            format!(
                "- {}, the runs that it lost: its own signal was never crossed in {uncrossed} of {}; in the others the kernel killed \
                 {} ms after the crossing (median), {} ms at the latest.",
                each.word(),
                lost.len(),
                tables::quantile(&times, 50),
                tables::quantile(&times, 100)
            )
        })
    };
    peers.filter_map(line).collect()
}

fn machine(report: &Report) -> Option<String> {
    let (host, rows) = report.host.as_ref().zip(tables::of_machine(report))?;
    let made_again = host.made_again.map_or_else(String::new, |runs| {
        format!(" {runs} times a run that others had disturbed was made again.")
    });
    let load = host
        .load
        .map(|load| load.map_or_else(|| "unknown".to_owned(), |load| format!("{load:.1}")));
    Some(format!(
        "### On a machine\n\n{}; load average {} before and {} after.{made_again}\n\n{rows}",
        host.machine, load[0], load[1]
    ))
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            report::tests::{report, run},
            workload::Workload,
        },
        *,
    };
    use crate::{when::When, workspace};

    /// With `BRINK_BLESS=1` page and plots are written anew, to be read before they are committed.
    #[test]
    fn page_and_plots_show_the_committed_values() {
        let root = workspace::root();
        let report = read(root).unwrap();
        if std::env::var_os("BRINK_BLESS").is_some() {
            publish(root).unwrap();
            for (name, svg) in plots(&report) {
                fs::write(root.join(FOLDER).join(name), svg).unwrap();
            }
        }
        let page = fs::read_to_string(root.join(PAGE)).unwrap();
        let again =
            "write them anew: BRINK_BLESS=1 cargo test -p xtask --features bench page_and_plots";
        assert_eq!(fresh(root, &report).unwrap(), page, "{again}");
        for (name, svg) in plots(&report) {
            let kept = fs::read_to_string(root.join(FOLDER).join(name)).unwrap();
            assert_eq!(kept, svg, "{again}");
        }
    }

    #[test]
    fn the_fastest_rates_are_those_of_all_guests() {
        let guest = |anon: u64, pipes: u64| {
            let rates = [("anon", anon << 20), ("pipes", pipes << 20)];
            BTreeMap::from(rates.map(|(kind, rate)| (kind.to_owned(), rate)))
        };
        let told = fastest(&[guest(900, 70), guest(800, 70), guest(850, 70)]);
        assert!(
            told.starts_with("At the most: anon 800 to 900 MiB/s, pipes 70 MiB/s."),
            "{told}"
        );
    }

    #[test]
    fn the_head_says_what_was_not_judged_and_the_notes_what_was_left_out() {
        let idle = || run(Contender::Brink, Workload::Idle, None);
        let once = Found {
            crossed: true,
            ..run(Contender::Oomd, Workload::Near, None)
        };
        let near = Found {
            discarded: vec![
                Found {
                    right: 1,
                    ..once.clone()
                },
                once.clone(),
            ],
            ..once
        };
        let hung = Found {
            lock_up: Some("the guest".to_owned()),
            oom_victims: 1,
            ..idle()
        };
        let mut report = report(vec![near, hung, idle(), idle()]);
        report.guests.runs.truncate(2);
        report.guests.failed = vec![(3, "it broke\nat length".to_owned())];
        report.when = Some(When::from("2026-01-01@3dc94a75"));
        let told = head(&report);
        for part in [
            "seed 1. Measured on 2026-01-01, of `3dc94a75`.\n",
            "1 of 4 planned runs were judged, in 1 guests: short form, seed 1.",
            "- 1 showed nothing, each time they were made: oomd, memory_above: near the limit (1)\n",
            "- 1 could not be judged: Brink: idle (1)\n  - \"it broke\"\n",
            "- 1 were never begun, or cut off by the end of the time: Brink: idle (1)\n",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
        let told = notes(&report);
        assert!(!told.contains("took anything"), "{told}");
        let unproven = Found {
            crossed: false,
            ..report.guests.runs[0].clone()
        };
        report.guests.runs.push(unproven);
        let older = notes(&report);
        assert!(older.contains("took anything: 1.\n"), "{older}");
        assert!(told.contains("signal before: none."), "{told}");
        for part in [
            "the limit: oomd, memory_above 2. Of those with a kill: oomd, memory_above 1.",
            "each time: oomd, memory_above 1.",
            "OOM killer killed: Brink 1. That ended in a lock-up, or with the guest: Brink 1.",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
}
