//! Control groups: where the controllers are, and what groups below the root have.

use std::path::Path;

use brink_host::cgroup::{Controller, Hierarchy, Layout, Version};

use super::source::{Known, known};
use crate::config::AgentConfig;
use crate::equip::node_plan;
use crate::guard::files::{NodeFiles, NodePlan, Scope};

/// Control groups.
#[derive(Debug)]
pub struct Cgroups {
    /// Which hierarchy holds what.
    pub layout: Known<Layout>,
    /// Whether it is known that no control groups are mounted.
    pub is_unmounted: bool,
    /// Controllers that the v2 root hands on to the groups below it; none where there is no v2 tree.
    pub handed_on: Option<Known<Vec<Controller>>>,
    /// Whether a v2 group has `cgroup.kill`; none where no v2 group is to be seen.
    pub kill_file: Option<bool>,
    /// The group that is the node; none for the machine.
    pub node: Option<Named>,
    /// The group of all pods; none where it is not configured.
    pub pods: Option<Named>,
}

/// A group that the configuration names.
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
        is_unmounted: bool,
    ) -> Self {
        let plan = node_plan(config);
        let unified = layout.as_ref().ok().and_then(Layout::unified);
        let node = match &plan.scope {
            Scope::Machine => None,
            Scope::Group(group) => {
                let only = NodePlan {
                    scope: plan.scope.clone(),
                    pods: None,
                };
                Some(Named::read(root, &layout, group, &only))
            }
        };
        let pods = plan.pods.as_ref().map(|group| {
            let only = NodePlan {
                scope: Scope::Machine,
                pods: plan.pods.clone(),
            };
            Named::read(root, &layout, group, &only)
        });
        Self {
            handed_on: unified.map(|unified| handed_on(unified, "/")),
            is_unmounted,
            kill_file: unified.and_then(has_kill_file),
            node,
            pods,
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
