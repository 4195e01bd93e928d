//! Credit for the dying: memory that has been killed for but has not come back yet.

use super::pace::Pace;
use crate::base::time::{Moment, Span};

/// How long the next part of what a death owes is waited for, and process ids that nobody counts.
pub const LIFETIME: Span = Span::from_millis(5_000);
/// A death that has freed nothing for this long is no longer believed in.
pub const PATIENCE: Span = Span::from_millis(200);

/// How long files in the memory of an evicted pod are waited for: they go when the kubelet unmounts its volumes, and so long it
/// waits itself before it evicts the next one.
pub const UNMOUNTING: Span = Span::from_secs(30);

/// The workload of a death whose own is in the table no more, or whose cgroups were removed: the node's usage stands for its.
pub const NOBODY: usize = usize::MAX;

/// One workload that lost processes and still holds their memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Dying {
    /// Index of the workload in the current table.
    pub workload: usize,
    /// Bytes that the dead processes were charged with: the credit never exceeds them.
    charged: u64,
    /// Usage of the workload when they were killed, or at the first look after it, in bytes.
    baseline: Option<u64>,
    /// The least usage seen since, in bytes.
    least: u64,
    since: Moment,
    progress: Moment,
    pace: Pace,
    /// Files in memory, which come back all at once or not at all.
    is_mounted: bool,
}

impl Dying {
    /// A death seen at `now`: `charged` of the workload's `usage` bytes belong to it, if that is known.
    pub fn new(workload: usize, charged: u64, usage: Option<u64>, now: Moment) -> Self {
        let charged = charged.min(usage.unwrap_or(charged));
        Self {
            workload,
            charged,
            baseline: usage,
            least: usage.unwrap_or(u64::MAX),
            since: now,
            progress: now,
            pace: Pace::new(charged, now),
            is_mounted: false,
        }
    }

    /// Files in memory that outlive the processes, in bytes: nothing of them comes back before the kubelet unmounts them.
    pub fn mounted(workload: usize, bytes: u64, now: Moment) -> Self {
        Self {
            is_mounted: true,
            ..Self::new(workload, bytes, None, now)
        }
    }

    /// The same with a kill that nobody looked after since: it is waited for no longer than any other.
    #[must_use]
    pub fn killed_at(mut self, at: Moment) -> Self {
        self.since = at.min(self.since);
        self.pace.began(at);
        self
    }

    fn observe(&mut self, now: Moment, usage: Option<u64>) {
        let Some(usage) = usage else {
            return;
        };
        if self.baseline.is_none() {
            self.baseline = Some(usage);
            self.charged = self.charged.min(usage);
            self.least = usage;
        } else if usage < self.least {
            self.least = usage;
            self.progress = now;
        }
        self.pace.observe(now, self.owed(), self.charged);
    }

    /// Nobody looked for so long: it is no time without progress.
    fn missed(&mut self, now: Moment, time: Span) {
        if !self.is_mounted {
            self.progress = (self.progress + time).min(now);
            self.pace.missed(now, time);
        }
    }

    fn believed(&self, now: Moment) -> bool {
        now < self.end()
    }

    /// When it is believed in no longer, if nothing comes back until then.
    fn end(&self) -> Moment {
        if self.is_mounted {
            return self.since + UNMOUNTING;
        }
        let pace = self.pace.end(LIFETIME);
        pace.min(self.progress + PATIENCE)
    }

    /// Bytes still owed by this death.
    fn owed(&self) -> u64 {
        let freed = self
            .baseline
            .map_or(0, |before| before.saturating_sub(self.least));
        self.charged.saturating_sub(freed)
    }
}

/// Every death that is being waited for; a fixed number, the oldest gives way.
#[derive(Clone, Debug, Default)]
pub struct Credit {
    dying: [Option<Dying>; Self::SLOTS],
    /// Bytes that the node used at the last look, if that is known.
    node: Option<u64>,
}

