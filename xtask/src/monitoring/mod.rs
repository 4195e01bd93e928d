//! `cargo xtask monitoring`: metrics, alerts, dashboard and their pages against each other, and against `promtool`.
mod dashboard;
mod names;
mod page;
pub(crate) mod promtool;

use std::{fs, path::Path};

use anyhow::Context as _;

use self::{names::Sources, page::Pages, promtool::Promtool};
use crate::{Verdict, workspace};

/// Options of `cargo xtask monitoring`.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Args {}

/// What was found, and why a part could not be looked at.
#[derive(Debug)]
pub struct Found {
    /// Whether everything that was looked at holds.
    pub verdict: Verdict,
    /// Why `promtool` was not asked; none if it was.
    pub skipped: Option<String>,
}

/// Checks everything, and says what does not hold.
///
/// # Errors
/// When the agent's page cannot be made, or a file cannot be read.
pub fn run(_args: &Args) -> anyhow::Result<Verdict> {
    let found = check()?;
    if let Some(reason) = &found.skipped {
        println!("promtool skipped: {reason}");
    }
    Ok(found.verdict)
}

/// The same for CI, where a part that cannot be looked at is told.
///
/// # Errors
/// When the agent's page cannot be made, or a file cannot be read.
pub fn check() -> anyhow::Result<Found> {
    let pages = Pages::make()?;
    let sources = Sources::read(workspace::root())?;
    let expressions = dashboard::expressions(&sources.dashboard)?;
    let mut problems = sources.problems(&pages.text);
    let skipped = match Promtool::find() {
        Ok(promtool) => {
            problems.extend(ask(&promtool, &pages, &expressions)?);
            None
        }
        Err(error) => Some(format!("{error:#}")),
    };
    for problem in &problems {
        println!("{problem}");
    }
    let (families, alerts) = (pages.families().count(), sources.alerts().count());
    let panels = expressions.len();
    println!(
        "monitoring: {families} metrics, {alerts} alerts, {panels} expressions of the dashboard, {} problems",
        problems.len()
    );
    Ok(Found {
        verdict: Verdict::from_holds(problems.is_empty()),
        skipped,
    })
}

/// What `promtool` says of the pages, the rules, their tests and the dashboard's expressions.
fn ask(promtool: &Promtool, pages: &Pages, expressions: &[String]) -> anyhow::Result<Vec<String>> {
    let scratch = tempfile::tempdir().context("making a folder for promtool")?;
    let at = |name: &str| scratch.path().join(name);
    let rules = workspace::root().join(names::RULES);
    let tests = workspace::root().join(names::TESTS);
    write(&at("openmetrics"), &pages.stamped())?;
    write(&at("dashboard.yaml"), &dashboard::as_rules(expressions))?;
    let answers = [
        promtool.asked(&["check", "metrics"], &[], &pages.text)?,
        // Its own reader of OpenMetrics is only used to bring old figures in.
        promtool.asked(
            &["tsdb", "create-blocks-from", "openmetrics"],
            &[&at("openmetrics"), &at("blocks")],
            "",
        )?,
        promtool.asked(&["check", "rules"], &[&rules], "")?,
        promtool.asked(&["check", "rules"], &[&at("dashboard.yaml")], "")?,
        promtool.asked(&["test", "rules"], &[&tests], "")?,
    ];
    Ok(answers.into_iter().flatten().collect())
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}
