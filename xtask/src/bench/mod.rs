//! `cargo xtask bench`: measures, keeps the raw values, and compares with the figures that must be reached.
#[cfg(not(feature = "bench"))]
mod anew;
pub mod machine;
#[cfg(feature = "bench")]
pub mod measure;
pub mod page;
#[cfg(feature = "bench")]
pub mod peers;
pub mod random;
pub mod raw;
pub mod registry;
pub mod stats;
pub mod table;
mod told;

use std::path::PathBuf;

use anyhow::bail;

pub use self::told::Told;
use crate::Verdict;

const SEED: u64 = 1;
/// The benchmarks in the order they run: known before they are built.
const NAMES: [&str; 13] = [
    "decision",
    "latency",
    "events",
    "forkbomb",
    "start",
    "release",
    "idle",
    "forensics",
    "stream",
    "hooks",
    "disk",
    "filler",
    "kills",
];
const OUT: &str = "target/bench";
const OUT_OF_PEERS: &str = "target/peers";

/// Options of `cargo xtask bench`.
#[derive(Debug, Clone, clap::Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub struct Args {
    /// Fail if a figure that must be reached is missed
    #[arg(long)]
    pub check: bool,
    /// Fewer runs, for every change, and wider figures of times, sizes and ratios: docs/benchmarks.md names them
    #[arg(long)]
    pub short: bool,
    /// Only the benchmarks of these names; with `--peers` only the tools and the loads whose names have one of these in them
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Seed of everything that is random, so that a run can be repeated
    #[arg(long, value_name = "NUMBER", default_value_t = SEED)]
    pub seed: u64,
    /// Folder for the raw values, one file a benchmark
    #[arg(long, value_name = "FOLDER", default_value = OUT)]
    pub out: PathBuf,
    /// Keep the raw values in the repository, and write the tables of docs/benchmarks.md from them; with `--peers` those of
    /// docs/benchmarks/peers.md
    #[arg(long, conflicts_with = "short")]
    pub publish: bool,
    /// Compare with other tools instead, in virtual machines and here
    #[arg(long)]
    pub peers: bool,
    /// With `--peers`: begin no run in a guest after so many minutes (by default 80, and 8 with `--short`)
    #[arg(long, value_name = "MINUTES", requires = "peers", value_parser = clap::value_parser!(u64).range(1..=1_440))]
    pub minutes: Option<u64>,
}

impl Args {
    /// What every change is held to in the short form, and in the full form whoever asks for it.
    fn check(full: bool, peers: bool, out: &str) -> Self {
        Self {
            check: true,
            short: !full,
            names: Vec::new(),
            seed: SEED,
            out: PathBuf::from(out),
            publish: false,
            peers,
            minutes: None,
        }
    }

    /// Whether the options go together, as far as clap cannot tell: one benchmark can be published alone, and of the
    /// comparison all or nothing.
    fn check_forms(&self) -> anyhow::Result<()> {
        if self.peers && self.publish && !self.names.is_empty() {
            bail!("`--peers --publish` takes no NAME: the page shows every tool and every load");
        }
        let is_known = |name: &&String| NAMES.contains(&name.as_str());
        match self.names.iter().find(|name| !is_known(name)) {
            Some(unknown) if !self.peers => {
                bail!("no benchmark `{unknown}`; benchmarks: {}", NAMES.join(", "))
            }
            _ => Ok(()),
        }
    }
}

/// Holds a change to the figures, and tells what could not be measured here.
///
/// # Errors
/// When one is missed, with its name, or a benchmark breaks.
pub fn check(full: bool) -> anyhow::Result<Told> {
    held(&Args::check(full, false, OUT))
}

/// The same of the comparison with others; in the short form in guests alone, whose clocks do not depend on what else the
/// machine does.
///
/// # Errors
/// When a figure is missed, with its name, or nothing can be compared.
pub fn check_peers(full: bool, minutes: Option<u64>) -> anyhow::Result<Told> {
    held(&Args {
        minutes,
        ..Args::check(full, true, OUT_OF_PEERS)
    })
}

fn held(args: &Args) -> anyhow::Result<Told> {
    told::forget(&args.out)?;
    let verdict = run(args)?;
    let told = told::read(&args.out)?;
    match verdict {
        Verdict::Passed => Ok(told),
        Verdict::Failed => bail!("{}", told.missed.join("; ")),
    }
}

/// Runs the benchmarks, in a release build of everything.
///
/// # Errors
/// When a benchmark cannot be run or its raw values cannot be written.
pub fn run(args: &Args) -> anyhow::Result<Verdict> {
    args.check_forms()?;
    #[cfg(feature = "bench")]
    return session::run(args);
    #[cfg(not(feature = "bench"))]
    anew::run(args)
}

#[cfg(feature = "bench")]
mod session;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn is_taken(line: &str) -> bool {
        let line = clap::Parser::try_parse_from(line.split(' '));
        line.is_ok_and(|line: Line| line.args.check_forms().is_ok())
    }

    #[test]
    fn what_cannot_be_run_is_refused_before_anything_is_built() {
        assert!(is_taken("bench --peers --publish"));
        assert!(is_taken("bench --peers --publish --minutes 90 --seed 2"));
        assert!(is_taken("bench --publish idle"));
        assert!(is_taken("bench --peers --short earlyoom"));
        assert!(!is_taken("bench --peers --publish --short"));
        assert!(!is_taken("bench nosuchbench"));
        assert!(!is_taken("bench --publish --short"));
        assert!(!is_taken("bench --peers --publish earlyoom"));
        assert!(!is_taken("bench --peers --publish machine"));
    }

    #[test]
    fn the_full_form_is_held_to_the_figures_themselves() {
        for (full, peers) in [(false, false), (false, true), (true, false), (true, true)] {
            let args = Args::check(full, peers, OUT);
            assert_eq!((args.check, args.short, args.peers), (true, !full, peers));
        }
    }
}
