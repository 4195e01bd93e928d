//! The probe as the guard uses it: slots for cgroups, watches for thresholds, and a check against the files.

mod own_groups;

use std::io;
use std::sync::Arc;

use brink_core::base::Moment;
use brink_core::node::observe::Observation;
use brink_core::node::policy::Policy;
use brink_core::node::signal::Signal;
use brink_host::cgroup::CgroupDir;
use brink_host::clock;
use brink_host::probe::abi::MAX_SLOTS;
use brink_host::probe::abi::command::Terms;
use brink_host::probe::abi::meter::{CgroupMeter, SamplerMeter};
use brink_host::probe::abi::sample::{NODE_KNOWN, Sample, USAGE_KNOWN, Usage};
use brink_host::probe::{Family, Meters, Probe, ProbeError, Victim};

use super::compared::{Compared, Told};
use super::figures::NodeFigures;
use super::files::NodeFiles;
use super::omitted::{Omissions, Omitted};
use super::roster::Roster;
use super::unreaped::Ends;
use super::watches::{FIRST_WORKLOAD_SLOT, NODE_SLOT, Terrain, Watches, watches};
use crate::ledger::entry::ReclaimCost;

/// Slots armed in one go; the rest follows in later turns, so that no turn is long.
const ARMED_A_TURN: usize = 16;

/// A sampler whose timer has not fired for so long stands still, in nanoseconds.
const OLDEST_TICK: u64 = 1_000_000_000;

/// Usages that were read longer ago are read anew, in nanoseconds: near a limit nothing may be told for seconds.
const OLDEST_USAGE: u64 = 1_000_000_000;

/// When a sample was taken.
fn at_of(sample: &Sample) -> Moment {
    Moment::from_nanos(i64::try_from(sample.at_ns).unwrap_or(i64::MAX))
}

/// The sampler, armed for this node.
pub struct Kernel {
    probe: Probe,
    /// Why the sampler itself cannot serve, though other programs run.
    without_sampler: Option<String>,
    meters: Option<Arc<Meters>>,
    /// Whether the kernel counts the processes of each cgroup.
    counts_processes: bool,
    /// Whether it did, and found no room for a cgroup: counts are never made good then.
    is_out_of_meters: bool,
    /// Processes that found no room in the kernel's table, as of [`Kernel::check_meters`].
    untracked: Option<u64>,
    /// Processes that the programs were kept from counting.
    omissions: Omissions,
    /// Ends of tasks that no program has seen.
    ends: Ends,
    watches: Watches,
    capacity: i64,
    pods_capacity: Option<i64>,
    /// Why the sampler does not have the cgroup of all pods, though there is one.
    without_pods: Option<String>,
    usages: Box<[Usage; MAX_SLOTS]>,
    /// Id of the cgroup that each slot is armed for.
    armed: Box<[Option<u64>; MAX_SLOTS]>,
    /// The terms that the node's own slots have.
    terms: [Option<Terms>; FIRST_WORKLOAD_SLOT as usize],
    generation: u32,
    /// Whose tasks are compared with which limit.
    compared: Compared,
    /// Members of the roster up to this one have had their try at a slot.
    tried: usize,
}

impl Kernel {
    /// Takes a loaded probe over. It stands still until [`Kernel::arm`].
    pub fn new(mut probe: Probe, meters: Option<Arc<Meters>>) -> Self {
        // Counts are right only if every change was seen since they were taken.
        let counts_processes =
            probe.coverage().whole(Family::Process) && probe.sync_processes().is_ok();
        Self {
            without_sampler: crate::equip::without_sampler(&probe),
            meters,
            counts_processes,
            is_out_of_meters: false,
            untracked: None,
            omissions: Omissions::default(),
            ends: Ends::default(),
            probe,
            watches: Watches::default(),
            capacity: 0,
            pods_capacity: None,
            without_pods: None,
            usages: Box::new([Usage::default(); MAX_SLOTS]),
            armed: Box::new([None; MAX_SLOTS]),
            terms: [None; FIRST_WORKLOAD_SLOT as usize],
            generation: 0,
            compared: Compared::new(),
            tried: 0,
        }
    }

