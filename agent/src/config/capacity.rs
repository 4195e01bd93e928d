//! How much this machine has of each signal, as far as it can be told in advance.

use std::path::Path;

use brink_core::node::policy::Capacities;
use brink_core::node::signal::Signal;
use brink_host::cgroup::{CgroupDir, Controller, Layout, Limit};
use brink_host::meminfo::MeminfoReader;
use brink_host::pid_limits::PidLimits;

use super::settings::{AgentConfig, NodeScope};

/// Those of the node that an agent with this configuration watches over.
pub fn of_agent(config: &AgentConfig) -> Capacities {
    let pods = config.pods_cgroup.as_deref();
    of_node(&config.paths.root, &config.node, pods)
}

/// The capacities of the node under a root. What cannot be read is unknown.
pub(super) fn of_node(root: &Path, node: &NodeScope, pods: Option<&str>) -> Capacities {
    let memory = match node {
        NodeScope::Machine => total_memory(root),
        NodeScope::Cgroup(group) => limit(root, Controller::Memory, group),
    };
    let pods = pods.and_then(|group| limit(root, Controller::Memory, group));
    let own = match node {
        NodeScope::Machine => None,
        NodeScope::Cgroup(group) => limit(root, Controller::Pids, group),
    };
    let processes = own.or_else(|| PidLimits::read(root).effective());
    let signed = |amount: Option<u64>| amount.and_then(|amount| i64::try_from(amount).ok());
    Capacities::from_fn(|signal| match signal {
        Signal::MemoryAvailable | Signal::MemoryHeadroom => signed(memory),
        Signal::AllocatableMemoryAvailable => signed(pods),
        Signal::PidAvailable => signed(processes),
        _ => None,
    })
}

fn total_memory(root: &Path) -> Option<u64> {
    let reader = MeminfoReader::open(root).ok()?;
    Some(reader.read().ok()?.total)
}

/// The limit of a group for memory, in bytes, or for tasks.
fn limit(root: &Path, of: Controller, group: &str) -> Option<u64> {
    let layout = Layout::detect(root).ok()?;
    let dir = CgroupDir::open(layout.hierarchy(of)?, group).ok()?;
    let limit = match of {
        Controller::Pids => dir.pids_limit(),
        _ => dir.memory_limit(),
    };
    match limit.ok()? {
        Limit::At(amount) => Some(amount),
        Limit::Unlimited => None,
    }
}
