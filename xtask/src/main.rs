//! `cargo xtask`: the project's automation in Rust; `cargo xtask --help` lists the commands.
use std::process::ExitCode;

use clap::Parser as _;
use xtask::{Verdict, cli::Cli};

fn main() -> ExitCode {
    match Cli::parse().run() {
        Ok(Verdict::Passed) => ExitCode::SUCCESS,
        Ok(Verdict::Failed) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
