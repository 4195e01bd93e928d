//! How much this machine has of each signal, as far as it can be told in advance.

use std::path::Path;

use brink_core::node::policy::{Capacities, Draft};
use brink_core::node::signal::Signal;
use brink_host::cgroup::{CgroupDir, Controller, Layout, Limit};
use brink_host::meminfo::MeminfoReader;
use brink_host::pid_limits::PidLimits;

use super::disks::look;
use super::settings::{AgentConfig, Filesystems, NodeScope};
use crate::disks::discover::Discovery;
use crate::guard::disks::Role;
use crate::guard::pods::PodsGroup;

/// Those of the node that an agent with this configuration watches over.
pub fn of_agent(config: &AgentConfig) -> Capacities {
    of_node(&config.paths.root, &config.node, &config.pods())
}

/// The capacities of the node under a root. What cannot be read is unknown.
pub(super) fn of_node(root: &Path, node: &NodeScope, pods: &PodsGroup) -> Capacities {
    let memory = match node {
        NodeScope::Machine => total_memory(root),
        NodeScope::Cgroup(group) => memory_limit(root, group),
    };
    let pods = memory_of_pods(root, node, pods);
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

/// Adds the sizes of filesystems that a draft has an amount for. Where images and layers lie is known only where it is configured:
/// the container runtime is not asked.
pub(super) fn add_disks(
    capacities: &mut Capacities,
    draft: &Draft,
    root: &Path,
    filesystems: &Filesystems,
) {
    let asked = Role::ALL.map(|role| has_amount(draft, role));
    if asked == [false; 3] {
        return;
    }
    let mut discovery = Discovery::new(root.to_path_buf(), filesystems.clone());
    if asked[Role::Nodefs as usize] && discovery.follows_kubelet() {
        let _whether_it_runs = discovery.find_kubelet();
    }
    for (role, folder) in Role::ALL.into_iter().zip(discovery.folders()) {
        let folder = folder.filter(|_| asked[role as usize]);
        let Some(Ok(found)) = folder.and_then(look) else {
            continue;
        };
        // A threshold on such a one is never met.
        if found.read_only || found.capacity == 0 {
            continue;
        }
        let [bytes, inodes] = role.signals();
        capacities[bytes] = i64::try_from(found.capacity).ok();
        let total = found.inodes.map(|inodes| inodes.total);
        capacities[inodes] = total.and_then(|total| i64::try_from(total).ok());
    }
}

/// Whether an amount is written for a filesystem. Percentages are the same of any size.
fn has_amount(draft: &Draft, role: Role) -> bool {
    let maps = [
        &draft.eviction_hard,
        &draft.eviction_soft,
        &draft.eviction_minimum_reclaim,
    ];
    let mut written = maps.into_iter().flatten().flatten();
    written.any(|(signal, text)| {
        Signal::named(signal).and_then(Role::of) == Some(role) && !text.ends_with('%')
    })
}

fn total_memory(root: &Path) -> Option<u64> {
    let reader = MeminfoReader::open(root).ok()?;
    Some(reader.read().ok()?.total)
}

/// The memory limit of the group all pods live in, in bytes.
fn memory_of_pods(root: &Path, node: &NodeScope, pods: &PodsGroup) -> Option<u64> {
    let layout = Layout::detect(root).ok()?;
    limit_in(&layout, &pods.find(&layout, node.group())?.group)
}

/// The memory limit of a group, in bytes.
fn memory_limit(root: &Path, group: &str) -> Option<u64> {
    limit_in(&Layout::detect(root).ok()?, group)
}

fn limit_in(layout: &Layout, group: &str) -> Option<u64> {
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

    use brink_host::disk::Filesystem;

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
        of_node(root.path(), &node, &PodsGroup::None)[Signal::PidAvailable]
    }

    #[test]
    fn a_filesystem_is_measured_where_an_amount_is_written_for_it() {
        let root = tempfile::tempdir().unwrap();
        let size = |signal: &str, value: &str| {
            let hard = [(signal.to_owned(), value.to_owned())];
            let draft = Draft {
                eviction_hard: Some(hard.into()),
                ..Draft::default()
            };
            let filesystems = Filesystems {
                nodefs: Some("/".into()),
                ..Filesystems::default()
            };
            let mut capacities = Capacities::from_fn(|_| None);
            add_disks(&mut capacities, &draft, root.path(), &filesystems);
            capacities[Signal::NodefsAvailable]
        };
        let expected = Filesystem::read(root.path()).unwrap().capacity;
        assert_eq!(
            size("nodefs.inodesFree", "1k"),
            i64::try_from(expected).ok()
        );
        assert_eq!(size("nodefs.available", "10%"), None);
        assert_eq!(size("memory.available", "1Gi"), None);
        assert_eq!(
            size("imagefs.available", "1Gi"),
            None,
            "nobody says where images lie"
        );
    }

    #[test]
    fn the_pods_have_the_limit_of_the_group_that_is_named_or_found() {
        let root = tempfile::tempdir().unwrap();
        fake::mount_unified(root.path());
        let capacity = |pods: &PodsGroup| {
            of_node(root.path(), &NodeScope::Machine, pods)[Signal::AllocatableMemoryAvailable]
        };
        assert_eq!(capacity(&PodsGroup::Kubelets), None, "there is no kubelet");
        for (group, limit) in [("kubepods", "3000\n"), ("pods", "2000\n")] {
            fake::write(
                root.path(),
                &format!("sys/fs/cgroup/{group}/memory.max"),
                limit,
            );
        }
        let named = PodsGroup::Named("/pods".to_owned());
        for (pods, expected) in [
            (PodsGroup::Kubelets, Some(3000)),
            (named, Some(2000)),
            (PodsGroup::None, None),
        ] {
            assert_eq!(capacity(&pods), expected, "{pods:?}");
        }
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
