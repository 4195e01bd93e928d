//! From bound workloads to a roster: every cgroup opened once and kept open for as long as it is the same one.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brink_core::node::oom_score::Score;
use brink_core::node::workload::{Protection, Workload, WorkloadTable, full_name};
use brink_host::HostError;
use brink_host::cgroup::layout::Hierarchy;
use brink_host::cgroup::pod::PodRoots;
use brink_host::cgroup::walk::groups_below;
use brink_host::cgroup::{Controller, Layout};
use brink_host::kill::pid_set::ProtectedPids;
use tracing::warn;

use super::bind::{bind, is_outside};
use super::facts::{Known, Look};
use super::parts::{Judge, Judged, Parts};
use super::protect::{Essentials, heed, select};
use crate::config::{CgroupRule, Selection};
use crate::disks::discover::folder_of;
use crate::guard::board::Board;
use crate::guard::pods::PodsGroup;
use crate::guard::roster::{Group, Member, Roster};
use crate::guard::storage::Disks;
use crate::oom_scores::{Audited, Of, expect};
use crate::pod::Manifest;
use crate::storage::owned::{Owned, Places};

/// Cgroups of one machine; more are a runaway, and counted as such.
const MOST_GROUPS: usize = 65_536;

/// Makes rosters, and remembers what it opened for the last one.
#[derive(Debug)]
pub struct Builder {
    root: PathBuf,
    layout: Layout,
    /// Only cgroups below this one are workloads; the node, if it is a cgroup.
    scope: String,
    roots: PodRoots,
    /// The group all pods live in.
    pods: PodsGroup,
    /// The node's memory, bytes; 0 where it is not known.
    capacity: i64,
    rules: Vec<CgroupRule>,
    selection: Selection,
    /// Where workloads keep their files.
    places: Places,
    generation: u64,
    open: HashMap<String, Arc<Group>>,
    /// What was read of each cgroup, for when it cannot be read.
    known: Known,
    /// The families of the last look, each the paths of a cgroup and of all below it; none where it has failed.
    families: Option<Vec<Vec<String>>>,
    /// What was found out of the cgroups of pods.
    judged: Judged,
    /// What was said of the last roster.
    said: BTreeSet<String>,
    /// What was said of its pods' annotations.
    remarked: BTreeSet<String>,
    last: Option<Last>,
    changed: bool,
    /// The processes the node cannot do without, as of the last look at all processes.
    essentials: Option<Essentials>,
}

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// Cgroups and processes.
    All,
    /// Cgroups, and processes only if one that was essential at the last look is gone or has another name.
    Cgroups,
}

/// The last roster, to compare the next one with.
#[derive(Debug)]
struct Last {
    members: Vec<Member>,
    board: Arc<Board>,
    workloads: Vec<Workload>,
    left_alone: Vec<Vec<String>>,
    pods_group: Option<String>,
    protected: ProtectedPids,
    scores: Vec<Expected>,
    owned: Arc<[Owned]>,
    disks: Arc<Disks>,
}

impl Last {
    fn of(roster: &Roster, workloads: Vec<Workload>) -> Self {
        Self {
            members: roster.members.clone(),
            board: Arc::clone(&roster.board),
            workloads,
            left_alone: roster.left_alone.clone(),
            pods_group: roster.pods_group.clone(),
            protected: roster.protected.clone(),
            scores: scores_of(&roster.scores),
            owned: Arc::clone(&roster.owned),
            disks: Arc::clone(&roster.disks),
        }
    }

    /// Whether a later one says anything else.
    fn differs(&self, now: &Self) -> bool {
        self.workloads != now.workloads
            || self.left_alone != now.left_alone
            || self.pods_group != now.pods_group
            || ids(&self.members) != ids(&now.members)
            || self.protected != now.protected
            || self.scores != now.scores
            || self.owned != now.owned
    }
}

/// What a cgroup's processes should have: its id, the container's name, the value.
type Expected = (Option<u64>, Option<String>, Score);

/// A roster, and what went wrong on the way.
#[derive(Debug)]
pub struct Built {
    /// The roster.
    pub roster: Box<Roster>,
    /// One sentence each, unless it was said of the roster before; a cgroup that went away meanwhile is none.
    pub troubles: Vec<String>,
    /// Annotations that count for nothing, and why, told likewise; one for all pods of a namespace.
    pub remarks: Vec<String>,
}

