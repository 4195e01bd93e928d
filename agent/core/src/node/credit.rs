//! Credit for the dying: memory that has been killed for but has not come back yet.

use super::pace::Pace;
use crate::base::time::{Moment, Span};

/// How long the next part of what a death owes is waited for.
pub const LIFETIME: Span = Span::from_millis(5_000);
/// A death that has freed nothing for this long is no longer believed in.
pub const PATIENCE: Span = Span::from_millis(200);

/// How long files in the memory of an evicted pod are waited for: they go when the kubelet unmounts its volumes, and so long it
/// waits itself before it evicts the next one.
pub const UNMOUNTING: Span = Span::from_secs(30);

/// How long process ids of the killed are waited for while the kernel's count says that they hold them. Longer than
/// [`LIFETIME`]: nobody else's death brings ids back any sooner, since it is for the same parents to reap the dead.
pub const REAPING: Span = Span::from_secs(30);

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
    /// How long the next part of it is waited for.
    longest: Span,
    patience: Span,
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
            longest: LIFETIME,
            patience: PATIENCE,
        }
    }

    /// What nobody saw come back, in bytes, before the cgroups of the dead were removed: somebody may have hold of it.
    pub fn unseen(bytes: u64, now: Moment) -> Self {
        Self::new(NOBODY, bytes, None, now)
    }

    /// Files in memory that outlive the processes, in bytes: nothing of them comes back before the kubelet unmounts them.
    pub fn mounted(workload: usize, bytes: u64, now: Moment) -> Self {
        Self {
            longest: UNMOUNTING,
            patience: UNMOUNTING,
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

    /// What is still owed of it, measured by the node from the next look on.
    fn of_nobody(self) -> Self {
        if self.workload == NOBODY {
            return self;
        }
        Self {
            workload: NOBODY,
            charged: self.owed(),
            baseline: None,
            least: u64::MAX,
            ..self
        }
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
        self.progress = (self.progress + time).min(now);
    }

    fn believed(&self, now: Moment) -> bool {
        now < self.end()
    }

    /// When it is believed in no longer, if nothing comes back until then.
    fn end(&self) -> Moment {
        let pace = self.pace.end(self.longest);
        pace.min(self.progress + self.patience)
    }

    /// Bytes still owed by this death.
    fn owed(&self) -> u64 {
        let freed = self
            .baseline
            .map_or(0, |before| before.saturating_sub(self.least));
        self.charged.saturating_sub(freed)
    }
}

/// Process ids that are to come back, since the last kill.
#[derive(Clone, Copy, Debug, Default)]
struct Owed {
    ids: i64,
    since: Option<Moment>,
}

impl Owed {
    /// Owes `killed` more. Those that nobody waits for any more are not owed again.
    fn add(&mut self, at: Moment, killed: u32, lifetime: Span) {
        let before = self.waited_for(at, lifetime);
        *self = Self {
            ids: before.saturating_add(i64::from(killed)),
            since: Some(at),
        };
    }

    fn until(&self, lifetime: Span) -> Option<Moment> {
        self.since.map(|since| since + lifetime)
    }

    fn waited_for(&self, now: Moment, lifetime: Span) -> i64 {
        let waits = self.until(lifetime).is_some_and(|until| now < until);
        if waits { self.ids } else { 0 }
    }

    /// Forgets what can be waited for no longer, however it is counted.
    fn expire(&mut self, now: Moment) {
        if self.until(REAPING).is_some_and(|until| until <= now) {
            *self = Self::default();
        }
    }
}

/// Process ids of killed processes that nobody has reaped yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reaping {
    own: Owed,
    /// Of those that an agent before this one killed, how many held their ids when this one started. Nobody counts them since.
    recalled: Owed,
    /// The most process ids that have been available since; none before the first look after the kill, since some of
    /// the killed were born after it was decided.
    most: Option<i64>,
    /// The kernel counted who of the killed still hold theirs, at the last look.
    is_counted: bool,
}

impl Reaping {
    /// Waits for `killed` more processes. Those that nobody waits for any more are not owed again.
    pub fn add(&mut self, now: Moment, killed: u32) {
        self.own.add(now, killed, self.lifetime());
        self.most = None;
    }

    /// Waits for `unreaped` more processes that an agent before this one killed at `at`.
    pub fn recall(&mut self, at: Moment, unreaped: u32) {
        self.recalled.add(at, unreaped, REAPING);
        self.most = None;
    }

