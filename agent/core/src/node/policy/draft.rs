//! The draft: eviction settings as they were written, their defaults, and how files are merged.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::base::Span;

/// A map from signal names to values, as written.
pub type SignalMap = BTreeMap<String, String>;

/// The kubelet's eviction keys and Brink's own, as written; `None` where a key was left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(
    feature = "serde",
    serde(default, rename_all = "camelCase", deny_unknown_fields)
)]
pub struct Draft {
    /// `evictionHard`.
    pub eviction_hard: Option<SignalMap>,
    /// `evictionSoft`.
    pub eviction_soft: Option<SignalMap>,
    /// `evictionSoftGracePeriod`.
    pub eviction_soft_grace_period: Option<SignalMap>,
    /// `evictionMinimumReclaim`.
    pub eviction_minimum_reclaim: Option<SignalMap>,
    /// `evictionMaxPodGracePeriod`, in seconds.
    pub eviction_max_pod_grace_period: Option<i64>,
    /// `evictionPressureTransitionPeriod`. Zero in a file stands for the default.
    pub eviction_pressure_transition_period: Option<String>,
    /// `mergeDefaultEvictionSettings`.
    pub merge_default_eviction_settings: Option<bool>,
    /// `enforceNodeAllocatable`.
    pub enforce_node_allocatable: Option<Vec<String>>,
    /// `localStorageCapacityIsolation`.
    pub local_storage_capacity_isolation: Option<bool>,
    /// The flag that keeps hard memory thresholds from being copied to allocatable memory; no key
    /// of a file.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub allocatable_ignore_eviction: Option<bool>,
    /// `headroomHard`: Brink's own hard threshold; `0%` switches it off.
    pub headroom_hard: Option<String>,
    /// `headroomSoft`: Brink's own soft threshold.
    pub headroom_soft: Option<String>,
    /// `headroomSoftGracePeriod`: the grace of the soft one.
    pub headroom_soft_grace_period: Option<String>,
}

/// The kubelet's hard thresholds on Linux when none are written. There is none for process ids.
pub const DEFAULT_HARD: [(&str, &str); 5] = [
    ("memory.available", "100Mi"),
    ("nodefs.available", "10%"),
    ("nodefs.inodesFree", "5%"),
    ("imagefs.available", "15%"),
    ("imagefs.inodesFree", "5%"),
];

/// The period for which a condition outlives its cause when none is written.
pub const DEFAULT_PRESSURE_TRANSITION: &str = "5m";

/// What node allocatable is enforced on when nothing is written.
pub const DEFAULT_ENFORCEMENT: &str = "pods";

/// Brink's hard headroom when none is written.
pub const DEFAULT_HEADROOM_HARD: &str = "50Mi";

/// The kubelet's default map.
pub fn default_hard() -> SignalMap {
    let pairs = DEFAULT_HARD.into_iter();
    pairs
        .map(|(signal, value)| (signal.to_string(), value.to_string()))
        .collect()
}

/// The hard map after the kubelet's defaults: all of them if the map was left out; the missing
/// ones if merging was asked for; none if a map was given, even an empty one.
pub fn hard_with_defaults(written: Option<SignalMap>, merge: bool) -> SignalMap {
    match written {
        None => default_hard(),
        Some(map) if merge => merged(default_hard(), map),
        Some(map) => map,
    }
}

/// `base` with the entries of `over` put in or replaced.
pub fn merged(mut base: SignalMap, over: SignalMap) -> SignalMap {
    base.extend(over);
    base
}

impl Draft {
    /// The draft as a file on its own: every key left out takes the kubelet's default.
    ///
    /// Brink's own keys are left as they are, so that a scenario of the kubelet alone has none.
    #[must_use]
    pub fn with_defaults(mut self) -> Self {
        let merge = self.merge_default_eviction_settings.unwrap_or(false);
        self.eviction_hard = Some(hard_with_defaults(self.eviction_hard, merge));
        self.eviction_pressure_transition_period =
            file_period(self.eviction_pressure_transition_period)
                .or_else(|| Some(DEFAULT_PRESSURE_TRANSITION.to_string()));
        self.enforce_node_allocatable
            .get_or_insert_with(|| Vec::from([DEFAULT_ENFORCEMENT.to_string()]));
        self.local_storage_capacity_isolation.get_or_insert(true);
        self
    }

    /// The draft with Brink's default for its own hard threshold.
    #[must_use]
    pub fn with_headroom_default(mut self) -> Self {
        self.headroom_hard
            .get_or_insert_with(|| DEFAULT_HEADROOM_HARD.to_string());
        self
    }

