//! `brink run`: the agent.

use std::io;
use std::path::Path;

use tracing::warn;

use super::exit::{CliError, Exit};
use super::logging;
use super::options::ConfigArgs;
use super::output::Talk;
use super::variables;
use crate::config::{Override, RunMode, Sources, load};
use crate::doctor::facts::state::Strangers;
use crate::doctor::{State, Step, past_denial, rights};
use crate::runtime::named::Named;
use crate::runtime::{agent, process};

/// Options of `brink run`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(after_help = "\
Examples:
  brink run                    observe: decide and tell, change nothing
  brink run --mode enforce --manifests /etc/brink/manifests
  brink run --node-cgroup /batch.slice --config batch.yaml
  brink run --kubelet-config /var/lib/kubelet/config.yaml

Only workloads are ever evicted: pods in a folder of manifests (--manifests), and control groups that the configuration \
names (workloads.cgroups). SIGHUP loads the configuration again; a bad one is refused and the old one stays in force.")]
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
    // The configuration too is read ahead of whoever makes memory short.
    let before = process::go_first();
    let sources = args.sources();
    let checked = load(&sources)?;
    Talk::new().warnings(&checked.warnings);
    Talk::new().warnings(&checked.idle);
    Talk::new().warnings(&variables::misspelt());
    logging::init(checked.config.log);
    look_at_rights(checked.config.mode)?;
    look_at_folder(&checked.config.paths.state_dir);
    process::go_ahead(before);
    agent::run(&checked.config, &sources).map_err(ended)?;
    Ok(Exit::Success)
}

/// Says what is missing and how to get it; an agent that cannot kill does not pretend to enforce.
fn look_at_rights(mode: RunMode) -> Result<(), CliError> {
    let check = rights(mode);
    let ways: Vec<String> = check.next.iter().map(way).collect();
    let ways = ways.join("; or ");
    match check.state {
        State::Ok => Ok(()),
        State::Failed => {
            let error = anyhow::anyhow!("mode is enforce, and {}", check.found);
            Err(CliError::new(Exit::Denied, error)
                .advise(format!("observe (--mode observe), or {ways}")))
        }
        State::Warning | State::Unknown | State::Note => {
            warn!(how = ways, "{}", check.found);
            Ok(())
        }
    }
}

/// Says who else could write to our files.
fn look_at_folder(folder: &Path) {
    let own = rustix::process::geteuid().as_raw();
    if let Some(strangers) = Strangers::of(folder, own) {
        let how = strangers.remedy(folder, own);
        warn!(
            how,
            "{strangers} may write to the state directory, and so press the stop button"
        );
    }
}

fn way(step: &Step) -> String {
    match &step.command {
        Some(command) => format!("{}: {command}", step.text),
        None => step.text.clone(),
    }
}

/// How an agent that could not be started ends.
fn ended(error: anyhow::Error) -> CliError {
    let kind = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<io::Error>())
        .map(io::Error::kind);
    match kind {
        Some(io::ErrorKind::PermissionDenied) => {
            let way = past_denial("run it as root");
            CliError::new(Exit::Denied, error)
                .advise(format!("{way}, or name a folder of its own with --state-dir"))
        }
        Some(io::ErrorKind::AddrInUse) => CliError::new(Exit::OtherAgent, error)
            .advise("`brink status` asks that one; to stand by beside it, name a paths.socket of your own in the configuration"),
        Some(io::ErrorKind::AlreadyExists) => CliError::new(Exit::Usage, error)
            .advise("name another paths.socket or --state-dir; what is there is left alone"),
        _ => match error.downcast_ref::<Named>().copied() {
            Some(named) => named_fault(error, named, kind),
            None => CliError::from(error).advise("`brink doctor` tells what this machine lacks"),
        },
    }
}

/// A setting that names what is not there, or is of another kind, is wrong; a disk that is full is not its fault.
fn named_fault(error: anyhow::Error, named: Named, kind: Option<io::ErrorKind>) -> CliError {
    use io::ErrorKind as Kind;
    let exit = match kind {
        Some(
            Kind::NotFound
            | Kind::NotADirectory
            | Kind::IsADirectory
            | Kind::InvalidInput
            | Kind::ReadOnlyFilesystem,
        ) => Exit::Usage,
        _ => Exit::Failure,
    };
    let advice = match named.flag {
        Some(flag) => format!(
            "give another with {flag}, or {} in the configuration",
            named.key
        ),
        None => format!("give another {} in the configuration", named.key),
    };
    CliError::new(exit, error).advise(advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_setting_has_led_to_is_told_by_its_key() {
        for (kind, exit) in [
            (io::ErrorKind::NotADirectory, Exit::Usage),
            (io::ErrorKind::StorageFull, Exit::Failure),
        ] {
            let error = anyhow::Error::new(io::Error::from(kind)).context("cannot create /x");
            let error = ended(error.context(Named::STATE_DIR));
            assert_eq!(error.exit(), exit);
            let said = error.to_string();
            assert!(
                said.starts_with("paths.stateDir (--state-dir): cannot create /x: "),
                "{said}"
            );
            let CliError::Other { advice, .. } = error else {
                panic!("{said}");
            };
            assert!(advice.unwrap().contains("--state-dir"));
        }
    }
}
