//! Whether what workloads hold of disks is known of all of them, and known well enough to choose by.
//!
//! After a start, and of a new workload, nothing is known until its folders have been walked, which takes longest for whoever
//! holds most. Until then a small one would go in its place. And a crossing is seen within milliseconds, when what is known may
//! be a minute old: whoever has just filled the filesystem would seem to hold nothing of it. So all are measured once more first.

use brink_core::base::{Moment, Span};
use brink_core::node::input::{Control, Input};
use brink_core::node::threshold::ThresholdSet;

use super::Guard;
use super::disks::Role;

/// It is waited for no longer: a filesystem that does not answer is never measured.
const LONGEST: Span = Span::from_secs(120);
/// The round after a crossing is waited for no longer: with a second to the look after that, nobody goes later than by a kubelet,
/// which looks every ten.
const LONGEST_ROUND: Span = Span::from_secs(9);

/// How long measuring has been waited for.
#[derive(Debug, Default)]
pub(super) struct Measuring {
    /// Since when somebody has not been measured; none while everybody has.
    since: Option<Moment>,
    /// Thresholds on filesystems that were met at the last look.
    met: ThresholdSet,
    /// When one of them was crossed last.
    crossed: Option<Crossed>,
    /// What the engine was told last.
    told: bool,
}

/// A crossing, after which all are measured once more.
#[derive(Clone, Copy, Debug)]
struct Crossed {
    /// When it was seen.
    at: Moment,
    /// Since when such a round is waited for: since an earlier one, if none has been after that.
    since: Moment,
}

impl Measuring {
    /// Whether anything on filesystems is met, or was at the last look.
    pub(super) const fn concerns(&self, met: ThresholdSet) -> bool {
        !met.is_empty() || !self.met.is_empty()
    }

    /// Thresholds on filesystems that were met at the last look.
    pub(super) const fn met(&self) -> ThresholdSet {
        self.met
    }

    /// Whether somebody is still waited for who was never measured.
    fn is_waited_for(&mut self, now: Moment, are_measured: bool) -> bool {
        if are_measured {
            self.since = None;
            return false;
        }
        now < *self.since.get_or_insert(now) + LONGEST
    }

    /// Takes in which thresholds on filesystems are met; whether one of them was not at the last look. All figures are of a round
    /// that began at `round`.
    fn note_met(&mut self, now: Moment, met: ThresholdSet, round: Option<Moment>) -> bool {
        let before = std::mem::replace(&mut self.met, met);
        if met.is_subset_of(before) {
            return false;
        }
        // What lets go and is met again all the time is not waited for all the time.
        let unmeasured = self
            .crossed
            .filter(|_| self.is_round_waited_for(now, round));
        let since = unmeasured.map_or(now, |crossed| crossed.since);
        self.crossed = Some(Crossed { at: now, since });
        true
    }

    /// Whether a round that began after the last crossing is waited for.
    fn is_round_waited_for(&self, now: Moment, round: Option<Moment>) -> bool {
        self.crossed
            .is_some_and(|crossed| round < Some(crossed.at) && now < crossed.since + LONGEST_ROUND)
    }
}

