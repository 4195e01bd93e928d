//! `brink replay`: a journal again, input by input.

use std::path::PathBuf;

use super::exit::{CliError, Exit};
use super::options::FormatArgs;

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
pub(super) fn run(_args: &Args) -> Result<Exit, CliError> {
    Err(CliError::not_built("replay"))
}
