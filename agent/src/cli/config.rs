//! `brink config`: check a configuration, show the one in force, or migrate files of it.

use std::path::PathBuf;

use brink_core::node::threshold::{Threshold, Value};
use serde::Serialize;

use super::exit::{CliError, Exit};
use super::migrate::{self, MigrateArgs};
use super::options::{ConfigArgs, FormatArgs};
use super::output::{Data, Format, Talk};
use super::variables;
use crate::config::check::{Outcome, check};
use crate::config::finding::Finding;
use crate::config::load;
use crate::config::thresholds::ThresholdLine;
use crate::terminal::{Column, Screen};

/// Options of `brink config`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct Args {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// What `brink config` can do.
#[derive(Clone, Debug, PartialEq, Eq, clap::Subcommand)]
pub enum Command {
    /// Say everything that is wrong or doubtful, and the thresholds that follow
    Check(CheckArgs),
    /// Show the configuration in force, and where each value comes from
    Show(ShowArgs),
    /// Bring files into the newest version of the configuration
    Migrate(MigrateArgs),
}

/// Options of `brink config check`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(after_help = "\
Examples:
  brink config check                      what the agent would load
  brink config check config.yaml          one file alone
  brink config check -o json /var/lib/kubelet/config.yaml

A FILE of kind KubeletConfiguration is checked as the kubelet reads it, with the drop-ins of --config-dir. Warnings \
are on stderr, or in the JSON; the exit code is 2 if anything is wrong.")]
pub struct CheckArgs {
    /// A file to check alone, without environment and usual places; - is standard input
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Form of the output.
    #[command(flatten)]
    pub format: FormatArgs,
    /// Configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
}

/// Options of `brink config show`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(after_help = "\
Examples:
  brink config show --origin
  brink config show -o json --kubelet-config /var/lib/kubelet/config.yaml")]
pub struct ShowArgs {
    /// Say where each value comes from: a file with its line, a variable, a flag, or nobody
    #[arg(long)]
    pub origin: bool,
    /// Form of the output
    #[arg(short, long, value_enum, default_value = "yaml", value_name = "FORMAT")]
    pub output: ShowFormat,
    /// Configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
}

/// In which form a configuration is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ShowFormat {
    /// As a file could say it.
    Yaml,
    /// For programs.
    Json,
}

/// What `config check -o json` prints of a good configuration.
#[derive(Serialize)]
struct CheckedOutput {
    thresholds: Vec<ThresholdLine>,
    warnings: Vec<String>,
}

/// What it prints of a bad one.
#[derive(Serialize)]
struct FaultyOutput<'a> {
    faults: &'a [Finding],
    dropped: usize,
    warnings: Vec<String>,
}

/// Checks or shows.
///
/// # Errors
/// Everything that is wrong with the configuration, or output that cannot be written.
pub(super) fn run_command(args: &Args) -> Result<Exit, CliError> {
    match &args.command {
        Command::Check(args) => run_check(args),
        Command::Show(args) => run_show(args),
        Command::Migrate(args) => migrate::run_migrate(args),
    }
}

fn run_check(args: &CheckArgs) -> Result<Exit, CliError> {
    let sources = match &args.file {
        Some(_) if args.config.config.as_ref().is_some_and(|(_, named)| *named) => {
            let error = anyhow::anyhow!("FILE cannot be used with --config: it is checked alone");
            return Err(CliError::new(Exit::Usage, error).advise("name the file once"));
        }
        Some(file) => args.config.sources_of(file),
        None => args.config.sources(),
    };
    let json = args.format.output == Format::Json;
    let mut data = Data::new();
    let mut checked = check(&sources);
    // What a file alone comes to has nothing to do with the environment.
    if args.file.is_none() {
        let warnings = match &mut checked {
            Ok(outcome) => &mut outcome.warnings,
            Err(faults) => &mut faults.warnings,
        };
        warnings.extend(variables::misspelt());
    }
    match checked {
        Ok(outcome) if json => data.json_line(&CheckedOutput {
            thresholds: ThresholdLine::kubelets(&outcome.thresholds),
            warnings: lines(&outcome.warnings),
        })?,
        Ok(outcome) => print_thresholds(&mut data, &outcome)?,
        Err(faults) if json => {
            data.json_line(&FaultyOutput {
                faults: &faults.list,
                dropped: faults.dropped,
                warnings: lines(&faults.warnings),
            })?;
            data.flush()?;
            return Ok(CliError::from(faults).exit());
        }
        Err(faults) => return Err(faults.into()),
    }
    data.flush()?;
    Ok(Exit::Success)
}

fn lines(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}

fn print_thresholds(data: &mut Data, outcome: &Outcome) -> Result<(), CliError> {
    Talk::new().warnings(&outcome.warnings);
    if outcome.thresholds.is_empty() {
        return data.print("no thresholds\n");
    }
    let rows: Vec<Vec<String>> = outcome.thresholds.iter().map(row).collect();
    let columns = [
        Column::Left("SIGNAL"),
        Column::Right("BELOW"),
        Column::Left("KIND"),
        Column::Right("MINIMUM RECLAIM"),
    ];
    let mut screen = Screen::new(data.style());
    screen.table(&columns, &rows);
    data.print(&screen.into_text())
}

fn row(threshold: &Threshold) -> Vec<String> {
    let kind = if threshold.is_hard() {
        "hard".to_owned()
    } else {
        format!("soft, {}", threshold.grace)
    };
    vec![
        threshold.signal.to_string(),
        amount(threshold.value),
        kind,
        threshold.min_reclaim.map(amount).unwrap_or_default(),
    ]
}

/// What is more than can be counted with is no number that anybody wrote.
fn amount(value: Value) -> String {
    match value {
        Value::Quantity(quantity) if quantity.nanos() == i128::MAX => "capped".to_owned(),
        Value::Quantity(_) | Value::Fraction(_) => value.to_string(),
    }
}

fn run_show(args: &ShowArgs) -> Result<Exit, CliError> {
    let checked = load(&args.config.sources())?;
    Talk::new().warnings(&checked.warnings);
    let mut data = Data::new();
    match (args.output, args.origin) {
        (ShowFormat::Yaml, origin) => data.print(&checked.to_yaml(origin))?,
        (ShowFormat::Json, true) => data.json(&checked.to_json_with_origins())?,
        (ShowFormat::Json, false) => data.json(&checked.tree)?,
    }
    data.flush()?;
    Ok(Exit::Success)
}
