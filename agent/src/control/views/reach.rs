//! Minimum reclaims that all who may be evicted could not meet together.

use brink_core::node::observe::Observation;
use brink_core::node::signal::Signal;
use brink_core::node::threshold::Threshold;

use crate::doctor::rules::reach::{Most, Reachable, judge};
use crate::record::text::amount;

/// A sentence for each threshold of a signal that lets go only above what there would be: so much is seen, and so much `held` by
/// those who may be evicted, if that is known.
pub(super) fn beyond(
    thresholds: &[Threshold],
    signal: Signal,
    seen: &Observation,
    held: Option<i64>,
) -> Vec<String> {
    let of = |value| amount(signal.name(), value);
    let asks = |one: &&Threshold| one.signal == signal && one.min_reclaim.is_some();
    let beyond = thresholds.iter().filter(asks).filter_map(|threshold| {
        let Reachable::No { release, most } = judge(threshold, seen, held) else {
            return None;
        };
        let there_is = match most {
            Most::Evicted(most) => format!(
                "with everybody gone who may be evicted there would be {}",
                of(most)
            ),
            Most::Whole(whole) => format!("the whole is {}", of(whole)),
        };
        Some(format!(
            "{threshold} lets go only at {}: {there_is}, so once it is met it takes all of them, this one among them, whatever its \
             place.",
            of(release)
        ))
    });
    beyond.collect()
}

#[cfg(test)]
mod tests {
    use brink_core::base::{Quantity, Span};
    use brink_core::node::threshold::Value;

    use super::*;

    #[test]
    fn what_everybody_together_holds_is_compared_with_what_the_threshold_asks_for() {
        let bytes = |mib: i64| Value::Quantity(Quantity::from_bytes(mib << 20));
        let threshold = |min_reclaim| Threshold {
            signal: Signal::MemoryAvailable,
            grace: Span::ZERO,
            value: bytes(1024),
            min_reclaim,
        };
        let seen = Observation {
            available: 500 << 20,
            capacity: 4 << 30,
            at: None,
        };
        let check = |min_reclaim, held: Option<i64>, expected: &[&str]| {
            let found = beyond(
                &[threshold(min_reclaim)],
                Signal::MemoryAvailable,
                &seen,
                held.map(|mib| mib << 20),
            );
            assert_eq!(found.is_empty(), expected.is_empty(), "{found:?}");
            for expected in expected {
                assert!(found[0].contains(expected), "{found:?}");
            }
        };
        check(None, Some(0), &[]);
        check(Some(bytes(1024)), Some(1548), &[]);
        check(Some(bytes(1024)), None, &[]);
        // Of 4 GiB.
        let too_much = ["lets go only at 5.0Gi: the whole is 4.0Gi"];
        check(Some(bytes(4096)), None, &too_much);
        check(Some(bytes(4096)), Some(8192), &too_much);
        check(
            Some(bytes(1024)),
            Some(524),
            &[
                "memory.available<1Gi lets go only at 2.0Gi",
                "would be 1.0Gi",
            ],
        );
    }
}
