//! One session of benchmarks: machine, warm-up, every benchmark with its raw values, and the verdict.
use std::{fs, path::Path};

use anyhow::Context as _;

use super::{
    Args,
    machine::Machine,
    measure::{BENCHMARKS, warm_up},
    page, peers, raw,
    registry::{Benchmark, Measured, Settings},
    table,
    told::Told,
};
use crate::{Verdict, when::When, workspace};

/// The folder of raw values that are published, from the workspace's directory.
const PUBLISHED: &str = "docs/benchmarks/raw";

pub(super) fn run(args: &Args) -> anyhow::Result<Verdict> {
    let settings = Settings {
        short: args.short,
        seed: args.seed,
    };
    if args.peers {
        return peers::run(&settings, args);
    }
    let when = args.publish.then(When::now).transpose()?;
    let machine = Machine::read(Path::new("/"));
    println!("{machine}");
    let warmed = warm_up::warm_up(args.short)?;
    println!("{warmed}");
    let mut verdicts = Vec::new();
    for benchmark in chosen(&args.names) {
        let on = (&machine, when.as_ref());
        let mut measured = measure(benchmark, &settings, on, args)?;
        if let Some(note) = doubt(&measured).filter(|_| args.short) {
            println!("{note}: once more");
            measured = measure(benchmark, &settings, on, args)?;
        }
        verdicts.push((benchmark.name, measured));
    }
    if args.publish {
        page::write(workspace::root())?;
        // It shows what the agent costs when idle on a machine, too.
        peers::page::publish(workspace::root())?;
    }
    print!("\n{}", table::of_limits(&verdicts));
    let told = Told::of(&verdicts);
    told.write(&args.out)?;
    Ok(Verdict::from_holds(told.missed.is_empty() || !args.check))
}

/// What was missed, if nothing was missed but by what a busy machine does alone: a broken thing misses it again.
fn doubt(measured: &Measured) -> Option<String> {
    let missed: Vec<_> = measured.missed().collect();
    let is_doubtful =
        !missed.is_empty() && missed.iter().all(|limit| limit.is_disturbed_by_noise());
    let told: Vec<_> = missed.into_iter().map(table::of_limit).collect();
    is_doubtful.then(|| format!("missed: {}", told.join("; ")))
}

/// The benchmarks of these names, all without names, in the order they run.
fn chosen(names: &[String]) -> impl Iterator<Item = &'static Benchmark> {
    let wanted = |benchmark: &&Benchmark| {
        names.is_empty() || names.iter().any(|name| name == benchmark.name)
    };
    BENCHMARKS.iter().filter(wanted)
}

fn measure(
    benchmark: &Benchmark,
    settings: &Settings,
    (machine, when): (&Machine, Option<&When>),
    args: &Args,
) -> anyhow::Result<Measured> {
    println!("\n=== {}: {}", benchmark.name, benchmark.about);
    let began = std::time::Instant::now();
    let before = load();
    let mut measured = (benchmark.run)(settings).with_context(|| benchmark.name.to_owned())?;
    let Measured::Ran(outcome) = &mut measured else {
        return Ok(measured);
    };
    (benchmark.hold)(outcome, settings);
    print!("{}", table::of_cells(&outcome.cells));
    for note in &outcome.notes {
        println!("- {note}");
    }
    println!("took {:.1?}", began.elapsed());
    let folder = if args.publish {
        Path::new(PUBLISHED)
    } else {
        args.out.as_path()
    };
    let file = workspace::root()
        .join(folder)
        .join(format!("{}.json", benchmark.name));
    let of = (benchmark.name, benchmark.about);
    let mut results = raw::Results::new(of, settings, (machine, [before, load()]), outcome);
    results.when = when.cloned();
    results.write(&file)?;
    Ok(measured)
}

/// Load average of the last minute.
fn load() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}
