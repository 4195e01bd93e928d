//! `brink doctor`: what this machine offers, which rung follows from it, and what to do about it.

use super::exit::{CliError, Exit};
use super::options::{ConfigArgs, FormatArgs};
use super::output::{Data, Format};
use crate::config::load;
use crate::doctor::{Page, examine};

/// Options of `brink doctor`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(after_help = "\
Examples:
  brink doctor --all
  sudo brink doctor               what an agent that runs as root would have
  brink doctor --mode enforce --kubelet-config /var/lib/kubelet/config.yaml
  brink doctor -o json | jq '.rung'
  brink doctor -o json | jq -r '.checks[] | select(.state == \"failed\") | .id'

Nothing on the machine is changed. As root the kernel programs are loaded on trial and unloaded again. The exit code \
is 3 if a check has failed, 2 if the configuration is wrong, and otherwise 0.")]
pub struct Args {
    /// Say what was found of the checks that are well, too
    #[arg(short, long)]
    pub all: bool,
    /// Form of the output.
    #[command(flatten)]
    pub format: FormatArgs,
    /// Configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
}

/// Columns of an output that is no terminal.
const COLUMNS: usize = 80;

/// Looks and tells.
///
/// # Errors
/// Everything that is wrong with the configuration, or output that cannot be written.
pub(super) fn run(args: &Args) -> Result<Exit, CliError> {
    let checked = load(&args.config.sources())?;
    let report = examine(&checked);
    let mut data = Data::new();
    match args.format.output {
        Format::Json => data.json(&report)?,
        Format::Text => {
            let page = Page {
                report: &report,
                width: data.style().width.unwrap_or(COLUMNS),
                colour: data.style().colour,
                all: args.all,
            };
            data.print(&page.to_string())?;
        }
    }
    data.flush()?;
    Ok(if report.has_failed() {
        Exit::Crossed
    } else {
        Exit::Success
    })
}