    /// Lays a drop-in file over this one: maps merge key by key, everything else is replaced.
    ///
    /// The kubelet fills in defaults before it does this, so a drop-in that sets one hard
    /// threshold leaves the default ones standing: call [`Draft::with_defaults`] first.
    #[must_use]
    pub fn with_drop_in(self, mut over: Self) -> Self {
        over.eviction_pressure_transition_period =
            file_period(over.eviction_pressure_transition_period);
        self.layered(over, |base, over| match (base, over) {
            (Some(base), Some(over)) => Some(merged(base, over)),
            (base, over) => over.or(base),
        })
    }

    /// Lays command-line flags over this one: each key given replaces the whole of it, maps too.
    #[must_use]
    pub fn with_flags(self, flags: Self) -> Self {
        self.layered(flags, |base, over| over.or(base))
    }

    fn layered(self, over: Self, maps: fn(Map, Map) -> Map) -> Self {
        Self {
            eviction_hard: maps(self.eviction_hard, over.eviction_hard),
            eviction_soft: maps(self.eviction_soft, over.eviction_soft),
            eviction_soft_grace_period: maps(
                self.eviction_soft_grace_period,
                over.eviction_soft_grace_period,
            ),
            eviction_minimum_reclaim: maps(
                self.eviction_minimum_reclaim,
                over.eviction_minimum_reclaim,
            ),
            eviction_max_pod_grace_period: over
                .eviction_max_pod_grace_period
                .or(self.eviction_max_pod_grace_period),
            eviction_pressure_transition_period: over
                .eviction_pressure_transition_period
                .or(self.eviction_pressure_transition_period),
            merge_default_eviction_settings: over
                .merge_default_eviction_settings
                .or(self.merge_default_eviction_settings),
            enforce_node_allocatable: over
                .enforce_node_allocatable
                .or(self.enforce_node_allocatable),
            local_storage_capacity_isolation: over
                .local_storage_capacity_isolation
                .or(self.local_storage_capacity_isolation),
            allocatable_ignore_eviction: over
                .allocatable_ignore_eviction
                .or(self.allocatable_ignore_eviction),
            headroom_hard: over.headroom_hard.or(self.headroom_hard),
            headroom_soft: over.headroom_soft.or(self.headroom_soft),
            headroom_soft_grace_period: over
                .headroom_soft_grace_period
                .or(self.headroom_soft_grace_period),
        }
    }
}

type Map = Option<SignalMap>;

/// A period written into a file: zero stands for the default there; only a flag can say zero.
fn file_period(written: Option<String>) -> Option<String> {
    let written = written?;
    let zero = written.parse().is_ok_and(Span::is_zero);
    Some(if zero {
        DEFAULT_PRESSURE_TRANSITION.to_string()
    } else {
        written
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> SignalMap {
        pairs
            .iter()
            .map(|&(signal, value)| (signal.to_string(), value.to_string()))
            .collect()
    }

    fn hard(pairs: &[(&str, &str)]) -> Draft {
        Draft {
            eviction_hard: Some(map(pairs)),
            ..Draft::default()
        }
    }

    #[test]
    fn a_map_that_is_given_is_used_as_it_is_unless_merged() {
        let one = [("memory.available", "500Mi")];
        assert_eq!(
            Draft::default().with_defaults().eviction_hard,
            Some(default_hard())
        );
        assert_eq!(hard(&one).with_defaults().eviction_hard, Some(map(&one)));
        assert_eq!(hard(&[]).with_defaults().eviction_hard, Some(map(&[])));
        let merge = Draft {
            merge_default_eviction_settings: Some(true),
            ..hard(&one)
        };
        let expected = merged(default_hard(), map(&one));
        assert_eq!(merge.with_defaults().eviction_hard, Some(expected.clone()));
        assert_eq!(expected.len(), 5);
    }

    #[test]
    fn drop_ins_merge_keys_and_flags_replace_maps() {
        let base = Draft::default().with_defaults();
        let over = hard(&[("memory.available", "500Mi"), ("pid.available", "1k")]);
        let dropped = base
            .clone()
            .with_drop_in(over.clone())
            .eviction_hard
            .unwrap();
        assert_eq!(dropped.len(), 6);
        assert_eq!(dropped["memory.available"], "500Mi");
        assert_eq!(
            base.with_flags(over.clone()).eviction_hard,
            over.eviction_hard
        );
    }

    #[test]
    fn zero_means_the_default_in_files_and_zero_in_flags() {
        let period = |text: &str| Draft {
            eviction_pressure_transition_period: Some(text.to_string()),
            ..Draft::default()
        };
        let of = |draft: Draft| draft.eviction_pressure_transition_period.unwrap();
        assert_eq!(of(Draft::default().with_defaults()), "5m");
        assert_eq!(of(period("0s").with_defaults()), "5m");
        assert_eq!(of(period("30s").with_defaults()), "30s");
        assert_eq!(
            of(period("30s").with_defaults().with_drop_in(period("0"))),
            "5m"
        );
        assert_eq!(
            of(period("30s").with_defaults().with_flags(period("0s"))),
            "0s"
        );
        assert_eq!(of(period("junk").with_defaults()), "junk");
    }
}
