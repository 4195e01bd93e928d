//! `cargo xtask bench --peers`: the same loads under Brink, under what users install today, and under nothing at all.
pub mod contender;
mod disk;
mod guests;
pub mod inside;
pub mod kubelet;
mod plan;
pub mod wire;
pub mod workload;

use std::{fs, time::Duration};

use anyhow::Context as _;

use self::{contender::Contender, workload::Workload};
use super::{Args, registry::Settings};
use crate::{
    Verdict,
    vm::{Series, errand::Depot},
    workspace,
};

/// Compares.
///
/// # Errors
/// When the guests or the tools cannot be had.
pub fn run(settings: &Settings, args: &Args) -> anyhow::Result<Verdict> {
    let mut depot = Depot::open(Series::V6_12)?;
    let peers = depot.peers()?;
    println!("peers: {:?}", peers.versions);
    let disk = disk::write(&depot, &peers)?;
    let workloads = if settings.short {
        &Workload::SHORT[..]
    } else {
        &Workload::FULL[..]
    };
    let rounds = settings.runs(1, 4);
    let contenders = chosen(&Contender::ALL, |each| each.word().to_owned(), &args.names);
    let workloads = chosen(workloads, |each| each.word(), &args.names);
    let runs = plan::plan(&contenders, &workloads, rounds, settings.seed);
    let most = Duration::from_mins(if settings.short { 3 } else { 40 });
    let results = guests::run(&depot, &disk, &runs, most)?;
    let folder = workspace::root().join(&args.out);
    fs::create_dir_all(&folder)?;
    let file = folder.join("peers.json");
    fs::write(&file, serde_json::to_string(&results.found)?)
        .with_context(|| format!("writing {}", file.display()))?;
    Ok(Verdict::Passed)
}

/// Those whose names have one of these words in them; all of them, if that is none.
fn chosen<T: Copy>(all: &[T], word: impl Fn(&T) -> String, names: &[String]) -> Vec<T> {
    let is_named = |each: &&T| {
        let word = word(each).to_lowercase();
        names.iter().any(|name| word.contains(&name.to_lowercase()))
    };
    let named: Vec<T> = all.iter().filter(is_named).copied().collect();
    if named.is_empty() { all.to_vec() } else { named }
}
