//! How soon folders are measured again: the nearer a threshold on disks, the sooner.
//!
//! When one is crossed the guard waits for a round, which begins at once whatever is needed otherwise, unless that happens all the time.

use std::time::Duration;

use brink_core::node::condition::Condition;
use brink_core::node::observe::{Observation, Observations};
use brink_core::node::policy::Policy;
use brink_core::node::threshold::Threshold;

/// Between two rounds while a threshold or a limit is near.
const NEAR: Duration = Duration::from_secs(10);
/// The same while a threshold is met: as often as a walk of much can be hoped to end.
const MET: Duration = Duration::from_secs(2);
/// A threshold is near with less than this part of the capacity left to it: one in twenty.
const PART: i64 = 20;

/// What the figures are needed for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Nothing is near.
    #[default]
    Seldom,
    /// A threshold or a limit is near.
    Near,
    /// A threshold is met: whoever uses most may have to go.
    Met,
}

impl Need {
    /// What the thresholds of a policy need.
    pub fn of(policy: &Policy, seen: &Observations) -> Self {
        let thresholds = policy.thresholds().iter().filter(|one| is_on_disk(one));
        let needs = thresholds.filter_map(|one| Some(Self::of_one(one, seen[one.signal]?)));
        needs.max().unwrap_or_default()
    }

    fn of_one(threshold: &Threshold, seen: Observation) -> Self {
        let left = seen
            .available
            .saturating_sub(threshold.quantity(seen.capacity).value());
        if left < 0 {
            Self::Met
        } else if left < seen.capacity / PART {
            Self::Near
        } else {
            Self::Seldom
        }
    }

    /// The time from one round to the next, with one of `period` where nothing is near.
    pub fn rest(self, period: Duration) -> Duration {
        match self {
            Self::Seldom => period,
            Self::Near => period.min(NEAR),
            Self::Met => period.min(MET),
        }
    }
}

/// Whether anybody wants the figures: a threshold on disks, or limits of local storage.
pub fn is_wanted(policy: &Policy) -> bool {
    policy.settings.local_storage_isolation || policy.thresholds().iter().any(is_on_disk)
}

fn is_on_disk(threshold: &Threshold) -> bool {
    threshold.signal.condition() == Condition::DiskPressure
}

#[cfg(test)]
mod tests {
    use brink_core::base::{Quantity, Span};
    use brink_core::node::observe::Layout;
    use brink_core::node::policy::Settings;
    use brink_core::node::signal::Signal;
    use brink_core::node::threshold::Value;

    use super::*;

    fn policy(signal: Signal, isolation: bool) -> Policy {
        let threshold = Threshold {
            signal,
            grace: Span::from_secs(0),
            value: Value::Quantity(Quantity::from_bytes(100)),
            min_reclaim: None,
        };
        let settings = Settings {
            local_storage_isolation: isolation,
            ..Settings::default()
        };
        Policy::new(vec![threshold], Layout::Single, settings)
    }

    #[test]
    fn the_nearer_the_threshold_the_sooner_the_next_round() {
        let policy = policy(Signal::NodefsAvailable, false);
        let need = |available| {
            let mut seen = Observations::default();
            seen[Signal::NodefsAvailable] = Some(Observation {
                available,
                capacity: 1000,
                at: None,
            });
            Need::of(&policy, &seen)
        };
        assert_eq!(need(99), Need::Met);
        assert_eq!(need(100), Need::Near);
        assert_eq!(need(149), Need::Near);
        assert_eq!(need(150), Need::Seldom);
        assert_eq!(Need::of(&policy, &Observations::default()), Need::Seldom);
        let minute = Duration::from_mins(1);
        let rests = [Need::Seldom, Need::Near, Need::Met].map(|need| need.rest(minute));
        assert_eq!(rests, [minute, NEAR, MET]);
        assert_eq!(
            Need::Near.rest(Duration::from_secs(1)),
            Duration::from_secs(1)
        );
    }

    #[test]
    fn figures_are_wanted_for_thresholds_on_disks_and_for_limits() {
        assert!(is_wanted(&policy(Signal::ImagefsInodesFree, false)));
        assert!(is_wanted(&policy(Signal::MemoryAvailable, true)));
        assert!(!is_wanted(&policy(Signal::PidAvailable, false)));
    }
}
