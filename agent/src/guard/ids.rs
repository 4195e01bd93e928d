//! Process ids from files: those of the machine, and of the cgroup that is the node, if that or a group above it has a limit.
//!
//! A fork is charged to the group of who forks and to every group above it, and fails at the first of them that is full. So the
//! node has what the tightest of them leaves, by that one's own count: whoever else is below it counts there too.

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
    /// The cgroup that is the node, and those above it; none where the machine is the node.
    groups: Vec<GroupIds>,
    /// Which of them left the least when the limits were read, if that was no more than the machine left.
    counted: Option<usize>,
}

/// The tasks of a cgroup that everybody in the node is charged to.
#[derive(Debug)]
struct GroupIds {
    dir: CgroupDir,
    /// None while no pids controller counts it.
    current: Option<TasksReader>,
    /// Its `pids.max`; without one it may have as many as what is above it.
    most: Option<i64>,
}

impl IdFiles {
    /// Opens the machine's, and those of the node if it is this group.
    pub fn open(root: &Path, layout: &Layout, group: Option<&str>) -> Self {
        Self {
            root: root.to_path_buf(),
            tasks: TaskCountReader::open(root).ok(),
            most: None,
            groups: group.map_or_else(Vec::new, |group| GroupIds::open(layout, group)),
            counted: None,
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
        for group in &mut self.groups {
            group.refresh()?;
        }
        self.counted = self.tightest();
        Ok(())
    }

    /// The group whose tasks are counted in place of the machine's threads.
    fn counted(&self) -> Option<&GroupIds> {
        let group = self.groups.get(self.counted?)?;
        Some(group).filter(|group| group.most.is_some())
    }

    /// The cgroup whose tasks are counted in place of the machine's, if one leaves less, and the number of its counter: another one
    /// once the controller was switched off and on again. It is the node's own or one above it.
    pub fn counter(&self) -> Option<(&CgroupDir, u64)> {
        let group = self.counted()?;
        Some((&group.dir, group.current.as_ref()?.id()))
    }

    /// Whether another than what is counted leaves less now: others have forked there since the limits were read.
    pub fn is_counted_elsewhere(&self) -> bool {
        self.is_limited() && self.tightest() != self.counted
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

    /// `pid.available`: what the groups leave, or the machine, whichever is less.
    pub fn available(&self, at: Moment) -> Option<Observation> {
        let machine = self.of_machine(Some(at));
        if !self.is_limited() {
            return machine;
        }
        let (_, group) = self.of_groups(Some(at))?;
        let less = machine.filter(|machine| machine.available < group.available);
        Some(less.unwrap_or(group))
    }

    fn of_machine(&self, at: Option<Moment>) -> Option<Observation> {
        observe::pids(self.most, self.machines(), at)
    }

    fn is_limited(&self) -> bool {
        self.groups.iter().any(|group| group.most.is_some())
    }

    /// Which group leaves the least, and what that is; none where one with a limit cannot be read, since it may be that one. Of
    /// several that leave as much it is the innermost.
    fn of_groups(&self, at: Option<Moment>) -> Option<(usize, Observation)> {
        let mut least: Option<(usize, Observation)> = None;
        for (index, group) in self.groups.iter().enumerate() {
            if group.most.is_none() {
                continue;
            }
            let seen = observe::pids(group.most, group.count(), at)?;
            if least.is_none_or(|(_, least)| seen.available < least.available) {
                least = Some((index, seen));
            }
        }
        least
    }

    /// The group that leaves the least, if that is no more than the machine leaves.
    fn tightest(&self) -> Option<usize> {
        let (index, group) = self.of_groups(None)?;
        let machine = self.of_machine(None);
        let is_less = machine.is_none_or(|machine| group.available <= machine.available);
        is_less.then_some(index)
    }
}

impl GroupIds {
    /// The group and those above it, as far as this mount shows them: no more are opened later. None where no pids controller
    /// could count this group.
    fn open(layout: &Layout, group: &str) -> Vec<Self> {
        let Some(hierarchy) = layout.hierarchy(Controller::Pids) else {
            return Vec::new();
        };
        let names = hierarchy.upwards(group).into_iter();
        // A group that is not in this hierarchy is not counted by those that would be above it.
        let dirs = names.map_while(|name| CgroupDir::open(hierarchy, &name).ok());
        dirs.map(|dir| Self {
            dir,
            current: None,
            most: None,
        })
        .collect()
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
