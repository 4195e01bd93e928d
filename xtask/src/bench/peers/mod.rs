//! `cargo xtask bench --peers`: the same loads under Brink, under what users install today, and under nothing at all.
pub mod contender;
mod disk;
mod guests;
pub mod inside;
pub mod kubelet;
mod plan;
pub mod wire;
pub mod workload;

use std::{fs, path::Path, time::Duration};

use anyhow::Context as _;

use self::{contender::Contender, workload::Workload};
use super::registry::Settings;
use crate::{
    Verdict,
    vm::{Series, errand::Depot},
    workspace,
};

/// Compares.
///
/// # Errors
/// When the guests or the tools cannot be had.
pub fn run(settings: &Settings, out: &Path) -> anyhow::Result<Verdict> {
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
    let runs = plan::plan(&Contender::ALL, workloads, rounds, settings.seed);
    let most = Duration::from_mins(if settings.short { 3 } else { 40 });
    let results = guests::run(&depot, &disk, &runs, most)?;
    let folder = workspace::root().join(out);
    fs::create_dir_all(&folder)?;
    let file = folder.join("peers.json");
    fs::write(&file, serde_json::to_string(&results.found)?)
        .with_context(|| format!("writing {}", file.display()))?;
    Ok(Verdict::Passed)
}
