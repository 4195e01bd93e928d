//! The one open order: a workload being evicted, and the rules that say when it is over.

use super::credit::LIFETIME;
use super::pace::Pace;
use super::signal::Signal;
use crate::base::time::{Moment, Span};

/// Without a byte (or process) freed for this long after the kill, the next order may be given.
pub const PATIENCE: Span = Span::from_millis(200);
/// The same for disk space, which comes back when a pod's files are removed: the kubelet's cleanup wait.
pub const PATIENCE_DISK: Span = Span::from_secs(30);
/// The same where so little headroom is left that waiting costs the machine: long enough for a kill to show.
pub const PATIENCE_UNDER_RESERVE: Span = Span::from_millis(10);
/// A dry run kills nobody, so the crossing goes on; it is told again this often (the kubelet's cleanup wait).
pub const DRY_RUN_REPEAT: Span = Span::from_secs(30);
/// After the last process is gone, what it was charged for leaves the counters within this time.
const SETTLE: Span = Span::from_millis(20);
/// A group is charged no more for memory before that is free, so the signal shows it a moment later, within this time.
const SHOWING: Span = Span::from_millis(5);

/// What is left of a workload, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remains {
    /// Working set in bytes.
    pub memory: Option<u64>,
    /// Processes.
    pub processes: Option<u64>,
}

/// What an order is to bring back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stake {
    /// Memory: over when the victim's is back.
    Memory,
    /// Process ids: over when the victim's processes are gone, reaped or not.
    Processes,
    /// Bytes or inodes of a filesystem, whose own count decides.
    Disk,
}

impl Stake {
    /// What an order on this signal is to bring back.
    pub fn of(signal: Signal) -> Self {
        match signal {
            signal if signal.is_memory() => Self::Memory,
            Signal::PidAvailable => Self::Processes,
            _ => Self::Disk,
        }
    }

    const fn patience(self) -> Span {
        match self {
            Self::Memory | Self::Processes => PATIENCE,
            Self::Disk => PATIENCE_DISK,
        }
    }
}

/// How far an order has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Phase {
    /// Asked to end (SIGTERM); SIGKILL follows at `until`.
    Asked {
        /// End of the grace period.
        until: Moment,
    },
    /// Killed (SIGKILL).
    Killed {
        /// When the kill was ordered.
        at: Moment,
    },
}

/// Why an order is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum End {
    /// The victim's memory came back.
    MemoryBack,
    /// Its processes are gone; what they left charged is not theirs to free (tmpfs, page cache).
    Gone,
    /// The threshold is no longer crossed.
    Relieved,
    /// Nothing was freed within the patience, or next to nothing for 5 s.
    Stalled,
    /// So little headroom is left that the machine cannot wait.
    UnderReserve,
    /// Memory or process ids are short, which cannot wait for a filesystem.
    Overtaken,
    /// The kill could not be carried out.
    Failed,
    /// A dry run whose threshold is no longer crossed, or that is old enough to be told again.
    DryRun,
    /// Before the grace was over somebody pressed the stop button, or the victim became protected or left the table.
    Stopped,
}

/// The eviction that is being carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenOrder {
    /// Number of the order, increasing.
    pub id: u64,
    /// Index of the victim in the current table; none once it left the table.
    pub workload: Option<usize>,
    /// Index of the threshold in the policy.
    pub threshold: usize,
    /// How far it has come.
    pub phase: Phase,
    /// Nothing is really killed.
    pub dry_run: bool,
    /// When it was given.
    pub opened: Moment,
    /// Working set of the victim when it was chosen, in bytes.
    pub charged: u64,
    stake: Stake,
    /// What was known last.
    last: Remains,
    least: Remains,
    /// The most that the signal has shown since, in bytes or a count.
    most: Option<i64>,
    progress: Moment,
    /// How fast memory comes back.
    pace: Pace,
    /// When the last signal of the kill had been sent.
    sent: Option<Moment>,
    gone: Option<Moment>,
    /// When the victim was charged for next to nothing of what it held.
    back: Option<Moment>,
}

