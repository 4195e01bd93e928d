//! The benchmarks built anew: the agent, the load, and ourselves with the benchmarks in it.
//!
//! In release, or for the short form as they are built for guests, which saves a build of everything. The benchmarks link
//! the agent, and everything else of xtask does not: without them it is small, is built in no time, and works when the
//! agent does not compile.
use std::process::Command;

use anyhow::Context as _;

use super::Args;
use crate::{
    Verdict,
    test::artifacts,
    vm::static_build::{Measuring, build_measuring},
    workspace::{self, succeeds},
};

pub(super) fn run(args: &Args) -> anyhow::Result<Verdict> {
    let built = if args.short {
        build_measuring(&workspace::metadata()?)?
    } else {
        in_release()?
    };
    let mut bench = Command::new(built.guest);
    bench.current_dir(workspace::root()).arg("bench");
    bench
        .env("BRINK_BIN", built.agent)
        .env("BRINK_HOG", built.hog);
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

fn in_release() -> anyhow::Result<Measuring> {
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--release", "--locked", "--bins"]);
    cargo.args(["--package", "brink", "--package", "brink-tests"]);
    cargo.args([
        "--package",
        "xtask",
        "--no-default-features",
        "--features",
        "xtask/bench",
    ]);
    let built = artifacts::build_with(&mut cargo, &[]).context("building the benchmarks")?;
    Measuring::of(&built)
}
