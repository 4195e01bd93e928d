//! `cargo xtask cluster`: a real Kubernetes on this machine, built from Debian's source, for the tests that need one.
mod build;
mod control_plane;
mod down;
pub mod fleet;
mod groups;
mod image;
mod launch;
mod machine;
mod node;
mod pki;
mod preflight;
#[cfg(feature = "fleet")]
mod restart;
mod state;
mod status;
mod supply;
mod test;
mod up;

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use crate::{Verdict, test::Report};

/// Options of `cargo xtask cluster`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Clone, clap::Subcommand)]
enum Command {
    /// Build it where it is not in the cache yet, and nothing else
    Build,
    /// Start one: control plane, containerd and a kubelet, all on the loopback interface
    Up,
    /// Stop and remove whatever is there of one, whole or not
    Down,
    /// Say what runs, and whether the node is ready
    Status,
    /// Give the node an image, such as that of `cargo xtask image`
    Load {
        /// The archive
        archive: PathBuf,
    },
    /// Run the tests that need one, on the one that runs or on one for them alone
    Test(test::Args),
    /// Run the Kubernetes side of many agents in one process against a real API server, and count what they ask of it
    Fleet(fleet::Args),
}

/// Runs the chosen command.
///
/// # Errors
/// When it could not do its work.
pub fn run(args: &Args) -> anyhow::Result<Verdict> {
    let folder = Path::new(state::FOLDER);
    match &args.command {
        Command::Build => supply::obtain().map(|_| Verdict::Passed),
        Command::Up => up::run(folder),
        Command::Down => down::run(folder),
        Command::Status => status::run(folder),
        Command::Load { archive } => node::load(folder, archive).map(|()| Verdict::Passed),
        Command::Test(args) => test::run(args, folder),
        Command::Fleet(args) => fleet::run(args, folder),
    }
}

/// Runs the tests that need a cluster on one that is made for them: those that begin before `until`, or all of them. `Err` within
/// says why there is none on this machine.
///
/// # Errors
/// When the tests cannot be built or run, or the cluster cannot be removed.
pub(crate) fn check(until: Option<Instant>) -> anyhow::Result<Result<Report, String>> {
    test::check(until, Path::new(state::FOLDER))
}
