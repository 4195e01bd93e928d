//! Our programs and tests without shared libraries, so that they run where nothing is installed.
use std::path::PathBuf;

use anyhow::Context as _;

use crate::{
    test::artifacts::{self, Binary, Built},
    workspace::{self, Metadata},
};

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The profile in Cargo.toml: quick enough under emulation, and built in less time than a release.
const PROFILE: &str = "guest";
/// What is left out by default, and measures or tests. Always the same: where features differ all is compiled twice.
const FEATURES: &str = "xtask/bench,brink-tests/live,brink/otlp";
/// The same with what guests leave out: an agent in a pod asks an API server, and a container runtime.
const IN_A_POD: &str = "xtask/bench,brink-tests/live,brink/otlp,brink/kubernetes,brink/cri";

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
    let tests: Vec<&str> = live_tests(metadata).collect();
    let built = statically((&["--bins"], FEATURES), &tests, metadata)?;
    Ok(Programs {
        agent: built.program("brink")?,
        hog: built.program("brink-hog")?,
        coverage: built.program("brink-coverage")?,
        guest: built.program("xtask")?,
        tests: built.tests.into_iter().filter(|test| test.live).collect(),
    })
}

/// What measures: in a guest, and in the short form here too, which is one build less.
#[derive(Debug)]
pub(crate) struct Measuring {
    pub(crate) agent: PathBuf,
    pub(crate) hog: PathBuf,
    /// Ourselves with the benchmarks, and the guest's first process.
    pub(crate) guest: PathBuf,
}

impl Measuring {
    /// Found among what cargo built.
    ///
    /// # Errors
    /// When one of them was not built.
    pub(crate) fn of(built: &Built) -> anyhow::Result<Self> {
        Ok(Self {
            agent: built.program("brink")?,
            hog: built.program("brink-hog")?,
            guest: built.program("xtask")?,
        })
    }
}

/// Builds the programs that measure, in the same folder, and one of the tests: with any of them cargo takes the features that tests ask
/// of dependencies, and without all would be compiled once more for [`build`].
///
/// # Errors
/// When the build fails.
pub(crate) fn build_measuring(metadata: &Metadata) -> anyhow::Result<Measuring> {
    let one: Vec<&str> = live_tests(metadata).take(1).collect();
    Measuring::of(&statically((&["--bins"], FEATURES), &one, metadata)?)
}

/// Builds the agent alone as a pod runs it, in the same folder and by the same rule: what it has in common with the guests' is compiled
/// once.
///
/// # Errors
/// When the build fails.
pub(crate) fn build_for_pods(metadata: &Metadata) -> anyhow::Result<PathBuf> {
    let one: Vec<&str> = live_tests(metadata).take(1).collect();
    statically((&["--bin", "brink"], IN_A_POD), &one, metadata)?.program("brink")
}

fn live_tests(metadata: &Metadata) -> impl Iterator<Item = &str> {
    let packages = metadata.packages.iter();
    let targets = packages.flat_map(|package| &package.targets);
    let live = targets.filter(|target| target.is_live());
    live.map(|target| &*target.name)
}

/// Builds these programs with these features, and tests.
fn statically(
    (programs, features): (&[&str], &str),
    tests: &[&str],
    metadata: &Metadata,
) -> anyhow::Result<Built> {
    let mut cargo = workspace::cargo();
    cargo.arg("build").args(programs);
    // All of them, whichever is built: features of what they depend on are those that all ask for.
    cargo.args(["--package", "brink", "--package", "xtask"]);
    cargo.args(["--package", "brink-tests", "--no-default-features"]);
    cargo.args(["--features", features]);
    cargo.args(tests.iter().flat_map(|name| ["--test", name]));
    cargo.args(["--locked", "--target", TARGET]);
    cargo.args(["--profile", PROFILE, "--target-dir"]);
    cargo.arg(metadata.target_directory.join("vm"));
    // The encoded form would win over the plain one.
    cargo.env_remove("CARGO_ENCODED_RUSTFLAGS");
    cargo.env("RUSTFLAGS", "-C target-feature=+crt-static");
    artifacts::build_with(&mut cargo, &metadata.packages).context("building static programs")
}
