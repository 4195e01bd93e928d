//! `cargo xtask vm`: the live tests on the kernels that people run, each in a virtual machine of its own.
mod boot;
mod cache;
mod choice;
mod claims;
mod cpio;
mod dealt;
pub(crate) mod disk;
#[cfg(feature = "bench")]
pub(crate) mod errand;
mod filesystems;
pub mod guest;
mod image;
mod job;
mod kept;
mod known;
mod machine;
mod packages;
mod page;
mod series;
mod session;
pub(crate) mod static_build;
mod supply;
mod verdict;

use self::supply::Supply;
pub use self::{job::Cgroup, series::Series};
use crate::{Verdict, test::Report};

/// Options of `cargo xtask vm`.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Args {
    /// Only this series of kernels (may be given several times)
    #[arg(long, value_name = "SERIES")]
    pub kernel: Vec<Series>,
    /// Version of the control groups
    #[arg(long, value_name = "VERSION", default_value = "v2")]
    pub cgroup: Cgroup,
    /// Also run the tests that are marked slow (`#[ignore = "…"]`)
    #[arg(long)]
    pub full: bool,
    /// Only the few tests that show most, for every change: what has no time to begin within 4 minutes is skipped
    #[arg(long, conflicts_with_all = ["full", "filter"])]
    pub short: bool,
    /// Run only tests whose name contains this (may be given several times)
    #[arg(long, value_name = "PART")]
    pub filter: Vec<String>,
    /// Keep what was found in the repository, test by test, and write the tables of docs/kernels.md from it
    #[arg(long, conflicts_with = "short")]
    pub publish: bool,
    /// Of what is published, run the tests that have failed or of which nothing is known yet, then those whose results are of
    /// other kernel objects than the checked-in ones, or of objects that are not known (all, if there are neither), and begin none
    /// after so many minutes of guests
    #[arg(long, value_name = "MINUTES", requires = "publish", conflicts_with = "short", value_parser = clap::value_parser!(u64).range(1..=600))]
    pub minutes: Option<u64>,
}

/// Runs the guests and prints the table, the reasons of what was skipped, and the summaries.
///
/// # Errors
/// When the tests cannot be built or the guests not be started.
pub fn run(args: &Args) -> anyhow::Result<Verdict> {
    let report = run_guests(args)?;
    report.print_table();
    if let Some(late) = begun_nowhere(&report).filter(|_| args.short) {
        println!("{late}");
    }
    report.print_summaries();
    Ok(report.verdict())
}

/// What no kernel had the time to begin, in words.
pub fn begun_nowhere(report: &Report) -> Option<String> {
    let names: Vec<&str> = report.begun_nowhere().into_iter().collect();
    (!names.is_empty()).then(|| format!("begun on no kernel: {}", names.join(", ")))
}

/// Runs the guests and leaves the printing of the outcome to the caller.
///
/// # Errors
/// When the tests cannot be built or the guests not be started.
pub fn run_guests(args: &Args) -> anyhow::Result<Report> {
    session::run(args)
}

/// Fetches what guests that compare are made of: QEMU, their kernel, and what Brink is compared with.
///
/// # Errors
/// When something of it can be had neither from the archive nor from the cache.
pub fn fetch_peers() -> anyhow::Result<()> {
    anyhow::ensure!(
        cfg!(target_arch = "x86_64"),
        "guests are made for x86_64 only"
    );
    let mut supply = Supply::open()?;
    supply.tools()?;
    supply.kernel(Series::V6_12)?;
    let peers = supply.peers()?;
    println!("{:?} in {}", peers.versions, peers.root.display());
    Ok(())
}
