//! Names of the kubelet's eviction metrics; what they count is part of a decision.

use super::limits::LimitKind;
use super::signal::Signal;

/// Counter of evicted pods, label [`SIGNAL_LABEL`].
pub const EVICTIONS: &str = "kubelet_evictions";

/// The same counter under its newer name; both are emitted.
pub const EVICTIONS_TOTAL: &str = "kubelet_evictions_total";

/// Histogram of the age of what was observed when pods were ranked, in seconds, for every ready
/// and fresh threshold with a time, label [`SIGNAL_LABEL`]; also when nobody was evicted.
pub const STATS_AGE: &str = "kubelet_eviction_stats_age_seconds";

/// The label both have.
pub const SIGNAL_LABEL: &str = "eviction_signal";

/// Upper bounds of the histogram's buckets, in seconds.
pub const STATS_AGE_BUCKETS: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// What an eviction is counted under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum EvictionSignal {
    /// The signal of the threshold that was acted on.
    Threshold(Signal),
    /// A local-storage limit.
    Limit(LimitKind),
}

impl EvictionSignal {
    /// The value of the label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Threshold(signal) => signal.name(),
            Self::Limit(limit) => limit.name(),
        }
    }
}
