//! The benchmarks in a release build: of the agent, of the load, and of ourselves with the benchmarks in it.
//!
//! The benchmarks link the agent, and everything else of xtask does not: without them it is small, is built in no
//! time, and works when the agent does not compile.
use anyhow::Context as _;

use super::Args;
use crate::{
    Verdict,
    test::artifacts,
    workspace::{self, succeeds},
};

pub(super) fn run(args: &Args) -> anyhow::Result<Verdict> {
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--release", "--locked", "--bins"]);
    cargo.args(["--package", "brink", "--package", "brink-tests"]);
    cargo.args(["--package", "xtask", "--features", "xtask/bench"]);
    if args.short {
        // Half of the build is the optimisation over crates, and the short form has room for what it brings.
        cargo.env("CARGO_PROFILE_RELEASE_LTO", "off");
        cargo.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    }
    let built = artifacts::build_with(&mut cargo, &[]).context("building the benchmarks")?;
    let program = |name: &str| {
        let found = built.programs.get(name).cloned();
        found.with_context(|| format!("cargo built no binary `{name}`"))
    };
    let mut bench = std::process::Command::new(program("xtask")?);
    bench.current_dir(workspace::root()).arg("bench");
    bench
        .env("BRINK_BIN", program("brink")?)
        .env("BRINK_HOG", program("brink-hog")?);
    bench
        .args(args.check.then_some("--check"))
        .args(args.short.then_some("--short"))
        .args(args.publish.then_some("--publish"))
        .args(args.peers.then_some("--peers"));
    if let Some(minutes) = args.minutes {
        bench.arg("--minutes").arg(minutes.to_string());
    }
    bench.arg("--seed").arg(args.seed.to_string());
    bench
        .arg("--out")
        .arg(&args.out)
        .arg("--")
        .args(&args.names);
    Ok(Verdict::from_holds(succeeds(&mut bench)?))
}
