//! The page of the comparison, its raw values and its plots, each made from the one before.
use std::{fmt::Write as _, fs, path::Path};

use anyhow::Context as _;

use super::{limits, plot, report::Report};
use crate::{bench::table, marks};

/// The folder of raw values and plots, from the workspace's directory.
pub(super) const FOLDER: &str = "docs/benchmarks/peers";
/// The page, from the workspace's directory.
const PAGE: &str = "docs/benchmarks/peers.md";
const RAW: &str = "raw.json";
/// What makes a part of the page.
const BY: &str = "cargo xtask bench --peers --publish";

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
pub(super) fn publish(root: &Path) -> anyhow::Result<()> {
    let report = read(root)?;
    let file = root.join(PAGE);
    fs::write(&file, fresh(root, &report)?).with_context(|| format!("writing {}", file.display()))
}

fn read(root: &Path) -> anyhow::Result<Report> {
    let file = root.join(FOLDER).join(RAW);
    let context = || format!("reading {}", file.display());
    let text = fs::read_to_string(&file).with_context(context)?;
    serde_json::from_str(&text).with_context(context)
}

fn fresh(root: &Path, report: &Report) -> anyhow::Result<String> {
    let page = fs::read_to_string(root.join(PAGE)).with_context(|| format!("reading {PAGE}"))?;
    marks::put((PAGE, &page), BY, &tables(report))
}

/// Everything that is made from the raw values.
fn tables(report: &Report) -> String {
    let guests = &report.guests;
    let versions = report.versions.iter();
    let versions: Vec<String> = versions
        .map(|(name, version)| format!("{name} {version}"))
        .collect();
    let mut text = format!("{}.", versions.join(", "));
    let machine = guests
        .machine
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default();
    // Writing to a `String` cannot fail.
    let _written = writeln!(
        text,
        " {} of {} runs in {} guests, seed {}; {} could not be judged.\n\n{machine}.",
        guests.runs.len(),
        guests.planned,
        guests.count,
        report.seed,
        guests.failed.len()
    );
    if let Some(rates) = guests.rates.first() {
        let mebibytes = |bytes: &u64| bytes >> 20;
        let rates = rates
            .iter()
            .map(|(kind, rate)| format!("{kind} {} MiB/s", mebibytes(rate)));
        let _written = writeln!(
            text,
            "At the most: {}.",
            rates.collect::<Vec<_>>().join(", ")
        );
    }
    let limits: Vec<_> = limits::of(report).iter().map(table::limit_row).collect();
    let _written = write!(
        text,
        "\n### Must reach\n\n{}\n### By tool\n\n{}\n### By load\n\n{}",
        table::markdown(table::LIMIT_HEAD, &limits),
        report.tools(),
        report.loads()
    );
    let unseen: Vec<String> = report
        .without_crossing()
        .into_iter()
        .map(|(contender, runs)| format!("{} {runs}", contender.word()))
        .collect();
    if !unseen.is_empty() {
        let _written = writeln!(
            text,
            "\nRuns without a delay, because the truth saw no crossing: {}.",
            unseen.join(", ")
        );
    }
    if let (Some(host), Some(rows)) = (&report.host, report.on_host()) {
        let load = host
            .load
            .map(|load| load.map_or_else(|| "unknown".to_owned(), |load| format!("{load:.1}")));
        let _written = write!(
            text,
            "\n### On a machine\n\n{}; load average {} before and {} after.\n\n{rows}",
            host.machine, load[0], load[1]
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn page_and_plots_show_the_committed_values() {
        let root = workspace::root();
        let report = read(root).unwrap();
        let page = fs::read_to_string(root.join(PAGE)).unwrap();
        let again = "write them anew: cargo xtask bench --peers --publish";
        assert_eq!(fresh(root, &report).unwrap(), page, "{again}");
        for (name, svg) in plots(&report) {
            let kept = fs::read_to_string(root.join(FOLDER).join(name)).unwrap();
            assert_eq!(kept, svg, "{again}");
        }
    }
}
