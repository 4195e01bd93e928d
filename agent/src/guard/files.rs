//! The node read from files: the rung below the sampler, and what the sampler is checked against.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use brink_core::base::Moment;
use brink_core::node::headroom::{FreeSwap, Headroom, Reclaimable};
use brink_core::node::observe::{self, Observation};
use brink_host::cgroup::stat::{MemoryStat, StatReader};
use brink_host::cgroup::swap::SwapRoomReader;
use brink_host::cgroup::usage::UsageReader;
use brink_host::cgroup::{CgroupDir, Controller, Hierarchy, Layout};
use brink_host::cpu_lists::CpuListsReader;
use brink_host::meminfo::{Meminfo, MeminfoReader};
use brink_host::probe::abi::command::Terms;
use brink_host::zoneinfo::{ZoneTotals, Zoneinfo};
use brink_host::{HostError, HotError};

use super::figures::{NodeFigures, Slow, saturated};
use super::ids::IdFiles;
use super::pods::PodsGroup;
use super::swap::SwapAreas;

/// Pages a CPU may charge to a cgroup in advance: what is left below that is not to be had.
const CHARGE_BATCH: u64 = 64;

/// What "the node" is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// The machine.
    #[default]
    Machine,
    /// A cgroup with a memory limit, which is the capacity.
    Group(String),
}

/// Where the node's numbers come from.
#[derive(Clone, Debug, Default)]
pub struct NodePlan {
    /// What the node is.
    pub scope: Scope,
    /// The cgroup all pods live in, for `allocatableMemory.available`.
    pub pods: PodsGroup,
}

impl Scope {
    /// The cgroup that is the node, `/` for the machine.
    pub fn group(&self) -> &str {
        match self {
            Self::Machine => "/",
            Self::Group(group) => group,
        }
    }
}

/// Readers of the node's files, opened in advance; [`NodeFiles::read`] allocates nothing.
#[derive(Debug)]
pub struct NodeFiles {
    root: PathBuf,
    layout: Layout,
    plan: NodePlan,
    source: Source,
    /// The kubelet's cgroup of all pods that is followed, whether or not it can be read.
    followed: Option<String>,
    pods: Option<GroupFiles>,
    ids: IdFiles,
    areas: SwapAreas,
    slow: Cell<Slow>,
}

#[derive(Debug)]
enum Source {
    Machine {
        meminfo: MeminfoReader,
        zones: Zones,
    },
    Group {
        files: GroupFiles,
        /// For the machine's free swap; none where the machine cannot be read.
        meminfo: Option<MeminfoReader>,
    },
}

/// What the machine's zones keep for the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Zones {
    /// As they were read last, in pages.
    totals: ZoneTotals,
    /// Of that, what user processes are never given, in bytes.
    reserved: u64,
    /// What zones lack of it, in bytes.
    lacking: u64,
}

/// One cgroup that has a capacity: the node, or the cgroup of all pods.
#[derive(Debug)]
pub struct GroupFiles {
    hierarchy: Hierarchy,
    dir: CgroupDir,
    usage: UsageReader,
    stat: StatReader,
    swap: SwapRoomReader,
    limit: Option<u64>,
}

/// One reading of such a cgroup.
#[derive(Clone, Copy, Debug)]
pub struct GroupFigures {
    /// Limit less working set; none without a limit.
    pub available: Option<Observation>,
    /// Limit less usage plus what reclaim could give back.
    pub headroom: Option<i64>,
    /// Limit less usage, in bytes.
    pub unused: u64,
    /// What the sampler needs to work out both from the usage alone.
    pub terms: Terms,
    /// Anonymous memory, in bytes.
    pub anon: u64,
    /// File pages, in bytes.
    pub file: u64,
}

/// The node's memory, and what it consists of.
#[derive(Clone, Copy, Debug)]
pub struct Consumption {
    /// Available memory and headroom.
    pub figures: NodeFigures,
    /// Anonymous memory, in bytes.
    pub anon: u64,
    /// File pages, in bytes.
    pub file: u64,
}

