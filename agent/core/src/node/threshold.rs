//! A threshold: a signal, a value, a grace and a minimum reclaim; when it is met, and what set of them is.

use alloc::format;
use alloc::string::{String, ToString as _};
use core::fmt;

use super::observe::Observation;
use super::signal::Signal;
use crate::base::{Quantity, Span};

/// What a signal is compared with: an amount, or a fraction of the capacity.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Value {
    /// An absolute amount.
    Quantity(Quantity),
    /// A fraction of the observed capacity, in the kubelet's single precision: 10 % is 0.1.
    Fraction(f32),
}

/// A limit on one signal. The kubelet knows one direction only: less than.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Threshold {
    /// What is measured.
    pub signal: Signal,
    /// How long it must be met before anything is done; zero makes it a hard threshold.
    pub grace: Span,
    /// Met when less than this is available.
    pub value: Value,
    /// How much more must be available before a threshold that was acted on lets go.
    pub min_reclaim: Option<Value>,
}

impl Value {
    /// The amount this stands for at the given capacity.
    ///
    /// A fraction is single precision, the product double, and the result is cut towards zero;
    /// so 10 % of 1048576000 is 104857601. What does not fit 64 bits (an infinite or absurd
    /// minimum reclaim, not a number) becomes the smallest integer, as on the kubelet's x86-64.
    /// A fraction's amount always prints with binary suffixes, whatever the signal.
    pub fn quantity(self, capacity: i64) -> Quantity {
        match self {
            Self::Quantity(quantity) => quantity,
            Self::Fraction(fraction) => Quantity::from_bytes(fraction_of(capacity, fraction)),
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the kubelet multiplies in double precision too"
)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "cut towards zero; the range is checked"
)]
fn fraction_of(capacity: i64, fraction: f32) -> i64 {
    const RANGE: core::ops::Range<f64> = -9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0;
    let product = capacity as f64 * f64::from(fraction);
    if RANGE.contains(&product) {
        product as i64
    } else {
        i64::MIN
    }
}

impl PartialEq for Value {
    /// The kubelet's rule: an amount equals an amount, a fraction a fraction, never across.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Quantity(a), Self::Quantity(b)) => a == b,
            (Self::Fraction(a), Self::Fraction(b)) => a == b,
            _ => false,
        }
    }
}

impl fmt::Display for Value {
    /// A percentage in the fewest decimals that are read back as the same fraction: 15%, not 15.000001%.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quantity(quantity) => quantity.fmt(f),
            Self::Fraction(fraction) => write!(f, "{}%", percent(*fraction)),
        }
    }
}

/// The percentage that the kubelet's reading, single precision divided by 100, makes this fraction of.
fn percent(fraction: f32) -> String {
    /// The smallest fraction has no more decimals.
    const DECIMALS: usize = 48;
    let reads_back = |percent: f32| (percent / 100.0).to_bits() == fraction.to_bits();
    let exact = f64::from(fraction) * 100.0;
    let written = (0..=DECIMALS).map(|decimals| format!("{exact:.decimals$}"));
    let is_right = |text: &String| text.parse().is_ok_and(reads_back);
    if let Some(text) = written.into_iter().find(is_right) {
        return text;
    }
    // The nearest number in single precision may be one beside the one that was divided.
    let nearest = fraction * 100.0;
    let beside = [nearest.next_down(), nearest.next_up()];
    let divided = beside.into_iter().find(|&percent| reads_back(percent));
    divided.unwrap_or(nearest).to_string()
}

impl Threshold {
    /// Hard thresholds act at once and give pods no grace.
    pub const fn is_hard(&self) -> bool {
        self.grace.is_zero()
    }

    /// The amount below which it is met.
    pub fn quantity(&self, capacity: i64) -> Quantity {
        self.value.quantity(capacity)
    }

    /// The amount at which a threshold that was acted on lets go.
    pub fn release(&self, capacity: i64) -> Quantity {
        let quantity = self.quantity(capacity);
        match self.min_reclaim {
            Some(more) => quantity.plus(more.quantity(capacity)),
            None => quantity,
        }
    }

    /// Whether less than the threshold is available; never without an observation.
    pub fn is_met(&self, seen: Option<&Observation>) -> bool {
        seen.is_some_and(|seen| seen.is_below(self.quantity(seen.capacity)))
    }

    /// Whether less than threshold and minimum reclaim together is available.
    pub fn is_held(&self, seen: Option<&Observation>) -> bool {
        seen.is_some_and(|seen| seen.is_below(self.release(seen.capacity)))
    }

    /// The kubelet's equality: signal, grace and value; the minimum reclaim does not count.
    pub fn is_same_as(&self, other: &Self) -> bool {
        self.signal == other.signal && self.grace == other.grace && self.value == other.value
    }

    /// Whether the kubelet's table of first observations has one entry for both. It goes by the
    /// identity of quantities and minimum reclaims, so only plain fractions can coincide.
    pub(super) fn shares_entry_with(&self, other: &Self) -> bool {
        let plain = |t: &Self| matches!(t.value, Value::Fraction(_)) && t.min_reclaim.is_none();
        plain(self) && plain(other) && self.is_same_as(other)
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}<{}", self.signal, self.value)?;
        if self.is_hard() {
            Ok(())
        } else {
            write!(f, " for {}", self.grace)
        }
    }
}

/// A set of thresholds, by their index in the policy's list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(transparent)
)]
pub struct ThresholdSet(u32);

impl ThresholdSet {
    /// How many thresholds a policy may have; the grammar admits at most 26.
    pub const CAPACITY: usize = 32;

    /// No threshold.
    pub const EMPTY: Self = Self(0);

    /// The set with the given bits.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// One bit a threshold, lowest first.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Adds the threshold at `index`; indexes beyond the capacity are not representable and left out.
    pub const fn insert(&mut self, index: usize) {
        if index < Self::CAPACITY {
            self.0 |= 1 << index;
        }
    }

    /// Takes the threshold at `index` out.
    pub const fn remove(&mut self, index: usize) {
        if index < Self::CAPACITY {
            self.0 &= !(1 << index);
        }
    }

    /// Whether the threshold at `index` is in the set.
    pub const fn contains(self, index: usize) -> bool {
        index < Self::CAPACITY && self.0 & (1 << index) != 0
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many there are.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Those in either set.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those in both sets.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Those in this set and not in the other.
    #[must_use]
    pub const fn difference(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether every member is in the other set too.
    pub const fn is_subset_of(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// The indexes in the set, lowest first.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            let lowest = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
            rest &= rest - 1;
            Some(lowest)
        })
    }
}

impl FromIterator<usize> for ThresholdSet {
    fn from_iter<I: IntoIterator<Item = usize>>(indexes: I) -> Self {
        let mut set = Self::EMPTY;
        for index in indexes {
            set.insert(index);
        }
        set
    }
}