impl OpenOrder {
    /// A new order on `workload`, which holds `remains`.
    pub fn new(
        id: u64,
        victim: (usize, Remains),
        (threshold, stake): (usize, Stake),
        phase: Phase,
        now: Moment,
    ) -> Self {
        let (workload, remains) = victim;
        Self {
            id,
            workload: Some(workload),
            threshold,
            phase,
            dry_run: false,
            opened: now,
            charged: remains.memory.unwrap_or(0),
            stake,
            last: remains,
            least: remains,
            most: None,
            progress: now,
            pace: Pace::new(remains.memory.unwrap_or(0), now),
            sent: None,
            gone: None,
            back: None,
        }
    }

    /// Takes in what is left of the victim, and what the signal shows as available.
    pub fn observe(&mut self, now: Moment, remains: Remains, available: Option<i64>) {
        let fewer = less(remains.processes, self.least.processes);
        let less = fewer || less(remains.memory, self.least.memory);
        let more = self.stake != Stake::Memory && self.most.is_some() && available > self.most;
        if less || more {
            self.progress = now;
        }
        // Processes are not without end, single bytes may be.
        if fewer {
            self.pace.renew(now);
        }
        self.most = self.most.max(available);
        self.last.memory = remains.memory.or(self.last.memory);
        self.last.processes = remains.processes.or(self.last.processes);
        self.least.memory = least(remains.memory, self.least.memory);
        self.least.processes = least(remains.processes, self.least.processes);
        self.pace.observe(now, self.owed(), self.charged);
        if self.charged > 0 && self.owed() <= self.charged / 10 {
            self.back.get_or_insert(now);
        }
    }

    /// The kill has been sent: from now on there is something to wait for.
    pub fn mark_sent(&mut self, now: Moment) {
        self.progress = self.progress.max(now);
        self.pace.renew(now);
        self.sent = Some(now);
    }

    /// The victim has no process left.
    pub fn mark_gone(&mut self, now: Moment) {
        self.gone.get_or_insert(now);
        self.progress = self.progress.max(now);
    }

    /// Whether the victim has no process left; the order ends as soon as what it held is settled.
    pub const fn is_gone(&self) -> bool {
        self.gone.is_some()
    }

    /// Nobody looked for so long, until `now`: it is no time without progress, nor one that the kill had. A disk is waited for
    /// by the clock alone, as the kubelet does.
    pub fn missed(&mut self, now: Moment, time: Span) {
        if self.stake != Stake::Disk {
            self.progress = (self.progress + time).min(now);
            self.pace.missed(now, time);
            self.sent = self.sent.map(|sent| (sent + time).min(now));
        }
    }

    /// The soft order turns hard. What is to come back by the kill is what the victim holds now: it may have given back and
    /// taken again, or taken more, while it was only asked.
    pub fn harden(&mut self, now: Moment) {
        self.phase = Phase::Killed { at: now };
        self.progress = now;
        let holds = self.last.memory.unwrap_or(self.charged);
        if holds > self.charged / 10 {
            self.charged = holds;
            self.back = None;
            self.least = self.last;
        }
        self.pace = Pace::new(self.owed(), now);
    }

    /// Whether it is to bring memory back.
    pub fn is_for_memory(&self) -> bool {
        self.stake == Stake::Memory
    }

    /// Whether it is to bring process ids back.
    pub fn is_for_processes(&self) -> bool {
        self.stake == Stake::Processes
    }

    /// Whether it is to bring a filesystem back, and there is nothing to do for it but to wait.
    pub fn waits_for_disk(&self) -> bool {
        self.stake == Stake::Disk && (self.dry_run || !self.is_soft())
    }

    /// Whether the victim is only asked so far.
    pub fn is_soft(&self) -> bool {
        matches!(self.phase, Phase::Asked { .. })
    }

    /// End of the grace of a victim that is only asked so far; none where nothing is really done.
    pub fn deadline(&self) -> Option<Moment> {
        match self.phase {
            Phase::Asked { until } if !self.dry_run => Some(until),
            _ => None,
        }
    }

    /// Whether the grace is over and SIGKILL is due.
    pub fn is_due(&self, now: Moment) -> bool {
        matches!(self.phase, Phase::Asked { until } if until <= now) && self.gone.is_none()
    }

