//! `cargo xtask cluster test`: the tests that need a cluster, on the one that runs or on one for them alone.
use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, bail};

use super::{node, up};
use crate::{
    Verdict, image, process,
    static_program::{self, Profile},
    test::{
        Report,
        artifacts::{self, Binary},
        live::{self, Listed, Manner},
    },
    workspace::{self, succeeds},
};

/// The target with these tests.
const TARGET: &str = "cluster";
/// The part of them that runs the agent's image.
const WITH_IMAGE: &str = "daemonset::";
/// The variable that leads to a cluster of somebody else's.
const KUBECONFIG: &str = "BRINK_KUBECONFIG";

/// Options of `cargo xtask cluster test`.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Args {
    /// Run only tests whose name contains this (may be given several times)
    #[arg(long, value_name = "PART")]
    filter: Vec<String>,
    /// Also run the tests that are marked slow (`#[ignore = "…"]`)
    #[arg(long)]
    full: bool,
    /// Leave a cluster that was started for the tests as it is afterwards
    #[arg(long)]
    keep: bool,
    /// Longest time for one test, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    deadline: u64,
}

/// Runs them.
pub(super) fn run(args: &Args, folder: &Path) -> anyhow::Result<Verdict> {
    let is_given = env::var_os(KUBECONFIG).is_some_and(|file| !file.is_empty());
    let is_ours = !is_given && !up::is_up(folder)?;
    // First, so that a cluster is there no longer than it is of use.
    let programs = Programs::build()?;
    let suites = live::list_all(&programs.tests, &args.filter)?;
    let mut names = suites.iter().flat_map(|suite| &suite.names);
    let wants_image = !is_given && names.any(|name| name.starts_with(WITH_IMAGE));
    if is_ours && !own(&["cluster", "up"])? {
        // What was started is of no use to anybody but who looks for the reason.
        if !args.keep {
            own(&["cluster", "down"])?;
        }
        bail!("without a cluster there is nothing to test on; the reason stands above");
    }
    let image = if wants_image {
        give_image(folder)
    } else {
        Ok(())
    };
    let found = image.and_then(|()| programs.run(&suites, args));
    if is_ours && !args.keep && !own(&["cluster", "down"])? {
        bail!("the cluster of the tests could not be removed; the reason stands above");
    }
    let report = found?;
    report.print_table();
    report.print_summaries();
    Ok(report.verdict())
}

/// Gives our own node the agent's image. On a cluster of somebody else's it has to be there already.
fn give_image(folder: &Path) -> anyhow::Result<()> {
    let metadata = workspace::metadata()?;
    let program = static_program::build(&metadata, Profile::Guest)?;
    let work = tempfile::tempdir().context("a folder for the image")?;
    let archive = work.path().join("brink.tar");
    image::write(&program, &image::default_name(), &archive)?;
    node::load(folder, &archive)
}

/// Ourselves with other words, as a process of its own: what it starts is then nobody's child here, and no test's leftover.
fn own(words: &[&str]) -> anyhow::Result<bool> {
    let own = env::current_exe().context("finding our own program")?;
    succeeds(Command::new(own).args(words))
}

/// What the tests are made of.
struct Programs {
    tests: Vec<Binary>,
    agent: PathBuf,
}

impl Programs {
    fn build() -> anyhow::Result<Self> {
        let packages = workspace::metadata()?.packages;
        let mut cargo = workspace::cargo();
        cargo.args(["test", "--no-run", "--locked", "--package", "brink-tests"]);
        cargo.args(["--features", "brink-tests/live", "--test", TARGET]);
        let built = artifacts::build_with(&mut cargo, &packages).context("building the tests")?;
        Ok(Self {
            tests: built.tests,
            agent: artifacts::build_agent()?,
        })
    }

    fn run(&self, suites: &[Listed], args: &Args) -> anyhow::Result<Report> {
        process::adopt_orphans()?;
        let manner = Manner {
            promtool: OsStr::new("tests on a cluster ask no promtool"),
            agent: &self.agent,
            full: args.full,
            deadline: Duration::from_secs(args.deadline),
            until: None,
        };
        let mut report = Report::default();
        live::run_listed(suites, manner, &mut report)?;
        Ok(report)
    }
}
