//! Thresholds as they are printed: part of the published output of `config check` and `simulate`.

use brink_core::base::Span;
use brink_core::node::signal::Signal;
use brink_core::node::threshold::{Threshold, Value};
use serde::Serialize;

/// One threshold.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ThresholdLine {
    /// The signal's name.
    pub signal: &'static str,
    /// How they are compared; there is one way only.
    pub op: &'static str,
    /// The grace in seconds; 0 for a hard threshold.
    pub grace_s: Seconds,
    /// What the signal is compared with.
    pub value: Amount,
    /// How much more must be there before it lets go.
    pub min_reclaim: Option<Amount>,
}

/// An amount, or a fraction of the capacity.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum Amount {
    /// Bytes, inodes or process ids, fractions of one rounded away from zero.
    #[serde(rename = "bytes_or_count")]
    Count(i64),
    /// The kubelet's single-precision fraction, widened: 10 % is 0.10000000149011612.
    #[serde(rename = "fraction_f32")]
    Fraction(f64),
}

/// Seconds, without a point where they are whole.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Seconds {
    /// Whole seconds.
    Whole(i64),
    /// With a fraction.
    Fractional(f64),
}

impl ThresholdLine {
    /// What is printed of a threshold.
    pub fn of(threshold: &Threshold) -> Self {
        Self {
            signal: threshold.signal.name(),
            op: "LessThan",
            grace_s: Seconds::of(threshold.grace),
            value: Amount::of(threshold.value),
            min_reclaim: threshold.min_reclaim.map(Amount::of),
        }
    }

    /// The kubelet's thresholds of a list; Brink's own signal is none of them.
    pub fn kubelets(thresholds: &[Threshold]) -> Vec<Self> {
        let kubelets = thresholds
            .iter()
            .filter(|threshold| threshold.signal != Signal::MemoryHeadroom);
        kubelets.map(Self::of).collect()
    }
}

impl Amount {
    fn of(value: Value) -> Self {
        match value {
            Value::Quantity(quantity) => Self::Count(quantity.value()),
            Value::Fraction(fraction) => Self::Fraction(f64::from(fraction)),
        }
    }
}

impl Seconds {
    /// A span in seconds.
    #[expect(
        clippy::cast_precision_loss,
        reason = "only a grace with a fraction of a second gets here, and 2^53 nanoseconds are 104 days"
    )]
    pub fn of(span: Span) -> Self {
        let nanos = span.as_nanos();
        if nanos % 1_000_000_000 == 0 {
            Self::Whole(span.as_secs())
        } else {
            Self::Fractional(nanos as f64 / 1e9)
        }
    }
}
