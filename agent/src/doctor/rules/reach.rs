//! Whether a minimum reclaim can be had at all: not more than what is available once everybody is gone who may be evicted.

use brink_core::node::observe::Observation;
use brink_core::node::threshold::Threshold;

/// Whether a threshold that was acted on can let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reachable {
    /// It can, or does already.
    Yes,
    /// It lets go only where there is so much, and there never is more than that.
    No { release: i64, most: Most },
    /// Nobody knows what is held by those who may be evicted.
    Unknown,
}

/// The most that there can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Most {
    /// With everybody gone who may be evicted.
    Evicted(i64),
    /// The whole.
    Whole(i64),
}

/// Judges it by what is left of its signal now, and what those hold together who may be evicted, if that is known.
pub(crate) fn judge(threshold: &Threshold, seen: &Observation, held: Option<i64>) -> Reachable {
    let release = threshold.release(seen.capacity).value();
    if release <= seen.available {
        return Reachable::Yes;
    }
    match held.map(|held| seen.available.saturating_add(held)) {
        Some(most) if release > most => Reachable::No {
            release,
            most: Most::Evicted(most),
        },
        // Whoever holds how much of it.
        _ if release > seen.capacity => Reachable::No {
            release,
            most: Most::Whole(seen.capacity),
        },
        Some(_) => Reachable::Yes,
        None => Reachable::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use brink_core::base::{Quantity, Span};
    use brink_core::node::signal::Signal;
    use brink_core::node::threshold::Value;

    use super::*;

    #[test]
    fn what_is_left_and_what_is_held_have_to_come_to_what_is_asked_for() {
        let amount = |amount: i64| Value::Quantity(Quantity::from_bytes(amount));
        // 20 are left of 100, and the threshold is 10.
        let seen = Observation {
            available: 20,
            capacity: 100,
            at: None,
        };
        let check = |more: i64, held: Option<i64>, expected: Reachable| {
            let threshold = Threshold {
                signal: Signal::NodefsAvailable,
                grace: Span::ZERO,
                value: amount(10),
                min_reclaim: Some(amount(more)),
            };
            let found = judge(&threshold, &seen, held);
            assert_eq!(found, expected, "{more} {held:?}");
        };
        let no = |release, most| Reachable::No { release, most };
        check(10, None, Reachable::Yes);
        check(10, Some(0), Reachable::Yes);
        check(11, None, Reachable::Unknown);
        check(11, Some(0), no(21, Most::Evicted(20)));
        check(11, Some(1), Reachable::Yes);
        check(91, None, no(101, Most::Whole(100)));
        // What is counted twice makes no disk larger.
        check(91, Some(500), no(101, Most::Whole(100)));
        check(91, Some(i64::MAX), no(101, Most::Whole(100)));
    }
}
