//! From draft to policy: the kubelet's rules for thresholds, graces and minimum reclaims.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::super::observe::Layout;
use super::super::signal::Signal;
use super::super::threshold::{Threshold, Value};
use super::draft::{DEFAULT_ENFORCEMENT, Draft, SignalMap};
use super::fault::{Fault, FaultKind, Faults};
use super::{Policy, Settings, derive};
use crate::base::float::parse_f32;
use crate::base::{Quantity, Span};

/// What a draft says, signal by signal.
#[derive(Debug, Default)]
pub(super) struct Entries {
    pub(super) hard: BTreeMap<Signal, Value>,
    pub(super) soft: BTreeMap<Signal, Value>,
    pub(super) graces: BTreeMap<Signal, Span>,
    pub(super) reclaims: BTreeMap<Signal, Value>,
    pub(super) headroom_hard: Option<Value>,
    pub(super) headroom_soft: Option<(Value, Span)>,
    pub(super) settings: Settings,
}

impl Draft {
    /// The policy this draft describes, with containerfs thresholds as configured.
    ///
    /// The draft is taken literally: fill in defaults first. Layout is [`Layout::Single`] until
    /// [`Policy::on_layout`] derives what depends on it.
    ///
    /// # Errors
    /// Everything that is wrong with it, at once.
    pub fn check(&self) -> Result<Policy, Faults> {
        let (entries, faults) = Entries::read(self);
        Faults::unless_empty(faults)?;
        let mut thresholds = entries.thresholds();
        if self.copies_to_allocatable() {
            derive::add_allocatable(&mut thresholds);
        }
        thresholds.extend(entries.headroom());
        Ok(Policy::new(thresholds, Layout::Single, entries.settings))
    }

    pub(super) fn copies_to_allocatable(&self) -> bool {
        let enforced = match &self.enforce_node_allocatable {
            None => true,
            Some(keys) => keys.iter().any(|key| key == DEFAULT_ENFORCEMENT),
        };
        enforced && !self.allocatable_ignore_eviction.unwrap_or(false)
    }
}

impl Entries {
    /// Everything that can be read, and everything that cannot.
    pub(super) fn read(draft: &Draft) -> (Self, Vec<Fault>) {
        let mut faults = Vec::new();
        let mut entries = Self {
            hard: switched_on(read_map(&HARD, draft.eviction_hard.as_ref(), &mut faults)),
            soft: switched_on(read_map(&SOFT, draft.eviction_soft.as_ref(), &mut faults)),
            graces: read_map(
                &GRACE,
                draft.eviction_soft_grace_period.as_ref(),
                &mut faults,
            ),
            reclaims: read_map(
                &RECLAIM,
                draft.eviction_minimum_reclaim.as_ref(),
                &mut faults,
            ),
            ..Self::default()
        };
        entries.require_graces(draft, &mut faults);
        entries.read_headroom(draft, &mut faults);
        entries.settings = read_settings(draft, &mut faults);
        (entries, faults)
    }

    /// Every soft threshold needs a grace; one that was written but is wrong has its own fault.
    fn require_graces(&self, draft: &Draft, faults: &mut Vec<Fault>) {
        let written = |signal: &Signal| {
            let map = draft.eviction_soft_grace_period.as_ref();
            map.is_some_and(|map| map.contains_key(signal.name()))
        };
        for signal in self.soft.keys().filter(|signal| !written(signal)) {
            faults.push(Fault {
                path: key_path(GRACE.key, signal.name()),
                written: String::new(),
                kind: FaultKind::GraceMissing,
            });
        }
    }

    fn read_headroom(&mut self, draft: &Draft, faults: &mut Vec<Fault>) {
        let mut value = |key, text: &Option<String>| {
            read_key(key, text.as_deref(), read_headroom, faults).flatten()
        };
        self.headroom_hard = value("headroomHard", &draft.headroom_hard);
        let soft = value("headroomSoft", &draft.headroom_soft);
        let key = "headroomSoftGracePeriod";
        let grace = draft.headroom_soft_grace_period.as_deref();
        if soft.is_some() && grace.is_none() {
            let kind = FaultKind::GraceMissing;
            faults.push(Fault {
                path: key.into(),
                written: String::new(),
                kind,
            });
        }
        self.headroom_soft = soft.zip(read_key(key, grace, read_grace, faults));
    }

    /// The kubelet's list before copies: hard ones, then soft ones, minimum reclaims attached.
    pub(super) fn thresholds(&self) -> Vec<Threshold> {
        let hard = self
            .hard
            .iter()
            .map(|(&signal, &value)| (signal, value, Span::ZERO));
        let soft = self.soft.iter().filter_map(|(&signal, &value)| {
            self.graces
                .get(&signal)
                .map(|&grace| (signal, value, grace))
        });
        let with_reclaim = |(signal, value, grace)| Threshold {
            signal,
            grace,
            value,
            min_reclaim: self.reclaims.get(&signal).copied(),
        };
        hard.chain(soft).map(with_reclaim).collect()
    }

    fn headroom(&self) -> impl Iterator<Item = Threshold> {
        let hard = self.headroom_hard.map(|value| (value, Span::ZERO));
        hard.into_iter()
            .chain(self.headroom_soft)
            .map(|(value, grace)| Threshold {
                signal: Signal::MemoryHeadroom,
                grace,
                value,
                min_reclaim: None,
            })
    }
}

/// A map of the draft: its key, and how a value is read.
struct MapKey<T> {
    key: &'static str,
    read: fn(&str) -> Result<T, FaultKind>,
}

