//! `brink pause` and `brink resume`: the stop button.

use super::exit::{CliError, Exit};
use super::options::SocketArgs;

/// Options of `brink pause`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(after_help = "\
Examples:
  brink pause
  brink pause --for 10m

Enforcement ends within a tenth of a second; everything is still decided and told.")]
pub struct PauseArgs {
    /// Resume by itself after this time
    #[arg(long = "for", value_name = "DURATION")]
    pub duration: Option<String>,
    /// The agent.
    #[command(flatten)]
    pub socket: SocketArgs,
}

/// Options of `brink resume`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(after_help = "\
Examples:
  brink resume")]
pub struct ResumeArgs {
    /// The agent.
    #[command(flatten)]
    pub socket: SocketArgs,
}

/// Ends enforcement.
///
/// # Errors
/// When no agent answers.
pub(super) fn run_pause(_args: &PauseArgs) -> Result<Exit, CliError> {
    Err(CliError::not_built("pause"))
}

/// Lifts a pause, and a guard that has tripped.
///
/// # Errors
/// When no agent answers.
pub(super) fn run_resume(_args: &ResumeArgs) -> Result<Exit, CliError> {
    Err(CliError::not_built("resume"))
}
