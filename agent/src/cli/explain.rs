//! `brink explain`: why this one, and why not that one.

use super::exit::{CliError, Exit};
use super::options::{FormatArgs, SocketArgs};

/// Options of `brink explain`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(after_help = "\
Examples:
  brink explain shop/web         where this workload stands now, and what would change it
  brink explain 17               decision 17: why its victim, and why nobody before it")]
pub struct Args {
    /// A workload as namespace/name, or the number of a decision
    #[arg(value_name = "WORKLOAD|DECISION")]
    pub subject: String,
    /// Form of the output.
    #[command(flatten)]
    pub format: FormatArgs,
    /// The agent.
    #[command(flatten)]
    pub socket: SocketArgs,
}

/// Asks the agent and prints its answer.
///
/// # Errors
/// When no agent answers, or it knows no such workload or decision.
pub(super) fn run(_args: &Args) -> Result<Exit, CliError> {
    Err(CliError::not_built("explain"))
}
