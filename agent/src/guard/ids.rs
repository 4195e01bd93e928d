//! Process ids from files: those of the machine, and of the cgroup that is the node, if that has a limit of its own.

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
    /// The group left less than the machine when the limits were read.
    counts_group: bool,
}

/// The tasks of the cgroup that is the node.
#[derive(Debug)]
struct GroupIds {
    dir: CgroupDir,
    /// None while no pids controller counts it.
    current: Option<TasksReader>,
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
            counts_group: false,
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
            group.refresh()?;
        }
        let left = |seen: Option<Observation>| seen.map(|seen| seen.available);
        let (group, machine) = (left(self.of_group(None)), left(self.of_machine(None)));
        self.counts_group = group.is_some() && machine.is_none_or(|machine| group <= Some(machine));
        Ok(())
    }

    fn limited(&self) -> Option<&GroupIds> {
        self.group.as_ref().filter(|group| group.most.is_some())
    }

    fn counted(&self) -> Option<&GroupIds> {
        self.limited().filter(|_| self.counts_group)
    }

    /// The cgroup whose tasks are counted in place of the machine's, if one leaves less, and the number of its counter: another one
    /// once the controller was switched off and on again.
    pub fn counter(&self) -> Option<(&CgroupDir, u64)> {
        let group = self.counted()?;
        Some((&group.dir, group.current.as_ref()?.id()))
    }

    /// How many of the tasks that are counted there may be.
    pub fn most(&self) -> Option<i64> {
        self.counted().map_or(self.most, |group| group.most)
    }

    /// The number of these now.
    pub fn count(&self) -> Option<i64> {
        match self.counted() {
            Some(group) => group.count(),
            None => self.machines(),
        }
    }

    /// The number of threads of the machine now.
    pub fn machines(&self) -> Option<i64> {
        let counts = self.tasks.as_ref()?.read().ok()?;
        Some(saturated(counts.threads))
    }

    /// `pid.available`: what the group leaves, or the machine, whichever is less.
    pub fn available(&self, at: Moment) -> Option<Observation> {
        let machine = self.of_machine(Some(at));
        if self.limited().is_none() {
            return machine;
        }
        let group = self.of_group(Some(at))?;
        let less = machine.filter(|machine| machine.available < group.available);
        Some(less.unwrap_or(group))
    }

    fn of_machine(&self, at: Option<Moment>) -> Option<Observation> {
        observe::pids(self.most, self.machines(), at)
    }

    fn of_group(&self, at: Option<Moment>) -> Option<Observation> {
        let group = self.limited()?;
        observe::pids(group.most, group.count(), at)
    }
}

impl GroupIds {
    /// None where no pids controller could count this group.
    fn open(layout: &Layout, group: &str) -> Option<Self> {
        let hierarchy = layout.hierarchy(Controller::Pids)?;
        Some(Self {
            dir: CgroupDir::open(hierarchy, group).ok()?,
            current: None,
            most: None,
        })
    }

    /// Reads the limit again. A controller that was switched off and on has files of its own, and counts anew.
    fn refresh(&mut self) -> Result<(), HostError> {
        let current = self.current.as_ref();
        if !current.is_some_and(|current| current.is_of(&self.dir)) {
            self.current = TasksReader::open(&self.dir).ok();
        }
        self.most = match self.current {
            Some(_) => self.dir.pids_limit()?.value().map(saturated),
            None => None,
        };
        Ok(())
    }

    fn count(&self) -> Option<i64> {
        self.current.as_ref()?.read().ok().map(saturated)
    }
}
