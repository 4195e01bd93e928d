//! `brink status`: signals, thresholds, rung, mode, and the order that is open.

use super::asking::{put, unexpected};
use super::exit::{CliError, Exit};
use super::options::{FormatArgs, SocketArgs};
use super::output::{Data, Format};
use super::status_page::page;
use crate::control::protocol::{Answer, Question, Status};
use crate::terminal::Style;

/// Options of `brink status`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(after_help = "\
Examples:
  brink status
  brink status --watch
  brink status --check || echo 'a threshold is crossed, or no agent answers'")]
pub struct Args {
    /// End with code 3 if a threshold is crossed, with 1 if none is measured
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
pub(super) fn run(args: &Args) -> Result<Exit, CliError> {
    let mut first = true;
    loop {
        let Answer::Status(status) = put(&args.socket.socket, &Question::Status)? else {
            return Err(unexpected());
        };
        let mut data = Data::new();
        match args.format.output {
            Format::Json if args.watch => data.json_line(&status)?,
            Format::Json => data.json(&status)?,
            Format::Text => {
                data.print(between(args.watch, first, data.style()))?;
                data.print(&page(&status, data.style()))?;
            }
        }
        data.flush()?;
        first = false;
        if !args.watch {
            return if args.check {
                checked(&status)
            } else {
                Ok(Exit::Success)
            };
        }
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
}

/// Whether a threshold is crossed. Where none is measured nobody can say that none is.
fn checked(status: &Status) -> Result<Exit, CliError> {
    if status.thresholds.iter().any(|threshold| threshold.met) {
        return Ok(Exit::Crossed);
    }
    if status.thresholds.iter().any(|threshold| threshold.observed) {
        return Ok(Exit::Success);
    }
    let error = anyhow::anyhow!("no threshold is measured, so none can be said to be in order");
    Err(CliError::from(error)
        .advise("`brink config show` lists the thresholds, `brink doctor` what can be measured"))
}

/// What parts one page from the next: a terminal shows it in the same place, anything else gets a line between them.
const fn between(watches: bool, first: bool, style: Style) -> &'static str {
    match (watches, style.width) {
        (true, Some(_)) => "\x1b[H\x1b[2J",
        (true, None) if !first => "\n",
        _ => "",
    }
}