    /// Takes in how many process ids are available, and how many of the processes that this agent killed still hold theirs, if
    /// somebody counts. An id that came back is owed no more, whoever takes it next; those killed first are reaped first.
    pub fn observe(&mut self, now: Moment, available: i64, unreaped: Option<u64>) {
        self.is_counted = unreaped.is_some();
        self.own.expire(now);
        self.recalled.expire(now);
        let most = self.most.unwrap_or(available);
        let back = available.saturating_sub(most).max(0);
        self.most = Some(most.max(available));
        let recalled = back.min(self.recalled.ids);
        self.recalled.ids -= recalled;
        self.own.ids = self.own.ids.saturating_sub(back - recalled).max(0);
        if let Some(unreaped) = unreaped {
            self.own.ids = self
                .own
                .ids
                .min(i64::try_from(unreaped).unwrap_or(i64::MAX));
        }
    }

    /// Process ids that are expected to come back beyond those `available`; nothing counts with less than half of
    /// the `wanted` ones left, as none of memory does where there is no time to wait.
    pub fn ids(&self, now: Moment, available: i64, wanted: i64) -> i64 {
        if available < wanted / 2 {
            return 0;
        }
        let recalled = self.recalled.waited_for(now, REAPING);
        self.own
            .waited_for(now, self.lifetime())
            .saturating_add(recalled)
    }

    /// When each of the waits ends.
    pub fn ends(&self) -> [Option<Moment>; 2] {
        [
            self.own.until(self.lifetime()),
            self.recalled.until(REAPING),
        ]
    }

    fn lifetime(&self) -> Span {
        if self.is_counted { REAPING } else { LIFETIME }
    }
}

/// Every death that is being waited for; a fixed number, the oldest gives way.
#[derive(Clone, Debug, Default)]
pub struct Credit {
    dying: [Option<Dying>; Self::SLOTS],
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

    /// No death of that workload is waited for any more.
    pub fn forget(&mut self, workload: usize) {
        for slot in &mut self.dying {
            *slot = slot.filter(|death| death.workload != workload);
        }
    }

    /// Takes in the current usage of each workload, for [`NOBODY`] that of the node, and forgets the deaths that are over.
    pub fn observe(&mut self, now: Moment, usage: impl Fn(usize) -> Option<u64>) {
        for slot in &mut self.dying {
            if let Some(death) = slot {
                death.observe(now, usage(death.workload));
                if !death.believed(now) || death.owed() == 0 {
                    *slot = None;
                }
            }
        }
    }

    /// Nobody looked for so long, until `now`: the patience with each death begins as much later, the longest wait does not.
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

