//! `cargo xtask bench --peers`: the same loads under Brink, under what users install today, and under nothing at all.
pub mod contender;
mod disk;
mod emulation;
mod guests;
mod host;
pub mod inside;
mod judge;
pub mod kubelet;
mod limits;
pub(super) mod page;
mod plan;
mod plot;
mod report;
mod tables;
pub mod wire;
pub mod workload;

use std::{fs, path::Path, time::Duration};

use anyhow::Context as _;

use self::{
    plan::Form,
    report::{Guests, Host, Report},
    wire::Run,
};
use super::{
    Args,
    machine::Machine,
    measure::warm_up,
    registry::{Limit, Measured, Outcome, Settings},
    table,
    told::Told,
};
use crate::{
    Verdict,
    vm::{
        Series,
        errand::{Depot, Peers},
    },
    when::When,
    workspace,
};

/// The name of what is compared without guests.
const MACHINE: &str = "machine";
/// Guests of the full form side by side.
const BESIDE: usize = 2;
/// No run begins later than this, in minutes: short and full. There is room for a slow machine, for a run that is not
/// begun misses a figure.
const MINUTES: [u64; 2] = [8, 80];

/// Compares, and writes the raw values and the page.
///
/// # Errors
/// When the guests or the tools cannot be had, or names leave nothing that could be checked.
pub fn run(settings: &Settings, args: &Args) -> anyhow::Result<Verdict> {
    let is_machine_alone = args.names == [MACHINE];
    let form = Form::whole(settings.short);
    let form = if is_machine_alone {
        form
    } else {
        form.named(&args.names)?
    };
    let is_root = rustix::process::geteuid().is_root();
    let is_with_machine = is_machine_alone || args.names.is_empty() && !settings.short;
    anyhow::ensure!(
        is_root || !(args.publish || args.check && is_with_machine),
        "needs root: what is to be published or checked has this machine in it"
    );
    let plan = form.plan(settings.seed);
    // Nothing is missed where nothing is held, and that would look like a pass.
    anyhow::ensure!(
        !args.check || is_with_machine || limits::is_any_planned(&plan),
        "`--check` holds Brink to its figures, and these names leave no run of it: {}; name Brink too, or leave `--check` out",
        args.names.join(", ")
    );
    // What cannot be kept afterwards is told before.
    let when = args.publish.then(When::now).transpose()?;
    // Without it there would be no guests behind the build and what is measured on the machine.
    if !is_machine_alone {
        disk::mke2fs()?;
    }
    let depot = Depot::open(Series::V6_12)?;
    let peers = depot.peers();
    println!("compared with: {:?}", peers.versions);
    let host = if is_with_machine {
        on_host(settings, peers)?
    } else {
        None
    };
    let guests = if is_machine_alone {
        Guests::default()
    } else {
        in_guests((settings, args), plan, (&depot, peers))?
    };
    let versions = peers.versions.clone();
    let mut report = Report::new((settings.seed, settings.short), versions, guests, host);
    report.when = when;
    let folder = if args.publish {
        workspace::root().join(page::FOLDER)
    } else {
        workspace::root().join(&args.out)
    };
    page::write(&folder, &report)?;
    if args.publish {
        page::publish(workspace::root())?;
    }
    println!(
        "\n{}\n{}",
        tables::of_tools(&report),
        tables::of_loads(&report)
    );
    print!("{}", tables::of_machine(&report).unwrap_or_default());
    verdict(limits::of(&report), args)
}

fn verdict(limits: Vec<Limit>, args: &Args) -> anyhow::Result<Verdict> {
    let outcome = Outcome {
        limits,
        ..Outcome::default()
    };
    let measured = [("peers", Measured::Ran(outcome))];
    print!("\n{}", table::of_limits(&measured));
    let told = Told::of(&measured);
    told.write(&args.out)?;
    Ok(Verdict::from_holds(told.missed.is_empty() || !args.check))
}

fn on_host(settings: &Settings, peers: &Peers) -> anyhow::Result<Option<Host>> {
    if !rustix::process::geteuid().is_root() {
        println!("not compared on this machine: needs root");
        return Ok(None);
    }
    println!("{}", warm_up::warm_up(settings.short)?);
    let machine = Machine::read(Path::new("/"));
    let before = load();
    let runs = host::run(settings, peers)?;
    Ok(Some(Host {
        machine,
        load: [before, load()],
        planned: host::planned(settings.short),
        made_again: Some(runs.made_again),
        trials: runs.trials,
    }))
}

fn in_guests(
    (settings, args): (&Settings, &Args),
    plan: Vec<Run>,
    (depot, peers): (&Depot, &Peers),
) -> anyhow::Result<Guests> {
    let disk = disk::write(depot, peers)?;
    let [short, full] = MINUTES;
    let usual = if settings.short { short } else { full };
    let most = Duration::from_mins(args.minutes.unwrap_or(usual));
    let beside = if settings.short { 1 } else { BESIDE };
    let results = guests::run((depot, &disk), &plan, (beside, most))?;
    Ok(Guests {
        machine: results.machine,
        count: results.guests,
        rates: results.rates,
        planned: plan.len(),
        plan,
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