impl Built {
    /// Logs what is not as somebody will have meant it.
    pub fn tell(&self) {
        for trouble in &self.troubles {
            warn!(trouble, "a cgroup cannot be watched over");
        }
        for remark in &self.remarks {
            warn!(remark, "an annotation counts for nothing");
        }
    }
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
            roots: PodRoots::new(scope, None),
            pods: PodsGroup::None,
            capacity: 0,
            rules,
            selection,
            places: Places::under(root),
            generation: 0,
            open: HashMap::new(),
            known: Known::new(),
            families: None,
            judged: Judged::new(),
            said: BTreeSet::new(),
            remarked: BTreeSet::new(),
            last: None,
            changed: false,
            essentials: None,
        }
    }

    /// Says which group all pods live in: pods are found in one that is named, and whoever is outside has no part in its memory.
    #[must_use]
    pub fn with_pods_in(mut self, pods: PodsGroup) -> Self {
        self.roots = PodRoots::new(&self.scope, pods.named());
        self.pods = pods;
        self
    }

    /// Names the node's memory, by which workloads have their `oom_score_adj`.
    #[must_use]
    pub const fn with_capacity(mut self, capacity: i64) -> Self {
        self.capacity = capacity;
        self
    }

    /// Names the folders of a kubelet.
    #[must_use]
    pub fn with_places(mut self, places: Places) -> Self {
        self.places = places;
        self
    }

    /// Takes other rules over, from the next roster on.
    pub fn reconfigure(&mut self, rules: Vec<CgroupRule>, selection: Selection) {
        self.rules = rules;
        self.selection = selection;
        self.remarked.clear();
    }

    /// Whether the last roster says anything that the one before did not.
    pub const fn changed(&self) -> bool {
        self.changed
    }

    /// Looks at the machine and makes a roster of what is there now.
    ///
    /// # Errors
    /// [`HostError`] when the cgroups or processes cannot be listed at all.
    pub fn build(&mut self, pods: &[Manifest], scan: Scan) -> Result<Built, HostError> {
        self.families = None;
        let hierarchy = self.layout.require(Controller::Memory)?;
        let groups = groups_below(hierarchy, &self.scope, MOST_GROUPS)?;
        let inside = self.pods_group();
        let bound = bind(pods, &self.roots, &self.rules, &groups);
        let known = self.essentials.take().filter(|_| scan == Scan::Cgroups);
        let essentials = match known.filter(|known| known.are_still_there(&self.root)) {
            Some(known) => known,
            None => find_essentials(&self.root, &self.layout, &mut self.places)?,
        };
        let mut look = self.look(hierarchy);
        let mut judge = Judge::new(&self.root, (hierarchy, self.layout.home()), &self.judged);
        let mut workloads = Vec::with_capacity(bound.len());
        let mut owners = Vec::with_capacity(bound.len());
        let mut left_alone = Vec::with_capacity(bound.len());
        let mut members = Vec::new();
        let (mut open, mut scores, mut remarks) = (HashMap::new(), Vec::new(), Vec::new());
        let mut owned = Vec::with_capacity(bound.len());
        let mut looked_at = Vec::with_capacity(bound.len());
        for bound in bound {
            let index = workloads.len();
            let families: Vec<Vec<&str>> = bound
                .groups
                .iter()
                .map(|path| family(path, &groups))
                .collect();
            let parts: Option<Vec<Parts>> = bound.containers.as_ref().map(|ids| {
                let families = families.iter();
                let ids: Vec<String> = ids.iter().map(|(_, id)| id.clone()).collect();
                families.map(|family| judge.pod(family, &ids)).collect()
            });
            let opened = (&families[..], parts.as_deref());
            let groups = self.open_all(opened, &mut open, &mut look.troubles);
            let facts = look.at(&families);
            looked_at.extend(families.iter().map(|family| paths_of(family)));
            let mut workload = bound.workload;
            let ids = bound.containers.clone().unwrap_or_default();
            owned.push(Owned::of(&self.places, &workload, &bound.keeps).with_containers(ids));
            owners.push(bound.owner);
            let known = Consists::of(&bound.groups, parts);
            known.report(&workload, &mut look.troubles);
            select(
                &mut workload,
                (&bound.groups, &known.killed),
                &facts,
                &essentials,
                &self.selection,
            );
            if known.is_unrecognized() {
                workload.protection.get_or_insert(Protection::Unrecognized);
            }
            remarks.extend(heed(&mut workload, bound.wish, &self.selection));
            left_alone.push(known.left_alone);
            let of = Of {
                containers: bound.containers.as_deref(),
                is_pattern: bound.is_pattern,
                capacity: self.capacity,
            };
            scores.extend(expect(&workload, groups.iter(), of));
            workload.outside_pods = is_outside(&bound.groups, inside.as_deref());
            members.extend(groups.into_iter().map(|group| Member {
                workload: index,
                group,
            }));
            workloads.push(workload);
        }
        let protected = essentials.pids(&self.root);
        let Look {
            now, mut troubles, ..
        } = look;
        troubles.append(&mut judge.troubles);
        let judged = judge.now;
        (self.open, self.known, self.judged) = (open, now, judged);
        self.families = Some(looked_at);
        self.essentials = Some(essentials);
        let troubles = news_of(troubles, &mut self.said);
        let remarks = firsts_of(remarks, &mut self.remarked);
        self.generation += 1;
        let table = WorkloadTable::new(workloads.clone(), self.generation);
        let mut roster = Roster::new(table, members, protected);
        roster.owners = owners;
        roster.left_alone = left_alone;
        roster.pods_group = inside;
        roster.scores = scores.into();
        roster.owned = owned.into();
        roster.note_unowned();
        if let Some(last) = &self.last {
            roster.inherit(&last.members, &last.board);
            roster.inherit_disks(&last.workloads, &last.disks);
        }
        let now = Last::of(&roster, workloads);
        self.changed = self.last.as_ref().is_none_or(|last| last.differs(&now));
        self.last = Some(now);
        Ok(Built {
            roster: Box::new(roster),
            troubles,
            remarks,
        })
    }

    /// The group of all pods as it is now: a kubelet may have started since the last look.
    fn pods_group(&self) -> Option<String> {
        let found = self.pods.find(&self.layout, &self.scope)?;
        Some(found.group)
    }

    /// Whether all that the kernel does not tell is as the last look has found it: what owners of cgroups ask for, and that the
    /// essential processes are there. Not where the names of commands matter, of which nobody tells, nor where anything was wrong.
    pub fn stands(&self) -> bool {
        let (Some(families), Some(essentials)) = (&self.families, &self.essentials) else {
            return false;
        };
        let Ok(hierarchy) = self.layout.require(Controller::Memory) else {
            return false;
        };
        self.said.is_empty()
            && !self.names_commands()
            && essentials.are_still_there(&self.root)
            && self
                .last
                .as_ref()
                .is_some_and(|last| last.pods_group == self.pods_group())
            && self.look(hierarchy).finds_the_same(families)
    }

    /// Opens the cgroups of a workload, or finds them open from the last time.
    fn open_all(
        &self,
        (families, parts): (&[Vec<&str>], Option<&[Parts]>),
        open: &mut HashMap<String, Arc<Group>>,
        troubles: &mut Vec<String>,
    ) -> Vec<Arc<Group>> {
        let mut opened = Vec::new();
        for (place, family) in families.iter().enumerate() {
            let Some((&path, below)) = family.split_first() else {
                continue;
            };
            let parts = parts.and_then(|parts| parts.get(place));
            let known = self.open.get(path);
            let group = match known.filter(|group| group.is_still(family.len(), parts)) {
                Some(group) => Ok(Arc::clone(group)),
                None => Group::open(&self.layout, (path, below), parts).map(Arc::new),
            };
            match group {
                Ok(group) => {
                    open.insert(path.to_owned(), Arc::clone(&group));
                    opened.push(group);
                }
                Err(error) if error.errno() == Some(libc::ENOENT) => {
                    troubles.extend(self.why_unreadable(path));
                }
                Err(error) => troubles.push(error.to_string()),
            }
        }
        opened
    }

    /// Why a cgroup has no figures; nothing if it went away.
    fn why_unreadable(&self, path: &str) -> Option<String> {
        let folder = self.layout.require(Controller::Memory).ok()?.folder(path)?;
        folder.exists().then(|| {
            format!(
                "{path}: the memory controller is not handed on to it; what it uses is not known, and nobody in it goes"
            )
        })
    }

    fn look<'a>(&'a self, hierarchy: &'a Hierarchy) -> Look<'a> {
        Look {
            root: &self.root,
            hierarchy,
            names: self.names_commands(),
            before: &self.known,
            now: Known::new(),
            troubles: Vec::new(),
        }
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
}