const HARD: MapKey<Option<Value>> = MapKey {
    key: "evictionHard",
    read: read_threshold,
};
const SOFT: MapKey<Option<Value>> = MapKey {
    key: "evictionSoft",
    read: read_threshold,
};
const GRACE: MapKey<Span> = MapKey {
    key: "evictionSoftGracePeriod",
    read: read_grace,
};
const RECLAIM: MapKey<Value> = MapKey {
    key: "evictionMinimumReclaim",
    read: read_reclaim,
};

/// The path of one entry of a map.
pub(super) fn key_path(map: &str, signal: &str) -> String {
    format!("{map}[{signal:?}]")
}

fn read_map<T>(
    map: &MapKey<T>,
    written: Option<&SignalMap>,
    faults: &mut Vec<Fault>,
) -> BTreeMap<Signal, T> {
    let mut values = BTreeMap::new();
    for (name, text) in written.into_iter().flatten() {
        let signal: Result<Signal, _> = name.parse();
        // Both can be wrong, and both are said.
        if signal.is_err() {
            let path = key_path(map.key, name);
            faults.push(Fault {
                path,
                written: name.clone(),
                kind: FaultKind::UnknownSignal,
            });
        }
        match ((map.read)(text), signal) {
            (Ok(value), Ok(signal)) => drop(values.insert(signal, value)),
            (Ok(_), Err(_)) => {}
            (Err(kind), _) => {
                faults.push(Fault {
                    path: key_path(map.key, name),
                    written: text.clone(),
                    kind,
                });
            }
        }
    }
    values
}

fn switched_on(values: BTreeMap<Signal, Option<Value>>) -> BTreeMap<Signal, Value> {
    values
        .into_iter()
        .filter_map(|(signal, value)| value.map(|value| (signal, value)))
        .collect()
}

fn read_key<T>(
    key: &str,
    written: Option<&str>,
    read: fn(&str) -> Result<T, FaultKind>,
    faults: &mut Vec<Fault>,
) -> Option<T> {
    let text = written?;
    let fault = |kind| Fault {
        path: key.into(),
        written: text.into(),
        kind,
    };
    read(text).map_err(|kind| faults.push(fault(kind))).ok()
}

/// A threshold's value; `None` for exactly `0%` and `100%`, which switch it off. `0.0%` does not.
///
/// # Errors
/// When it is neither a positive quantity nor a percentage from 0 to 100.
pub fn read_threshold(text: &str) -> Result<Option<Value>, FaultKind> {
    if text == "0%" || text == "100%" {
        return Ok(None);
    }
    let value = read_value(text)?;
    match value {
        Value::Fraction(fraction) if fraction < 0.0 => Err(FaultKind::NegativePercentage),
        Value::Fraction(fraction) if fraction > 1.0 => Err(FaultKind::OverHundred),
        Value::Quantity(quantity) if quantity.signum() <= 0 => Err(FaultKind::NotPositive),
        _ => Ok(Some(value)),
    }
}

/// The same for headroom, which the kubelet does not know: what no machine has is refused.
fn read_headroom(text: &str) -> Result<Option<Value>, FaultKind> {
    match read_threshold(text)? {
        Some(Value::Quantity(quantity)) if quantity.value() == i64::MAX => {
            Err(FaultKind::Boundless)
        }
        value => Ok(value),
    }
}

fn read_reclaim(text: &str) -> Result<Value, FaultKind> {
    let value = read_value(text)?;
    match value {
        Value::Fraction(fraction) if fraction <= 0.0 => Err(FaultKind::ReclaimNotPositive),
        Value::Quantity(quantity) if quantity.signum() < 0 => Err(FaultKind::NegativeReclaim),
        _ => Ok(value),
    }
}

fn read_value(text: &str) -> Result<Value, FaultKind> {
    if text.ends_with('%') {
        Ok(Value::Fraction(read_percentage(text)?))
    } else {
        Ok(Value::Quantity(text.parse::<Quantity>()?))
    }
}

/// A percentage as a fraction: all percent signs at the end are dropped, the number is read in
/// single precision, and divided in it.
///
/// # Errors
/// When what remains is no number.
pub fn read_percentage(text: &str) -> Result<f32, FaultKind> {
    Ok(parse_f32(text.trim_end_matches('%'))? / 100.0)
}

fn read_grace(text: &str) -> Result<Span, FaultKind> {
    let grace: Span = text.parse()?;
    if grace < Span::ZERO {
        Err(FaultKind::NegativeGrace)
    } else {
        Ok(grace)
    }
}

fn read_settings(draft: &Draft, faults: &mut Vec<Fault>) -> Settings {
    let defaults = Settings::default();
    let seconds = draft
        .eviction_max_pod_grace_period
        .unwrap_or(defaults.max_pod_grace);
    if i32::try_from(seconds).is_err() {
        faults.push(Fault {
            path: "evictionMaxPodGracePeriod".into(),
            written: format!("{seconds}"),
            kind: FaultKind::OutOfRange,
        });
    }
    let key = "evictionPressureTransitionPeriod";
    let period = draft.eviction_pressure_transition_period.as_deref();
    let period = read_key(key, period, |text| Ok(text.parse()?), faults);
    Settings {
        max_pod_grace: seconds,
        pressure_transition: period.unwrap_or(defaults.pressure_transition),
        local_storage_isolation: draft
            .local_storage_capacity_isolation
            .unwrap_or(defaults.local_storage_isolation),
    }
}
