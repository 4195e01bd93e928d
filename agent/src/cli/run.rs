//! `brink run`: the agent.

use super::exit::{CliError, Exit};
use super::logging;
use super::options::ConfigArgs;
use super::output::Talk;
use crate::config::{Override, Sources, load};
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

impl Args {
    /// What the agent's configuration is loaded from; at a reload the same again.
    pub(super) fn sources(&self) -> Sources {
        let mut sources = self.config.sources();
        if self.dry_run {
            let observe = Override::of_flag("mode", "observe", "--dry-run");
            sources.overrides.extend(observe);
        }
        sources
    }
}

/// Runs the agent until it is told to stop.
///
/// # Errors
/// What keeps it from running.
pub(super) fn run(args: &Args) -> Result<Exit, CliError> {
    let sources = args.sources();
    let checked = load(&sources)?;
    Talk::new().warnings(&checked.warnings);
    logging::init(checked.config.log);
    agent::run(&checked.config, &sources)?;
    Ok(Exit::Success)
}
