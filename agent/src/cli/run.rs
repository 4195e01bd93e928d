//! `brink run`: the agent.

use super::exit::{CliError, Exit};
use super::logging;
use super::options::ConfigArgs;
use super::output::Talk;
use crate::config::{Checked, RunMode, load};
use crate::runtime::agent;

/// Options of `brink run`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(after_help = "\
Examples:
  brink run                                observe: decide and tell, change nothing
  brink run --mode enforce
  brink run --node-cgroup /user.slice --prefer '^(java|node)$'
  brink run --kubelet-config /var/lib/kubelet/config.yaml

SIGHUP loads the configuration again; a bad one is refused and the old one stays in force.")]
pub struct Args {
    /// Configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Observe, whatever the configuration says
    #[arg(long, alias = "dryrun")]
    pub dry_run: bool,
}

/// Runs the agent until it is told to stop.
///
/// # Errors
/// What keeps it from running.
pub(super) fn run(args: &Args) -> Result<Exit, CliError> {
    let sources = args.config.sources();
    let Checked {
        mut config,
        warnings,
        ..
    } = load(&sources)?;
    Talk::new().warnings(&warnings);
    if args.dry_run {
        config.mode = RunMode::Observe;
    }
    logging::init(config.log);
    agent::run(&config, &sources)?;
    Ok(Exit::Success)
}