    /// The probe itself, for its signals.
    pub const fn probe(&mut self) -> &mut Probe {
        &mut self.probe
    }

    /// The probe, to look at.
    pub const fn probe_ref(&self) -> &Probe {
        &self.probe
    }

    /// Why the sampler itself cannot serve, though other programs run.
    pub fn without_sampler(&self) -> Option<&str> {
        self.without_sampler.as_deref()
    }

    /// Points the sampler at the node, its slots and its thresholds, and starts it; again at each
    /// housekeeping pass, since limits and reserves move.
    ///
    /// # Errors
    /// [`ProbeError`] when the sampler cannot serve this node; the next rung does then. That it cannot be pointed at the cgroup of all
    /// pods is none: [`Kernel::without_pods`].
    pub fn arm(
        &mut self,
        files: &NodeFiles,
        policy: &Policy,
        terrain: Terrain,
    ) -> Result<(), ProbeError> {
        if let Ok(Some(info)) = files.meminfo() {
            let free = || match files.meminfo() {
                Ok(Some(info)) => Ok(info.free),
                _ => Err(io::Error::other("MemFree cannot be read")),
            };
            self.probe.arm_node(info.total, free)?;
        }
        if let Some(group) = files.node_group() {
            self.arm_group(NODE_SLOT, group)?;
        }
        self.arm_pods(files.pods_group());
        self.capacity = terrain.capacity;
        self.pods_capacity = terrain.pods_capacity;
        self.watch(policy, terrain)?;
        if self.is_ticking() {
            return Ok(());
        }
        self.probe.start()
    }

    /// From the latest tick to the next one, in nanoseconds.
    pub fn period_ns(&self) -> Option<u64> {
        Some(self.probe.sample()?.period_ns)
    }

    /// Whether the timer runs: it fired no longer ago than ticks can be apart. The latest sample tells nothing of it: each
    /// cross-check has one taken.
    fn is_ticking(&self) -> bool {
        let meter = self.meters.as_ref().map(|meters| meters.sampler());
        let Some(Ok(SamplerMeter { fired_ns, .. })) = meter else {
            return false;
        };
        fired_ns > 0 && clock::monotonic_ns().saturating_sub(fired_ns) < OLDEST_TICK
    }

    /// Whether the programs tell of everything that these thresholds wait for: no limit is left out, the cgroup of all pods neither, and
    /// threads are counted.
    pub fn tells_of_all(&self, at: Moment, policy: &Policy) -> bool {
        let mut thresholds = policy.thresholds().iter();
        self.watches.left_out == 0
            && self.tells_of_pods(policy)
            && (self.tells_of_ids(at)
                || thresholds.all(|threshold| threshold.signal != Signal::PidAvailable))
    }

    /// Whether the programs count the tasks of the node, so that they tell of a limit on them; not while the kernel leaves out those
    /// that see who comes.
    pub fn tells_of_ids(&self, at: Moment) -> bool {
        self.compared.is_node() && self.counts_tasks() && !self.may_miss_ids(at)
    }

    /// Whether the programs see every task that comes and goes, but for those for which the kernel leaves them out.
    pub(super) fn counts_tasks(&self) -> bool {
        self.probe.coverage().whole(Family::Process)
    }

    /// Whether a limit on tasks may be crossed with no program begun for it, as the kernel has left some out just now.
    pub(super) fn may_miss_ids(&self, at: Moment) -> bool {
        self.omissions.may_go_on(at)
    }

    /// Compares with the limits that these thresholds and this terrain call for from now on.
    ///
    /// # Errors
    /// [`ProbeError`].
    pub fn watch(&mut self, policy: &Policy, terrain: Terrain) -> Result<(), ProbeError> {
        let watches = watches(policy, self.reached(terrain));
        if watches != self.watches {
            self.probe.set_watches(&watches.list)?;
            self.watches = watches;
        }
        Ok(())
    }

