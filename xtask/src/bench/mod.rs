//! `cargo xtask bench`: measures, keeps the raw values, and compares with the figures that must be reached.
pub mod machine;
pub mod random;
pub mod raw;
pub mod registry;
pub mod stats;
pub mod table;

use std::path::PathBuf;

use anyhow::{Context as _, bail};

use self::{
    machine::Machine,
    registry::{BENCHMARKS, Benchmark, Measured, Settings},
};
use crate::{Verdict, workspace};

/// Options of `cargo xtask bench`.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Args {
    /// Fail if a figure that must be reached is missed
    #[arg(long)]
    pub check: bool,
    /// Fewer runs, for every change; the figures stay the same
    #[arg(long)]
    pub short: bool,
    /// Only the benchmark of this name
    #[arg(long, value_name = "NAME")]
    pub only: Option<String>,
    /// Seed of everything that is random, so that a run can be repeated
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Folder for the raw values, one file a benchmark
    #[arg(long, value_name = "FOLDER", default_value = "target/bench")]
    pub out: PathBuf,
}

/// Runs the benchmarks, in a release build of ourselves.
///
/// # Errors
/// When a benchmark cannot be run or its raw values cannot be written.
pub fn run(args: &Args) -> anyhow::Result<Verdict> {
    let wanted =
        |benchmark: &&Benchmark| args.only.as_ref().is_none_or(|only| benchmark.name == only);
    let chosen: Vec<&Benchmark> = BENCHMARKS.iter().filter(wanted).collect();
    if let (Some(only), true) = (&args.only, chosen.is_empty()) {
        let names: Vec<_> = BENCHMARKS.iter().map(|benchmark| benchmark.name).collect();
        bail!("no benchmark `{only}`; benchmarks: {}", names.join(", "));
    }
    if cfg!(debug_assertions) && !chosen.is_empty() {
        return run_in_release(args);
    }
    let settings = Settings {
        short: args.short,
        seed: args.seed,
    };
    let machine = Machine::read(std::path::Path::new("/"));
    println!("{machine}");
    let mut verdicts = Vec::new();
    for benchmark in chosen {
        println!("\n=== {}: {}", benchmark.name, benchmark.about);
        let measured = (benchmark.run)(&settings).with_context(|| benchmark.name.to_owned())?;
        if let Measured::Ran { cells, .. } = &measured {
            print!("{}", table::of_cells(cells));
            let file = workspace::root()
                .join(&args.out)
                .join(format!("{}.json", benchmark.name));
            raw::write(
                &file,
                &raw::Results::new(benchmark.name, &settings, &machine, cells),
            )?;
        }
        verdicts.push((benchmark.name, measured));
    }
    print!("\n{}", table::of_limits(&verdicts));
    let reached = verdicts.iter().all(|(_, measured)| measured.reached());
    Ok(Verdict::from_holds(reached || !args.check))
}

/// What is measured in a debug build is the debug build.
fn run_in_release(args: &Args) -> anyhow::Result<Verdict> {
    let mut cargo = workspace::cargo();
    cargo.args([
        "run",
        "--quiet",
        "--locked",
        "--release",
        "--package",
        "xtask",
        "--",
        "bench",
    ]);
    cargo
        .args(args.check.then_some("--check"))
        .args(args.short.then_some("--short"));
    cargo.args(args.only.iter().flat_map(|only| ["--only", only]));
    cargo
        .arg("--seed")
        .arg(args.seed.to_string())
        .arg("--out")
        .arg(&args.out);
    Ok(Verdict::from_holds(workspace::succeeds(&mut cargo)?))
}