impl NodeFiles {
    /// Opens everything the plan needs.
    ///
    /// # Errors
    /// [`HostError`] with the path; a node that is a cgroup without a memory limit is refused. Which cgroup a kubelet has its pods in is
    /// not looked for here: [`NodeFiles::follow_pods`].
    pub fn open(root: &Path, layout: &Layout, plan: &NodePlan) -> Result<Self, HostError> {
        let source = match &plan.scope {
            Scope::Machine => Source::Machine {
                meminfo: MeminfoReader::open(root)?,
                zones: Zones::default(),
            },
            Scope::Group(group) => {
                let files = GroupFiles::open(root, layout, group)?;
                if files.limit.is_none() {
                    return Err(HostError::Unsupported {
                        what: "this cgroup as the node",
                        why: format!(
                            "{group} has no memory limit, so it has no capacity; set one, or leave `node` out to protect the machine"
                        ),
                    });
                }
                Source::Group {
                    files,
                    meminfo: MeminfoReader::open(root).ok(),
                }
            }
        };
        let pods = plan
            .pods
            .named()
            .map(|group| GroupFiles::open(root, layout, group))
            .transpose()?;
        let group = match &plan.scope {
            Scope::Machine => None,
            Scope::Group(group) => Some(group.as_str()),
        };
        let mut files = Self {
            root: root.to_path_buf(),
            layout: layout.clone(),
            plan: plan.clone(),
            source,
            followed: None,
            pods,
            ids: IdFiles::open(root, layout, group),
            areas: SwapAreas::default(),
            slow: Cell::default(),
        };
        files.refresh()?;
        Ok(files)
    }

    /// Reads again what changes slowly: limits, reserves, areas of swap, the number of tasks there may be.
    ///
    /// # Errors
    /// [`HostError`] with the path; what could be read before the error stands.
    pub fn refresh(&mut self) -> Result<(), HostError> {
        self.ids.refresh()?;
        self.areas = SwapAreas::read(&self.root)?;
        if let Source::Group { files, .. } = &mut self.source {
            files.refresh(&self.root)?;
            let slow = self.slow.get_mut();
            slow.reserve = CHARGE_BATCH * page() * cpus();
        }
        self.refresh_zones()?;
        if self.plan.pods == PodsGroup::Kubelets {
            self.refresh_pods();
        } else if let Some(pods) = &mut self.pods {
            pods.refresh(&self.root)?;
        }
        Ok(())
    }

    /// Reads this cgroup from now on as the one in which a kubelet has its pods, none where there is none; true if it was another
    /// before. The roster says which, so that who is outside of the pods and what they may use are told of one group. One that the
    /// configuration names stays.
    pub fn follow_pods(&mut self, group: Option<&str>) -> bool {
        if self.plan.pods != PodsGroup::Kubelets || self.followed.as_deref() == group {
            return false;
        }
        self.followed = group.map(str::to_owned);
        self.pods = None;
        self.refresh_pods();
        true
    }

    /// Follows the one that is there now, for whoever makes no roster.
    pub fn find_pods(&mut self) {
        let found = self.plan.pods.find(&self.layout, self.plan.scope.group());
        self.follow_pods(found.as_ref().map(|found| found.group.as_str()));
    }

    /// Reads the limit of the kubelet's cgroup of all pods again, and opens it again where that fails: it may have been made anew.
    fn refresh_pods(&mut self) {
        let root = &self.root;
        let known = self.pods.as_mut();
        if known.is_some_and(|pods| pods.refresh(root).is_ok()) {
            return;
        }
        let Some(group) = self.followed.as_deref() else {
            return;
        };
        match GroupFiles::open(root, &self.layout, group) {
            Ok(anew) => self.pods = Some(anew),
            Err(error) if error.errno() == Some(libc::ENOENT) => self.pods = None,
            // One that is there and could not be read this once keeps what was known of it.
            Err(_) => {}
        }
    }

    /// Reads again what the zones keep, and what they lack of it. A node that is a group has none. Allocates.
    ///
    /// # Errors
    /// [`HostError`] with the path.
    pub fn refresh_zones(&mut self) -> Result<(), HostError> {
        if let Source::Machine { zones, .. } = &mut self.source {
            let read = Zoneinfo::read(&self.root)?.totals();
            *zones = Zones::of(read.without_boost_since(&zones.totals));
            let slow = self.slow.get_mut();
            slow.reserve = zones.totals.min.saturating_mul(page());
        }
        Ok(())
    }

    /// The lists of the CPUs, which headroom leaves out; none where the node is a group, or they cannot be read.
    pub fn cpu_lists(&self) -> Option<CpuListsReader> {
        match &self.source {
            Source::Machine { .. } => CpuListsReader::open(&self.root).ok(),
            Source::Group { .. } => None,
        }
    }