    /// Compares the limit on threads with the tasks of this cgroup, of whose counter the number is given, or with the machine's
    /// threads.
    pub fn count_tasks_of(&mut self, group: Option<(&CgroupDir, u64)>) {
        let counter = group.map(|(group, number)| (group.id().0, number));
        let Self {
            compared, probe, ..
        } = self;
        let fd = group.map(|(group, _)| std::os::fd::AsFd::as_fd(group));
        compared.count(counter, |told| match told {
            Told::Counter => probe.count_tasks_of(fd).is_ok(),
            Told::Limit(limit) => probe.set_thread_limit(limit).is_ok(),
        });
    }

    /// Asks for a signal at this number of threads.
    pub fn limit_threads(&mut self, limit: Option<u32>) {
        let Self {
            compared, probe, ..
        } = self;
        compared.limit(limit, |limit| probe.set_thread_limit(limit).is_ok());
    }

    /// Arms slots for the cgroups of a roster, some at a time, each tried once; true when all were.
    pub fn arm_roster(&mut self, roster: &mut Roster) -> bool {
        let mut left = ARMED_A_TURN;
        for index in self.tried..roster.members.len() {
            self.tried = index;
            if roster.slots[index].is_some() {
                continue;
            }
            if left == 0 {
                return false;
            }
            left -= 1;
            let Some(slot) = self.free_slot() else {
                return true;
            };
            let target = &roster.members[index].group.target;
            let fd = std::os::fd::AsFd::as_fd(target);
            if self
                .arm_slot(slot, target.id().0, fd, Terms::default())
                .is_ok()
            {
                roster.slots[index] = Some(slot);
            }
        }
        true
    }

    /// Gives each member of a new roster the slot its cgroup has already, and frees the others.
    pub fn adopt_roster(&mut self, roster: &mut Roster) {
        self.tried = 0;
        for slot in FIRST_WORKLOAD_SLOT as usize..MAX_SLOTS {
            let Some(id) = self.armed[slot] else {
                continue;
            };
            let member = roster
                .members
                .iter()
                .position(|member| member.group.target.id().0 == id);
            let number = u32::try_from(slot).unwrap_or(u32::MAX);
            if let Some(member) = member {
                roster.slots[member] = Some(number);
            } else {
                let _gone_already = self.probe.disarm_slot(number);
                self.armed[slot] = None;
            }
        }
    }

    fn free_slot(&self) -> Option<u32> {
        let first = FIRST_WORKLOAD_SLOT as usize;
        let free = self.armed.iter().skip(first).position(Option::is_none)?;
        u32::try_from(first + free).ok()
    }

    fn arm_slot(
        &mut self,
        slot: u32,
        id: u64,
        fd: std::os::fd::BorrowedFd<'_>,
        terms: Terms,
    ) -> Result<(), ProbeError> {
        self.generation = self.generation.wrapping_add(1);
        self.probe.arm_slot(slot, self.generation, fd, terms)?;
        if let Some(armed) = self.armed.get_mut(slot as usize) {
            *armed = Some(id);
        }
        Ok(())
    }

    /// The latest sample.
    pub fn sample(&self) -> Option<Sample> {
        self.probe.sample()
    }

    /// Copies the usages that go with the latest record, or those of now where it is older; false when they could not be had, or
    /// are old and cannot be read anew.
    pub fn load_usages(&mut self) -> bool {
        let is_fresh =
            |swept_ns: u64| clock::monotonic_ns().saturating_sub(swept_ns) <= OLDEST_USAGE;
        if self.probe.usages(&mut self.usages).is_some_and(is_fresh) {
            return true;
        }
        self.probe.sweep().is_ok() && self.probe.usages(&mut self.usages).is_some()
    }

    /// The usage of a slot's cgroup as of [`Kernel::load_usages`], in bytes; none when it is unknown.
    pub fn usage(&self, slot: u32) -> Option<u64> {
        let usage = self.usages.get(slot as usize)?;
        (usage.state == USAGE_KNOWN).then_some(usage.bytes)
    }

