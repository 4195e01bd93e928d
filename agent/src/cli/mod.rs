//! The command line: every command in one enum, and one way to run and to end.

mod asking;
mod config;
mod demo;
mod doctor;
mod events;
mod exit;
mod explain;
mod generate;
mod incident;
mod kubectl;
mod logging;
mod met;
mod migrate;
mod options;
mod output;
mod pause;
mod progress;
mod rank;
mod replay;
mod run;
mod simulate;
mod status;
mod status_disks;
mod status_kubernetes;
mod status_page;
mod status_recorder;
mod status_storage;
mod stream;
mod top;
mod variables;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::builder::styling::{AnsiColor, Effects};
use clap::builder::{StyledStr, Styles};
use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

pub use asking::page_of;
pub use exit::{CliError, Exit};
pub use generate::{Generated, completions, man_pages};
pub use options::{ConfigArgs, FormatArgs, SocketArgs};
pub use output::{Data, Format, Talk};

/// Acts before a Linux node runs out of memory, disk or process ids.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "brink",
    version,
    arg_required_else_help = true,
    styles = STYLES,
    max_term_width = 100,
    after_help = "\
Exit codes:
  0  success
  1  failure
  2  wrong command line or file
  3  a threshold is crossed, or a check has failed
  4  no agent answers
  5  a permission or capability is missing
  6  another agent runs here already

Data is on stdout, talk on stderr. Colours are for terminals only; NO_COLOR switches them off."
)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().effects(Effects::BOLD))
    .usage(AnsiColor::Green.on_default().effects(Effects::BOLD))
    .literal(AnsiColor::Cyan.on_default().effects(Effects::BOLD))
    .placeholder(AnsiColor::Cyan.on_default());

/// Every command.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run the agent: watch the node, decide, and act if told to
    Run(Box<run::Args>),
    /// Watch a leak being caught, in control groups of its own
    Demo(demo::Args),
    /// Show signals, thresholds, rung and mode of the running agent
    Status(status::Args),
    /// Watch the node's room, who would go first and what happens, live
    Top(top::Args),
    /// Show who would go now, and why
    Rank(rank::Args),
    /// Explain why this one goes and that one does not, now or in a past decision
    Explain(explain::Args),
    /// Show what happens and what has happened, event by event
    Events(Box<events::Args>),
    /// Show the last incidents, or the whole story of one: who was killed, by whom, why, and how sure that is
    Incident(Box<incident::Args>),
    /// Decide step by step from scenario files, as the kubelet would
    Simulate(simulate::Args),
    /// Run a journal again and compare
    Replay(replay::Args),
    /// End enforcement at once, for a time or until further notice
    Pause(pause::PauseArgs),
    /// Enforce again
    Resume(pause::ResumeArgs),
    /// Check or show the configuration
    Config(Box<config::Args>),
    /// Look at the machine: what works here, what does not, and what to do about it
    Doctor(Box<doctor::Args>),
    /// Print the completions of a shell
    Completion(generate::CompletionArgs),
    /// Print or write the manual pages
    Man(generate::ManArgs),
    /// Take memory on purpose: a workload of the demonstration
    #[command(name = HOG, hide = true)]
    Hog {
        /// What to take
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

/// The hidden command that the demonstration starts its workloads by.
pub const HOG: &str = "demo-workload";

/// The command line as clap sees it, for completions, manual pages and documentation.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs what the process was started with.
pub fn main() -> ExitCode {
    if kubectl::is_called(std::env::args_os().next().as_deref()) {
        return kubectl::main();
    }
    match Cli::read(std::env::args_os()) {
        Ok(Cli {
            command: Command::Hog { arguments },
        }) => brink_host::hog::main(arguments),
        Ok(cli) => finish(dispatch(&cli.command)),
        Err(error) => refused(&error),
    }
}

impl Cli {
    /// Reads a command line, and the variables that are set to something.
    ///
    /// # Errors
    /// What clap has to say instead: help, or what is wrong.
    fn read(words: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let words: Vec<OsString> = words.into_iter().collect();
        let mut command = variables::without_empty(command());
        let matches = command
            .try_get_matches_from_mut(&words)
            .map_err(|error| with_tip(error, &command, &words))?;
        Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    }
}

/// What clap has to say, and the option of a signal that stands where none is taken.
fn with_tip(mut error: clap::Error, command: &clap::Command, words: &[OsString]) -> clap::Error {
    if let Some(tip) = options::tip(&error, command, words) {
        error.insert(
            ContextKind::Suggested,
            ContextValue::StyledStrs(vec![StyledStr::from(tip)]),
        );
    }
    error
}

/// Says what clap has to say instead of a command: help, or what is wrong.
fn refused(error: &clap::Error) -> ExitCode {
    finish(printed(error).map(|()| exit_of(error)))
}

/// What is wrong is known by the exit code too; help that cannot be written has not been given.
fn printed(error: &clap::Error) -> Result<(), CliError> {
    let printed = error.print().and_then(|()| io::stdout().flush());
    match printed {
        Err(problem) if !error.use_stderr() => Err(output::unwritten(problem)),
        _ => Ok(()),
    }
}

fn exit_of(error: &clap::Error) -> Exit {
    if error.use_stderr() {
        Exit::Usage
    } else {
        Exit::Success
    }
}

fn dispatch(command: &Command) -> Result<Exit, CliError> {
    match command {
        Command::Run(args) => run::run(args),
        Command::Demo(args) => demo::run(args),
        Command::Status(args) => status::run(args),
        Command::Top(args) => top::run(args),
        Command::Rank(args) => rank::run(args),
        Command::Explain(args) => explain::run(args),
        Command::Events(args) => events::run(args),
        Command::Incident(args) => incident::run(args),
        Command::Simulate(args) => simulate::run_command(args),
        Command::Replay(args) => replay::run(args),
        Command::Pause(args) => pause::run_pause(args),
        Command::Resume(args) => pause::run_resume(args),
        Command::Config(args) => config::run_command(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Completion(args) => generate::run_completion(*args),
        Command::Man(args) => generate::run_man(args),
        // Taken by `main`: it ends with a code of its own.
        Command::Hog { .. } => Ok(Exit::Failure),
    }
}

fn finish(result: Result<Exit, CliError>) -> ExitCode {
    let exit = result.unwrap_or_else(|error| {
        Talk::new().error(&error);
        error.exit()
    });
    exit.into()
}