    /// Bytes freed so far.
    pub fn freed(&self) -> u64 {
        self.charged
            .saturating_sub(self.least.memory.unwrap_or(self.charged))
    }

    /// Bytes that the victim still holds, as far as known.
    pub fn owed(&self) -> u64 {
        self.charged - self.freed()
    }

    /// Whether the next order may be given, and why.
    pub fn end(&self, now: Moment, crossed: bool, under_reserve: bool) -> Option<End> {
        if self.dry_run {
            let over = !crossed || now >= self.opened + DRY_RUN_REPEAT;
            return over.then_some(End::DryRun);
        }
        let settled = self.gone.is_some_and(|gone| now >= gone + SETTLE);
        // Memory that comes back during a grace does not end it: whoever is left is still to go.
        let Phase::Killed { at } = self.phase else {
            return settled.then_some(End::Gone);
        };
        let is_memory = self.is_for_memory();
        let shows = |back: Moment| !crossed || now >= back + SHOWING;
        let rules = [
            (is_memory && self.back.is_some_and(shows), End::MemoryBack),
            (!is_memory && !crossed, End::Relieved),
            (self.stake != Stake::Disk && settled, End::Gone),
            (
                is_memory
                    && under_reserve
                    && now >= self.sent.unwrap_or(at) + PATIENCE_UNDER_RESERVE,
                End::UnderReserve,
            ),
            (now >= self.given_up(), End::Stalled),
        ];
        rules
            .into_iter()
            .find_map(|(holds, end)| holds.then_some(end))
    }

    /// When a kill is given up, if nothing comes back until then.
    pub fn given_up(&self) -> Moment {
        let patience = self.progress + self.stake.patience();
        if self.is_for_memory() {
            patience.min(self.pace.end(LIFETIME))
        } else {
            patience
        }
    }

    /// When this order changes by time alone.
    pub fn next_wake(&self) -> Moment {
        if self.dry_run {
            return self.opened + DRY_RUN_REPEAT;
        }
        let patience = match self.phase {
            Phase::Asked { until } => until,
            Phase::Killed { .. } => self.given_up(),
        };
        // A killed one for a filesystem is not over by that.
        let is_over = self.is_soft() || self.stake != Stake::Disk;
        let settled = self.gone.filter(|_| is_over).map(|gone| gone + SETTLE);
        // Only of a kill for memory it ends the order.
        let ends = self.is_for_memory() && !self.is_soft();
        let shown = self.back.filter(|_| ends).map(|back| back + SHOWING);
        settled.into_iter().chain(shown).fold(patience, Moment::min)
    }
}

fn less(now: Option<u64>, before: Option<u64>) -> bool {
    matches!((now, before), (Some(now), Some(before)) if now < before)
}

