//! `cargo xtask cluster fleet`: a thousand agents' watches and reports against a real API server, on one machine.
//!
//! What it runs is the code of brink-kube as the agent runs it, and nothing else of the agent: the watch of a node's pods and
//! of its annotation, the postman with its outbox, the herald of the node's conditions. Each simulated agent has a Node object
//! and pods of its own. It belongs to the cluster and not to the benchmarks: those run on every change and in guests, where
//! there is no API server to ask, and would all have to link a Kubernetes client; this needs a server that it may kill, and
//! neither a guard nor kernel programs. So it has a feature of its own, and builds itself again with it.
#[cfg(feature = "fleet")]
mod agent;
#[cfg(feature = "fleet")]
mod asked;
#[cfg(feature = "fleet")]
mod descriptors;
mod limits;
#[cfg(feature = "fleet")]
mod meter;
#[cfg(feature = "fleet")]
mod metrics;
#[cfg(feature = "fleet")]
mod objects;
pub mod page;
#[cfg(feature = "fleet")]
mod phases;
pub mod report;
#[cfg(feature = "fleet")]
mod scene;
#[cfg(feature = "fleet")]
mod session;
pub mod tables;

use std::path::{Path, PathBuf};

use anyhow::bail;

use crate::Verdict;

/// The most that one process can stand for: each agent has a few connections, and they are all from one address.
const MOST_AGENTS: usize = 5_000;

/// Options of `cargo xtask cluster fleet`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// How many agents
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 1_000,
        env = "BRINK_FLEET_AGENTS"
    )]
    pub agents: usize,
    /// Pods of each agent's node; two of them are evicted at the most
    #[arg(long, value_name = "NUMBER", default_value_t = 3)]
    pub pods: usize,
    /// How many of a hundred agents evict a pod at once, in the storm and again as the server goes away
    #[arg(long, value_name = "PERCENT", default_value_t = 30)]
    pub share: usize,
    /// How long nothing happens
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub rest: u64,
    /// How long the server is away
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub away: u64,
    /// Seed of the agents' waits
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// A cluster of somebody else's, whose server is not taken away; without it the one of `cargo xtask cluster up`, which is
    /// started and removed again where it is not up
    #[arg(long, value_name = "FILE", env = "BRINK_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Folder for the raw values
    #[arg(long, value_name = "FOLDER", default_value = "target/fleet")]
    pub out: PathBuf,
    /// Keep the raw values in the repository, and write the tables of docs/api-requests.md from them
    #[arg(long)]
    pub publish: bool,
}

impl Args {
    fn check(&self) -> anyhow::Result<()> {
        if self.agents == 0 || self.agents > MOST_AGENTS {
            bail!("--agents takes 1 to {MOST_AGENTS}: they are all of one process");
        }
        if !(2..=20).contains(&self.pods) {
            bail!(
                "--pods takes 2 to 20: one is evicted in the storm and one while the server is away"
            );
        }
        if !(1..=100).contains(&self.share) {
            bail!("--share takes 1 to 100, in percent");
        }
        Ok(())
    }

    /// How many agents evict a pod at once; never none.
    #[cfg(feature = "fleet")]
    fn evicting(&self) -> usize {
        (self.agents * self.share).div_ceil(100)
    }
}

/// Runs it, in a release build.
///
/// # Errors
/// When it cannot come to its end; what it made in the server is removed all the same.
#[cfg_attr(
    not(feature = "fleet"),
    expect(
        unused_variables,
        reason = "the build with the feature uses the folder"
    )
)]
pub(super) fn run(args: &Args, folder: &Path) -> anyhow::Result<Verdict> {
    args.check()?;
    #[cfg(feature = "fleet")]
    return session::run(args, folder);
    #[cfg(not(feature = "fleet"))]
    run_anew()
}

/// Builds ourselves with the simulation, and runs that with our own words.
#[cfg(not(feature = "fleet"))]
fn run_anew() -> anyhow::Result<Verdict> {
    use crate::release_build;

    let built = release_build::build("fleet", &[])?;
    let mut fleet = std::process::Command::new(built.program("xtask")?);
    release_build::run(fleet.args(std::env::args_os().skip(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn fault(line: &str) -> Option<String> {
        let line: Line = clap::Parser::try_parse_from(line.split(' ')).unwrap();
        line.args.check().err().map(|error| error.to_string())
    }

    #[test]
    fn what_one_process_cannot_stand_for_is_refused() {
        let kubeconfig = "--kubeconfig /a";
        for (options, expected) in [
            ("--agents 1000", None),
            ("--agents 0", Some("--agents")),
            ("--agents 5001", Some("--agents")),
            ("--pods 1", Some("--pods")),
            ("--share 0", Some("--share")),
            ("--share 101", Some("--share")),
        ] {
            let found = fault(&format!("fleet {kubeconfig} {options}"));
            match (&found, expected) {
                (None, None) => {}
                (Some(found), Some(part)) => assert!(found.starts_with(part), "{found}"),
                _ => panic!("{options}: {found:?}"),
            }
        }
    }
}
