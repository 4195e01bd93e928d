//! `brink demo`: a real crossing on the real kernel, in cgroups of its own.

use super::exit::{CliError, Exit};
use super::options::FormatArgs;

/// Options of `brink demo`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(after_help = "\
Examples:
  brink demo
  brink demo --size 512Mi -o json

Three workloads run inside one bounded control group; one of them leaks, and is the one
that goes. It takes less than half a minute, needs root, and leaves nothing behind.")]
pub struct Args {
    /// Memory of the bounded group that plays the node
    #[arg(long, default_value = "256Mi", value_name = "SIZE")]
    pub size: String,
    /// Form of the output.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// Runs the demonstration.
///
/// # Errors
/// What keeps it from running.
pub(super) fn run(_args: &Args) -> Result<Exit, CliError> {
    Err(CliError::not_built("demo"))
}
