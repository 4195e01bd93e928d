//! The tables of docs/benchmarks.md, made from the raw values that are kept in the repository.
use std::{collections::BTreeSet, fmt::Write as _, fs, path::Path};

use anyhow::Context as _;

use super::{
    raw::Results,
    registry::Cell,
    stats,
    table::{self, figure, markdown},
};
use crate::{marks, when::When};

/// The page, from the workspace's directory.
pub const PAGE: &str = "docs/benchmarks.md";
/// Where the raw values are, from the workspace's directory.
pub const RAW: &str = "docs/benchmarks/raw";
/// What makes a part of the page.
const BY: &str = "cargo xtask bench --publish";
/// The stages of one decision are shown side by side.
const STAGE: &str = "stage: ";

/// Writes the tables into the page.
///
/// # Errors
/// When a file cannot be read or written, or the page has no place for the tables.
pub fn write(root: &Path) -> anyhow::Result<()> {
    let file = root.join(PAGE);
    fs::write(&file, fresh(root)?).with_context(|| format!("writing {}", file.display()))
}

/// Page as it should be: its own text with the tables of the raw values that lie beside it.
///
/// # Errors
/// When a file cannot be read, or the page has no place for the tables.
pub fn fresh(root: &Path) -> anyhow::Result<String> {
    let page = fs::read_to_string(root.join(PAGE)).with_context(|| format!("reading {PAGE}"))?;
    let folder = root.join(RAW);
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("listing {RAW}"))? {
        files.push(entry.with_context(|| format!("listing {RAW}"))?.path());
    }
    files.sort();
    let results: anyhow::Result<Vec<_>> = files.iter().map(|file| Results::read(file)).collect();
    marks::put((PAGE, &page), BY, &tables(&results?))
}

/// All tables, the most asked for first.
fn tables(results: &[Results]) -> String {
    let mut ordered: Vec<&Results> = results.iter().collect();
    let order = [
        "latency",
        "events",
        "forkbomb",
        "start",
        "release",
        "idle",
        "forensics",
        "stream",
        "hooks",
        "decision",
        "disk",
        "filler",
        "kills",
    ];
    let place = |name: &str| order.iter().position(|known| *known == name);
    ordered.sort_by_key(|results| place(&results.benchmark).unwrap_or(order.len()));
    let sections: Vec<String> = ordered.into_iter().map(section).collect();
    sections.join("\n")
}

fn section(results: &Results) -> String {
    let outcome = &results.outcome;
    let mut text = format!("### {}: {}\n\n", results.benchmark, results.about);
    let load = |at: Option<f64>| at.map_or_else(|| "unknown".to_owned(), |at| format!("{at:.1}"));
    let form = if results.short { "short" } else { "full" };
    let [before, after] = results.load.map(load);
    let when = results.when.as_ref().map(told_of);
    // Writing to a `String` cannot fail.
    let _written = writeln!(
        text,
        "{}. Seed {}, {form} form, load average {before} before and {after} after.{}\n",
        results.machine,
        results.seed,
        when.unwrap_or_default()
    );
    let rows: Vec<_> = outcome.limits.iter().map(table::limit_row).collect();
    text += &markdown(table::LIMIT_HEAD, &rows);
    text.push('\n');
    for note in &outcome.notes {
        let _written = writeln!(text, "- {note}");
    }
    if !outcome.notes.is_empty() {
        text.push('\n');
    }
    let is_stage = |cell: &&Cell| cell.what.starts_with(STAGE);
    text += &table::of_cells(outcome.cells.iter().filter(|cell| !is_stage(cell)));
    let stages: Vec<&Cell> = outcome.cells.iter().filter(is_stage).collect();
    for percent in [50, 99].into_iter().filter(|_| !stages.is_empty()) {
        let _written = write!(text, "\nStages after the crossing, p{percent}, ms:\n\n");
        text += &stage_table(&stages, percent);
    }
    text
}

/// When something was measured, behind another sentence.
pub(super) fn told_of(when: &When) -> String {
    let day = &when.day;
    let commit = when.commit.as_ref();
    let commit = commit.map_or_else(String::new, |commit| format!(", of `{commit}`"));
    format!(" Measured on {day}{commit}.")
}

/// One row a case, one column a stage.
fn stage_table(stages: &[&Cell], percent: usize) -> String {
    let mut names: Vec<&str> = Vec::new();
    let mut cases: Vec<&str> = Vec::new();
    let mut seen = BTreeSet::new();
    for cell in stages {
        let name = cell.what.trim_start_matches(STAGE);
        names.extend(seen.insert((0, name)).then_some(name));
        cases.extend(
            seen.insert((1, cell.case.as_str()))
                .then_some(cell.case.as_str()),
        );
    }
    let value = |case: &str, name: &str| {
        let cell = stages
            .iter()
            .find(|cell| cell.case == case && cell.what.trim_start_matches(STAGE) == name)?;
        stats::quantile(&cell.values, percent)
    };
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let head = [&["case"], names.as_slice()].concat();
    let mut text = line(head.iter().map(|&cell| cell.to_owned()).collect());
    text += &line(
        head.iter()
            .enumerate()
            .map(|(at, _)| if at == 0 { "---" } else { "---:" }.to_owned())
            .collect(),
    );
    for case in cases {
        let values = names.iter().map(|name| value(case, name));
        let shown = values.map(|value| value.map_or_else(|| "not reached".to_owned(), figure));
        text += &line(std::iter::once(case.to_owned()).chain(shown).collect());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{bench::registry::Outcome, workspace};

    #[test]
    fn stages_stand_side_by_side() {
        let mut outcome = Outcome::default();
        for (case, what, value) in [
            ("idle", "stage: woke", 0.03),
            ("idle", "stage: decided", 0.09),
            ("busy", "stage: woke", 0.05),
        ] {
            outcome.add(case, what, "ms", vec![value]);
        }
        let cells: Vec<&Cell> = outcome.cells.iter().collect();
        let expected = "\
| case | woke | decided |
| --- | ---: | ---: |
| idle | 0.0300 | 0.0900 |
| busy | 0.0500 | not reached |
";
        assert_eq!(stage_table(&cells, 50), expected);
    }

    #[test]
    fn when_and_of_what_is_told_as_far_as_it_is_known() {
        for (when, expected) in [
            ("2026-01-01", " Measured on 2026-01-01."),
            (
                "2026-01-01@3dc94a75",
                " Measured on 2026-01-01, of `3dc94a75`.",
            ),
        ] {
            assert_eq!(told_of(&When::from(when)), expected);
        }
    }

    #[test]
    fn the_page_shows_the_committed_values() {
        let page = fs::read_to_string(workspace::root().join(PAGE)).unwrap();
        assert_eq!(
            fresh(workspace::root()).unwrap(),
            page,
            "write the tables anew: cargo xtask bench --publish"
        );
    }
}
