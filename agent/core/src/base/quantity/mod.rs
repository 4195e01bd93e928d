//! Kubernetes resource quantities: exact amounts that remember how they were written.

mod parse;
mod print;

use core::cmp::Ordering;
use core::hash::{Hash, Hasher};

pub use parse::QuantityError;

/// How a quantity prints: the family of suffix it was written with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub enum Format {
    /// Powers of a thousand: n u m k M G T P E, and no suffix at all.
    #[default]
    DecimalSi,
    /// Powers of 1024: Ki Mi Gi Ti Pi Ei.
    BinarySi,
    /// A power of ten: `12e6`.
    DecimalExponent,
}

/// An exact amount with nine decimal places, as Kubernetes' `resource.Quantity` keeps it.
///
/// Two quantities are equal, and order, by amount alone; the format only says how one prints.
/// Amounts beyond ±1.7e29 are held at that bound, far outside what any signal can measure.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(
    feature = "serde",
    serde(into = "wire::Written", try_from = "wire::Written")
)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

const NANO: i128 = 1_000_000_000;

impl Quantity {
    /// Nothing, in decimal format.
    pub const ZERO: Self = Self {
        nanos: 0,
        format: Format::DecimalSi,
    };

    /// A whole amount in the given format.
    pub const fn new(value: i64, format: Format) -> Self {
        Self {
            nanos: value as i128 * NANO,
            format,
        }
    }

    /// Bytes; prints with binary suffixes.
    pub const fn from_bytes(bytes: i64) -> Self {
        Self::new(bytes, Format::BinarySi)
    }

    /// A count of inodes or processes; prints with decimal suffixes.
    pub const fn from_count(count: i64) -> Self {
        Self::new(count, Format::DecimalSi)
    }

    /// An amount in billionths.
    pub const fn from_nanos(nanos: i128, format: Format) -> Self {
        Self { nanos, format }
    }

    /// The amount in billionths.
    pub const fn nanos(self) -> i128 {
        self.nanos
    }

    /// How it prints.
    pub const fn format(self) -> Format {
        self.format
    }

    /// The amount as a whole number, fractions rounded away from zero; saturates.
    pub fn value(self) -> i64 {
        let whole = self.nanos / NANO;
        let rounded = match (self.nanos % NANO).signum() {
            0 => whole,
            sign => whole + sign,
        };
        i64::try_from(rounded).unwrap_or(if rounded < 0 { i64::MIN } else { i64::MAX })
    }

    /// Whether the amount is exactly nothing.
    pub const fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// −1, 0 or 1.
    pub const fn signum(self) -> i128 {
        self.nanos.signum()
    }

    /// The sum; a zero on the left takes over the right one's format, as upstream does.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        let format = if self.nanos == 0 {
            other.format
        } else {
            self.format
        };
        Self {
            nanos: self.nanos.saturating_add(other.nanos),
            format,
        }
    }

    /// The difference, with the same rule for the format.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        let format = if self.nanos == 0 {
            other.format
        } else {
            self.format
        };
        Self {
            nanos: self.nanos.saturating_sub(other.nanos),
            format,
        }
    }

    /// The larger amount; `self` if they are equal.
    #[must_use]
    pub const fn at_least(self, other: Self) -> Self {
        if other.nanos > self.nanos {
            other
        } else {
            self
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

#[cfg(feature = "serde")]
mod wire {
    //! A quantity in a journal: its canonical text, and the format the text may not show.

    use alloc::string::{String, ToString};

    use super::{Format, Quantity, QuantityError};

    #[derive(serde::Serialize, serde::Deserialize)]
    pub(super) struct Written {
        amount: String,
        format: Format,
    }

    impl From<Quantity> for Written {
        fn from(quantity: Quantity) -> Self {
            Self {
                amount: quantity.to_string(),
                format: quantity.format,
            }
        }
    }

    impl TryFrom<Written> for Quantity {
        type Error = QuantityError;

        fn try_from(written: Written) -> Result<Self, QuantityError> {
            let quantity: Self = written.amount.parse()?;
            Ok(Self {
                format: written.format,
                ..quantity
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_values_round_away_from_zero() {
        for (nanos, expected) in [
            (0, 0),
            (1, 1),
            (NANO, 1),
            (NANO + 1, 2),
            (-1, -1),
            (-NANO - 1, -2),
            (i128::MAX, i64::MAX),
            (i128::MIN, i64::MIN),
        ] {
            assert_eq!(
                Quantity::from_nanos(nanos, Format::DecimalSi).value(),
                expected,
                "{nanos}"
            );
        }
    }

    #[test]
    fn a_sum_keeps_the_first_format_that_is_not_zero() {
        let bytes = Quantity::from_bytes(1024);
        let count = Quantity::from_count(1000);
        assert_eq!(Quantity::ZERO.plus(bytes).format(), Format::BinarySi);
        assert_eq!(count.plus(bytes).format(), Format::DecimalSi);
        assert_eq!(bytes.minus(count).format(), Format::BinarySi);
        assert_eq!(bytes.minus(count).value(), 24);
    }

    #[test]
    fn equality_ignores_the_format() {
        assert_eq!(Quantity::from_bytes(7), Quantity::from_count(7));
        assert!(Quantity::from_bytes(8) > Quantity::from_count(7));
    }
}
