//! Ourselves built anew, in release and with a feature that is otherwise left out.
//!
//! The benchmarks link the agent and the simulation of a fleet the Kubernetes client, and everything else of xtask links neither:
//! without them it is small, is built in no time, and works when the agent does not compile.
use std::process::Command;

use anyhow::Context as _;

use crate::{
    Verdict,
    test::artifacts::{self, Built},
    workspace::{self, succeeds},
};

/// Builds our own program with a feature, and the programs of other packages beside it.
///
/// # Errors
/// When they cannot be built.
pub(crate) fn build(feature: &str, beside: &[&str]) -> anyhow::Result<Built> {
    let mut cargo = workspace::cargo();
    cargo.args([
        "build",
        "--release",
        "--locked",
        "--bins",
        "--no-default-features",
    ]);
    for &package in ["xtask"].iter().chain(beside) {
        cargo.args(["--package", package]);
    }
    cargo.arg("--features").arg(format!("xtask/{feature}"));
    artifacts::build_with(&mut cargo, &[])
        .with_context(|| format!("building xtask with the feature {feature}"))
}

/// Runs what was built in the workspace, and says whether everything held.
///
/// # Errors
/// When it cannot be started.
pub(crate) fn run(program: &mut Command) -> anyhow::Result<Verdict> {
    program.current_dir(workspace::root());
    Ok(Verdict::from_holds(succeeds(program)?))
}
