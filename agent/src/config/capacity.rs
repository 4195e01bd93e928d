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
        NodeScope::Cgroup(group) => memory_limit(root, group),
    };
    let pods = pods.and_then(|group| memory_limit(root, group));
    let own = match node {
        NodeScope::Machine => None,
        NodeScope::Cgroup(group) => tasks(root, group),
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

/// The memory limit of a group, in bytes.
fn memory_limit(root: &Path, group: &str) -> Option<u64> {
    let layout = Layout::detect(root).ok()?;
    let dir = CgroupDir::open(layout.hierarchy(Controller::Memory)?, group).ok()?;
    dir.memory_limit().ok()?.value()
}

/// The tightest limit of tasks from a group up to the root: which of them leaves the least is known only as the agent runs.
fn tasks(root: &Path, group: &str) -> Option<u64> {
    let layout = Layout::detect(root).ok()?;
    let hierarchy = layout.hierarchy(Controller::Pids)?;
    let names = hierarchy.upwards(group).into_iter();
    let dirs = names.map_while(|name| CgroupDir::open(hierarchy, &name).ok());
    // A group that no pids controller counts has no such file, and so no limit.
    let limits = dirs.filter_map(|dir| dir.pids_limit().ok());
    limits.fold(Limit::Unlimited, Limit::tighter).value()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::fake;

    /// A v2 tree with the groups `/a` and `/a/b`, and their limits of tasks where they have the controller.
    fn most_tasks(limits: [Option<&str>; 2]) -> Option<i64> {
        let root = tempfile::tempdir().unwrap();
        fake::mount_unified(root.path());
        fs::create_dir_all(root.path().join("sys/fs/cgroup/a/b")).unwrap();
        let files = [
            ("proc/sys/kernel/pid_max", Some("5000\n")),
            ("sys/fs/cgroup/a/pids.max", limits[0]),
            ("sys/fs/cgroup/a/b/pids.max", limits[1]),
        ];
        for (name, text) in files {
            if let Some(text) = text {
                fake::write(root.path(), name, text);
            }
        }
        let node = NodeScope::Cgroup("/a/b".to_owned());
        of_node(root.path(), &node, None)[Signal::PidAvailable]
    }

    #[test]
    fn the_tightest_limit_of_tasks_on_the_way_up_is_what_a_group_has() {
        for (limits, expected) in [
            ([None, None], 5000),
            ([Some("max\n"), Some("max\n")], 5000),
            ([Some("2000\n"), Some("max\n")], 2000),
            // The controller ends above the node.
            ([Some("2000\n"), None], 2000),
            ([Some("2000\n"), Some("300\n")], 300),
            ([Some("200\n"), Some("300\n")], 200),
        ] {
            assert_eq!(most_tasks(limits), Some(expected), "{limits:?}");
        }
    }
}
