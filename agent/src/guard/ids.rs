//! Process ids from files: those of the machine, or of the cgroup that is the node, if that has a limit of its own.

use std::path::{Path, PathBuf};

use brink_core::base::Moment;
use brink_core::node::observe::{self, Observation};
use brink_host::HostError;
use brink_host::cgroup::pids::TasksReader;
use brink_host::cgroup::{CgroupDir, Controller, Layout};
use brink_host::loadavg::TaskCountReader;
use brink_host::pid_limits::PidLimits;

use super::figures::saturated;

/// Readers of how many tasks there are and may be; counting allocates nothing.
#[derive(Debug)]
pub struct IdFiles {
    root: PathBuf,
    tasks: Option<TaskCountReader>,
    /// The smaller of `pid_max` and `threads-max`.
    most: Option<i64>,
    group: Option<GroupIds>,
}

/// The tasks of the cgroup that is the node.
#[derive(Debug)]
struct GroupIds {
    dir: CgroupDir,
    current: TasksReader,
    /// Its `pids.max`; without one it may have as many as the machine.
    most: Option<i64>,
}

impl IdFiles {
    /// Opens the machine's, and those of the node if it is this group.
    pub fn open(root: &Path, layout: &Layout, group: Option<&str>) -> Self {
        Self {
            root: root.to_path_buf(),
            tasks: TaskCountReader::open(root).ok(),
            most: None,
            group: group.and_then(|group| GroupIds::open(layout, group)),
        }
    }

    /// Reads the limits again.
    ///
    /// # Errors
    /// [`HostError`] with the path, when the group has gone.
    pub fn refresh(&mut self) -> Result<(), HostError> {
        let limits = PidLimits::read(&self.root);
        let known = |limit: Option<u64>| limit.map(saturated);
        self.most = observe::max_pid(known(limits.pid_max), known(limits.threads_max));
        if let Some(group) = &mut self.group {
            group.most = group.dir.pids_limit()?.value().map(saturated);
        }
        Ok(())
    }

    fn limited(&self) -> Option<&GroupIds> {
        self.group.as_ref().filter(|group| group.most.is_some())
    }

    /// The cgroup that is counted in place of the machine, if one is.
    pub fn group(&self) -> Option<&CgroupDir> {
        self.limited().map(|group| &group.dir)
    }

    /// How many tasks the node may have.
    pub fn most(&self) -> Option<i64> {
        self.limited().map_or(self.most, |group| group.most)
    }

    /// The number of tasks of the node now.
    pub fn count(&self) -> Option<i64> {
        match self.limited() {
            Some(group) => group.current.read().ok().map(saturated),
            None => self.machines(),
        }
    }

    /// The number of threads of the machine now.
    pub fn machines(&self) -> Option<i64> {
        let counts = self.tasks.as_ref()?.read().ok()?;
        Some(saturated(counts.threads))
    }

    /// `pid.available` for a number of tasks.
    pub fn available(&self, tasks: Option<i64>, at: Moment) -> Option<Observation> {
        observe::pids(self.most(), tasks, Some(at))
    }
}

impl GroupIds {
    /// None where no pids controller counts this group.
    fn open(layout: &Layout, group: &str) -> Option<Self> {
        let hierarchy = layout.hierarchy(Controller::Pids)?;
        let dir = CgroupDir::open(hierarchy, group).ok()?;
        let current = TasksReader::open(&dir).ok()?;
        Some(Self {
            dir,
            current,
            most: None,
        })
    }
}
