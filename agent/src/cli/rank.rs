//! `brink rank`: who would go now, and why.

use super::exit::{CliError, Exit};
use super::options::{FormatArgs, SocketArgs};

/// Options of `brink rank`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(after_help = "\
Examples:
  brink rank
  brink rank --signal pid.available
  brink rank -o json | jq -r '.[0].workload'")]
pub struct Args {
    /// The signal to rank for
    #[arg(long, default_value = "memory.available", value_name = "SIGNAL")]
    pub signal: String,
    /// Places to show; all if not given
    #[arg(short = 'n', long, value_name = "COUNT")]
    pub limit: Option<usize>,
    /// Form of the output.
    #[command(flatten)]
    pub format: FormatArgs,
    /// The agent.
    #[command(flatten)]
    pub socket: SocketArgs,
}

/// Asks the agent and prints its ranking.
///
/// # Errors
/// When no agent answers.
pub(super) fn run(_args: &Args) -> Result<Exit, CliError> {
    Err(CliError::not_built("rank"))
}
