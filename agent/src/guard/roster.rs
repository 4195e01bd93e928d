//! The roster: a ready-made snapshot of the workloads with everything a kill needs open already.

use std::collections::HashMap;
use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brink_core::node::workload::{Workload, WorkloadTable};
use brink_host::HostError;
use brink_host::cgroup::stat::StatReader;
use brink_host::cgroup::usage::UsageReader;
use brink_host::cgroup::{CgroupDir, Controller, Layout};
use brink_host::kill::KillTarget;
use brink_host::kill::pid_set::ProtectedPids;

use super::board::Board;
use super::storage::Disks;
use crate::backend::parts::Parts;
use crate::oom_scores::Audited;
use crate::storage::owned::Owned;

/// One cgroup of a workload, held open.
#[derive(Debug)]
pub struct Group {
    /// To kill it.
    pub target: KillTarget,
    /// To read its usage.
    pub usage: UsageReader,
    /// What that said last.
    pub seen: LastUsage,
    /// To read what it consists of.
    pub stat: StatReader,
    /// Ids of the cgroup and of all below it when it was opened: processes are counted by these.
    pub family: Vec<u64>,
    /// Their paths, in the same order.
    pub paths: Vec<String>,
    /// What it consists of, if it is the cgroup of a kubelet's pod.
    pub pod: Option<PodParts>,
}

/// The usage of a cgroup when the guard last read it, which a removed one does not tell any more.
#[derive(Debug)]
pub struct LastUsage(AtomicU64);

impl LastUsage {
    const NONE: u64 = u64::MAX;

    /// Remembers so many bytes.
    pub fn set(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    /// In bytes, if it was ever read.
    pub fn get(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|&bytes| bytes != Self::NONE)
    }
}

impl Default for LastUsage {
    fn default() -> Self {
        Self(AtomicU64::new(Self::NONE))
    }
}

/// The cgroups below the one of a kubelet's pod.
#[derive(Debug)]
pub struct PodParts {
    /// Its containers, to kill them.
    pub containers: Vec<KillTarget>,
    /// Paths of its sandboxes, which are never killed.
    pub sandboxes: Vec<String>,
}

/// A cgroup and the workload it belongs to.
#[derive(Clone, Debug)]
pub struct Member {
    /// Index of the workload in the table.
    pub workload: usize,
    /// The cgroup; shared with the warmer and with later rosters.
    pub group: Arc<Group>,
}

/// The workloads of the node at one time. Made outside the guard, and taken apart there again.
#[derive(Debug)]
pub struct Roster {
    /// The workloads.
    pub table: Arc<WorkloadTable>,
    /// Who manages each of them, as far as manifests say so; in their order, and empty where nobody asked.
    pub owners: Vec<Option<String>>,
    /// Cgroups in which nobody runs that is known, of each of them likewise: no eviction touches them.
    pub left_alone: Vec<Vec<String>>,
    /// The cgroup all pods live in, of which the workloads are told that they are outside of it; none where there is none.
    pub pods_group: Option<String>,
    /// Their cgroups, ordered by workload.
    pub members: Vec<Member>,
    /// What the processes of each should have as `oom_score_adj`; not the guard's affair.
    pub scores: Arc<[Audited]>,
    /// Where each keeps its files, in their order; empty where nobody asked. Not the guard's affair.
    pub owned: Arc<[Owned]>,
    /// What each uses of disks, in their order.
    pub disks: Arc<Disks>,
    /// Warm figures, in the order of `members`.
    pub board: Arc<Board>,
    /// Processes that are never signalled. The guard gives them to the killer, and has those of the roster before here
    /// from then on, so that they are freed where rosters are.
    pub protected: ProtectedPids,
    /// The sampler's slot of each member; room for the guard.
    pub slots: Vec<Option<u32>>,
}

impl Group {
    /// Opens a cgroup of the memory hierarchy, of which `below` are the paths of all below it; of a kubelet's pod with what it
    /// consists of.
    ///
    /// # Errors
    /// [`HostError`] with the path.
    pub fn open(
        layout: &Layout,
        (group, below): (&str, &[&str]),
        parts: Option<&Parts>,
    ) -> Result<Self, HostError> {
        let target = KillTarget::open(layout, group)?;
        let first = (target.id().0, group.to_owned());
        let (family, paths) = iter::once(first).chain(family(layout, below)?).unzip();
        Ok(Self {
            usage: UsageReader::open(target.dir())?,
            seen: LastUsage::default(),
            stat: StatReader::open(target.dir())?,
            family,
            paths,
            pod: parts
                .map(|parts| PodParts::open(layout, parts))
                .transpose()?,
            target,
        })
    }

    /// The cgroups that an eviction kills: of a kubelet's pod its containers, of anything else the whole.
    pub fn victims(&self) -> &[KillTarget] {
        match &self.pod {
            Some(pod) => &pod.containers,
            None => std::slice::from_ref(&self.target),
        }
    }

    /// Whether nobody is in any of those, for sure. Allocates nothing.
    pub fn is_empty(&self) -> bool {
        self.victims().iter().all(KillTarget::is_empty)
    }