impl Credit {
    /// Deaths followed at a time.
    pub const SLOTS: usize = 16;

    /// Follows another death; the one seen first makes room when all slots are taken.
    pub fn add(&mut self, death: Dying) {
        let slot = self
            .dying
            .iter_mut()
            .min_by_key(|slot| slot.map(|old| old.since));
        if let Some(slot) = slot {
            *slot = Some(death);
        }
    }

    /// The same in the place of all other deaths of that workload, whose bytes are among those of this one.
    pub fn replace(&mut self, death: Dying) {
        self.forget(death.workload);
        self.add(death);
    }

    /// Waits for so many bytes more that are in no cgroup any more of which it could be told how much they hold. All of
    /// these are one death, since the node's usage shows only once what comes back of them.
    pub fn add_nobodys(&mut self, bytes: u64, now: Moment) {
        if bytes == 0 {
            return;
        }
        let before = self.dying.iter().flatten();
        let before = before.filter(|death| death.workload == NOBODY);
        let owed = before.map(Dying::owed).fold(bytes, u64::saturating_add);
        self.replace(Dying {
            baseline: self.node,
            least: self.node.unwrap_or(u64::MAX),
            ..Dying::new(NOBODY, owed, None, now)
        });
    }

    /// No death of that workload is waited for any more.
    pub fn forget(&mut self, workload: usize) {
        for slot in &mut self.dying {
            *slot = slot.filter(|death| death.workload != workload);
        }
    }

    /// Takes in the current usage of each workload, for [`NOBODY`] that of the node, and forgets the deaths that are over.
    pub fn observe(&mut self, now: Moment, usage: impl Fn(usize) -> Option<u64>) {
        self.node = usage(NOBODY).or(self.node);
        for slot in &mut self.dying {
            if let Some(death) = slot {
                death.observe(now, usage(death.workload));
                if !death.believed(now) || death.owed() == 0 {
                    *slot = None;
                }
            }
        }
    }

    /// Nobody looked for so long, until `now`: all waits but for a kubelet, who had that time, begin as much later.
    pub fn missed(&mut self, now: Moment, time: Span) {
        for death in self.dying.iter_mut().flatten() {
            death.missed(now, time);
        }
    }

    /// Whether any death is waited for.
    pub fn is_owed(&self) -> bool {
        self.dying.iter().any(Option::is_some)
    }

    /// Bytes that are expected to come back; nothing counts under the kernel's reserve, where there is no time to wait.
    pub fn bytes(&self, now: Moment, under_reserve: bool) -> u64 {
        if under_reserve {
            return 0;
        }
        let believed = self.dying.iter().flatten().filter(|d| d.believed(now));
        believed.map(Dying::owed).fold(0, u64::saturating_add)
    }

    /// Whether a death in this workload is still being waited for.
    pub fn covers(&self, workload: usize) -> bool {
        self.dying.iter().flatten().any(|d| d.workload == workload)
    }

    /// Carries the deaths over to a new table at `now`; `place` gives a workload's new index. Those of whoever is not in it are
    /// nobody's; but who unmounts the volumes of a pod removes that afterwards.
    pub fn remap(&mut self, now: Moment, place: impl Fn(usize) -> Option<usize>) {
        let mut left = 0_u64;
        for slot in &mut self.dying {
            let Some(death) = slot.as_mut().filter(|death| death.workload != NOBODY) else {
                continue;
            };
            if let Some(workload) = place(death.workload) {
                death.workload = workload;
                continue;
            }
            if !death.is_mounted && death.believed(now) {
                left = left.saturating_add(death.owed());
            }
            *slot = None;
        }
        self.add_nobodys(left, now);
    }

