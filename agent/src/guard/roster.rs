//! The roster: a ready-made snapshot of the workloads with everything a kill needs open already.

use std::sync::Arc;

use brink_core::node::workload::WorkloadTable;
use brink_host::HostError;
use brink_host::cgroup::stat::StatReader;
use brink_host::cgroup::usage::UsageReader;
use brink_host::cgroup::walk::groups_below;
use brink_host::cgroup::{CgroupDir, Controller, Layout};
use brink_host::kill::KillTarget;
use brink_host::kill::pid_set::ProtectedPids;

use super::board::Board;

/// One cgroup of a workload, held open.
#[derive(Debug)]
pub struct Group {
    /// To kill it.
    pub target: KillTarget,
    /// To read its usage.
    pub usage: UsageReader,
    /// To read what it consists of.
    pub stat: StatReader,
    /// Ids of the cgroup and of all below it when it was opened: processes are counted by these.
    pub family: Vec<u64>,
    /// Their paths, in the same order.
    pub paths: Vec<String>,
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
    /// Their cgroups, ordered by workload.
    pub members: Vec<Member>,
    /// Warm figures, in the order of `members`.
    pub board: Arc<Board>,
    /// Processes that are never signalled. The guard gives them to the killer, and has those of the roster before here
    /// from then on, so that they are freed where rosters are.
    pub protected: ProtectedPids,
    /// The sampler's slot of each member; room for the guard.
    pub slots: Vec<Option<u32>>,
}

impl Group {
    /// Opens a cgroup of the memory hierarchy.
    ///
    /// # Errors
    /// [`HostError`] with the path.
    pub fn open(layout: &Layout, group: &str) -> Result<Self, HostError> {
        let target = KillTarget::open(layout, group)?;
        let (family, paths) = family(layout, group)?.into_iter().unzip();
        Ok(Self {
            usage: UsageReader::open(target.dir())?,
            stat: StatReader::open(target.dir())?,
            family,
            paths,
            target,
        })
    }
}

/// Groups below one workload that are counted; more are not expected and would only be missed there.
const LARGEST_FAMILY: usize = 4096;

fn family(layout: &Layout, group: &str) -> Result<Vec<(u64, String)>, HostError> {
    let hierarchy = layout.require(Controller::Memory)?;
    let below = groups_below(hierarchy, group, LARGEST_FAMILY)?;
    let id = |group: String| Some((CgroupDir::open(hierarchy, &group).ok()?.id().0, group));
    Ok(below.into_iter().filter_map(id).collect())
}

impl Roster {
    /// A roster whose members are ordered by workload.
    pub fn new(table: WorkloadTable, mut members: Vec<Member>, protected: ProtectedPids) -> Self {
        members.sort_by_key(|member| member.workload);
        Self {
            table: Arc::new(table),
            owners: Vec::new(),
            board: Arc::new(Board::new(members.len())),
            slots: vec![None; members.len()],
            members,
            protected,
        }
    }

    /// The cgroups of one workload, with their index in `members`.
    pub fn of(&self, workload: usize) -> impl Iterator<Item = (usize, &Group)> {
        let first = self
            .members
            .partition_point(|member| member.workload < workload);
        let members = self.members.iter().enumerate().skip(first);
        members
            .take_while(move |(_, member)| member.workload == workload)
            .map(|(index, member)| (index, &*member.group))
    }

    /// The workload that the cgroup with that id belongs to.
    pub fn workload_of(&self, id: u64) -> Option<usize> {
        let found = self
            .members
            .iter()
            .find(|member| member.group.family.contains(&id));
        found.map(|member| member.workload)
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
