//! By what a run is judged: the crossing that was answered, or a fault; and which runs say nothing.
use brink::record::DecisionRecord;

use super::super::{
    agent::time_of,
    units::MIB,
    witness::{Excursion, Seen},
};

/// Between two looks of the truth a contender may be earlier; this is several.
const LEAD_NS: u64 = 1_000_000;
/// A load that has taken all but this of its way may have come to the threshold: on a machine it is not alone, and in a group the truth may
/// have missed what it took last.
const NEAR_ON_MACHINE: u64 = 64 * MIB;
const NEAR_IN_GROUP: u64 = 16 * MIB;

/// What a contender did. Times are nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Act {
    /// When it looked at what it went by, if that is known.
    looked: Option<u64>,
    /// Its first signal, or its decision where it sent none.
    at: u64,
    /// It was against somebody else than the load.
    pub(super) is_wrong: bool,
}

impl Act {
    /// What an agent wrote down of its decision, or when a poll had sent its signal; nothing if neither did anything.
    pub(super) fn of(sent: Option<u64>, record: Option<&DecisionRecord>) -> Option<Self> {
        let Some(record) = record else {
            return sent.map(|at| Self {
                looked: Some(at),
                at,
                is_wrong: false,
            });
        };
        let decided = u64::try_from(record.decided.monotonic_ns).unwrap_or(0);
        Some(Self {
            looked: time_of(record, "sampled"),
            at: time_of(record, "firstSignal").unwrap_or(decided),
            is_wrong: !record.victim.name.contains("/victim"),
        })
    }
}

/// How the load went.
#[derive(Debug, Clone, Copy)]
pub(super) struct Course {
    /// When it was let begin, nanoseconds of `CLOCK_MONOTONIC`.
    pub(super) began: u64,
    /// Bytes that it had taken at its end.
    pub(super) touched: u64,
    /// Bytes from its start to the threshold.
    pub(super) way: u64,
    /// It is in a group that is the node.
    pub(super) is_in_group: bool,
}

impl Course {
    /// Whether it may have come to the threshold, by its own account.
    const fn has_arrived(&self) -> bool {
        let near = if self.is_in_group {
            NEAR_IN_GROUP
        } else {
            NEAR_ON_MACHINE
        };
        self.touched.saturating_add(near) >= self.way
    }
}

/// What a run is judged by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Basis {
    /// A crossing of the load's, which was answered or not.
    Crossing(Excursion),
    /// An act that no crossing came before, and no load that could have made one: a fault.
    Premature,
    /// An act against somebody else, without a crossing of the load's: a fault whatever the reason.
    WrongVictim,
}

/// Why a run says nothing, and is made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disturbance {
    /// The threshold was crossed before the load began: by others.
    Early,
    /// The truth saw no crossing, or none that was answered: the load did not come so far, or the truth did not run then.
    Unseen,
}

/// Runs that were disturbed, by the reason.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Disturbed {
    early: usize,
    unseen: usize,
}

impl Disturbed {
    /// Counts one.
    pub(super) const fn count(&mut self, why: Disturbance) {
        match why {
            Disturbance::Early => self.early += 1,
            Disturbance::Unseen => self.unseen += 1,
        }
    }

    /// As a note.
    pub(super) fn note(self) -> String {
        format!(
            "{} runs said nothing because others had crossed before the load began, and {} because the truth saw no crossing, or none before the kill",
            self.early, self.unseen
        )
    }
}

