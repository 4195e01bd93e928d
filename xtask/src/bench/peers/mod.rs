//! `cargo xtask bench --peers`: the same loads under Brink, under what users install today, and under nothing at all.
pub mod contender;
mod disk;
mod guests;
mod host;
pub mod inside;
mod judge;
pub mod kubelet;
mod limits;
mod page;
mod plan;
mod plot;
mod report;
pub mod wire;
pub mod workload;

use std::{fs, path::Path, time::Duration};

use anyhow::Context as _;

use self::{
    contender::Contender,
    report::{Guests, Host, Report},
    workload::Workload,
};
use super::{
    Args,
    machine::Machine,
    measure::warm_up,
    misses,
    registry::{Limit, Measured, Outcome, Settings},
    table,
};
use crate::{
    Verdict,
    vm::{
        Series,
        errand::{Depot, Peers},
    },
    workspace,
};

/// The name of what is compared without guests.
const MACHINE: &str = "machine";
/// Guests of the full form side by side.
const BESIDE: usize = 2;
/// No run begins later than this, in minutes: short and full.
const MINUTES: [u64; 2] = [4, 40];

/// Compares, and writes the raw values and the page.
///
/// # Errors
/// When the guests or the tools cannot be had.
pub fn run(settings: &Settings, args: &Args) -> anyhow::Result<Verdict> {
    let depot = Depot::open(Series::V6_12)?;
    let peers = depot.peers();
    println!("compared with: {:?}", peers.versions);
    let is_machine_alone = args.names.iter().any(|name| name == MACHINE);
    let host = if is_machine_alone || args.names.is_empty() && !settings.short {
        on_host(settings, peers)?
    } else {
        None
    };
    let guests = if is_machine_alone {
        Guests::default()
    } else {
        in_guests(settings, args, (&depot, peers))?
    };
    let versions = peers.versions.clone();
    let report = Report::new((settings.seed, settings.short), versions, guests, host);
    let folder = if args.publish {
        workspace::root().join(page::FOLDER)
    } else {
        workspace::root().join(&args.out)
    };
    page::write(&folder, &report)?;
    if args.publish {
        page::publish(workspace::root())?;
    }
    println!("\n{}\n{}", report.tools(), report.loads());
    print!("{}", report.on_host().unwrap_or_default());
    verdict(limits::of(&report), args)
}

fn verdict(limits: Vec<Limit>, args: &Args) -> anyhow::Result<Verdict> {
    let missed = limits.iter().filter(|limit| !limit.is_reached());
    let missed: Vec<String> = missed.map(table::of_limit).collect();
    let outcome = Outcome {
        limits,
        ..Outcome::default()
    };
    print!(
        "\n{}",
        table::of_limits(&[("peers", Measured::Ran(outcome))])
    );
    misses::write(&args.out, &missed)?;
    Ok(Verdict::from_holds(missed.is_empty() || !args.check))
}

fn on_host(settings: &Settings, peers: &Peers) -> anyhow::Result<Option<Host>> {
    if !rustix::process::geteuid().is_root() {
        println!("not compared on this machine: needs root");
        return Ok(None);
    }
    println!("{}", warm_up::warm_up(settings.short)?);
    let machine = Machine::read(Path::new("/"));
    let before = load();
    let trials = host::run(settings, peers)?;
    Ok(Some(Host {
        machine,
        load: [before, load()],
        trials,
    }))
}

fn in_guests(
    settings: &Settings,
    args: &Args,
    (depot, peers): (&Depot, &Peers),
) -> anyhow::Result<Guests> {
    let disk = disk::write(depot, peers)?;
    let workloads = if settings.short {
        &Workload::SHORT[..]
    } else {
        &Workload::FULL[..]
    };
    let rounds = settings.runs(1, 4);
    let contenders = if settings.short {
        &Contender::SHORT[..]
    } else {
        &Contender::ALL[..]
    };
    let contenders = chosen(contenders, |each| each.word().to_owned(), &args.names);
    let workloads = chosen(workloads, |each| each.word(), &args.names);
    let runs = plan::plan(&contenders, &workloads, rounds, settings.seed);
    let [short, full] = MINUTES;
    let usual = if settings.short { short } else { full };
    let most = Duration::from_mins(args.minutes.unwrap_or(usual));
    let beside = if settings.short { 1 } else { BESIDE };
    let results = guests::run((depot, &disk), &runs, (beside, most))?;
    Ok(Guests {
        machine: results.machine,
        count: results.guests,
        rates: results.rates,
        planned: runs.len(),
        failed: results.failed,
        runs: results.found,
    })
}

/// Load average of the last minute.
fn load() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg")
        .context("loadavg")
        .ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Those whose names have one of these words in them; all of them, if that is none.
fn chosen<T: Copy>(all: &[T], word: impl Fn(&T) -> String, names: &[String]) -> Vec<T> {
    let is_named = |each: &&T| {
        let word = word(each).to_lowercase();
        names.iter().any(|name| word.contains(&name.to_lowercase()))
    };
    let found: Vec<T> = all.iter().filter(is_named).copied().collect();
    if found.is_empty() {
        all.to_vec()
    } else {
        found
    }
}
