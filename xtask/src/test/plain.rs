//! Suites that need nothing but themselves: one process a suite, as many threads as the machine has.
use std::process::Command;

use super::{
    Args, PLAIN_DEADLINE,
    artifacts::{Binary, FEATURES},
    libtest::{self, Outcome},
    receiver,
    report::Suite,
};
use crate::{
    process::{self, Ended},
    workspace,
};

/// Runs one test binary.
pub(super) fn run_binary(binary: &Binary, args: &Args) -> anyhow::Result<Suite> {
    let mut command = start(binary);
    command
        .args(&args.filter)
        .args(args.full.then_some("--include-ignored"));
    if binary.suite == receiver::SUITE {
        command.env(receiver::VARIABLE, receiver::find());
    }
    let ended = process::run(&mut command, PLAIN_DEADLINE)?;
    Ok(judge(&binary.suite, &ended))
}

/// A test binary as Cargo would start it.
pub(super) fn start(binary: &Binary) -> Command {
    let mut command = Command::new(&binary.executable);
    command
        .current_dir(&binary.folder)
        .env("CARGO_MANIFEST_DIR", &binary.folder);
    command
}

/// Runs the examples in the documentation of every library.
pub(super) fn run_doc_tests(args: &Args) -> anyhow::Result<Suite> {
    let mut cargo = workspace::cargo();
    cargo.args(["test", "--doc", "--locked", "--no-fail-fast"]);
    cargo.args(["--features", FEATURES, "--"]);
    cargo
        .args(&args.filter)
        .args(args.full.then_some("--include-ignored"));
    let ended = process::run(&mut cargo, PLAIN_DEADLINE)?;
    Ok(judge("documentation", &ended))
}

fn judge(name: &str, ended: &Ended) -> Suite {
    let mut outcome = libtest::read(&ended.output).unwrap_or_else(|| {
        // Crashed, killed or unreadable: at least one test has not held.
        Outcome {
            failed: 1,
            ..Outcome::default()
        }
    });
    let fault = ended
        .fault()
        .or_else(|| (outcome.failed > 0).then(|| "failed".to_owned()));
    if let Some(fault) = &fault {
        outcome.failed = outcome.failed.max(1);
        println!("--- {name}: {fault}\n{}", ended.quoted());
        let said = libtest::excerpt(&ended.output);
        outcome.said.push(format!("{fault}\n{said}"));
    }
    outcome.elapsed = ended.elapsed;
    Suite::told(name, outcome)
}
