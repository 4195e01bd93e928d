//! Minimum reclaims that all who may be evicted could not meet together.

use brink_core::node::observe::Observation;
use brink_core::node::signal::Signal;
use brink_core::node::threshold::Threshold;

use crate::record::text::amount;

/// A sentence for each threshold of a signal that lets go only above what there would be: so much is seen, and so much `held` by
/// those who may be evicted.
pub(super) fn beyond(
    thresholds: &[Threshold],
    signal: Signal,
    seen: &Observation,
    held: i64,
) -> Vec<String> {
    let most = seen.available.saturating_add(held);
    let asks = |one: &&Threshold| one.signal == signal && one.min_reclaim.is_some();
    let beyond = thresholds.iter().filter(asks).filter_map(|threshold| {
        let release = threshold.release(seen.capacity).value();
        (release > most).then(|| {
            format!(
                "{threshold} lets go only at {}: with everybody gone who may be evicted there would be {}, so once it is met it takes \
                 all of them, this one among them, whatever its place.",
                amount(signal.name(), release),
                amount(signal.name(), most)
            )
        })
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
        let check = |min_reclaim, held: i64, expected: &[&str]| {
            let found = beyond(
                &[threshold(min_reclaim)],
                Signal::MemoryAvailable,
                &seen,
                held << 20,
            );
            assert_eq!(found.is_empty(), expected.is_empty(), "{found:?}");
            for expected in expected {
                assert!(found[0].contains(expected), "{found:?}");
            }
        };
        check(None, 0, &[]);
        check(Some(bytes(1024)), 1548, &[]);
        check(
            Some(bytes(1024)),
            524,
            &[
                "memory.available<1Gi lets go only at 2.0Gi",
                "would be 1.0Gi",
            ],
        );
    }
}
