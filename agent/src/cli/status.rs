//! `brink status`: signals, thresholds, rung, mode, and the order that is open.

use super::exit::{CliError, Exit};
use super::options::{FormatArgs, SocketArgs};

/// Options of `brink status`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(after_help = "\
Examples:
  brink status
  brink status --watch
  brink status --check || echo 'a threshold is crossed, or no agent answers'")]
pub struct Args {
    /// End with code 3 if a threshold is crossed
    #[arg(long)]
    pub check: bool,
    /// Go on, one status a second
    #[arg(short, long, conflicts_with = "check")]
    pub watch: bool,
    /// Form of the output.
    #[command(flatten)]
    pub format: FormatArgs,
    /// The agent.
    #[command(flatten)]
    pub socket: SocketArgs,
}

/// Asks the agent and prints what it says.
///
/// # Errors
/// When no agent answers.
pub(super) fn run(_args: &Args) -> Result<Exit, CliError> {
    Err(CliError::not_built("status"))
}
