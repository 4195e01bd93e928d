//! The checked policy: thresholds and what goes with them, ready to be evaluated without allocation.

mod derive;
mod doubt;
mod draft;
mod fault;
mod parse;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

pub use derive::add_allocatable;
pub use doubt::{Capacities, Doubt, DoubtKind};
pub use draft::{
    DEFAULT_ENFORCEMENT, DEFAULT_HARD, DEFAULT_HEADROOM_HARD, DEFAULT_PRESSURE_TRANSITION, Draft,
    SignalMap, default_hard, hard_with_defaults, merged,
};
pub use fault::{Fault, FaultKind, Faults};
pub use parse::{read_percentage, read_threshold};

use super::observe::Layout;
use super::threshold::{Threshold, ThresholdSet};
use crate::base::Span;

/// What the kubelet decides by, after parsing.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(
    feature = "serde",
    serde(into = "wire::Written", from = "wire::Written")
)]
pub struct Policy {
    thresholds: Vec<Threshold>,
    /// For each threshold, those equal to it by the kubelet's rule.
    equals: Vec<ThresholdSet>,
    /// Thresholds that do not share their entry in the table of first observations with an earlier one.
    distinct: ThresholdSet,
    layout: Layout,
    /// Numbers that go with the thresholds.
    pub settings: Settings,
}

/// The numbers of a policy that are no thresholds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Settings {
    /// `evictionMaxPodGracePeriod`, in seconds; any value is accepted.
    pub max_pod_grace: i64,
    /// `evictionPressureTransitionPeriod`: how long a condition outlives its last observation.
    pub pressure_transition: Span,
    /// `localStorageCapacityIsolation`: whether local-storage limits are enforced.
    pub local_storage_isolation: bool,
}

impl Default for Settings {
    /// The kubelet's defaults.
    fn default() -> Self {
        Self {
            max_pod_grace: 0,
            pressure_transition: Span::from_secs(300),
            local_storage_isolation: true,
        }
    }
}

impl Policy {
    /// A policy of the given thresholds on a node of the given layout, as they are, listed by name
    /// of the signal and then by grace. (The kubelet's own list has no order.)
    ///
    /// Thresholds beyond [`ThresholdSet::CAPACITY`] are cut off; the grammar cannot produce as many.
    pub fn new(mut thresholds: Vec<Threshold>, layout: Layout, settings: Settings) -> Self {
        thresholds.truncate(ThresholdSet::CAPACITY);
        thresholds.sort_by_key(|threshold| (threshold.signal.name(), threshold.grace));
        let indexes = |wanted: &dyn Fn(usize) -> bool| -> ThresholdSet {
            (0..thresholds.len())
                .filter(|&index| wanted(index))
                .collect()
        };
        let equals = thresholds
            .iter()
            .map(|one| indexes(&|other| thresholds[other].is_same_as(one)))
            .collect();
        let distinct = indexes(&|index| {
            let one = &thresholds[index];
            !thresholds[..index]
                .iter()
                .any(|earlier| earlier.shares_entry_with(one))
        });
        Self {
            thresholds,
            equals,
            distinct,
            layout,
            settings,
        }
    }

    /// The thresholds; sets of them hold indexes into this list.
    pub fn thresholds(&self) -> &[Threshold] {
        &self.thresholds
    }

    /// The layout its containerfs thresholds were derived for.
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// The thresholds equal to the one at `index` by the kubelet's rule, itself included.
    pub(super) fn equals(&self, index: usize) -> ThresholdSet {
        self.equals.get(index).copied().unwrap_or_default()
    }

    /// The thresholds that have an entry of their own in the table of first observations.
    pub(super) const fn distinct(&self) -> ThresholdSet {
        self.distinct
    }
}

#[cfg(feature = "serde")]
mod wire {
    //! A policy in a journal: its list, without what follows from it.

    use alloc::vec::Vec;

    use super::{Layout, Policy, Settings, Threshold};

    #[derive(serde::Serialize, serde::Deserialize)]
    pub(super) struct Written {
        thresholds: Vec<Threshold>,
        layout: Layout,
        settings: Settings,
    }

    impl From<Policy> for Written {
        fn from(policy: Policy) -> Self {
            let Policy {
                thresholds,
                layout,
                settings,
                ..
            } = policy;
            Self {
                thresholds,
                layout,
                settings,
            }
        }
    }

    impl From<Written> for Policy {
        fn from(written: Written) -> Self {
            Self::new(written.thresholds, written.layout, written.settings)
        }
    }
}
