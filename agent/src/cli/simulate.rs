//! `brink simulate`: what would be decided, step by step, from scenario files.

use std::path::PathBuf;

use brink_core::node::signal::Signal;
use serde::Serialize;

use super::exit::{CliError, Exit};
use super::output::{Data, Talk};
use crate::config::finding::{Faults, Finding};
use crate::scenario::{Evicted, Scenario, TO_WRITE, read, run, run_live};

/// Options of `brink simulate`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(after_help = "\
Examples:
  brink simulate scenario.yaml
  brink simulate a.yaml b.json | jq -c '{file, at, evict}'
  brink simulate --live scenario.yaml

One line of JSON a step on stdout; with several files each has its \"file\". The exit code is 0 whether or not anything \
is evicted, and 2 if a file is wrong: then everything that is wrong is on stderr, and nothing is run. Where no threshold is set \
of what the steps have, stderr says what to add.")]
pub struct Args {
    /// Scenario files, YAML or JSON; - is standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Add Brink's own rules: headroom, confirmation, credit for the dying, one order at a time, and the
    /// guards on the number of kills
    #[arg(long)]
    pub live: bool,
    /// Form of the output; json is the only one
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        default_value = "json",
        hide_possible_values = true
    )]
    pub output: JsonOnly,
}

/// The one form of this output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum JsonOnly {
    /// Lines of JSON.
    Json,
}

/// A line with the file it belongs to, where there are several.
#[derive(Serialize)]
struct OfFile<'a, T> {
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(flatten)]
    line: &'a T,
}

/// Runs the scenarios, or says what is wrong with any of them.
///
/// # Errors
/// Everything that is wrong with the files, or output that cannot be written.
pub(super) fn run_command(args: &Args) -> Result<Exit, CliError> {
    let scenarios = read_all(args)?;
    let mut data = Data::new();
    for (path, scenario) in args.files.iter().zip(&scenarios) {
        let name = path.display().to_string();
        let file = (args.files.len() > 1).then_some(name.as_str());
        let mut evicts = false;
        if args.live {
            run_live(scenario, |line| {
                evicts |= line.step.evict != Evicted::Nobody;
                data.json_line(&OfFile { file, line })
            })?;
        } else {
            run(scenario, |line| {
                evicts |= line.evict != Evicted::Nobody;
                data.json_line(&OfFile { file, line })
            })?;
        }
        // What exceeds a limit of its own is evicted without a threshold.
        if !evicts && let Some(signals) = scenario.unwatched(args.live) {
            Talk::new().say(&undecided(&name, scenario, &signals, args.live));
        }
    }
    data.flush()?;
    Ok(Exit::Success)
}

const STEPS: &str =
    "write steps such as {at: 10s, signals: {memory.available: {available: 90Mi, capacity: 8Gi}}}";

/// Why nothing could be decided, and what to do about it.
fn undecided(name: &str, scenario: &Scenario, signals: &[Signal], is_live: bool) -> String {
    if scenario.steps.is_empty() {
        return format!("{name}: nothing is decided, for there is no step: {STEPS}");
    }
    if signals.is_empty() {
        let whose = if is_live { "" } else { " of the kubelet's" };
        return format!("{name}: nothing can be decided, for no step has a signal{whose}: {STEPS}");
    }
    let names: Vec<&str> = signals.iter().map(|signal| signal.name()).collect();
    format!(
        "{name}: nothing can be decided, for no threshold is set of what its steps have ({}): {TO_WRITE}",
        names.join(", ")
    )
}

fn read_all(args: &Args) -> Result<Vec<Scenario>, CliError> {
    let mut scenarios = Vec::new();
    let mut warnings: Vec<Finding> = Vec::new();
    let mut wrong: Option<Faults> = None;
    let inputs = args.files.iter().filter(|path| path.as_os_str() == "-");
    if inputs.count() > 1 {
        let twice = anyhow::anyhow!(
            "standard input is named more than once, and says everything to whoever reads it first"
        );
        return Err(CliError::new(Exit::Usage, twice).advise("name - once"));
    }
    for path in &args.files {
        match read(path) {
            Ok((scenario, doubts)) => {
                scenarios.push(scenario);
                warnings.extend(doubts);
            }
            Err(faults) => match &mut wrong {
                Some(wrong) => wrong.append(faults),
                None => wrong = Some(faults),
            },
        }
    }
    if let Some(mut wrong) = wrong {
        wrong.warnings.splice(0..0, warnings);
        return Err(CliError::Faults(wrong));
    }
    Talk::new().warnings(&warnings);
    Ok(scenarios)
}