/// What a workload consists of, as far as an eviction goes.
struct Consists {
    /// Cgroups that are killed.
    killed: Vec<String>,
    /// Cgroups of a pod in which nobody runs that is known.
    left_alone: Vec<String>,
}

impl Consists {
    fn of(groups: &[String], parts: Option<Vec<Parts>>) -> Self {
        let Some(parts) = parts else {
            return Self {
                killed: groups.to_vec(),
                left_alone: Vec::new(),
            };
        };
        let mut found = Self {
            killed: Vec::new(),
            left_alone: Vec::new(),
        };
        for part in parts {
            found.killed.extend(part.containers);
            found.left_alone.extend(part.unknown);
        }
        found
    }

    /// Whether somebody runs there, and nobody that is known.
    fn is_unrecognized(&self) -> bool {
        self.killed.is_empty() && !self.left_alone.is_empty()
    }

    fn report(&self, workload: &Workload, troubles: &mut Vec<String>) {
        let name = full_name(&workload.namespace, &workload.name);
        troubles.extend(self.left_alone.iter().map(|path| {
            format!(
                "{path}: nobody knows what runs there: it is no container that {name} is known to have, nor its sandbox; \
                 it is left alone"
            )
        }));
    }
}

/// Finds these processes anew, and by the kubelet among them where it keeps the files of its pods. One that does not run now comes
/// back with the same folder.
fn find_essentials(
    root: &Path,
    layout: &Layout,
    places: &mut Places,
) -> Result<Essentials, HostError> {
    let found = Essentials::find(root, layout)?;
    if let Some(folder) = found.kubelet(root).as_ref().and_then(folder_of) {
        places.take(&folder);
    }
    Ok(found)
}