    /// What goes with a reading: swap as of the last [`NodeFiles::read`], the reserve as of the last
    /// [`NodeFiles::refresh`].
    pub fn slow(&self) -> Slow {
        self.slow.get()
    }

    /// The cgroup that is the node, if it is one.
    pub const fn node_group(&self) -> Option<&GroupFiles> {
        match &self.source {
            Source::Machine { .. } => None,
            Source::Group { files, .. } => Some(files),
        }
    }

    /// Whether the node is the machine, and no swap has a part in its numbers.
    pub const fn is_machine_alone(&self) -> bool {
        matches!(self.source, Source::Machine { .. }) && !self.areas.exist()
    }

    /// The cgroup all pods live in.
    pub const fn pods_group(&self) -> Option<&GroupFiles> {
        self.pods.as_ref()
    }

    /// The machine's counters, when the machine is the node.
    ///
    /// # Errors
    /// [`HotError`].
    pub fn meminfo(&self) -> Result<Option<Meminfo>, HotError> {
        match &self.source {
            Source::Machine { meminfo, .. } => meminfo.read().map(Some),
            Source::Group { .. } => Ok(None),
        }
    }

    /// Its process ids.
    pub const fn ids(&self) -> &IdFiles {
        &self.ids
    }

    /// Reads the node. Allocates nothing.
    ///
    /// # Errors
    /// [`HotError`] when the node's own memory cannot be read; anything else that cannot be is none, and of swap what
    /// was known before.
    pub fn read(&self, at: Moment) -> Result<NodeFigures, HotError> {
        let pods = self.pods.as_ref().and_then(|pods| pods.read(at).ok());
        let figures = match &self.source {
            Source::Machine { meminfo, zones } => {
                let info = meminfo.read()?;
                self.note_swap(Some(info.swap_free), None, pods.as_ref());
                machine(&info, *zones, at)
            }
            Source::Group { files, meminfo } => {
                let read = files.read(at)?;
                let free = self.areas.exist().then(|| meminfo.as_ref()?.read().ok());
                let free = free.flatten().map(|info| info.swap_free);
                self.note_swap(free, Some(&read), pods.as_ref());
                NodeFigures {
                    at,
                    memory: read.available,
                    headroom: read.headroom,
                    ..NodeFigures::default()
                }
            }
        };
        Ok(NodeFigures {
            pods: pods.and_then(|figures| figures.available),
            pods_headroom: pods.and_then(|figures| figures.headroom),
            pids: self.ids.available(at),
            ..figures
        })
    }

    /// Reads the node's memory and what it consists of: one file of the machine, two of a group. Allocates nothing.
    ///
    /// # Errors
    /// [`HotError`].
    pub fn consumption(&self, at: Moment) -> Result<Consumption, HotError> {
        match &self.source {
            Source::Machine { meminfo, zones } => {
                let info = meminfo.read()?;
                Ok(Consumption {
                    figures: machine(&info, *zones, at),
                    anon: info.anon,
                    file: info.memory_available_inputs().file,
                })
            }
            Source::Group { files, .. } => {
                let read = files.read(at)?;
                Ok(Consumption {
                    figures: NodeFigures {
                        at,
                        memory: read.available,
                        headroom: read.headroom,
                        ..NodeFigures::default()
                    },
                    anon: read.anon,
                    file: read.file,
                })
            }
        }
    }

    /// Reads the machine's own memory alone, one file, if it is the node. Allocates nothing.
    pub fn read_machine(&self, at: Moment) -> Option<NodeFigures> {
        let Source::Machine { meminfo, zones } = &self.source else {
            return None;
        };
        let info = meminfo.read().ok()?;
        self.note_swap(Some(info.swap_free), None, None);
        Some(machine(&info, *zones, at))
    }

    /// Keeps what swap is worth now, to the node and to the pods: a group may use less than the machine has.
    fn note_swap(
        &self,
        free: Option<u64>,
        node: Option<&GroupFigures>,
        pods: Option<&GroupFigures>,
    ) {
        let machines = self.areas.worth(free);
        let mut slow = self.slow.get();
        slow.swap = match (self.node_group(), node) {
            (Some(group), Some(figures)) => group.usable_swap(machines, figures.unused, slow.swap),
            _ => machines,
        };
        if let (Some(group), Some(figures)) = (&self.pods, pods) {
            slow.pods_swap = group.usable_swap(machines, figures.unused, slow.pods_swap);
        }
        self.slow.set(slow);
    }
}

