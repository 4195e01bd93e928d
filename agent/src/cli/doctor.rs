//! `brink doctor`: what this machine offers, which rung follows from it, and what to do about it.

use super::exit::{CliError, Exit};
use super::options::{ConfigArgs, FormatArgs};

/// Options of `brink doctor`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(after_help = "\
Examples:
  brink doctor
  brink doctor -o json | jq '.rung'

The exit code is 3 if a check has failed.")]
pub struct Args {
    /// Form of the output.
    #[command(flatten)]
    pub format: FormatArgs,
    /// Configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
}

/// Looks and tells.
///
/// # Errors
/// What keeps it from looking.
pub(super) fn run(_args: &Args) -> Result<Exit, CliError> {
    Err(CliError::not_built("doctor"))
}
