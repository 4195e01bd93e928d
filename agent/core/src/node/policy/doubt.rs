//! Doubts about a policy that the kubelet would accept without a word: warnings, never errors.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt;

use super::super::signal::{PerSignal, Signal};
use super::super::threshold::Value;
use super::draft::Draft;
use super::parse::{Entries, key_path};
use crate::base::{Quantity, Span};

/// Something that is allowed and hardly meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// The key, from the root of the configuration.
    pub path: String,
    /// What was written there.
    pub written: String,
    /// Why it is doubtful.
    pub kind: DoubtKind,
}

/// What can be doubtful.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoubtKind {
    /// The hard threshold is not below the soft one, so the soft one never acts first.
    HardAboveSoft,
    /// More than there is: always met.
    OverCapacity,
    /// Headroom of all there is or more: always met. Where orders are carried out it is a fault: the kubelet knows no such key.
    HeadroomOverCapacity,
    /// No number, or a zero that switches nothing off (`0.0%`): never met.
    NeverMet,
    /// A part of one byte, inode or process (`0.5`, `100m`): met only once nothing is left.
    BelowOne,
    /// Threshold and minimum reclaim together are more than there is: once met, never resolved.
    UnreachableReclaim,
    /// A grace period for a signal without a soft threshold.
    GraceWithoutThreshold,
    /// A minimum reclaim for a signal without any threshold.
    ReclaimWithoutThreshold,
    /// A longest grace below zero, which the kubelet takes as it is.
    NegativeMaxGrace,
    /// A transition period of zero, which only a flag can say, or below, which the kubelet takes as it is.
    NoTransition,
    /// A containerfs threshold; the one derived from the layout replaces it.
    ContainerfsReplaced,
}

/// How much there is of each signal, where it is known.
pub type Capacities = PerSignal<Option<i64>>;

impl Draft {
    /// What is doubtful about this draft, given what is known of the node. Faulty entries are
    /// skipped: they have been reported as faults.
    pub fn doubts(&self, capacities: &Capacities) -> Vec<Doubt> {
        let (entries, _) = Entries::read(self);
        let mut doubts = Doubts {
            draft: self,
            capacities,
            found: Vec::new(),
        };
        for (&signal, &hard) in &entries.hard {
            if entries
                .soft
                .get(&signal)
                .is_some_and(|&soft| !doubts.is_less(signal, hard, soft))
            {
                doubts.add(Key::Hard, signal, DoubtKind::HardAboveSoft);
            }
        }
        for (key, map) in [(Key::Hard, &entries.hard), (Key::Soft, &entries.soft)] {
            doubts.about_values(key, map, &entries.reclaims);
        }
        doubts.about_leftovers(&entries);
        doubts.about_headroom(&entries);
        doubts.about_max_grace();
        doubts.about_transition();
        doubts.found
    }
}

#[derive(Clone, Copy)]
enum Key {
    Hard,
    Soft,
    Grace,
    Reclaim,
}

struct Doubts<'a> {
    draft: &'a Draft,
    capacities: &'a Capacities,
    found: Vec<Doubt>,
}

