//! Control groups: where the controllers are, and what groups below the root have.

use std::path::Path;

use brink_host::HostError;
use brink_host::cgroup::{Controller, Hierarchy, Layout, Version};

use super::source::{Known, known};
use crate::config::AgentConfig;
use crate::equip::node_plan;
use crate::guard::files::{NodeFiles, NodePlan, Scope};
use crate::guard::pods::PodsGroup;

/// Control groups.
#[derive(Debug)]
pub struct Cgroups {
    /// Which hierarchy holds what.
    pub layout: Known<Layout>,
    /// What keeps it from being known, where it is not.
    pub obstacle: Option<Obstacle>,
    /// Controllers that the v2 root hands on to the groups below it; none where there is no v2 tree.
    pub handed_on: Option<Known<Vec<Controller>>>,
    /// Whether a v2 group has `cgroup.kill`; none where no v2 group is to be seen.
    pub kill_file: Option<bool>,
    /// The group that is the node; none for the machine.
    pub node: Option<Named>,
    /// The group of all pods; none where it is not configured, and no kubelet has made one.
    pub pods: Option<Named>,
    /// Whether that is a kubelet's, which is looked for as nobody has named one.
    pub pods_are_sought: bool,
    /// Others in which a kubelet may have its pods, and that are not taken.
    pub other_pods: Vec<String>,
}

/// What keeps a layout from being known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// No control groups are mounted.
    Unmounted,
    /// They are mounted from above our cgroup namespace, and nothing says which is ours.
    OtherNamespace,
    /// A file that tells of them cannot be read.
    Unread,
}

impl Obstacle {
    /// Which it is, by the error.
    pub const fn of(error: &HostError) -> Self {
        match error {
            HostError::Unsupported { .. } => Self::Unmounted,
            HostError::OtherNamespace { .. } => Self::OtherNamespace,
            _ => Self::Unread,
        }
    }
}

/// A group that the configuration names, or a kubelet's.
#[derive(Debug)]
pub struct Named {
    /// Its path.
    pub group: String,
    /// Why the guard cannot read it.
    pub readable: Known<()>,
    /// Whether the groups below it have memory figures; on v1 all have.
    pub hands_on: Known<bool>,
}

impl Cgroups {
    /// Reads what a layout under a root offers.
    pub fn read(
        root: &Path,
        config: &AgentConfig,
        layout: Known<Layout>,
        obstacle: Option<Obstacle>,
    ) -> Self {
        let plan = node_plan(config);
        let unified = layout.as_ref().ok().and_then(Layout::unified);
        let node = match &plan.scope {
            Scope::Machine => None,
            Scope::Group(group) => {
                let only = NodePlan {
                    scope: plan.scope.clone(),
                    ..NodePlan::default()
                };
                Some(Named::read(root, &layout, group, &only))
            }
        };
        let find = |layout: &Layout| plan.pods.find(layout, plan.scope.group());
        let found = layout.as_ref().ok().and_then(find);
        let group = found.as_ref().map(|found| found.group.as_str());
        // One that is named is told of even where there are no groups at all.
        let pods = group.or(plan.pods.named()).map(|group| {
            let only = NodePlan {
                scope: Scope::Machine,
                pods: PodsGroup::Named(group.to_owned()),
            };
            Named::read(root, &layout, group, &only)
        });
        Self {
            handed_on: unified.map(|unified| handed_on(unified, "/")),
            obstacle,
            kill_file: unified.and_then(has_kill_file),
            node,
            pods,
            pods_are_sought: plan.pods == PodsGroup::Kubelets,
            other_pods: found.map_or_else(Vec::new, |found| found.others),
            layout,
        }
    }

    /// The hierarchy of the memory controller.
    pub fn memory(&self) -> Option<&Hierarchy> {
        self.layout.as_ref().ok()?.hierarchy(Controller::Memory)
    }

    /// Whether groups are killed through the v2 tree.
    pub fn memory_is_v2(&self) -> bool {
        self.memory()
            .is_some_and(|hierarchy| hierarchy.version == Version::V2)
    }
}

impl Named {
    fn read(root: &Path, layout: &Known<Layout>, group: &str, plan: &NodePlan) -> Self {
        let open = |layout: &Layout| known(NodeFiles::open(root, layout, plan)).map(drop);
        Self {
            group: group.to_owned(),
            readable: layout.as_ref().map_err(Clone::clone).and_then(open),
            hands_on: layout
                .as_ref()
                .map_err(Clone::clone)
                .and_then(|layout| hands_on(layout, group)),
        }
    }
}

fn hands_on(layout: &Layout, group: &str) -> Known<bool> {
    let hierarchy = known(layout.require(Controller::Memory))?;
    match hierarchy.version {
        Version::V1 => Ok(true),
        Version::V2 => Ok(handed_on(hierarchy, group)?.contains(&Controller::Memory)),
    }
}

/// What a v2 group hands on to the groups below it.
fn handed_on(unified: &Hierarchy, group: &str) -> Known<Vec<Controller>> {
    let folder = unified
        .folder(group)
        .ok_or_else(|| format!("{group} is not to be seen below {}", unified.path.display()))?;
    let path = folder.join("cgroup.subtree_control");
    let text =
        std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let listed = |controller: &Controller| {
        text.split_whitespace()
            .any(|word| word == controller.name())
    };
    Ok(Controller::ALL.into_iter().filter(listed).collect())
}

/// The root itself has none, so the first group below it is asked.
fn has_kill_file(unified: &Hierarchy) -> Option<bool> {
    let mut entries = std::fs::read_dir(&unified.path).ok()?.flatten();
    let group = entries.find(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))?;
    Some(group.path().join("cgroup.kill").exists())
}