impl GroupFiles {
    fn open(root: &Path, layout: &Layout, group: &str) -> Result<Self, HostError> {
        let hierarchy = layout.require(Controller::Memory)?;
        let dir = CgroupDir::open(hierarchy, group)?;
        Ok(Self {
            limit: dir.memory_limit()?.value(),
            usage: UsageReader::open(&dir)?,
            stat: StatReader::open(&dir)?,
            swap: SwapRoomReader::open(root, hierarchy, group)?,
            hierarchy: hierarchy.clone(),
            dir,
        })
    }

    fn refresh(&mut self, root: &Path) -> Result<(), HostError> {
        self.limit = self.dir.memory_limit()?.value();
        self.swap = SwapRoomReader::open(root, &self.hierarchy, self.dir.group())?;
        Ok(())
    }

    /// What of the machine's swap this group may still use; `before` where its own files cannot be read.
    fn usable_swap(&self, machines: u64, unused: u64, before: u64) -> u64 {
        if machines == 0 {
            return 0;
        }
        match self.swap.read(unused) {
            Ok(room) => room.map_or(machines, |room| room.min(machines)),
            Err(_) => before.min(machines),
        }
    }

    /// The open directory.
    pub const fn dir(&self) -> &CgroupDir {
        &self.dir
    }

    /// Its limit, in bytes.
    pub const fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Reads it. Allocates nothing.
    ///
    /// # Errors
    /// [`HotError`].
    pub fn read(&self, at: Moment) -> Result<GroupFigures, HotError> {
        let usage = self.usage.read()?;
        let stat = self.stat.read()?;
        let reclaimable = reclaimable(&stat);
        let limit = self.limit.unwrap_or(u64::MAX);
        let working_set = stat.working_set(usage).unwrap_or(usage);
        let headroom = Headroom::of_cgroup(limit, usage, reclaimable, FreeSwap::default());
        Ok(GroupFigures {
            available: observe::memory(limit, working_set, Some(at)),
            headroom: headroom.map(|headroom| saturated(headroom.memory)),
            unused: limit.saturating_sub(usage),
            anon: stat.anon.unwrap_or(0),
            file: stat.file.unwrap_or(0),
            terms: Terms {
                limit: saturated(limit),
                inactive_file: saturated(stat.inactive_file.unwrap_or(0)),
                reclaimable: saturated(reclaimable.total()),
            },
        })
    }
}

fn reclaimable(stat: &MemoryStat) -> Reclaimable {
    let known = |bytes: Option<u64>| bytes.unwrap_or(0);
    Reclaimable {
        active_file: known(stat.active_file),
        inactive_file: known(stat.inactive_file),
        dirty: known(stat.dirty),
        writeback: known(stat.writeback),
        slab: known(stat.slab_reclaimable),
    }
}

/// The kubelet's formula, and free memory above the reserves plus what reclaim could give back.
fn machine(info: &Meminfo, zones: Zones, at: Moment) -> NodeFigures {
    let inputs = info.memory_available_inputs();
    let used = inputs.anon.saturating_add(inputs.file);
    let working_set = used.saturating_sub(inputs.inactive_file);
    let free = |lacking: u64| {
        info.free
            .saturating_add(lacking)
            .saturating_sub(zones.reserved)
    };
    let headroom = |free: u64| saturated(free.saturating_add(info.reclaimable()));
    NodeFigures {
        at,
        memory: observe::memory(inputs.capacity, working_set, Some(at)),
        headroom: Some(headroom(free(0))),
        headroom_by_zone: Some(headroom(free(zones.lacking))),
        ..NodeFigures::default()
    }
}

impl Zones {
    fn of(totals: ZoneTotals) -> Self {
        Self {
            totals,
            reserved: totals.reserved.saturating_mul(page()),
            lacking: totals.lacking.saturating_mul(page()),
        }
    }
}

pub(super) fn page() -> u64 {
    u64::try_from(rustix::param::page_size()).unwrap_or(4096)
}

fn cpus() -> u64 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u64)
}

#[cfg(test)]
mod tests;
