//! What the node can give back before anybody goes: asked of others, and waited for within a bound.

use std::sync::atomic::Ordering;

use brink_core::base::{Moment, Span};
use brink_core::node::input::Input;
use brink_core::node::observe::Observations;
use brink_core::node::safety::Mode;
use brink_core::node::threshold::ThresholdSet;

use super::Guard;
use super::disks::{ReclaimAnswer, ReclaimAsked, Role};

/// Whoever reclaims is to be done well before; a thread that is gone or hangs does not keep a full disk waiting.
const LONGEST_RECLAIM: Span = Span::from_secs(50);

impl Guard {
    /// Hands a reclaim over. Where nobody takes it the engine hears at the next turn that it is over.
    pub(super) fn ask_to_reclaim(&mut self, threshold: usize, at: Moment) {
        let known = self.engine.policy().thresholds().get(threshold);
        let Some(known) = known.filter(|_| self.ports.reclaims_served.load(Ordering::Acquire))
        else {
            self.reclaim_asked = true;
            return;
        };
        let seen = Role::of(known.signal).and_then(|role| {
            let [bytes, inodes] = self.ports.disks.room(role, at)?.observations();
            let is_bytes = role.signals()[0] == known.signal;
            if is_bytes { bytes } else { inodes }
        });
        let asked = ReclaimAsked {
            signal: known.signal,
            quantity: seen.map_or(0, |seen| known.quantity(seen.capacity).value()),
            available: seen.map_or(0, |seen| seen.available),
            at,
            is_dry: self.engine.mode(at) != Mode::Enforcing,
        };
        if self.ports.reclaims.send(Some(asked)).is_ok() {
            self.times.reclaim = Some(at + LONGEST_RECLAIM);
        } else {
            self.reclaim_asked = true;
        }
    }

    /// What was asked for at that moment has been carried out; whether it is still waited for. An answer that came too late, or
    /// belongs to a shortage that has passed, is none to the next one.
    pub(super) fn hear_of_reclaim(
        &mut self,
        asked: Moment,
        answer: ReclaimAnswer,
        at: Moment,
    ) -> bool {
        let is_awaited = self.times.reclaim == Some(asked + LONGEST_RECLAIM);
        if is_awaited {
            self.end_reclaim(answer, at);
        }
        is_awaited
    }

    /// It is over, one way or another.
    pub(super) fn end_reclaim(&mut self, answer: ReclaimAnswer, at: Moment) {
        self.times.reclaim = None;
        let input = match answer {
            ReclaimAnswer::Ended => Input::Reclaimed,
            ReclaimAnswer::InPart => Input::ReclaimedInPart,
            ReclaimAnswer::Dry { bytes } => Input::WouldReclaim { bytes },
        };
        self.feed(at, &input);
    }

    /// Those thresholds on filesystems that were met at the last look.
    pub(super) fn disks_met(&self) -> ThresholdSet {
        self.disks_met_in(self.met_before)
    }

    /// Those of a set that are on filesystems.
    pub(super) fn disks_met_in(&self, met: ThresholdSet) -> ThresholdSet {
        let thresholds = self.engine.policy().thresholds();
        let is_disk = |&index: &usize| {
            let threshold = thresholds.get(index);
            threshold.is_some_and(|threshold| Role::of(threshold.signal).is_some())
        };
        met.iter().filter(is_disk).collect()
    }

    /// Those of the met thresholds that are on filesystems, if one of these was measured since the last look: only then anybody
    /// goes for one.
    pub(super) fn news_of_disks(&mut self, met: ThresholdSet, seen: &Observations) -> ThresholdSet {
        let thresholds = self.engine.policy().thresholds();
        let met = self.disks_met_in(met);
        let signals = met
            .iter()
            .filter_map(|index| Some(thresholds.get(index)?.signal));
        let newest = signals.filter_map(|signal| seen[signal]?.at).max();
        let is_new = newest > self.disks_seen;
        self.disks_seen = self.disks_seen.max(newest);
        if is_new { met } else { ThresholdSet::EMPTY }
    }
}

#[cfg(test)]
mod tests {
    use brink_core::node::engine::LiveSettings;
    use brink_core::node::input::Reconfiguration;
    use brink_core::node::observe::Layout;

    use super::super::now;
    use super::super::scene::Scene;
    use super::*;

    /// One with a filesystem for everything, where dead containers and unused images come first.
    fn scene(enforce: bool) -> Scene {
        let mut scene = Scene::filling();
        let policy = scene.guard.engine.policy().on_layout(Layout::Single);
        let live = LiveSettings {
            enforce,
            ..LiveSettings::default()
        };
        let single = Reconfiguration { policy, live };
        scene.guard.feed(now(), &Input::Reconfigure(&single));
        let is_served = &scene.guard.ports.reclaims_served;
        is_served.store(true, Ordering::Release);
        scene
    }

    fn asked(scene: &Scene) -> Option<ReclaimAsked> {
        scene.guard.ports.reclaims.take().flatten()
    }

    fn hear(scene: &mut Scene, asked: ReclaimAsked, answer: ReclaimAnswer) -> bool {
        scene.guard.hear_of_reclaim(asked.at, answer, now())
    }

    #[test]
    fn an_answer_to_a_shortage_that_has_passed_is_none_to_the_next() {
        let mut scene = scene(true);
        scene.leave_on_disk(50);
        let first = asked(&scene).expect("a shortage");
        scene.leave_on_disk(500);
        scene.leave_on_disk(50);
        let second = asked(&scene).expect("another one");
        assert!(!hear(&mut scene, first, ReclaimAnswer::Ended));
        scene.leave_on_disk(50);
        assert!(!scene.is_killed("a"), "it is waited for");
        assert!(hear(&mut scene, second, ReclaimAnswer::Ended));
        let again = hear(&mut scene, second, ReclaimAnswer::Ended);
        assert!(!again, "told once");
        scene.leave_on_disk(50);
        assert!(scene.is_killed("a"));
    }

    #[test]
    fn what_came_back_in_part_is_asked_for_again_before_anybody_goes() {
        let mut scene = scene(true);
        scene.leave_on_disk(50);
        let first = asked(&scene).expect("a shortage");
        assert!(hear(&mut scene, first, ReclaimAnswer::InPart));
        scene.leave_on_disk(60);
        assert!(!scene.is_killed("a"));
        let second = asked(&scene).expect("there may be more");
        assert!(hear(&mut scene, second, ReclaimAnswer::Ended));
        scene.leave_on_disk(60);
        assert!(scene.is_killed("a"));
    }

    #[test]
    fn who_observes_orders_nobody_where_enough_would_come_back() {
        // 100 MiB are to be left.
        for (bytes, would_go) in [(50 << 20, false), ((50 << 20) - 1, true)] {
            let mut scene = scene(false);
            scene.leave_on_disk(50);
            let asked = asked(&scene).expect("a shortage");
            assert!(asked.is_dry);
            assert!(hear(&mut scene, asked, ReclaimAnswer::Dry { bytes }));
            scene.leave_on_disk(50);
            let order = scene.guard.engine.open_order();
            assert_eq!(order.is_some(), would_go, "{bytes}");
        }
    }
}
