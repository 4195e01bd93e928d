//! From bound workloads to a roster: every cgroup opened once and kept open for as long as it is the same one.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brink_core::node::workload::{Workload, WorkloadTable};
use brink_host::HostError;
use brink_host::cgroup::walk::groups_below;
use brink_host::cgroup::{Controller, Layout};
use brink_host::kill::pid_set::ProtectedPids;
use brink_host::process::ProcessInfo;

use super::bind::{Bound, bind};
use super::protect::{Essentials, Facts, select};
use crate::config::{CgroupRule, Selection};
use crate::guard::board::Board;
use crate::guard::roster::{Group, Member, Roster};
use crate::pod::Manifest;

/// Cgroups of one machine; more are a runaway, and counted as such.
const MOST_GROUPS: usize = 65_536;
/// Processes of a workload whose names are compared with the patterns.
const MOST_COMMANDS: usize = 64;

/// Makes rosters, and remembers what it opened for the last one.
#[derive(Debug)]
pub struct Builder {
    root: PathBuf,
    layout: Layout,
    /// Only cgroups below this one are workloads; the node, if it is a cgroup.
    scope: String,
    rules: Vec<CgroupRule>,
    selection: Selection,
    generation: u64,
    open: HashMap<String, Arc<Group>>,
    last: Option<Last>,
    changed: bool,
}

/// The last roster, to compare the next one with.
#[derive(Debug)]
struct Last {
    members: Vec<Member>,
    board: Arc<Board>,
    workloads: Vec<Workload>,
    protected: ProtectedPids,
}

/// A roster, and what went wrong on the way.
#[derive(Debug)]
pub struct Built {
    /// The roster.
    pub roster: Box<Roster>,
    /// One sentence each; a cgroup that went away meanwhile is none.
    pub troubles: Vec<String>,
}

impl Builder {
    /// A builder that has opened nothing yet.
    pub fn new(
        root: &Path,
        layout: Layout,
        scope: &str,
        rules: Vec<CgroupRule>,
        selection: Selection,
    ) -> Self {
        Self {
            root: root.to_path_buf(),
            layout,
            scope: scope.to_owned(),
            rules,
            selection,
            generation: 0,
            open: HashMap::new(),
            last: None,
            changed: false,
        }
    }

    /// Takes other rules over, from the next roster on.
    pub fn reconfigure(&mut self, rules: Vec<CgroupRule>, selection: Selection) {
        self.rules = rules;
        self.selection = selection;
    }

    /// Whether the last roster says anything that the one before did not.
    pub const fn changed(&self) -> bool {
        self.changed
    }

    /// Looks at the machine and makes a roster of what is there now.
    ///
    /// # Errors
    /// [`HostError`] when the cgroups or processes cannot be listed at all.
    pub fn build(&mut self, pods: &[Manifest]) -> Result<Built, HostError> {
        let hierarchy = self.layout.require(Controller::Memory)?;
        let groups = groups_below(hierarchy, &self.scope, MOST_GROUPS)?;
        let bound = bind(pods, &self.rules, &groups);
        let essentials = Essentials::find(&self.root, &self.layout)?;
        let mut troubles = Vec::new();
        let mut workloads = Vec::with_capacity(bound.len());
        let mut members = Vec::new();
        let mut open = HashMap::new();
        for bound in bound {
            let index = workloads.len();
            let groups = self.open_all(&bound, &groups, &mut open, &mut troubles);
            let mut workload = bound.workload;
            let facts = self.facts(&groups);
            select(
                &mut workload,
                &bound.groups,
                &facts,
                &essentials,
                &self.selection,
            );
            members.extend(groups.into_iter().map(|group| Member {
                workload: index,
                group,
            }));
            workloads.push(workload);
        }
        self.open = open;
        self.generation += 1;
        let table = WorkloadTable::new(workloads.clone(), self.generation);
        let roster = Roster::new(table, members, essentials.pids());
        if let Some(last) = &self.last {
            roster.inherit(&last.members, &last.board);
        }
        self.changed = self.last.as_ref().is_none_or(|last| {
            last.workloads != workloads
                || ids(&last.members) != ids(&roster.members)
                || last.protected != roster.protected
        });
        self.last = Some(Last {
            members: roster.members.clone(),
            board: Arc::clone(&roster.board),
            workloads,
            protected: roster.protected.clone(),
        });
        Ok(Built {
            roster: Box::new(roster),
            troubles,
        })
    }

    /// Opens the cgroups of a workload, or finds them open from the last time.
    fn open_all(
        &self,
        bound: &Bound,
        all: &[String],
        open: &mut HashMap<String, Arc<Group>>,
        troubles: &mut Vec<String>,
    ) -> Vec<Arc<Group>> {
        let mut opened = Vec::new();
        for path in &bound.groups {
            let known = self.open.get(path).filter(|group| {
                group.target.dir().is_alive() && group.family.len() == size_of_family(path, all)
            });
            let group = match known {
                Some(group) => Ok(Arc::clone(group)),
                None => Group::open(&self.layout, path).map(Arc::new),
            };
            match group {
                Ok(group) => {
                    open.insert(path.clone(), Arc::clone(&group));
                    opened.push(group);
                }
                Err(error) if error.errno() == Some(libc::ENOENT) => {}
                Err(error) => troubles.push(error.to_string()),
            }
        }
        opened
    }

    /// Whether any pattern may be about a command's name.
    fn names_commands(&self) -> bool {
        let Selection {
            prefer,
            avoid,
            ignore,
            ..
        } = &self.selection;
        [prefer, avoid, ignore]
            .into_iter()
            .any(|patterns| !patterns.is_empty())
    }

    fn facts(&self, groups: &[Arc<Group>]) -> Facts {
        let mut facts = Facts::default();
        for group in groups {
            let dir = group.target.dir();
            if let Ok(wish) = dir.preference() {
                facts.owners_wish = Some(facts.owners_wish.map_or(wish, |other| other.min(wish)));
            }
            if self.names_commands() {
                let pids = dir.processes().unwrap_or_default();
                let names = pids
                    .into_iter()
                    .take(MOST_COMMANDS)
                    .filter_map(|pid| Some(ProcessInfo::read(&self.root, pid).ok()??.name));
                facts.commands.extend(names);
            }
        }
        facts
    }
}

/// What each member is bound to.
fn ids(members: &[Member]) -> Vec<(usize, u64)> {
    members
        .iter()
        .map(|member| (member.workload, member.group.target.id().0))
        .collect()
}

/// How many of `all` are the cgroup at `path` or below it.
fn size_of_family(path: &str, all: &[String]) -> usize {
    let below = |group: &&String| {
        group
            .strip_prefix(path)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    all.iter().filter(below).count()
}
