//! What each workload uses, at the instant of a decision: the sampler's numbers or the files', less warm inactive file memory.

use brink_core::base::Moment;
use brink_core::node::rank::rank_head;
use brink_core::node::signal::Signal;
use brink_core::node::threshold::ThresholdSet;
use brink_core::node::workload::PodUsage;
use brink_host::HotError;
use rustix::io::Errno;

use super::roster::Group;
use super::verify::verify_head;
use super::{Guard, now};

/// Below this nobody is killed for memory: the kernel's word that nothing runs there is enough.
const NEGLIGIBLE: u64 = 1 << 20;
/// Places that are put in order at first to find somebody who runs, and so many times more where nobody does.
const FIRST_HEAD: usize = 64;
const MORE: usize = 8;

impl Guard {
    /// Fills the usage of every workload. Allocates nothing while there is room for the table.
    pub(super) fn gather_usage(&mut self, count_processes: bool) {
        if let Some(kernel) = &mut self.kernel {
            kernel.check_meters();
        }
        let loaded = self
            .kernel
            .as_mut()
            .is_some_and(|k| !self.distrusted && k.load_usages());
        self.usage.clear();
        // A manifest whose pod does not run has no cgroup, and uses nothing: unknown it would go first.
        let nothing = PodUsage {
            memory: Some(0),
            processes: Some(0),
            ..PodUsage::default()
        };
        self.usage.resize(self.roster.table.len(), Some(nothing));
        for member in &self.roster.members {
            if let Some(used) = self.usage.get_mut(member.workload) {
                *used = None;
            }
        }
        for index in 0..self.roster.members.len() {
            let member = &self.roster.members[index];
            // The sampler may look again only when nobody believes any more that something comes back.
            let is_waited_for = self.engine.waits_for(member.workload);
            let slot = self.roster.slots[index].filter(|_| loaded && !is_waited_for);
            let sampled = slot.and_then(|slot| self.kernel.as_ref()?.usage(slot));
            let read = || match read_usage(&member.group) {
                Usage::Known(bytes) => Some(bytes),
                // Somebody may have hold of what the dead held that are waited for.
                Usage::Removed if is_waited_for => member.group.seen.get(),
                Usage::Removed => Some(0),
                Usage::Unknown => None,
            };
            let Some(bytes) = sampled.or_else(read) else {
                continue;
            };
            member.group.seen.set(bytes);
            let inactive = self.inactive_file(index);
            // Each costs a system call or is old, and only an order on process ids goes by them.
            let processes = count_processes.then(|| self.processes(index)).flatten();
            if let Some(slot) = self.usage.get_mut(member.workload) {
                let used = slot.get_or_insert_with(PodUsage::default);
                let working_set = bytes.saturating_sub(inactive);
                used.memory = Some(used.memory.unwrap_or(0).saturating_add(working_set));
                used.processes = match (used.processes, processes) {
                    (Some(sum), Some(more)) => Some(sum.saturating_add(more)),
                    (known, more) => known.or(more),
                };
            }
        }
        self.roster.disks.add_to(&mut self.usage);
    }

    /// Says that the kernel's counts of processes were given up, if so.
    pub(super) fn check_counts(&mut self) {
        let Some(kernel) = &mut self.kernel else {
            return;
        };
        kernel.check_meters();
        let why = if kernel.is_out_of_meters() {
            "more cgroups than the kernel's programs have room for; processes are counted from files"
        } else if kernel.is_table_full() {
            "there were more processes than the kernel's programs have room for; the largest cgroups' are counted from files"
        } else if !kernel.are_counts_whole() {
            "the kernel has left programs out that count processes, and what they missed cannot all be made good; processes are counted from files"
        } else {
            return;
        };
        self.trouble.get_or_insert_with(|| why.to_owned());
    }

    /// Reads the figures of those who would be chosen anew, since theirs decide.
    pub(super) fn verify_first(&mut self, signal: Signal) {
        let ranking = self.engine.ranking(signal);
        let mut usage = std::mem::take(&mut self.usage);
        let mut order = std::mem::take(&mut self.order);
        let read_anew = |workload: usize, used: &mut Option<PodUsage>| match signal {
            Signal::PidAvailable => self.count_anew(workload, used),
            _ => self.read_anew(workload, used),
        };
        let table = &self.roster.table;
        verify_head(ranking, table, &mut usage, &mut order, read_anew);
        self.usage = usage;
        self.order = order;
    }