impl Doubts<'_> {
    fn add(&mut self, key: Key, signal: Signal, kind: DoubtKind) {
        let (name, map) = match key {
            Key::Hard => ("evictionHard", &self.draft.eviction_hard),
            Key::Soft => ("evictionSoft", &self.draft.eviction_soft),
            Key::Grace => (
                "evictionSoftGracePeriod",
                &self.draft.eviction_soft_grace_period,
            ),
            Key::Reclaim => (
                "evictionMinimumReclaim",
                &self.draft.eviction_minimum_reclaim,
            ),
        };
        let written = map.as_ref().and_then(|map| map.get(signal.name())).cloned();
        let path = key_path(name, signal.name());
        self.push(Doubt {
            path,
            written: written.unwrap_or_default(),
            kind,
        });
    }

    /// Once is enough, where a hard and a soft threshold raise the same doubt.
    fn push(&mut self, doubt: Doubt) {
        if !self.found.contains(&doubt) {
            self.found.push(doubt);
        }
    }

    fn about_headroom(&mut self, entries: &Entries) {
        let (hard, soft) = (entries.headroom_hard, entries.headroom_soft);
        let capacity = self.capacities[Signal::MemoryHeadroom];
        for (path, value, written) in [
            ("headroomHard", hard, &self.draft.headroom_hard),
            (
                "headroomSoft",
                soft.map(|(value, _)| value),
                &self.draft.headroom_soft,
            ),
        ] {
            let Some(value) = value else { continue };
            let kind = if is_never_met(value) {
                DoubtKind::NeverMet
            } else if is_below_one(value) {
                DoubtKind::BelowOne
            } else if capacity.is_some_and(|capacity| !leaves_any(capacity, value)) {
                DoubtKind::HeadroomOverCapacity
            } else {
                continue;
            };
            self.push(Doubt {
                path: path.into(),
                written: written.clone().unwrap_or_default(),
                kind,
            });
        }
        if let (Some(hard), Some((soft, _))) = (hard, soft)
            && !self.is_less(Signal::MemoryHeadroom, hard, soft)
        {
            let written = self.draft.headroom_hard.clone().unwrap_or_default();
            let kind = DoubtKind::HardAboveSoft;
            self.push(Doubt {
                path: "headroomHard".into(),
                written,
                kind,
            });
        }
        let (soft, grace) = (
            &self.draft.headroom_soft,
            &self.draft.headroom_soft_grace_period,
        );
        if let (None, Some(grace)) = (soft, grace) {
            self.push(Doubt {
                path: "headroomSoftGracePeriod".into(),
                written: grace.clone(),
                kind: DoubtKind::GraceWithoutThreshold,
            });
        }
    }

    fn about_transition(&mut self) {
        let written = self.draft.eviction_pressure_transition_period.as_deref();
        let is_none = |text: &&str| text.parse().is_ok_and(|period: Span| period <= Span::ZERO);
        if let Some(written) = written.filter(is_none) {
            self.push(Doubt {
                path: "evictionPressureTransitionPeriod".into(),
                written: written.to_string(),
                kind: DoubtKind::NoTransition,
            });
        }
    }

    fn about_max_grace(&mut self) {
        let written = self.draft.eviction_max_pod_grace_period;
        if let Some(seconds) = written.filter(|seconds| *seconds < 0) {
            self.push(Doubt {
                path: "evictionMaxPodGracePeriod".into(),
                written: seconds.to_string(),
                kind: DoubtKind::NegativeMaxGrace,
            });
        }
    }

    /// Whether one value is surely less than the other; true too where nothing can be said.
    fn is_less(&self, signal: Signal, one: Value, other: Value) -> bool {
        // That has a doubt of its own.
        if is_never_met(one) || is_never_met(other) {
            return true;
        }
        match (one, other, self.capacities[signal]) {
            (Value::Fraction(one), Value::Fraction(other), _) => one < other,
            (Value::Quantity(one), Value::Quantity(other), _) => one < other,
            (one, other, Some(capacity)) => one.quantity(capacity) < other.quantity(capacity),
            (_, _, None) => true,
        }
    }

    fn about_values(
        &mut self,
        key: Key,
        values: &BTreeMap<Signal, Value>,
        reclaims: &BTreeMap<Signal, Value>,
    ) {
        for (&signal, &value) in values {
            if matches!(
                signal,
                Signal::ContainerfsAvailable | Signal::ContainerfsInodesFree
            ) {
                self.add(key, signal, DoubtKind::ContainerfsReplaced);
            } else if is_never_met(value) {
                self.add(key, signal, DoubtKind::NeverMet);
            } else if is_below_one(value) {
                self.add(key, signal, DoubtKind::BelowOne);
            } else if exceeds(self.capacities[signal], value, None) {
                self.add(key, signal, DoubtKind::OverCapacity);
            } else if let Some(&reclaim) = reclaims.get(&signal)
                && exceeds(self.capacities[signal], value, Some(reclaim))
            {
                self.add(Key::Reclaim, signal, DoubtKind::UnreachableReclaim);
            }
        }
    }

    fn about_leftovers(&mut self, entries: &Entries) {
        for &signal in entries.graces.keys() {
            if !entries.soft.contains_key(&signal) {
                self.add(Key::Grace, signal, DoubtKind::GraceWithoutThreshold);
            }
        }
        for &signal in entries.reclaims.keys() {
            if !entries.soft.contains_key(&signal) && !entries.hard.contains_key(&signal) {
                self.add(Key::Reclaim, signal, DoubtKind::ReclaimWithoutThreshold);
            }
        }
    }
}

/// Whether nothing is less than this: to the kubelet `NaN%` and `0.0%` are thresholds like any other.
fn is_never_met(value: Value) -> bool {
    matches!(value, Value::Fraction(fraction) if fraction.is_nan() || fraction <= 0.0)
}

/// Whether there is less than this only where there is nothing: what is left is counted in whole bytes, inodes and processes.
fn is_below_one(value: Value) -> bool {
    matches!(value, Value::Quantity(quantity) if quantity < Quantity::from_bytes(1))
}

/// Whether a value leaves anything of what there is.
fn leaves_any(capacity: i64, value: Value) -> bool {
    value.quantity(capacity) < Quantity::from_bytes(capacity)
}

/// Whether value and reclaim together are more than there is.
fn exceeds(capacity: Option<i64>, value: Value, reclaim: Option<Value>) -> bool {
    match (capacity, value, reclaim) {
        (_, Value::Fraction(value), Some(Value::Fraction(reclaim))) => value + reclaim > 1.0,
        (Some(capacity), value, reclaim) => {
            let more = reclaim.map_or(Quantity::ZERO, |reclaim| reclaim.quantity(capacity));
            value.quantity(capacity).plus(more) > Quantity::from_bytes(capacity)
        }
        // Without a capacity only a reclaim above one hundred percent is surely too much.
        (None, _, Some(Value::Fraction(reclaim))) => reclaim > 1.0,
        // What cannot be counted is more than there is of anything.
        (None, Value::Quantity(value), None) => value.nanos() == i128::MAX,
        (None, _, _) => false,
    }
}

impl fmt::Display for DoubtKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HardAboveSoft => {
                "the hard threshold is not below the soft one, so the soft one never acts first"
            }
            Self::OverCapacity => "the threshold is above the capacity and always met",
            Self::HeadroomOverCapacity => {
                "not below the node's capacity, so always met: every workload would be evicted"
            }
            Self::NeverMet => "nothing is below this threshold: it protects nobody",
            Self::BelowOne => {
                "less than one byte, inode or process: met only once nothing at all is left"
            }
            Self::UnreachableReclaim => {
                "threshold and minimum reclaim together are above the capacity: once met, the \
                 threshold is never resolved"
            }
            Self::GraceWithoutThreshold => "there is no soft threshold for this grace period",
            Self::ReclaimWithoutThreshold => "there is no threshold for this minimum reclaim",
            Self::NegativeMaxGrace => {
                "below zero, so a soft eviction grants one second, with the kubelet too; 0 grants the \
                 pod's own grace"
            }
            Self::NoTransition => {
                "no time above zero: no condition is ever reported, by the kubelet neither"
            }
            Self::ContainerfsReplaced => {
                "containerfs thresholds are replaced by those of the filesystem it lives on"
            }
        })
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path,
            written,
            kind,
        } = self;
        write!(f, "{path}: {written}: {kind}")
    }
}