    /// Carries the deaths over to a new table; `place` gives a workload's new index. Those of whoever is not in it are nobody's;
    /// but who unmounts the volumes of a pod removes that afterwards.
    pub fn remap(&mut self, place: impl Fn(usize) -> Option<usize>) {
        for slot in &mut self.dying {
            *slot = slot.and_then(|death| match place(death.workload) {
                Some(workload) => Some(Dying { workload, ..death }),
                None => (death.patience == PATIENCE).then(|| death.of_nobody()),
            });
        }
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
        assert_eq!(credit.bytes(ms(4_999), false), 100 * MIB);
        assert_eq!(
            credit.bytes(ms(5_000), false),
            0,
            "the longest wait is over"
        );
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
    fn what_was_not_seen_to_come_back_is_waited_for_as_long_as_one_that_frees_nothing() {
        let mut credit = one(100 * MIB, 100 * MIB);
        credit.add(Dying::unseen(60 * MIB, ms(10)));
        credit.forget(0);
        let mut node = |at: i64, used: u64| {
            credit.observe(ms(at), |index| Some(if index == NOBODY { used } else { 0 }));
            (
                credit.bytes(ms(at), true),
                credit.bytes(ms(at), false) / MIB,
            )
        };
        assert_eq!(node(20, 900 * MIB), (0, 60));
        assert_eq!(node(150, 880 * MIB), (0, 40), "the node's usage falls");
        assert_eq!(node(200, 890 * MIB), (0, 40), "and rises");
        assert_eq!(node(349, 880 * MIB), (0, 40));
        assert_eq!(node(350, 880 * MIB), (0, 0));
    }

    #[test]
    fn who_leaves_the_table_is_waited_for_but_not_for_its_volumes() {
        let mut credit = one(100 * MIB, 100 * MIB);
        credit.add(Dying::mounted(1, 50 * MIB, ms(0)));
        credit.add(Dying::new(2, 7 * MIB, Some(7 * MIB), ms(0)));
        credit.remap(|workload| (workload == 2).then_some(0));
        credit.observe(ms(1), |index| (index == 0).then_some(6 * MIB));
        assert_eq!(credit.bytes(ms(1), false), 106 * MIB);
        credit.remap(Some);
        credit.observe(ms(200), |_| None);
        assert_eq!(credit.bytes(ms(200), false), 6 * MIB);
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
    fn process_ids_come_back_when_they_are_reaped() {
        let mut reaping = Reaping::default();
        assert_eq!(reaping.ids(ms(0), 100, 150), 0);
        reaping.add(ms(0), 50);
        let mut owed = |at: i64, available: i64| {
            reaping.observe(ms(at), available, None);
            reaping.ids(ms(at), available, 150)
        };
        assert_eq!(owed(1, 90), 50);
        assert_eq!(owed(2, 110), 30);
        // Taken again by somebody else: that is not owed.
        assert_eq!(owed(3, 80), 30);
        assert_eq!(owed(4, 110), 30);
        assert_eq!(owed(5, 74), 0, "less than half of what is wanted");
        assert_eq!(owed(6, 130), 10);
        assert_eq!(owed(7, 200), 0);
    }

    #[test]
    fn the_kernels_own_count_of_the_killed_decides() {
        let mut reaping = Reaping::default();
        reaping.add(ms(0), 500);
        let mut owed = |at: i64, unreaped: u64| {
            reaping.observe(ms(at), 100, Some(unreaped));
            reaping.ids(ms(at), 100, 150)
        };
        assert_eq!(owed(1, 700), 500, "never more than were killed");
        assert_eq!(owed(2, 20), 20);
        // Started in the same place since: nobody's to wait for.
        assert_eq!(owed(3, 300), 20);
        assert_eq!(owed(4, 0), 0);
    }

    #[test]
    fn who_is_counted_is_waited_for_until_the_reaper_is_given_up() {
        let mut reaping = Reaping::default();
        reaping.add(ms(0), 500);
        let mut owed = |at: i64, unreaped: Option<u64>| {
            reaping.observe(ms(at), 100, unreaped);
            reaping.ids(ms(at), 100, 150)
        };
        assert_eq!(owed(5_000, Some(400)), 400);
        assert_eq!(owed(29_999, Some(400)), 400);
        assert_eq!(owed(30_000, Some(400)), 0);
        assert_eq!(owed(30_001, Some(400)), 0);
    }

    #[test]
    fn who_is_counted_no_more_is_waited_for_no_longer_than_memory() {
        let mut reaping = Reaping::default();
        reaping.add(ms(0), 500);
        reaping.observe(ms(5_000), 100, Some(400));
        assert_eq!(reaping.ids(ms(5_000), 100, 150), 400);
        reaping.observe(ms(5_001), 100, None);
        assert_eq!(reaping.ids(ms(5_001), 100, 150), 0);
    }

    #[test]
    fn ids_that_were_given_up_are_not_owed_with_those_of_a_later_kill() {
        let owed = |counted: Option<u64>, then: i64| {
            let mut reaping = Reaping::default();
            reaping.add(ms(0), 500);
            reaping.observe(ms(1), 100, counted);
            reaping.add(ms(then), 20);
            reaping.observe(ms(then), 100, counted);
            reaping.ids(ms(then), 100, 150)
        };
        assert_eq!((owed(None, 4_999), owed(None, 5_000)), (520, 20));
        let all = Some(1000);
        assert_eq!((owed(all, 29_999), owed(all, 30_000)), (520, 20));
    }

    #[test]
    fn process_ids_are_waited_for_as_long_as_memory() {
        let mut reaping = Reaping::default();
        reaping.add(ms(0), 50);
        reaping.observe(ms(2), 120, None);
        reaping.add(ms(2), 10);
        reaping.observe(ms(3), 110, None);
        assert_eq!(reaping.ids(ms(3), 110, 0), 60);
        assert_eq!(reaping.ids(ms(5_002), 110, 0), 0);
        reaping.observe(ms(30_002), 110, None);
        assert_eq!(reaping.ends(), [None, None]);
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

    #[test]
    fn a_kill_after_a_restart_leaves_those_of_before_it_owed() {
        let mut reaping = Reaping::default();
        reaping.recall(ms(0), 500);
        reaping.add(ms(10_000), 20);
        let mut owed = |at: i64, available: i64, unreaped: Option<u64>| {
            reaping.observe(ms(at), available, unreaped);
            reaping.ids(ms(at), available, 150)
        };
        assert_eq!(owed(10_001, 100, Some(20)), 520);
        assert_eq!(
            owed(11_000, 130, Some(20)),
            490,
            "those of before are reaped first"
        );
        assert_eq!(owed(12_000, 130, Some(5)), 475);
        assert_eq!(owed(29_999, 130, Some(5)), 475);
        assert_eq!(
            owed(30_000, 130, Some(5)),
            5,
            "nobody reaps those of before"
        );
        assert_eq!(owed(40_000, 130, Some(5)), 0);
    }
}