    /// Looks whether anybody runs in those who would go for the filesystems of these thresholds: a kill takes only whoever runs,
    /// and what the others have left stays.
    pub(super) fn verify_for_disks(&mut self, met: ThresholdSet) {
        let at = now();
        for index in self.disks_met_in(met).iter() {
            let threshold = self.engine.policy().thresholds().get(index);
            if let Some(signal) = threshold.map(|threshold| threshold.signal) {
                self.pass_over_the_empty(signal, at);
            }
        }
    }

    /// Goes through the ranking up to the first one that would go and in which somebody runs; those before it refuse then.
    fn pass_over_the_empty(&mut self, signal: Signal, at: Moment) {
        let ranking = self.engine.ranking(signal);
        let mut usage = std::mem::take(&mut self.usage);
        let mut order = std::mem::take(&mut self.order);
        let (mut seen, mut head) = (0, FIRST_HEAD);
        loop {
            rank_head(ranking, &self.roster.table, &usage, &mut order, head);
            let goes = order.iter().take(head).skip(seen).any(|&index| {
                let place = index as usize;
                let refuses = |usage: &[Option<PodUsage>]| {
                    self.engine.refusal(at, signal, usage, place).is_some()
                };
                if !refuses(&usage)
                    && self.is_empty(place)
                    && let Some(Some(used)) = usage.get_mut(place)
                {
                    used.processes = Some(0);
                }
                !refuses(&usage)
            });
            if goes || head >= order.len() {
                break;
            }
            (seen, head) = (head, head * MORE);
        }
        self.usage = usage;
        self.order = order;
    }

    /// What the cgroups of a workload hold; of one that cannot be read, what it held when that was last possible.
    pub(super) fn held_by(&self, workload: usize) -> Held {
        let mut held = Held::default();
        for (_, group) in self.roster.of(workload) {
            let before = || group.seen.get().unwrap_or(0);
            let (sum, bytes) = match read_usage(group) {
                Usage::Known(bytes) => (&mut held.there, bytes),
                Usage::Unknown => (&mut held.there, before()),
                Usage::Removed => (&mut held.removed, before()),
            };
            *sum = Some(sum.unwrap_or(0).saturating_add(bytes));
        }
        held
    }

    /// What a workload uses now of memory, read for an order of its own; none where nothing can be read.
    pub(super) fn usage_now(&self, workload: usize) -> Option<PodUsage> {
        let mut used = None;
        self.read_anew(workload, &mut used);
        used
    }

    /// Reads what a workload uses now; no process where nothing runs.
    fn read_anew(&self, workload: usize, used: &mut Option<PodUsage>) {
        if self.is_deserted(workload, used.as_ref()) || self.is_empty(workload) {
            used.get_or_insert_default().processes = Some(0);
            return;
        }
        let mut sum = None;
        for (index, group) in self.roster.of(workload) {
            let (Usage::Known(usage), Ok(stat)) = (read_usage(group), group.stat.read()) else {
                continue;
            };
            if let (Some(figures), Some(bytes)) = (self.roster.board.get(index), stat.inactive_file)
            {
                figures.set_inactive_file(bytes);
            }
            let working_set = stat.working_set(usage).unwrap_or(usage);
            sum = Some(sum.unwrap_or(0_u64).saturating_add(working_set));
        }
        if let Some(memory) = sum {
            used.get_or_insert_default().memory = Some(memory);
        }
    }

    /// Counts a workload's processes now, where the kernel's programs do not count them as they come and go.
    fn count_anew(&self, workload: usize, used: &mut Option<PodUsage>) {
        let mut sum = None;
        for (_, group) in self.roster.of(workload) {
            let live = || self.kernel.as_ref()?.processes(&group.family);
            let Some(count) = live().or_else(|| group.target.processes()) else {
                continue;
            };
            sum = Some(sum.unwrap_or(0_u64).saturating_add(count));
        }
        if let Some(processes) = sum {
            used.get_or_insert_default().processes = Some(processes);
        }
    }

