//! Process ids of the killed: nobody else goes while those are about to be reaped.

use super::credit::LIFETIME;
use crate::base::time::{Moment, Span};

/// How long process ids of the killed are waited for while the kernel's count says that they hold them. Longer than
/// [`LIFETIME`]: nobody else's death brings ids back any sooner, since it is for the same parents to reap the dead.
pub const REAPING: Span = Span::from_secs(30);

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

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(value: i64) -> Moment {
        Moment::from_nanos(value * 1_000_000)
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
    fn who_is_counted_no_more_is_waited_for_no_longer_than_that() {
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
    fn ids_that_nobody_counts_are_waited_for_5_seconds() {
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
