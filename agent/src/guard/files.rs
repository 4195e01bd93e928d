//! The node read from files: the rung below the sampler, and what the sampler is checked against.

use std::path::{Path, PathBuf};

use brink_core::base::Moment;
use brink_core::node::headroom::{FreeSwap, Headroom, Reclaimable};
use brink_core::node::observe::{self, Observation};
use brink_host::cgroup::stat::{MemoryStat, StatReader};
use brink_host::cgroup::usage::UsageReader;
use brink_host::cgroup::{CgroupDir, Controller, Layout};
use brink_host::loadavg::TaskCountReader;
use brink_host::meminfo::{Meminfo, MeminfoReader};
use brink_host::pid_limits::PidLimits;
use brink_host::probe::abi::command::Terms;
use brink_host::swap::Swaps;
use brink_host::zoneinfo::Zoneinfo;
use brink_host::{HostError, HotError};

use super::figures::{NodeFigures, Slow, saturated};

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
    pub pods: Option<String>,
}

/// Readers of the node's files, opened in advance; [`NodeFiles::read`] allocates nothing.
#[derive(Debug)]
pub struct NodeFiles {
    root: PathBuf,
    source: Source,
    pods: Option<GroupFiles>,
    tasks: Option<TaskCountReader>,
    most_tasks: Option<i64>,
    slow: Slow,
}

#[derive(Debug)]
enum Source {
    Machine {
        meminfo: MeminfoReader,
        reserved: u64,
    },
    Group(GroupFiles),
}

/// One cgroup that has a capacity: the node, or the cgroup of all pods.
#[derive(Debug)]
pub struct GroupFiles {
    dir: CgroupDir,
    usage: UsageReader,
    stat: StatReader,
    limit: Option<u64>,
}

/// One reading of such a cgroup.
#[derive(Clone, Copy, Debug)]
pub struct GroupFigures {
    /// Limit less working set; none without a limit.
    pub available: Option<Observation>,
    /// Limit less usage plus what reclaim could give back.
    pub headroom: Option<i64>,
    /// What the sampler needs to work out both from the usage alone.
    pub terms: Terms,
}

impl NodeFiles {
    /// Opens everything the plan needs.
    ///
    /// # Errors
    /// [`HostError`] with the path; a node that is a cgroup without a memory limit is refused.
    pub fn open(root: &Path, layout: &Layout, plan: &NodePlan) -> Result<Self, HostError> {
        let source = match &plan.scope {
            Scope::Machine => Source::Machine {
                meminfo: MeminfoReader::open(root)?,
                reserved: 0,
            },
            Scope::Group(group) => {
                let files = GroupFiles::open(layout, group)?;
                if files.limit.is_none() {
                    return Err(HostError::Unsupported {
                        what: "this cgroup as the node",
                        why: format!(
                            "{group} has no memory limit, so it has no capacity; set one, or leave `node` out to protect the machine"
                        ),
                    });
                }
                Source::Group(files)
            }
        };
        let pods = plan
            .pods
            .as_deref()
            .map(|group| GroupFiles::open(layout, group))
            .transpose()?;
        let mut files = Self {
            root: root.to_path_buf(),
            source,
            pods,
            tasks: TaskCountReader::open(root).ok(),
            most_tasks: None,
            slow: Slow::default(),
        };
        files.refresh()?;
        Ok(files)
    }

    /// Reads again what changes slowly: limits, reserves, swap, the number of tasks there may be.
    ///
    /// # Errors
    /// [`HostError`] with the path; what could be read before the error stands.
    pub fn refresh(&mut self) -> Result<(), HostError> {
        let limits = PidLimits::read(&self.root);
        let known = |limit: Option<u64>| limit.map(saturated);
        self.most_tasks = observe::max_pid(known(limits.pid_max), known(limits.threads_max));
        self.slow.swap = usable_swap(&self.root)?;
        let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
        match &mut self.source {
            Source::Machine { reserved, .. } => {
                let totals = Zoneinfo::read(&self.root)?.totals();
                *reserved = totals.reserved.saturating_mul(page);
                self.slow.reserve = totals.min.saturating_mul(page);
            }
            Source::Group(group) => {
                group.refresh()?;
                self.slow.reserve = CHARGE_BATCH * page * cpus();
            }
        }
        if let Some(pods) = &mut self.pods {
            pods.refresh()?;
        }
        Ok(())
    }

    /// What changes slowly, as of the last [`NodeFiles::refresh`].
    pub const fn slow(&self) -> Slow {
        self.slow
    }

    /// The cgroup that is the node, if it is one.
    pub const fn node_group(&self) -> Option<&GroupFiles> {
        match &self.source {
            Source::Machine { .. } => None,
            Source::Group(group) => Some(group),
        }
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
            Source::Group(_) => Ok(None),
        }
    }

    /// `pid.available` for a number of threads.
    pub fn pids(&self, threads: Option<i64>, at: Moment) -> Option<Observation> {
        observe::pids(self.most_tasks, threads, Some(at))
    }

    /// How many tasks there may be.
    pub const fn most_tasks(&self) -> Option<i64> {
        self.most_tasks
    }

    /// The number of threads of the machine now.
    pub fn threads(&self) -> Option<i64> {
        let counts = self.tasks.as_ref()?.read().ok()?;
        Some(saturated(counts.threads))
    }

    /// Reads the node. Allocates nothing.
    ///
    /// # Errors
    /// [`HotError`] when the node's own memory cannot be read; anything else that cannot be is none.
    pub fn read(&self, at: Moment) -> Result<NodeFigures, HotError> {
        let (memory, headroom) = match &self.source {
            Source::Machine { meminfo, reserved } => machine(&meminfo.read()?, *reserved, at),
            Source::Group(group) => {
                let figures = group.read(at)?;
                (figures.available, figures.headroom)
            }
        };
        let pods = self.pods.as_ref().and_then(|pods| pods.read(at).ok());
        Ok(NodeFigures {
            at,
            memory,
            headroom,
            pods: pods.and_then(|figures| figures.available),
            pods_headroom: pods.and_then(|figures| figures.headroom),
            pids: self.pids(self.threads(), at),
        })
    }
}

impl GroupFiles {
    fn open(layout: &Layout, group: &str) -> Result<Self, HostError> {
        let dir = CgroupDir::open(layout.require(Controller::Memory)?, group)?;
        let mut files = Self {
            usage: UsageReader::open(&dir)?,
            stat: StatReader::open(&dir)?,
            dir,
            limit: None,
        };
        files.refresh()?;
        Ok(files)
    }

    fn refresh(&mut self) -> Result<(), HostError> {
        self.limit = self.dir.memory_limit()?.value();
        Ok(())
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
fn machine(info: &Meminfo, reserved: u64, at: Moment) -> (Option<Observation>, Option<i64>) {
    let inputs = info.memory_available_inputs();
    let used = inputs.anon.saturating_add(inputs.file);
    let working_set = used.saturating_sub(inputs.inactive_file);
    let free = info.free.saturating_sub(reserved);
    let headroom = free.saturating_add(info.reclaimable());
    (
        observe::memory(inputs.capacity, working_set, Some(at)),
        Some(saturated(headroom)),
    )
}

fn usable_swap(root: &Path) -> Result<u64, HostError> {
    let mut free = FreeSwap::default();
    for area in Swaps::read(root)?.areas {
        let kind = if area.is_zram() {
            &mut free.zram
        } else {
            &mut free.disk
        };
        *kind = kind.saturating_add(area.free());
    }
    Ok(free.usable())
}

fn cpus() -> u64 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u64)
}
