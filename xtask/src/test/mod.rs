//! `cargo xtask test`: everything that can be tested on this machine, and an honest count of the rest.
pub(crate) mod artifacts;
mod containerd;
mod debian;
mod journald;
pub mod leftovers;
pub mod libtest;
pub(crate) mod live;
mod plain;
mod receiver;
pub(crate) mod report;

use std::time::Duration;

pub use self::report::Report;
use crate::{Verdict, process, workspace};

/// Longest time for one suite of plain tests, none of which waits for anything but itself.
const PLAIN_DEADLINE: Duration = Duration::from_mins(10);

/// Options of `cargo xtask test`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Also run the tests that are marked slow (`#[ignore = "…"]`)
    #[arg(long)]
    pub full: bool,
    /// Run only tests whose name contains this (may be given several times)
    #[arg(long, value_name = "PART")]
    pub filter: Vec<String>,
    /// Longest time for one live test, in seconds (tenfold with --full)
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub deadline: u64,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            full: false,
            filter: Vec::new(),
            deadline: 120,
        }
    }
}

/// Runs the tests and prints the table, the reasons of what was skipped, and the runners' summaries.
///
/// # Errors
/// When the tests cannot be built or started.
pub fn run(args: &Args) -> anyhow::Result<Verdict> {
    let report = run_suites(args)?;
    report.print_table();
    report.print_summaries();
    Ok(report.verdict())
}

/// Runs the tests and leaves the printing of the outcome to the caller.
///
/// # Errors
/// When the tests cannot be built or started.
pub fn run_suites(args: &Args) -> anyhow::Result<Report> {
    let packages = workspace::metadata()?.packages;
    let binaries = artifacts::build(&packages)?;
    process::adopt_orphans()?;
    let (live, plain): (Vec<_>, Vec<_>) = binaries.into_iter().partition(|binary| binary.live);
    let mut report = Report::default();
    for binary in &plain {
        report.add(plain::run_binary(binary, args)?);
    }
    report.add(plain::run_doc_tests(args)?);
    live::run_all(&live, args, &mut report)?;
    Ok(report)
}
