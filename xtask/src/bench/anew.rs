//! The benchmarks built anew, with the agent and the load, and run with the words that we were given.
//!
//! In release, or for the short form as they are built for guests, which saves a build of everything.
use std::process::Command;

use super::Args;
use crate::{
    Verdict, release_build,
    vm::static_build::{Measuring, build_measuring},
    workspace,
};

pub(super) fn run(args: &Args) -> anyhow::Result<Verdict> {
    let built = if args.short {
        build_measuring(&workspace::metadata()?)?
    } else {
        Measuring::of(&release_build::build("bench", &["brink", "brink-tests"])?)?
    };
    let mut bench = Command::new(built.guest);
    bench.arg("bench");
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
    release_build::run(&mut bench)
}
