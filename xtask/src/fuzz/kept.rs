//! What libFuzzer came to, kept entry point by entry point, and the table of docs/fuzzing.md.
use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::{marks, when::When};

/// Where it is kept, from the workspace's directory.
const VALUES: &str = "docs/fuzzing.json";
/// The page with the table.
const PAGE: &str = "docs/fuzzing.md";
const BY: &str = "cargo xtask fuzz --publish";

/// The latest run of one entry point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Run {
    pub(super) when: When,
    /// As `rustc` and `cargo-fuzz` name themselves, and what watched over memory.
    pub(super) built_by: String,
    /// For how long inputs were made.
    pub(super) seconds: u64,
    pub(super) figures: Figures,
    /// Inputs that must not have been possible: each is a fault.
    pub(super) findings: usize,
}

/// What libFuzzer says at its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Figures {
    /// Inputs that were tried.
    pub(super) inputs: Option<u64>,
    /// Those of them that went a way which none had gone before.
    pub(super) new: Option<u64>,
    /// The most memory of its program.
    pub(super) peak_mib: Option<u64>,
}

impl Figures {
    pub(super) fn of(output: &str) -> Self {
        let figure = |name: &str| {
            let mut lines = output.lines();
            let rest = lines.find_map(|line| line.strip_prefix("stat::")?.strip_prefix(name))?;
            rest.trim_start_matches(':').trim().parse().ok()
        };
        Self {
            inputs: figure("number_of_executed_units"),
            new: figure("new_units_added"),
            peak_mib: figure("peak_rss_mb"),
        }
    }
}

/// A figure, or a question mark where libFuzzer did not say.
pub(super) fn word(figure: Option<u64>) -> String {
    figure.map_or_else(|| "?".to_owned(), |figure| figure.to_string())
}

/// Puts runs in the place of those of the same entry points, forgets what is no entry point any more, and writes the page.
///
/// # Errors
/// When a file cannot be read or written, or the page has no place for the table.
pub(super) fn keep(
    root: &Path,
    runs: BTreeMap<String, Run>,
    targets: &[String],
) -> anyhow::Result<()> {
    let mut kept = read(root)?;
    kept.extend(runs);
    kept.retain(|target, _| targets.contains(target));
    let text = serde_json::to_string_pretty(&kept)? + "\n";
    fs::write(root.join(VALUES), text).with_context(|| format!("writing {VALUES}"))?;
    fs::write(root.join(PAGE), fresh(root)?).with_context(|| format!("writing {PAGE}"))
}

fn read(root: &Path) -> anyhow::Result<BTreeMap<String, Run>> {
    let text =
        fs::read_to_string(root.join(VALUES)).with_context(|| format!("reading {VALUES}"))?;
    serde_json::from_str(&text).with_context(|| format!("reading {VALUES}"))
}

/// The page as it should be.
fn fresh(root: &Path) -> anyhow::Result<String> {
    let page = fs::read_to_string(root.join(PAGE)).with_context(|| format!("reading {PAGE}"))?;
    marks::put((PAGE, &page), BY, &table(&read(root)?))
}

fn table(runs: &BTreeMap<String, Run>) -> String {
    if runs.is_empty() {
        return "Nothing has been kept yet.\n".to_owned();
    }
    let mut builders: Vec<&str> = runs.values().map(|run| run.built_by.as_str()).collect();
    builders.sort_unstable();
    builders.dedup();
    let mut text = format!("Built by {}.\n\n", builders.join("; by "));
    text +=
        "| entry point | run on | of | seconds | inputs | new ways | memory, MiB | findings |\n";
    text += "|---|---|---|---:|---:|---:|---:|---:|\n";
    for (target, run) in runs {
        let commit = run.when.commit.as_deref().unwrap_or("?");
        let figures = run.figures;
        let [inputs, new, peak] = [figures.inputs, figures.new, figures.peak_mib].map(word);
        // Writing to a `String` cannot fail.
        let _written = writeln!(
            text,
            "| `{target}` | {} | `{commit}` | {} | {inputs} | {new} | {peak} | {} |",
            run.when.day, run.seconds, run.findings
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn the_end_of_a_run_is_its_figures() {
        let output = "#2 INITED\nstat::number_of_executed_units: 1234\nstat::average_exec_per_sec:     56\n\
                      stat::new_units_added:          7\nstat::slowest_unit_time_sec:    0\nstat::peak_rss_mb:              89\n";
        let expected = Figures {
            inputs: Some(1234),
            new: Some(7),
            peak_mib: Some(89),
        };
        assert_eq!(Figures::of(output), expected);
        assert_eq!(
            Figures::of("stat::number_of_executed_units: many"),
            Figures::default()
        );
    }

    #[test]
    fn a_run_renews_its_entry_points_and_what_is_none_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir(root.join("docs")).unwrap();
        fs::write(root.join(VALUES), "{}").unwrap();
        let marks = format!("<!-- made by `{BY}`; do not edit -->\n<!-- end of what is made -->\n");
        fs::write(root.join(PAGE), format!("# Fuzzing\n\n{marks}")).unwrap();
        let run = |day: &str, findings: usize| Run {
            when: When::from(day),
            built_by: "rustc 1.95.0".to_owned(),
            seconds: 60,
            figures: Figures::default(),
            findings,
        };
        let known = ["btf", "config"].map(str::to_owned);
        let runs = |names: &[&str], day: &str, findings: usize| {
            let names = names.iter();
            names
                .map(|name| ((*name).to_owned(), run(day, findings)))
                .collect()
        };
        keep(
            root,
            runs(&["btf", "config", "gone"], "2026-01-01@3dc94a75", 1),
            &known,
        )
        .unwrap();
        keep(root, runs(&["config"], "2026-01-02@c4f800b8", 0), &known).unwrap();
        let page = fs::read_to_string(root.join(PAGE)).unwrap();
        let rows: Vec<&str> = page
            .lines()
            .filter(|line| line.starts_with("| `"))
            .collect();
        assert_eq!(
            rows,
            [
                "| `btf` | 2026-01-01 | `3dc94a75` | 60 | ? | ? | ? | 1 |",
                "| `config` | 2026-01-02 | `c4f800b8` | 60 | ? | ? | ? | 0 |",
            ]
        );
    }

    #[test]
    fn the_page_shows_what_is_kept() {
        let page = fs::read_to_string(workspace::root().join(PAGE)).unwrap();
        let remedy = format!("write the table anew: {BY}");
        assert_eq!(fresh(workspace::root()).unwrap(), page, "{remedy}");
    }
}