    /// What a sample says of the node. Process ids are the caller's.
    pub fn figures(&self, sample: &Sample) -> NodeFigures {
        let at = at_of(sample);
        let value = |index: Option<usize>| {
            let index = index?;
            let known = sample.unknown & (1 << index) == 0;
            sample.values.get(index).copied().filter(|_| known)
        };
        let observed = |available: Option<i64>, capacity: i64| {
            available.map(|available| Observation {
                available,
                capacity,
                at: Some(at),
            })
        };
        let pods = value(self.watches.pods);
        let node_known = sample.flags & NODE_KNOWN != 0 || self.armed[NODE_SLOT as usize].is_some();
        NodeFigures {
            at,
            memory: observed(
                value(self.watches.available).filter(|_| node_known),
                self.capacity,
            ),
            headroom: value(self.watches.headroom).filter(|_| node_known),
            headroom_by_zone: None,
            pods: self
                .pods_capacity
                .and_then(|capacity| observed(pods, capacity)),
            pods_headroom: value(self.watches.pods_headroom),
            pids: None,
        }
    }

    /// Whether the kernel counts the processes of each cgroup.
    pub const fn counts_processes(&self) -> bool {
        self.counts_processes
    }

    /// Looks whether every cgroup that a process came into has had its meters; the counts are given up when one had none,
    /// since a cgroup without meters would count as empty.
    pub fn check_meters(&mut self) {
        if self.counts_processes {
            let found = self.probe.processes();
            self.untracked = found.as_ref().ok().map(|meter| meter.untracked);
            self.counts_processes = found.is_ok_and(|meter| meter.unmetered == 0);
            self.is_out_of_meters = !self.counts_processes;
        }
    }

    /// Asks how often the kernel has left programs out that count processes; true while somebody may have come who is not counted.
    pub(super) fn ask_for_omissions(&mut self, at: Moment) -> bool {
        let meters = self.meters.iter();
        let told = meters.flat_map(|meters| meters.skipped(Omitted::concerns));
        self.omissions.hear(Omitted::of(told), at)
    }

    /// Compares the counts of processes with the kernel's lists, and makes them good. Where that fails, what was counted since it last
    /// worked stands.
    pub(super) fn sync_processes(&mut self, at: Moment) {
        // Asked before it: who comes unseen meanwhile may not be met.
        self.ask_for_omissions(at);
        if self.probe.sync_processes().is_ok() {
            self.omissions.make_good();
        }
    }

    /// Whether nobody has ended unseen.
    pub(super) const fn have_ends_been_seen(&self) -> bool {
        self.omissions.have_ends_been_seen()
    }

    /// Whether every process is counted and nobody else, for all that the kernel tells.
    pub(super) const fn are_counts_whole(&self) -> bool {
        self.omissions.are_none()
    }

    /// Makes the kernel's count of threads good by the machine's, which `machines` reads. Where it cannot be, what was counted
    /// serves.
    pub fn calibrate_threads(&mut self, machines: impl Fn() -> Option<i64>) {
        let count = || {
            let threads = machines().and_then(|threads| u64::try_from(threads).ok());
            threads.ok_or_else(|| io::Error::other("/proc/loadavg has no count of tasks"))
        };
        if let Ok(delta) = self.probe.calibrate_threads(count) {
            self.ends.correct(delta);
        }
    }

    /// Ends that no program sees are counted from here.
    pub const fn mark_ends(&mut self) {
        self.ends.mark();
    }

    /// Tasks that have ended since that mark though no program has seen it.
    pub fn unseen_ends(&self) -> u64 {
        self.ends.unseen()
    }

    /// How many tasks have come into another cgroup; none when that is not seen.
    pub fn attaches(&self) -> Option<u64> {
        let is_seen = self.probe.coverage().whole(Family::Process);
        let meter = self.probe.processes().ok().filter(|_| is_seen)?;
        Some(meter.attaches)
    }

    /// Whether the kernel's counts were given up.
    pub const fn is_out_of_meters(&self) -> bool {
        self.is_out_of_meters
    }

    /// Whether there were more processes than the kernel's table has room for: some cgroups' counts are too low.
    pub const fn is_table_full(&self) -> bool {
        matches!(self.untracked, Some(1..))
    }