/// What a run is judged by, unless it says nothing.
pub(super) fn basis(seen: &Seen, act: Option<Act>, course: &Course) -> Result<Basis, Disturbance> {
    let met = seen.met(act.and_then(|act| act.looked));
    // The truth looked after the act, and had seen nothing yet.
    let is_ahead = |act: Act| {
        let at = act.at.saturating_add(LEAD_NS);
        met.is_none_or(|met| at < met.before)
    };
    let ahead = act.filter(|act| is_ahead(*act));
    let is_premature = ahead.is_some_and(|act| act.at < course.began || !course.has_arrived());
    let is_early = seen.first.is_some_and(|first| first.crossed < course.began);
    match met {
        _ if is_premature => Ok(Basis::Premature),
        Some(met) if !is_early && ahead.is_none() => Ok(Basis::Crossing(met)),
        _ if act.is_some_and(|act| act.is_wrong) => Ok(Basis::WrongVictim),
        _ if is_early => Err(Disturbance::Early),
        _ => Err(Disturbance::Unseen),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGAN: u64 = 50_000_000;
    const CROSSED: u64 = 350_000_000;
    /// The truth's period.
    const PERIOD: u64 = 50_000;
    const WAY: u64 = 300 * MIB;
    const HALF: u64 = WAY / 2;

    fn excursion(crossed: u64) -> Excursion {
        Excursion {
            crossed,
            before: crossed - PERIOD,
            back: Some(crossed + 2_000_000),
        }
    }

    fn act(at: u64) -> Act {
        Act {
            looked: Some(at),
            at,
            is_wrong: false,
        }
    }

    fn wrong(at: u64) -> Act {
        Act {
            is_wrong: true,
            ..act(at)
        }
    }

    fn found(crossed: Option<u64>, act: Option<Act>, touched: u64) -> Result<Basis, Disturbance> {
        let first = crossed.map(excursion);
        let seen = Seen {
            first,
            latest: first,
            overshoot: 0,
        };
        let course = Course {
            began: BEGAN,
            touched,
            way: WAY,
            is_in_group: false,
        };
        basis(&seen, act, &course)
    }

    #[test]
    fn a_crossing_of_the_load_is_answered_or_not() {
        let expected = Ok(Basis::Crossing(excursion(CROSSED)));
        for answer in [
            None,
            Some(act(CROSSED + 400_000)),
            Some(wrong(CROSSED + 400_000)),
        ] {
            assert_eq!(found(Some(CROSSED), answer, WAY), expected, "{answer:?}");
        }
        // Between two looks of the truth, and several.
        let earliest = CROSSED - PERIOD - LEAD_NS;
        assert_eq!(found(Some(CROSSED), Some(act(earliest)), HALF), expected);
    }

    #[test]
    fn an_act_without_a_crossing_is_a_fault_and_no_disturbance() {
        let premature = Ok(Basis::Premature);
        assert_eq!(found(None, Some(act(BEGAN - 1)), 0), premature);
        assert_eq!(found(None, Some(act(BEGAN + 1)), HALF), premature);
        assert_eq!(
            found(None, Some(act(BEGAN + 1)), WAY - NEAR_ON_MACHINE - 1),
            premature
        );
        let too_soon = CROSSED - PERIOD - LEAD_NS - 1;
        assert_eq!(found(Some(CROSSED), Some(act(too_soon)), HALF), premature);
        let before_others = BEGAN - 20_000_000;
        assert_eq!(
            found(Some(BEGAN - 10_000_000), Some(act(before_others)), 0),
            premature
        );
    }

    #[test]
    fn a_crossing_that_the_truth_missed_is_nobodys_fault() {
        let unseen = Err(Disturbance::Unseen);
        assert_eq!(
            found(None, Some(act(BEGAN + 1)), WAY - NEAR_ON_MACHINE),
            unseen
        );
        let too_soon = CROSSED - PERIOD - LEAD_NS - 1;
        assert_eq!(found(Some(CROSSED), Some(act(too_soon)), WAY), unseen);
    }

    #[test]
    fn in_a_group_a_load_has_arrived_later() {
        for (is_in_group, left, expected) in [
            (false, 64 * MIB, true),
            (false, 64 * MIB + 1, false),
            (true, 16 * MIB, true),
            (true, 16 * MIB + 1, false),
        ] {
            let course = Course {
                began: BEGAN,
                touched: WAY - left,
                way: WAY,
                is_in_group,
            };
            assert_eq!(course.has_arrived(), expected, "{course:?}");
        }
    }

    #[test]
    fn a_run_without_an_act_says_nothing_unless_the_load_crossed() {
        assert_eq!(found(None, None, HALF), Err(Disturbance::Unseen));
        let others = Some(BEGAN - 10_000_000);
        assert_eq!(found(others, None, WAY), Err(Disturbance::Early));
        assert_eq!(
            found(others, Some(act(BEGAN)), WAY),
            Err(Disturbance::Early)
        );
    }

    #[test]
    fn a_wrong_victim_is_a_fault_whoever_crossed() {
        let expected = Ok(Basis::WrongVictim);
        let others = Some(BEGAN - 10_000_000);
        assert_eq!(found(others, Some(wrong(BEGAN)), WAY), expected);
        assert_eq!(found(None, Some(wrong(BEGAN + 1)), WAY), expected);
    }
}