    /// When the next death stops counting, if any does.
    pub fn next_wake(&self) -> Option<Moment> {
        self.dying.iter().flatten().map(Dying::end).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn ms(value: i64) -> Moment {
        Moment::from_nanos(value * 1_000_000)
    }

    fn one(charged: u64, usage: u64) -> Credit {
        let mut credit = Credit::default();
        credit.add(Dying::new(0, charged, Some(usage), ms(0)));
        credit
    }

    #[test]
    fn never_exceeds_what_was_charged() {
        assert_eq!(one(900 * MIB, 400 * MIB).bytes(ms(1), false), 400 * MIB);
        assert_eq!(one(100 * MIB, 400 * MIB).bytes(ms(1), false), 100 * MIB);
    }

    #[test]
    fn a_death_in_a_larger_workload_is_measured_from_the_first_look() {
        let mut credit = Credit::default();
        credit.add(Dying::new(0, 300 * MIB, None, ms(0)));
        assert_eq!(credit.bytes(ms(0), false), 300 * MIB);
        credit.observe(ms(1), |_| Some(1024 * MIB));
        credit.observe(ms(2), |_| Some(824 * MIB));
        assert_eq!(credit.bytes(ms(2), false), 100 * MIB);
        credit.observe(ms(3), |_| Some(724 * MIB));
        assert!(!credit.covers(0));
    }

    #[test]
    fn shrinks_as_memory_comes_back() {
        let mut credit = one(100 * MIB, 400 * MIB);
        credit.observe(ms(10), |_| Some(360 * MIB));
        assert_eq!(credit.bytes(ms(10), false), 60 * MIB);
        credit.observe(ms(20), |_| Some(300 * MIB));
        assert_eq!(credit.bytes(ms(20), false), 0);
        assert!(!credit.covers(0));
    }

    #[test]
    fn unknown_usage_is_no_progress() {
        let mut credit = one(100 * MIB, 100 * MIB);
        credit.observe(ms(199), |_| None);
        assert_eq!(credit.bytes(ms(199), false), 100 * MIB);
        credit.observe(ms(200), |_| None);
        assert_eq!(credit.bytes(ms(200), false), 0);
    }

    #[test]
    fn time_in_which_nobody_looked_is_no_time_without_progress() {
        let mut credit = one(100 * MIB, 100 * MIB);
        credit.missed(ms(310), Span::from_millis(300));
        credit.observe(ms(310), |_| Some(100 * MIB));
        assert_eq!(credit.bytes(ms(499), false), 100 * MIB);
        assert_eq!(credit.bytes(ms(500), false), 0);
        let mut credit = one(100 * MIB, 100 * MIB);
        credit.missed(ms(4_999), Span::from_secs(30));
        assert_eq!(credit.bytes(ms(5_198), false), 100 * MIB);
        assert_eq!(credit.bytes(ms(5_199), false), 0);
        let mut mounted = Credit::default();
        mounted.add(Dying::mounted(0, MIB, ms(0)));
        mounted.missed(ms(29_999), Span::from_secs(20));
        assert_eq!(mounted.next_wake(), Some(ms(30_000)));
    }

    #[test]
    fn who_gives_back_less_than_a_part_in_five_seconds_is_given_up() {
        let mut slow = one(1024 * MIB, 1024 * MIB);
        let mut large = slow.clone();
        for step in 1..=80 {
            let at = ms(i64::try_from(step).unwrap() * 100);
            slow.observe(at, |_| Some(1024 * MIB - step * MIB / 2));
            large.observe(at, |_| Some(1024 * MIB - step * MIB));
        }
        assert_eq!(slow.next_wake(), None);
        assert_eq!(large.bytes(ms(8_000), false), 944 * MIB);
    }

    #[test]
    fn nobodys_memory_is_waited_for_while_the_nodes_usage_falls() {
        let mut credit = one(100 * MIB, 100 * MIB);
        let node = |credit: &mut Credit, at: i64, used: u64| {
            let usage = |index| Some(if index == NOBODY { used * MIB } else { 0 });
            credit.observe(ms(at), usage);
            credit.bytes(ms(at), false) / MIB
        };
        assert_eq!(node(&mut credit, 5, 900), 0);
        credit.add_nobodys(60 * MIB, ms(10));
        credit.forget(0);
        assert_eq!(node(&mut credit, 20, 890), 50, "since the look before");
        assert_eq!(node(&mut credit, 150, 880), 40);
        assert_eq!(node(&mut credit, 200, 890), 40, "it rises");
        let mut more = credit.clone();
        more.add_nobodys(20 * MIB, ms(200));
        assert_eq!(node(&mut more, 210, 860), 30, "they come back once");
        assert_eq!(node(&mut credit, 349, 880), 40);
        assert_eq!(credit.bytes(ms(349), true), 0);
        assert_eq!(credit.next_wake(), Some(ms(350)));
        assert_eq!(node(&mut credit, 350, 880), 0);
    }

    #[test]
    fn who_leaves_the_table_is_waited_for_but_not_for_its_volumes() {
        let mut credit = one(100 * MIB, 100 * MIB);
        credit.add(Dying::mounted(1, 50 * MIB, ms(0)));
        credit.add(Dying::new(2, 7 * MIB, Some(7 * MIB), ms(0)));
        credit.observe(ms(0), |index| (index == 0).then_some(70 * MIB));
        credit.remap(ms(1), |workload| (workload == 2).then_some(0));
        credit.observe(ms(1), |index| (index == 0).then_some(6 * MIB));
        assert_eq!(credit.bytes(ms(1), false), 76 * MIB);
        credit.remap(ms(2), |_| None);
        credit.observe(ms(200), |_| None);
        assert_eq!(credit.bytes(ms(201), false), 76 * MIB);
        assert_eq!(credit.bytes(ms(202), false), 0);
    }

    #[test]
    fn parts_of_volumes_that_go_keep_nobody_waiting_for_the_others() {
        let mut credit = Credit::default();
        credit.add(Dying::mounted(0, 320 * MIB, ms(0)));
        for step in 0..30 {
            let at = i64::try_from(step).unwrap() * 1_000;
            credit.observe(ms(at), |_| Some((320 - 10 * step) * MIB));
        }
        assert_eq!(credit.bytes(ms(29_999), false), 30 * MIB);
        assert_eq!(credit.bytes(ms(30_000), false), 0);
    }

    #[test]
    fn mounted_memory_is_waited_for_until_it_is_unmounted_or_the_kubelet_is_given_up() {
        let mut credit = one(300 * MIB, 300 * MIB);
        credit.replace(Dying::mounted(0, 200 * MIB, ms(20)));
        credit.observe(ms(21), |_| Some(210 * MIB));
        assert_eq!(credit.bytes(ms(21), false), 200 * MIB, "not both");
        credit.observe(ms(29_000), |_| Some(210 * MIB));
        assert_eq!(credit.bytes(ms(29_000), false), 200 * MIB);
        assert_eq!(credit.bytes(ms(29_000), true), 0);
        assert_eq!(credit.next_wake(), Some(ms(30_020)));
        let mut unmounted = credit.clone();
        unmounted.observe(ms(29_001), |_| Some(0));
        assert!(!unmounted.covers(0));
        credit.observe(ms(30_020), |_| Some(210 * MIB));
        assert!(!credit.covers(0), "nobody unmounts it");
    }

    #[test]
    fn nothing_counts_under_the_reserve() {
        assert_eq!(one(100 * MIB, 100 * MIB).bytes(ms(1), true), 0);
    }

    #[test]
    fn the_oldest_gives_way() {
        let mut credit = Credit::default();
        for (workload, at) in (0..=Credit::SLOTS).zip(0..) {
            credit.add(Dying::new(workload, MIB, Some(MIB), ms(at)));
        }
        assert!(!credit.covers(0));
        assert!(credit.covers(1) && credit.covers(Credit::SLOTS));
    }
}
