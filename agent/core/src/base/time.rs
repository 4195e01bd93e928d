//! Points in time and distances between them, in nanoseconds; nobody here can read a clock.

use core::ops::{Add, Sub};

/// A point on one monotonic time line, in nanoseconds since a start the caller chooses.
///
/// Two moments are comparable only if they come from the same clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(transparent)
)]
pub struct Moment(i64);

/// A signed distance between two moments, in nanoseconds (the kubelet's `time.Duration`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(transparent)
)]
pub struct Span(pub(super) i64);

impl Moment {
    /// The start of the caller's time line.
    pub const START: Self = Self(0);

    /// A moment `nanos` nanoseconds after the start; negative values lie before it.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// A moment `seconds` seconds after the start; saturates.
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(NANOS_PER_SEC))
    }

    /// Nanoseconds since the start.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// The distance from `earlier` to `self`; negative if `earlier` is later; saturates.
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

const NANOS_PER_SEC: i64 = 1_000_000_000;

impl Span {
    /// No distance at all.
    pub const ZERO: Self = Self(0);

    /// The longest span, about 292 years.
    pub const MAX: Self = Self(i64::MAX);

    /// `nanos` nanoseconds.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// `micros` microseconds; saturates.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// `millis` milliseconds; saturates.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// `seconds` seconds; saturates.
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(NANOS_PER_SEC))
    }

    /// Nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// Whole seconds, cut towards zero.
    pub const fn as_secs(self) -> i64 {
        self.0 / NANOS_PER_SEC
    }

    /// Whether this is exactly no distance.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl Add<Span> for Moment {
    type Output = Self;

    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Sub<Span> for Moment {
    type Output = Self;

    fn sub(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl Sub for Moment {
    type Output = Span;

    fn sub(self, earlier: Self) -> Span {
        self.since(earlier)
    }
}

impl Add for Span {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Span {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_saturate_instead_of_wrapping() {
        let end = Moment::from_nanos(i64::MAX);
        assert_eq!(end.since(Moment::from_nanos(-1)), Span::MAX);
        assert_eq!(end + Span::from_secs(1), end);
        assert_eq!(Span::from_secs(i64::MAX), Span::MAX);
        assert_eq!(
            Moment::from_secs(3) - Moment::from_secs(5),
            Span::from_secs(-2)
        );
    }
}
