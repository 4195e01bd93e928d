//! What the guard is equipped with on this machine: kernel programs, the killer, and why something is not there.

use std::path::Path;

use brink_host::HostError;
use brink_host::cgroup::Layout;
use brink_host::kill::{Killer, ReleaseConfig, ReleasePool};
use brink_host::probe::{Facts, Family, Probe, Roots, Wishes, coverage};
use brink_host::realtime::FifoPriority;

/// Loads the programs; an error says in one sentence why the sampler cannot serve here. Programs of
/// other families may be absent all the same: the probe's coverage tells.
///
/// # Errors
/// Why the sampler cannot serve.
pub fn probe(root: &Path, wishes: Wishes) -> Result<Probe, String> {
    let roots = Roots {
        proc: root.join("proc"),
        sys: root.join("sys"),
    };
    let facts = Facts::gather(&roots);
    let probe = Probe::load(&facts, &coverage::settings(&facts, wishes));
    let probe = probe.map_err(|error| error.to_string())?;
    let sampler = probe
        .coverage()
        .absences()
        .find(|(program, _)| program.family == Family::Sampler);
    let missing = sampler.map(|(program, why)| format!("{}: {why}", program.name));
    missing.map_or(Ok(probe), Err)
}

/// A killer whose victims' memory is given back early by a small pool.
///
/// # Errors
/// [`HostError`] when a hierarchy cannot be opened or a thread not be started.
pub fn killer(
    root: &Path,
    layout: &Layout,
    realtime: bool,
    move_to_root: bool,
) -> Result<Killer, HostError> {
    let config = ReleaseConfig {
        priority: realtime.then_some(FifoPriority::RELEASE),
        may_move: move_to_root,
        root: root.to_path_buf(),
        ..ReleaseConfig::default()
    };
    let pool = ReleasePool::start(&config, layout)?;
    Killer::new(layout, Some(pool))
}