fn least(now: Option<u64>, before: Option<u64>) -> Option<u64> {
    match (now, before) {
        (Some(now), Some(before)) => Some(now.min(before)),
        (now, before) => now.or(before),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn ms(value: i64) -> Moment {
        Moment::from_nanos(value * 1_000_000)
    }

    fn holds(mib: u64, processes: u64) -> Remains {
        Remains {
            memory: Some(mib * MIB),
            processes: Some(processes),
        }
    }

    fn killed() -> OpenOrder {
        of(Stake::Memory)
    }

    fn of(stake: Stake) -> OpenOrder {
        let phase = Phase::Killed { at: ms(0) };
        OpenOrder::new(1, (0, holds(100, 4)), (0, stake), phase, ms(0))
    }

    #[test]
    fn an_order_on_process_ids_is_over_when_they_are_there_again_or_nobody_is_left() {
        let mut order = of(Stake::Processes);
        order.observe(ms(10), holds(0, 4), Some(100));
        assert_eq!(order.end(ms(199), true, true), None);
        order.observe(ms(199), holds(0, 4), Some(101));
        assert_eq!(order.end(ms(398), true, false), None);
        assert_eq!(order.end(ms(399), true, false), Some(End::Stalled));
        assert_eq!(order.end(ms(300), false, false), Some(End::Relieved));
        order.mark_gone(ms(300));
        assert_eq!(order.end(ms(320), true, false), Some(End::Gone));
    }

    #[test]
    fn disk_space_is_waited_for_as_long_as_the_kubelet_waits() {
        let order = of(Stake::Disk);
        assert_eq!(order.end(ms(29_999), true, true), None);
        assert_eq!(order.end(ms(30_000), true, false), Some(End::Stalled));
        let mut gone = of(Stake::Disk);
        gone.mark_gone(ms(50));
        assert_eq!(gone.next_wake(), ms(30_050));
        assert_eq!(gone.end(ms(30_050), true, false), Some(End::Stalled));
    }

    #[test]
    fn the_wait_begins_when_the_kill_has_been_sent() {
        let mut order = killed();
        order.mark_sent(ms(500));
        assert_eq!(order.end(ms(699), true, false), None);
        assert_eq!(order.end(ms(700), true, false), Some(End::Stalled));
    }

    #[test]
    fn over_when_the_memory_is_back() {
        let mut order = killed();
        order.observe(ms(5), holds(11, 1), None);
        assert_eq!(order.end(ms(5), true, false), None);
        order.observe(ms(6), holds(10, 1), None);
        assert_eq!(order.end(ms(6), false, false), Some(End::MemoryBack));
        assert_eq!(order.freed(), 90 * MIB);
    }

    #[test]
    fn memory_that_is_back_is_waited_for_until_the_signal_shows_it() {
        let mut order = killed();
        order.observe(ms(6), holds(10, 1), None);
        assert_eq!(order.next_wake(), ms(11));
        assert_eq!(order.end(ms(10), true, false), None);
        order.observe(ms(10), holds(9, 1), None);
        assert_eq!(order.end(ms(11), true, false), Some(End::MemoryBack));
    }

    #[test]
    fn over_when_nothing_is_freed_for_200_ms() {
        let mut order = killed();
        assert_eq!(order.end(ms(199), true, false), None);
        order.observe(ms(199), holds(99, 4), None);
        assert_eq!(order.end(ms(398), true, false), None);
        assert_eq!(order.end(ms(399), true, false), Some(End::Stalled));
    }

    #[test]
    fn single_bytes_keep_nobody_waiting_for_ever_but_processes_that_end_do() {
        const WHOLE: u64 = 100 * MIB;
        let stalls = |left: fn(u64) -> (u64, u64)| {
            let phase = Phase::Killed { at: ms(0) };
            let victim = (0, holds(100, 1_000));
            let mut order = OpenOrder::new(1, victim, (0, Stake::Memory), phase, ms(0));
            (1..=120)
                .map(|step: u32| (i64::from(step) * 100, u64::from(step)))
                .find_map(|(at, step)| {
                    let (memory, processes) = left(step);
                    let remains = Remains {
                        memory: Some(memory),
                        processes: Some(processes),
                    };
                    order.observe(ms(at), remains, None);
                    order.end(ms(at), true, false).map(|end| (at, end))
                })
        };
        assert_eq!(
            stalls(|step| (WHOLE - step, 1_000)),
            Some((5_000, End::Stalled))
        );
        assert_eq!(stalls(|step| (WHOLE - step * WHOLE / 1_600, 1_000)), None);
        assert_eq!(stalls(|step| (WHOLE - step, 1_000 - step)), None);
    }

    #[test]
    fn time_in_which_nobody_looked_is_no_time_without_progress() {
        let mut order = killed();
        order.missed(ms(310), Span::from_millis(300));
        assert_eq!(order.end(ms(499), true, false), None);
        assert_eq!(order.end(ms(500), true, false), Some(End::Stalled));
        let mut order = killed();
        order.missed(ms(310), Span::from_secs(30));
        assert_eq!(order.next_wake(), ms(510), "no longer than from now on");
        let mut disk = of(Stake::Disk);
        disk.missed(ms(20_000), Span::from_secs(10));
        assert_eq!(disk.next_wake(), ms(30_000));
    }

    #[test]
    fn a_process_that_ends_is_progress() {
        let mut order = killed();
        order.observe(ms(150), holds(100, 3), None);
        assert_eq!(order.end(ms(349), true, false), None);
    }

    #[test]
    fn unknown_remains_are_no_progress() {
        let mut order = killed();
        order.observe(ms(150), Remains::default(), None);
        assert_eq!(order.end(ms(200), true, false), Some(End::Stalled));
        assert_eq!(order.freed(), 0);
    }

    #[test]
    fn the_reserve_shortens_the_wait_but_lets_the_kill_show() {
        let order = killed();
        assert_eq!(order.end(ms(9), true, true), None);
        assert_eq!(order.end(ms(10), true, true), Some(End::UnderReserve));
        // A large victim on a busy machine takes long to be signalled.
        let mut order = killed();
        order.mark_sent(ms(55));
        assert_eq!(order.end(ms(64), true, true), None);
        assert_eq!(order.end(ms(65), true, true), Some(End::UnderReserve));
        order.missed(ms(360), Span::from_millis(300));
        assert_eq!(order.end(ms(364), true, true), None, "it had 5 ms");
        assert_eq!(order.end(ms(365), true, true), Some(End::UnderReserve));
    }

    #[test]
    fn gone_without_freeing_ends_after_settling() {
        let mut order = killed();
        order.mark_gone(ms(50));
        assert_eq!(order.end(ms(69), true, false), None);
        assert_eq!(order.end(ms(70), true, false), Some(End::Gone));
        assert_eq!(order.next_wake(), ms(70));
    }

    #[test]
    fn a_soft_order_waits_for_its_grace_and_can_be_hardened() {
        let mut order = killed();
        order.phase = Phase::Asked { until: ms(30_000) };
        assert_eq!(order.end(ms(5_000), true, true), None);
        assert!(!order.is_due(ms(29_999)) && order.is_due(ms(30_000)));
        order.harden(ms(6_000));
        assert!(!order.is_soft() && !order.is_due(ms(30_000)));
        assert_eq!(order.end(ms(6_199), true, false), None);
        assert_eq!(order.end(ms(6_200), true, false), Some(End::Stalled));
    }

    #[test]
    fn what_was_given_back_and_taken_again_during_a_grace_is_waited_for() {
        let mut order = killed();
        order.phase = Phase::Asked { until: ms(30_000) };
        order.observe(ms(1_000), holds(5, 1), None);
        order.observe(ms(2_000), holds(160, 1), None);
        order.harden(ms(6_000));
        assert_eq!((order.freed(), order.owed()), (0, 160 * MIB));
        assert_eq!(order.end(ms(6_100), true, false), None);
        order.observe(ms(6_150), holds(120, 1), None);
        assert_eq!(order.end(ms(6_349), true, false), None, "that is progress");
        order.observe(ms(6_200), holds(16, 1), None);
        assert_eq!(order.end(ms(6_205), true, false), Some(End::MemoryBack));
    }

    #[test]
    fn what_was_given_back_during_a_grace_is_not_waited_for_again() {
        let mut order = killed();
        order.phase = Phase::Asked { until: ms(30_000) };
        order.observe(ms(1_000), holds(5, 1), None);
        order.harden(ms(6_000));
        assert_eq!(order.end(ms(6_000), true, false), Some(End::MemoryBack));
    }

    #[test]
    fn memory_that_comes_back_during_a_grace_does_not_end_it() {
        let mut order = killed();
        order.phase = Phase::Asked { until: ms(30_000) };
        order.observe(ms(4_000), holds(0, 1), None);
        assert_eq!(order.end(ms(5_000), false, false), None);
        assert_eq!(order.next_wake(), ms(30_000));
        order.mark_gone(ms(6_000));
        assert_eq!(order.end(ms(6_020), false, false), Some(End::Gone));
    }

    #[test]
    fn a_dry_run_lasts_as_long_as_the_crossing_and_is_told_again() {
        let mut order = killed();
        order.dry_run = true;
        assert_eq!(order.end(ms(29_999), true, true), None);
        assert_eq!(order.end(ms(1), false, false), Some(End::DryRun));
        assert_eq!(order.end(ms(30_000), true, false), Some(End::DryRun));
    }
}