    /// Whether nobody is in them any more, the dying included; none where the kernel does not tell. Allocates nothing.
    pub fn have_exited(&self) -> Option<bool> {
        let mut victims = self.victims().iter();
        victims.try_fold(true, |all, target| Some(all && !target.is_populated()?))
    }

    /// Whether all of them have been removed. Allocates nothing.
    pub fn is_removed(&self) -> bool {
        let mut victims = self.victims().iter();
        victims.all(|target| !target.dir().is_alive())
    }

    /// Whether it was opened as what it is now.
    pub fn is_still(&self, family: usize, parts: Option<&Parts>) -> bool {
        let same = match (&self.pod, parts) {
            (None, None) => true,
            (Some(pod), Some(parts)) => {
                let open = pod.containers.iter().map(|target| target.dir().group());
                open.eq(parts.containers.iter().map(String::as_str))
                    && pod.sandboxes == parts.sandboxes
            }
            _ => false,
        };
        same && self.family.len() == family && self.target.dir().is_alive()
    }
}

impl PodParts {
    /// Opens the containers that are still there.
    fn open(layout: &Layout, parts: &Parts) -> Result<Self, HostError> {
        let mut containers = Vec::with_capacity(parts.containers.len());
        for path in &parts.containers {
            match KillTarget::open(layout, path) {
                Ok(target) => containers.push(target),
                Err(error) if error.errno() == Some(libc::ENOENT) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self {
            containers,
            sandboxes: parts.sandboxes.clone(),
        })
    }
}

/// Groups below one workload that are counted; more are not expected and would only be missed there.
const LARGEST_FAMILY: usize = 4096;

fn family<'a>(
    layout: &'a Layout,
    below: &'a [&str],
) -> Result<impl Iterator<Item = (u64, String)> + 'a, HostError> {
    let hierarchy = layout.require(Controller::Memory)?;
    if below.len() >= LARGEST_FAMILY {
        return Err(HostError::TooMany {
            path: hierarchy.path.clone(),
            what: "groups of one workload",
            limit: LARGEST_FAMILY,
        });
    }
    let id = |&group: &&str| {
        Some((
            CgroupDir::open(hierarchy, group).ok()?.id().0,
            group.to_owned(),
        ))
    };
    Ok(below.iter().filter_map(id))
}

impl Roster {
    /// A roster whose members are ordered by workload.
    pub fn new(table: WorkloadTable, mut members: Vec<Member>, protected: ProtectedPids) -> Self {
        members.sort_by_key(|member| member.workload);
        Self {
            disks: Arc::new(Disks::new(table.len())),
            owned: Arc::default(),
            table: Arc::new(table),
            owners: Vec::new(),
            left_alone: Vec::new(),
            pods_group: None,
            scores: Arc::default(),
            board: Arc::new(Board::new(members.len())),
            slots: vec![None; members.len()],
            members,
            protected,
        }
    }

    /// Names and ids of one workload's containers, as far as manifests say so.
    pub fn containers_of(&self, workload: usize) -> &[(String, String)] {
        let owned = self.owned.get(workload);
        owned.map_or(&[], |owned| &owned.containers)
    }

    /// The cgroups of one workload, with their index in `members`.
    pub fn of(&self, workload: usize) -> impl Iterator<Item = (usize, &Arc<Group>)> {
        let first = self
            .members
            .partition_point(|member| member.workload < workload);
        let members = self.members.iter().enumerate().skip(first);
        members
            .take_while(move |(_, member)| member.workload == workload)
            .map(|(index, member)| (index, &member.group))
    }

    /// The cgroups of one workload that an eviction kills.
    pub fn victims_of(&self, workload: usize) -> impl Iterator<Item = &KillTarget> {
        self.of(workload).flat_map(|(_, group)| group.victims())
    }

    /// The workload that the cgroup with that id belongs to.
    pub fn workload_of(&self, id: u64) -> Option<usize> {
        let found = self
            .members
            .iter()
            .find(|member| member.group.family.contains(&id));
        found.map(|member| member.workload)
    }

    /// Whoever owns no folder waits for nobody to measure it.
    pub fn note_unowned(&self) {
        for index in 0..self.table.len() {
            let owned = self.owned.get(index);
            if owned.is_none_or(|owned| owned.pieces.is_empty())
                && let Some(disk) = self.disks.get(index)
            {
                disk.note_unowned();
            }
        }
    }

    /// Takes over what was known of the disks of the same workloads before.
    pub fn inherit_disks(&self, workloads: &[Workload], disks: &Disks) {
        let places: HashMap<&str, usize> = workloads.iter().map(|one| &*one.uid).zip(0..).collect();
        for (index, workload) in self.table.workloads().iter().enumerate() {
            let before = places.get(&*workload.uid);
            let before = before.and_then(|&before| disks.get(before));
            if let (Some(now), Some(before)) = (self.disks.get(index), before) {
                now.inherit(before);
            }
        }
    }

    /// Takes over what was known of the same cgroups before.
    pub fn inherit(&self, members: &[Member], board: &Board) {
        for (index, member) in self.members.iter().enumerate() {
            let same = |old: &Member| old.group.target.id() == member.group.target.id();
            let before = members
                .iter()
                .position(same)
                .and_then(|before| board.get(before));
            if let (Some(now), Some(before)) = (self.board.get(index), before) {
                now.inherit(before);
            }
        }
    }
}