    /// Whether the kernel counts no process in a workload's cgroups, and next to nothing is left in them. Counts may
    /// drift, which would not matter then.
    fn is_deserted(&self, workload: usize, used: Option<&PodUsage>) -> bool {
        let is_small = used
            .and_then(|used| used.memory)
            .is_some_and(|memory| memory < NEGLIGIBLE);
        let counted = |family: &[u64]| self.kernel.as_ref()?.processes(family);
        let mut groups = self.roster.of(workload).peekable();
        is_small
            && groups.peek().is_some()
            && groups.all(|(_, group)| counted(&group.family) == Some(0))
    }

    /// Whether nothing runs in a workload's cgroups, for sure.
    pub(super) fn is_empty(&self, workload: usize) -> bool {
        let mut groups = self.roster.of(workload).peekable();
        groups.peek().is_some() && groups.all(|(_, group)| group.is_empty())
    }

    /// The inactive file memory of a member: warm, or read now when nobody has looked yet.
    fn inactive_file(&self, index: usize) -> u64 {
        let figures = self.roster.board.get(index);
        if let Some(warm) = figures.and_then(super::board::Figures::inactive_file) {
            return warm;
        }
        let read = self.roster.members[index].group.stat.read();
        let Some(bytes) = read.ok().and_then(|stat| stat.inactive_file) else {
            // The group is going away; with nothing known of its cache all of it counts.
            return 0;
        };
        if let Some(figures) = figures {
            figures.set_inactive_file(bytes);
        }
        bytes
    }

    /// Processes of a member by the kernel's count. Where that is not whole, the larger of it and the warm count.
    fn processes(&self, index: usize) -> Option<u64> {
        let family = &self.roster.members[index].group.family;
        let kernel = self.kernel.as_ref();
        if let Some(exact) = kernel.and_then(|kernel| kernel.processes(family)) {
            return Some(exact);
        }
        let tracked = kernel.and_then(|kernel| kernel.tracked_processes(family));
        tracked.max(
            self.roster
                .board
                .get(index)
                .and_then(super::board::Figures::processes),
        )
    }
}

/// What the file of a group says of its usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Usage {
    /// In bytes.
    Known(u64),
    /// The group was removed: what is left of its memory is its parent's.
    Removed,
    /// It cannot be read.
    Unknown,
}

/// What the cgroups of a workload hold, page cache included, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    /// Those that are there; none when there are none.
    pub(super) there: Option<u64>,
    /// Those that were removed, when they were last read; none when none was.
    pub(super) removed: Option<u64>,
}

impl Held {
    /// All of them; none when there are none.
    pub(super) fn total(self) -> Option<u64> {
        let sum = self
            .there
            .unwrap_or(0)
            .saturating_add(self.removed.unwrap_or(0));
        self.there.or(self.removed).map(|_| sum)
    }

    /// The same where nobody can look at any of them again.
    pub(super) fn out_of_sight(self) -> Self {
        Self {
            there: None,
            removed: self.total(),
        }
    }
}

/// The usage of a group by its file, which is remembered.
pub(super) fn read_usage(group: &Group) -> Usage {
    match group.usage.read() {
        Ok(bytes) => {
            group.seen.set(bytes);
            Usage::Known(bytes)
        }
        Err(HotError::Io(Errno::NODEV | Errno::NOENT)) => Usage::Removed,
        Err(_) => Usage::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use brink_core::base::Span;

    use super::super::scene::Scene;
    use super::now;

    #[test]
    fn nobody_goes_for_a_disk_in_whom_nobody_runs() {
        let mut scene = Scene::filling();
        scene.runs("a", 0);
        scene.leave_on_disk(50);
        assert!(scene.guard.engine.open_order().is_none());
        assert!(!scene.is_killed("a") && !scene.is_killed("idle"));
        scene.runs("a", 1);
        scene.leave_on_disk(50);
        assert!(scene.is_killed("a"));
    }

    #[test]
    fn an_order_for_a_disk_keeps_nobody_awake() {
        let mut scene = Scene::filling();
        scene.leave_on_disk(50);
        assert!(scene.guard.engine.open_order().is_some());
        scene.leave_on_disk(50);
        let due = scene.guard.times.evaluate;
        assert!(due > Some(now() + Span::from_secs(10)), "{due:?}");
    }
}
