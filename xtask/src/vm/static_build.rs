//! Our programs and tests without shared libraries, so that they run where nothing is installed.
use std::{path::PathBuf, process::Command};

use anyhow::Context as _;

use crate::{
    test::artifacts::{self, Binary, Built},
    workspace::{self, Metadata},
};

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The profile in Cargo.toml: quick enough under emulation, and built in less time than a release.
const PROFILE: &str = "guest";

/// What goes into a guest.
#[derive(Debug)]
pub(super) struct Programs {
    /// The live tests.
    pub(super) tests: Vec<Binary>,
    pub(super) agent: PathBuf,
    /// The load that tests start.
    pub(super) hog: PathBuf,
    /// Tells which kernel programs run.
    pub(super) coverage: PathBuf,
    /// Ourselves, as the guest's first process.
    pub(super) guest: PathBuf,
}

/// Builds everything, in a folder of its own.
///
/// # Errors
/// When the build fails.
pub(super) fn build(metadata: &Metadata) -> anyhow::Result<Programs> {
    let built = run_cargo(metadata)?;
    let program = |name: &str| {
        let path = built.programs.get(name).cloned();
        path.with_context(|| format!("cargo built no binary `{name}`"))
    };
    Ok(Programs {
        agent: program("brink")?,
        hog: program("brink-hog")?,
        coverage: program("brink-coverage")?,
        guest: program("xtask")?,
        tests: built.tests.into_iter().filter(|test| test.live).collect(),
    })
}

#[cfg(feature = "bench")]
/// What goes into a guest that measures.
#[derive(Debug)]
pub(crate) struct Measuring {
    pub(crate) agent: PathBuf,
    pub(crate) hog: PathBuf,
    /// Ourselves with the benchmarks, as the guest's first process.
    pub(crate) guest: PathBuf,
}

#[cfg(feature = "bench")]
/// Builds the programs of a guest that measures, in the same folder.
///
/// # Errors
/// When the build fails.
pub(super) fn build_measuring(metadata: &Metadata) -> anyhow::Result<Measuring> {
    let packages = ["--package", "brink", "--package", "brink-tests"];
    let mut cargo = workspace::cargo();
    cargo.arg("build").args(packages);
    cargo.args(["--package", "xtask", "--features", "xtask/bench", "--bins"]);
    let built = statically(cargo, metadata)?;
    let program = |name: &str| {
        let path = built.programs.get(name).cloned();
        path.with_context(|| format!("cargo built no binary `{name}`"))
    };
    Ok(Measuring {
        agent: program("brink")?,
        hog: program("brink-hog")?,
        guest: program("xtask")?,
    })
}

/// All in one call: what two calls share would be compiled twice where their features differ.
fn run_cargo(metadata: &Metadata) -> anyhow::Result<Built> {
    let mut cargo = workspace::cargo();
    cargo.arg("build");
    cargo.args(["--package", "brink", "--package", "xtask", "--bins"]);
    cargo.args(["--package", "brink-tests", "--features", "brink-tests/live"]);
    for package in &metadata.packages {
        let live = package.targets.iter().filter(|target| target.is_live());
        cargo.args(live.flat_map(|target| ["--test", &target.name]));
    }
    statically(cargo, metadata)
}

/// Builds what `cargo` was told to.
fn statically(mut cargo: Command, metadata: &Metadata) -> anyhow::Result<Built> {
    cargo.args(["--locked", "--target", TARGET]);
    cargo.args(["--profile", PROFILE, "--target-dir"]);
    cargo.arg(metadata.target_directory.join("vm"));
    // The encoded form would win over the plain one.
    cargo.env_remove("CARGO_ENCODED_RUSTFLAGS");
    cargo.env("RUSTFLAGS", "-C target-feature=+crt-static");
    artifacts::build_with(&mut cargo, &metadata.packages).context("building for the guests")
}