    /// Processes of a family of cgroups, by the kernel's own count, as of [`Kernel::check_meters`]; none when it does
    /// not count them, or not all of them, or others too.
    pub fn processes(&self, family: &[u64]) -> Option<u64> {
        if !self.are_counts_whole() {
            return None;
        }
        self.sum_of_meters(family, |meter| match meter {
            Some(meter) if meter.untracked > 0 => None,
            found => Some(found.map_or(0, |meter| meter.processes)),
        })
    }

    /// Those that found room in the kernel's table: a family has at least so many.
    pub fn tracked_processes(&self, family: &[u64]) -> Option<u64> {
        self.sum_of_meters(family, |meter| {
            Some(meter.map_or(0, |meter| meter.processes))
        })
    }

    /// Processes of cgroups that had some, with those that have exited and that nobody has reaped: all that hold a
    /// process id. A removed cgroup keeps its meters until the last of them is reaped; without them nobody is left. None
    /// where some found no room in the kernel's table.
    pub fn processes_and_zombies(&self, cgroups: &[u64]) -> Option<u64> {
        self.sum_of_dying(cgroups, |meter| {
            meter.processes.saturating_add(meter.zombies.max(0))
        })
    }

    /// Of those the ones that have exited.
    pub fn zombies(&self, cgroups: &[u64]) -> Option<u64> {
        self.sum_of_dying(cgroups, |meter| meter.zombies.max(0))
    }

    fn sum_of_dying(&self, cgroups: &[u64], value: impl Fn(&CgroupMeter) -> i64) -> Option<u64> {
        self.sum_of_meters(cgroups, |meter| match meter {
            Some(meter) if meter.untracked > 0 => None,
            Some(meter) => Some(value(&meter)),
            None => Some(0),
        })
    }

    /// Processes that found no room in the kernel's table, as of [`Kernel::check_meters`]; none when nobody counts them.
    pub fn untracked(&self) -> Option<u64> {
        self.untracked.filter(|_| self.counts_processes)
    }

    /// Whether a process has been in this very cgroup.
    pub fn has_meter(&self, cgroup: u64) -> bool {
        let found = self.meters.as_ref().map(|meters| meters.cgroup(cgroup));
        matches!(found, Some(Ok(Some(_))))
    }

    fn sum_of_meters(
        &self,
        cgroups: &[u64],
        value: impl Fn(Option<CgroupMeter>) -> Option<i64>,
    ) -> Option<u64> {
        let meters = self.meters.as_ref().filter(|_| self.counts_processes)?;
        let mut sum = 0_i64;
        for &id in cgroups {
            sum = sum.saturating_add(value(meters.cgroup(id).ok()?)?);
        }
        u64::try_from(sum).ok()
    }

    /// What tasks in these cgroups spent in reclaim; none where nobody looks.
    pub fn reclaim_cost<'a>(&self, ids: impl Iterator<Item = &'a u64>) -> Option<ReclaimCost> {
        let whole = self.probe.coverage().whole(Family::Reclaim);
        let meters = self.meters.as_ref().filter(|_| whole)?;
        let mut sum = ReclaimCost::default();
        for &id in ids {
            if let Some(meter) = meters.cgroup(id).ok()? {
                sum.node += meter.direct;
                sum.node_ns += meter.direct_ns;
                sum.cgroup += meter.memcg;
                sum.cgroup_ns += meter.memcg_ns;
                sum.pages += meter.reclaimed;
            }
        }
        Some(sum)
    }

    /// Asks for a signal when the cgroup's processes are gone.
    ///
    /// # Errors
    /// [`ProbeError`] when too many are watched already.
    pub fn watch_victim(&mut self, id: u64) -> Result<(), ProbeError> {
        self.probe.watch_victim(Victim::Cgroup(id))
    }

    /// Asks no longer.
    pub fn unwatch_victim(&mut self, id: u64) {
        let _not_watched = self.probe.unwatch_victim(Victim::Cgroup(id));
    }
}