impl Guard {
    /// Tells the engine when it has changed whether folders are still to be measured, and has that begin after a crossing: `met` are
    /// the thresholds on filesystems that the engine takes for met.
    pub(super) fn follow_measuring(&mut self, at: Moment, met: ThresholdSet) {
        let mut thresholds = self.engine.policy().thresholds().iter();
        if !thresholds.any(|threshold| Role::of(threshold.signal).is_some()) {
            return;
        }
        let disks = &self.roster.disks;
        let round = disks.round();
        if self.measuring.note_met(at, met, round) {
            self.ports.ask_for_round(at);
        }
        let is_round_waited_for =
            disks.has_owners() && self.measuring.is_round_waited_for(at, round);
        let are_measured = disks.are_measured();
        let is_waited_for = self.measuring.is_waited_for(at, are_measured) || is_round_waited_for;
        if is_waited_for != self.measuring.told {
            self.measuring.told = is_waited_for;
            self.feed(at, &Input::Control(Control::Measuring(is_waited_for)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use brink_core::base::Quantity;
    use brink_core::node::engine::LiveSettings;
    use brink_core::node::input::Reconfiguration;
    use brink_core::node::policy::Policy;
    use brink_core::node::threshold::Value;

    use super::super::now;
    use super::super::scene::Scene;
    use super::super::storage::Disks;
    use super::*;

    fn at(seconds: i64) -> Moment {
        Moment::from_secs(seconds)
    }

    #[test]
    fn it_is_waited_for_until_all_are_measured_and_not_for_ever() {
        let mut measuring = Measuring::default();
        assert!(!measuring.is_waited_for(at(1), true));
        assert!(measuring.is_waited_for(at(2), false));
        assert!(measuring.is_waited_for(at(121), false));
        assert!(!measuring.is_waited_for(at(122), false));
        assert!(
            !measuring.is_waited_for(at(500), false),
            "rosters come and go"
        );
        assert!(!measuring.is_waited_for(at(501), true));
        assert!(measuring.is_waited_for(at(502), false));
    }

    #[test]
    fn after_a_crossing_a_round_is_waited_for_that_began_later_and_not_for_ever() {
        let (none, one) = (ThresholdSet::EMPTY, ThresholdSet::from_iter([1]));
        let two = ThresholdSet::from_iter([1, 2]);
        let mut measuring = Measuring::default();
        let mut check = |now, met, round, expected: (bool, bool)| {
            let is_crossing = measuring.note_met(at(now), met, round);
            let is_waited_for = measuring.is_round_waited_for(at(now), round);
            assert_eq!((is_crossing, is_waited_for), expected, "at {now}");
        };
        check(1, none, None, (false, false));
        check(100, one, Some(at(99)), (true, true));
        check(101, one, Some(at(99)), (false, true));
        check(102, one, Some(at(100)), (false, false));
        // Another one, whose round takes too long.
        check(200, two, Some(at(198)), (true, true));
        check(208, two, Some(at(198)), (false, true));
        check(209, two, Some(at(198)), (false, false));
        check(300, none, Some(at(298)), (false, false));
        // To and fro counts from the first time that was not measured.
        check(301, one, Some(at(298)), (true, true));
        check(303, none, Some(at(298)), (false, true));
        check(305, one, Some(at(298)), (true, true));
        check(310, one, Some(at(298)), (false, false));
        check(311, none, Some(at(298)), (false, false));
        check(312, one, Some(at(298)), (true, true));
        check(313, one, Some(at(312)), (false, false));
        check(314, none, Some(at(312)), (false, false));
        check(315, one, Some(at(312)), (true, true));
        check(323, one, Some(at(312)), (false, true));
    }

    #[test]
    fn nobody_goes_for_a_disk_before_the_first_round_is_done() {
        let mut scene = Scene::filling();
        let known = std::mem::replace(&mut scene.guard.roster.disks, Disks::new(1).into());
        scene.leave_on_disk(50);
        assert!(!scene.is_killed("a"));
        scene.guard.roster.disks = known;
        scene.leave_on_disk(50);
        assert!(scene.is_killed("a"));
    }

    #[test]
    fn nobody_goes_for_a_disk_by_what_was_measured_before_it_ran_short() {
        let mut scene = Scene::filling();
        let disks = Arc::clone(&scene.guard.roster.disks);
        disks.note_round(Some(now()));
        scene.leave_on_disk(150);
        assert_eq!(scene.guard.ports.round_asked(), None);
        scene.leave_on_disk(50);
        assert!(!scene.is_killed("a"));
        let asked = scene.guard.ports.round_asked();
        assert!(asked > disks.round(), "{asked:?}");
        scene.leave_on_disk(50);
        assert!(!scene.is_killed("a"));
        assert_eq!(scene.guard.ports.round_asked(), asked, "once");
        disks.note_round(asked);
        scene.leave_on_disk(50);
        assert!(scene.is_killed("a"));
    }

    #[test]
    fn a_crossing_from_within_the_minimum_reclaim_is_measured_as_well() {
        let mut scene = Scene::filling();
        let before = scene.guard.engine.policy();
        let mut thresholds = before.thresholds().to_vec();
        thresholds[0].min_reclaim = Some(Value::Quantity(Quantity::from_bytes(100 << 20)));
        let policy = Policy::new(thresholds, before.layout(), before.settings);
        let live = LiveSettings {
            enforce: true,
            ..LiveSettings::default()
        };
        let new = Reconfiguration { policy, live };
        scene.guard.feed(now(), &Input::Reconfigure(&new));
        let disks = Arc::clone(&scene.guard.roster.disks);
        disks.note_round(Some(now()));
        scene.leave_on_disk(150);
        assert_eq!(scene.guard.ports.round_asked(), None, "nothing is crossed");
        scene.leave_on_disk(50);
        assert!(!scene.is_killed("a"));
        let asked = scene.guard.ports.round_asked();
        assert!(asked > disks.round(), "{asked:?}");
        disks.note_round(asked);
        scene.leave_on_disk(50);
        assert!(scene.is_killed("a"));
    }

    #[test]
    fn where_nobody_owns_anything_there_is_nothing_to_wait_for() {
        let mut scene = Scene::filling();
        let disks = Disks::new(1);
        disks.get(0).unwrap().note_unowned();
        scene.guard.roster.disks = disks.into();
        scene.leave_on_disk(50);
        assert!(!scene.guard.measuring.told);
    }
}
