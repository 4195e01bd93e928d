//! What the guard is equipped with on this machine: its node, rosters, kernel programs, the killer, and why something is not there.

use std::path::Path;

use brink_core::node::signal::Signal;
use brink_host::HostError;
use brink_host::cgroup::Layout;
use brink_host::kill::{Killer, ReleaseConfig, ReleasePool};
use brink_host::probe::{Coverage, Facts, Family, Probe, Roots, Wishes, coverage};
use brink_host::realtime::FifoPriority;

use crate::backend::build::Builder;
use crate::config::{AgentConfig, NodeScope, capacities_of};
use crate::guard::files::{NodePlan, Scope};
use crate::storage::owned::Places;

/// The node as the guard reads it.
pub fn node_plan(config: &AgentConfig) -> NodePlan {
    NodePlan {
        scope: match &config.node {
            NodeScope::Machine => Scope::Machine,
            NodeScope::Cgroup(group) => Scope::Group(group.clone()),
        },
        pods: config.pods(),
    }
}

/// What makes rosters of the node's workloads.
pub fn builder(config: &AgentConfig, layout: &Layout) -> Builder {
    let root = &config.paths.root;
    let scope = config.node.group();
    let rules = config.workloads.cgroups.clone();
    let capacity = capacities_of(config)[Signal::MemoryAvailable].unwrap_or(0);
    Builder::new(root, layout.clone(), scope, rules, config.selection.clone())
        .with_pods_in(config.pods())
        .with_capacity(capacity)
        .with_places(Places::new(root, &config.storage))
}

/// Loads the programs. Single ones may be absent all the same: the probe's coverage tells.
///
/// # Errors
/// Why none of them can run here, in one sentence.
pub fn probe(root: &Path, wishes: Wishes) -> Result<Probe, String> {
    let roots = Roots {
        proc: root.join("proc"),
        sys: root.join("sys"),
    };
    let facts = Facts::gather(&roots);
    // Where none can run, what keeps them from it says more than the first map that cannot be made.
    runs_any(&coverage::decide(&facts, &wishes))?;
    let probe = Probe::load(&facts, &coverage::settings(&facts, wishes));
    let probe = probe.map_err(|error| error.to_string())?;
    runs_any(probe.coverage())?;
    Ok(probe)
}

/// Why no program runs, or could.
fn runs_any(coverage: &Coverage) -> Result<(), String> {
    if coverage.programs().any(|(_, state)| state.is_ok()) {
        return Ok(());
    }
    let why = coverage.absences().next().map(|(_, why)| why.to_string());
    Err(why.unwrap_or_else(|| "there are no programs to load".to_owned()))
}

/// Why the sampler cannot serve; none if it can.
pub fn without_sampler(probe: &Probe) -> Option<String> {
    let mut absences = probe.coverage().absences();
    let (program, why) = absences.find(|(program, _)| program.family == Family::Sampler)?;
    Some(format!("{}: {why}", program.name))
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
