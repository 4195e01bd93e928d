//! `brink pause` and `brink resume`: the stop button.

use std::path::Path;

use brink_core::base::Span;

use super::asking::{put, unexpected};
use super::exit::{CliError, Exit};
use super::options::SocketArgs;
use super::output::Data;
use crate::control::protocol::{Answer, Question};

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
pub(super) fn run_pause(args: &PauseArgs) -> Result<Exit, CliError> {
    let seconds = args.duration.as_deref().map(seconds).transpose()?;
    say_mode(&args.socket.socket, &Question::Pause { seconds })
}

/// Lifts a pause, and a guard that has tripped.
///
/// # Errors
/// When no agent answers.
pub(super) fn run_resume(args: &ResumeArgs) -> Result<Exit, CliError> {
    say_mode(&args.socket.socket, &Question::Resume)
}

fn say_mode(socket: &Path, question: &Question) -> Result<Exit, CliError> {
    let Answer::Done { mode } = put(socket, question)? else {
        return Err(unexpected());
    };
    let mut data = Data::new();
    match mode.as_str() {
        "enforcing" => data.print("enforcing\n")?,
        reason => data.print(&format!("observing only: {reason}\n"))?,
    }
    data.flush()?;
    Ok(Exit::Success)
}

/// A length of time that is worth pausing for, in whole seconds.
fn seconds(text: &str) -> Result<u64, CliError> {
    let wrong = |problem: &str| {
        let error = anyhow::anyhow!("--for {text:?}: {problem}");
        CliError::new(Exit::Usage, error).advise("write it as 30s, 10m or 1h30m")
    };
    let span: Span = text.parse().map_err(|_| wrong("not a length of time"))?;
    let seconds = span.as_nanos().div_euclid(1_000_000_000);
    match u64::try_from(seconds) {
        Ok(seconds @ 1..) => Ok(seconds),
        _ => Err(wrong("at least one second")),
    }
}
