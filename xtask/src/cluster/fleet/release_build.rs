//! The simulation built anew: ourselves in release, with the Kubernetes client in it.
use std::{env, process::Command};

use anyhow::Context as _;

use crate::{
    Verdict,
    test::artifacts,
    workspace::{self, succeeds},
};

/// Builds it, and runs it with our own words.
///
/// # Errors
/// When it cannot be built or started.
pub(super) fn run() -> anyhow::Result<Verdict> {
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--release", "--locked", "--package", "xtask"]);
    cargo.args(["--bin", "xtask", "--features", "xtask/fleet"]);
    let built = artifacts::build_with(&mut cargo, &[]).context("building the simulation")?;
    let mut fleet = Command::new(built.program("xtask")?);
    fleet.current_dir(workspace::root());
    fleet.args(env::args_os().skip(1));
    Ok(Verdict::from_holds(succeeds(&mut fleet)?))
}
