//! Whom orders went to lately: one that dies slowly is not ordered again, nor a pod that a kubelet starts again meanwhile.

use crate::base::time::{Moment, Span};

/// How long a victim is left to die before it may be ordered again.
pub const DYING: Span = Span::from_secs(5);
/// How long what a kubelet starts in an evicted pod again belongs to that eviction, at most: from the kill on.
pub const EVICTED: Span = Span::from_secs(300);

/// The latest victims; a fixed number, the oldest gives way.
#[derive(Clone, Debug)]
pub struct Recent {
    victims: [Option<Victim>; Self::SLOTS],
}

#[derive(Clone, Copy, Debug)]
struct Victim {
    /// Index in the current table.
    workload: usize,
    at: Moment,
    /// The order, unless nothing came of it.
    order: Option<u64>,
}

impl Default for Recent {
    fn default() -> Self {
        Self {
            victims: [None; Self::SLOTS],
        }
    }
}

impl Recent {
    /// Victims remembered at a time.
    const SLOTS: usize = 64;

    /// Remembers an order; the oldest one makes room.
    pub fn add(&mut self, now: Moment, workload: usize, order: u64) {
        let oldest = self
            .victims
            .iter_mut()
            .min_by_key(|slot| slot.map(|victim| victim.at));
        if let Some(slot) = oldest {
            *slot = Some(Victim {
                workload,
                at: now,
                order: Some(order),
            });
        }
    }

    /// The victim of an order is killed only now: until then it was asked to end.
    pub fn renew(&mut self, now: Moment, order: u64) {
        let victims = self.victims.iter_mut().flatten();
        for victim in victims.filter(|victim| victim.order == Some(order)) {
            victim.at = now;
        }
    }

    /// Whether the workload is still being left to die.
    pub fn holds(&self, now: Moment, workload: usize) -> bool {
        self.of(workload).any(|victim| now.since(victim.at) < DYING)
    }

    /// The order by which a workload was evicted, while what is started in it again belongs to that.
    pub fn evicted_by(&self, now: Moment, workload: usize) -> Option<u64> {
        let within = |victim: &&Victim| now.since(victim.at) < EVICTED;
        self.of(workload)
            .filter(within)
            .filter_map(|victim| victim.order)
            .max()
    }

    /// Nothing came of the order: the workload is evicted no more than before.
    pub fn revoke(&mut self, order: u64) {
        let victims = self.victims.iter_mut().flatten();
        for victim in victims.filter(|victim| victim.order == Some(order)) {
            victim.order = None;
        }
    }

    /// It is dead: whatever runs there next may be ordered anew.
    pub fn forget(&mut self, workload: usize) {
        for slot in &mut self.victims {
            *slot = slot.filter(|victim| victim.workload != workload);
        }
    }

    /// Carries the victims over to a new table; `place` gives a workload's new index.
    pub fn remap(&mut self, place: impl Fn(usize) -> Option<usize>) {
        for slot in &mut self.victims {
            *slot = slot.and_then(|victim| {
                Some(Victim {
                    workload: place(victim.workload)?,
                    ..victim
                })
            });
        }
    }

    fn of(&self, workload: usize) -> impl Iterator<Item = &Victim> {
        let victims = self.victims.iter().flatten();
        victims.filter(move |victim| victim.workload == workload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Moment {
        Moment::from_secs(seconds)
    }

    #[test]
    fn a_victim_is_left_to_die_and_its_eviction_lasts_longer() {
        let mut recent = Recent::default();
        recent.add(at(10), 3, 7);
        for (now, holds, order) in [
            (10, true, Some(7)),
            (14, true, Some(7)),
            (15, false, Some(7)),
            (309, false, Some(7)),
            (310, false, None),
        ] {
            assert_eq!(recent.holds(at(now), 3), holds, "{now}");
            assert_eq!(recent.evicted_by(at(now), 3), order, "{now}");
        }
        assert!(!recent.holds(at(11), 4) && recent.evicted_by(at(11), 4).is_none());
        recent.add(at(20), 3, 8);
        assert_eq!(recent.evicted_by(at(21), 3), Some(8));
    }

    #[test]
    fn whoever_was_asked_first_is_left_to_die_from_the_kill_on() {
        let mut recent = Recent::default();
        recent.add(at(10), 3, 7);
        recent.add(at(10), 4, 8);
        recent.renew(at(400), 7);
        assert!(recent.holds(at(404), 3) && !recent.holds(at(405), 3));
        assert_eq!(recent.evicted_by(at(699), 3), Some(7));
        assert_eq!(recent.evicted_by(at(700), 3), None);
        assert_eq!(recent.evicted_by(at(310), 4), None, "another order");
    }

    #[test]
    fn an_order_of_which_nothing_came_evicts_nobody() {
        let mut recent = Recent::default();
        recent.add(at(10), 3, 7);
        recent.revoke(8);
        assert_eq!(recent.evicted_by(at(11), 3), Some(7));
        recent.revoke(7);
        assert_eq!(recent.evicted_by(at(11), 3), None);
        assert!(recent.holds(at(11), 3), "it is not tried again at once");
        recent.forget(3);
        assert!(!recent.holds(at(11), 3));
    }

    #[test]
    fn victims_keep_their_order_in_another_table() {
        let mut recent = Recent::default();
        recent.add(at(10), 3, 7);
        recent.add(at(10), 4, 8);
        recent.remap(|index| (index == 3).then_some(0));
        assert_eq!(recent.evicted_by(at(11), 0), Some(7));
        assert!(!recent.holds(at(11), 4));
    }
}
