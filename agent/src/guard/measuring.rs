//! Whether what workloads hold of disks is known of all of them.
//!
//! After a start, and of a new workload, nothing is known until its folders have been walked, which takes longest for whoever
//! holds most. Until then a small one would go in its place.

use brink_core::base::{Moment, Span};
use brink_core::node::input::{Control, Input};

use super::Guard;
use super::disks::Role;

/// It is waited for no longer: a filesystem that does not answer is never measured.
const LONGEST: Span = Span::from_secs(120);

/// How long measuring has been waited for.
#[derive(Debug, Default)]
pub(super) struct Measuring {
    /// Since when somebody has not been measured; none while everybody has.
    since: Option<Moment>,
    /// What the engine was told last.
    told: bool,
}

impl Measuring {
    /// Whether it is waited for.
    fn is_waited_for(&mut self, now: Moment, are_measured: bool) -> bool {
        if are_measured {
            self.since = None;
            return false;
        }
        now < *self.since.get_or_insert(now) + LONGEST
    }
}

impl Guard {
    /// Tells the engine when it has changed whether somebody's folders are still to be measured.
    pub(super) fn follow_measuring(&mut self, at: Moment) {
        let mut thresholds = self.engine.policy().thresholds().iter();
        if !thresholds.any(|threshold| Role::of(threshold.signal).is_some()) {
            return;
        }
        let are_measured = self.roster.disks.are_measured();
        let is_waited_for = self.measuring.is_waited_for(at, are_measured);
        if is_waited_for != self.measuring.told {
            self.measuring.told = is_waited_for;
            self.feed(at, &Input::Control(Control::Measuring(is_waited_for)));
        }
    }
}

#[cfg(test)]
mod tests {
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
    fn nobody_goes_for_a_disk_before_the_first_round_is_done() {
        let mut scene = Scene::filling();
        let known = std::mem::replace(&mut scene.guard.roster.disks, Disks::new(1).into());
        scene.leave_on_disk(50);
        assert!(!scene.is_killed("a"));
        scene.guard.roster.disks = known;
        scene.leave_on_disk(50);
        assert!(scene.is_killed("a"));
    }
}