/// Those of these sentences that were not said of the roster before.
fn news_of(sentences: Vec<String>, said: &mut BTreeSet<String>) -> Vec<String> {
    let now: BTreeSet<String> = sentences.into_iter().collect();
    let news = now.difference(said).cloned().collect();
    *said = now;
    news
}

/// Those of these sentences that were never said. There is one for each namespace at most; what would be too many is not said.
fn firsts_of(sentences: Vec<String>, said: &mut BTreeSet<String>) -> Vec<String> {
    const MOST: usize = 4096;
    let mut sentences = sentences;
    sentences.retain(|sentence| said.len() < MOST && said.insert(sentence.clone()));
    sentences
}

/// What each member is bound to, and what of it would be killed.
fn ids(members: &[Member]) -> Vec<(usize, u64)> {
    let of = |member: &Member| -> Vec<(usize, u64)> {
        let Member { workload, group } = member;
        let victims = group.victims().iter().chain([&group.target]);
        victims.map(|target| (*workload, target.id().0)).collect()
    };
    members.iter().flat_map(of).collect()
}

fn scores_of(all: &[Audited]) -> Vec<Expected> {
    let of = |one: &Audited| {
        let id = one.target().map(|target| target.id().0);
        (id, one.container.clone(), one.score)
    };
    all.iter().map(of).collect()
}

/// The paths of a family, to be kept.
fn paths_of(family: &[&str]) -> Vec<String> {
    family.iter().map(|&path| path.to_owned()).collect()
}

/// Those of `all` that are the cgroup at `path`, first, or below it.
fn family<'a>(path: &str, all: &'a [String]) -> Vec<&'a str> {
    let is_within = |group: &&str| {
        group
            .strip_prefix(path)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    all.iter().map(String::as_str).filter(is_within).collect()
}

#[cfg(test)]
#[path = "build_tests.rs"]
mod tests;
