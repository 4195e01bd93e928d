//! `brink replay`: a journal again, input by input.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;

use anyhow::Context as _;

use super::exit::{CliError, Exit};
use super::options::FormatArgs;
use super::output::{Data, Format};
use crate::replay::Replay;

/// Options of `brink replay`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(after_help = "\
Examples:
  brink replay /var/log/brink/journal
  brink replay -o json journal | jq -c 'select(.differs)'

The same inputs give the same actions. The exit code is 3 if they do not.")]
pub struct Args {
    /// The journal
    #[arg(value_name = "JOURNAL")]
    pub journal: PathBuf,
    /// Form of the output.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// Replays the journal and compares.
///
/// # Errors
/// When it is no journal.
pub(super) fn run(args: &Args) -> Result<Exit, CliError> {
    let wrong = |error: anyhow::Error| CliError::new(Exit::Usage, error);
    let file = File::open(&args.journal)
        .with_context(|| format!("cannot read {}", args.journal.display()))
        .map_err(wrong)?;
    let mut data = Data::new();
    let mut replay = Replay::default();
    for (line, number) in BufReader::new(file).lines().zip(1_u64..) {
        let line = line.context("the journal cannot be read").map_err(wrong)?;
        let parsed = serde_json::from_str(&line)
            .with_context(|| {
                format!(
                    "{}:{number}: not a line of a journal",
                    args.journal.display()
                )
            })
            .map_err(wrong)?;
        let Some(step) = replay.take(parsed, number).map_err(wrong)? else {
            continue;
        };
        let is_told = step.differs || !step.actions.is_empty();
        match args.format.output {
            Format::Json => data.json_line(&step)?,
            Format::Text if is_told => data.print(&step.to_string())?,
            Format::Text => {}
        }
    }
    let summary = replay.summary();
    if args.format.output == Format::Text {
        data.print(&summary.to_string())?;
    }
    data.flush()?;
    Ok(if summary.differing > 0 {
        Exit::Crossed
    } else {
        Exit::Success
    })
}
