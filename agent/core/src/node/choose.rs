//! Which of several ready thresholds is reclaimed first.

use super::policy::Policy;
use super::threshold::{Threshold, ThresholdSet};

/// The threshold to act on, by its index: hard memory, hard allocatable memory, soft memory, soft
/// allocatable memory, then nodefs, imagefs, containerfs (space before inodes, hard before soft
/// within one signal) and process ids last.
///
/// The kubelet only promises that memory goes before the rest; its own order within each group is
/// random, so this one is always among what it might do. A soft allocatable threshold exists only
/// if it was configured under that name: the automatic copies are hard. Brink's headroom comes
/// after the kubelet's memory signals of the same hardness.
pub fn choose(policy: &Policy, ready: ThresholdSet) -> Option<usize> {
    let place = |&index: &usize| policy.thresholds().get(index).map(Place::of);
    ready
        .iter()
        .filter(|&index| index < policy.thresholds().len())
        .min_by_key(place)
}

/// Field order is the order of preference; equal places keep the order of the list.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Memory { soft: bool, signal: u8 },
    Other { signal: u8, soft: bool },
}

impl Place {
    fn of(threshold: &Threshold) -> Self {
        let (soft, signal) = (!threshold.is_hard(), threshold.signal as u8);
        if threshold.signal.is_memory() {
            Self::Memory { soft, signal }
        } else {
            Self::Other { signal, soft }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::super::observe::Layout;
    use super::super::policy::Settings;
    use super::super::signal::Signal;
    use super::super::threshold::Value;
    use super::*;
    use crate::base::Span;

    fn threshold((signal, soft): (Signal, bool)) -> Threshold {
        let grace = Span::from_secs(if soft { 60 } else { 0 });
        Threshold {
            signal,
            grace,
            value: Value::Fraction(0.1),
            min_reclaim: None,
        }
    }

    fn policy(list: &[(Signal, bool)]) -> Policy {
        let thresholds = list.iter().copied().map(threshold).collect();
        Policy::new(thresholds, Layout::Single, Settings::default())
    }

    const ORDER: [(Signal, bool); 13] = [
        (Signal::MemoryAvailable, false),
        (Signal::AllocatableMemoryAvailable, false),
        (Signal::MemoryHeadroom, false),
        (Signal::MemoryAvailable, true),
        (Signal::AllocatableMemoryAvailable, true),
        (Signal::NodefsAvailable, false),
        (Signal::NodefsAvailable, true),
        (Signal::NodefsInodesFree, false),
        (Signal::ImagefsAvailable, false),
        (Signal::ImagefsInodesFree, true),
        (Signal::ContainerfsAvailable, false),
        (Signal::ContainerfsInodesFree, false),
        (Signal::PidAvailable, false),
    ];

    proptest! {
        #[test]
        fn the_documented_order_wins_in_any_list_order(
            list in Just(ORDER.to_vec()).prop_shuffle(),
            ready in 1u32..(1 << ORDER.len()),
        ) {
            let policy = policy(&list);
            let ready = ThresholdSet::from_bits(ready);
            let of = |index: usize| {
                let chosen = policy.thresholds()[index];
                let entry = (chosen.signal, !chosen.is_hard());
                ORDER.iter().position(|&expected| expected == entry).unwrap()
            };
            let first: Vec<usize> = ready.iter().map(of).collect();
            prop_assert_eq!(choose(&policy, ready).map(of), first.into_iter().min());
        }
    }

    #[test]
    fn nothing_ready_nothing_chosen() {
        assert_eq!(choose(&policy(&ORDER), ThresholdSet::EMPTY), None);
        assert_eq!(choose(&policy(&[]), ThresholdSet::from_bits(4)), None);
    }
}
