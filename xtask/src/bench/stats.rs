//! What is said of many values: quantiles by nearest rank, and ratios of what was measured in pairs.

/// The usual quantiles of a set of values, in their unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// How many values.
    pub n: usize,
    /// Half of the values are not above this.
    pub p50: f64,
    /// Nine in ten are not above this.
    pub p90: f64,
    /// Ninety-nine in a hundred are not above this; with fewer than 100 values it is the largest.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

impl Summary {
    /// The summary; nothing without values, or if one of them is no number.
    pub fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values)?;
        Some(Self {
            n: sorted.len(),
            p50: nearest_rank(&sorted, 50)?,
            p90: nearest_rank(&sorted, 90)?,
            p99: nearest_rank(&sorted, 99)?,
            max: *sorted.last()?,
        })
    }
}

/// The value at `percent` by nearest rank, always one that was measured.
///
/// Nothing without values, if one of them is no number, or if `percent` is above 100.
pub fn quantile(values: &[f64], percent: usize) -> Option<f64> {
    nearest_rank(&sorted(values)?, percent)
}

/// How one of two things stands to the other, measured side by side.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairedRatio {
    /// How many pairs.
    pub n: usize,
    /// The median of the pairs' ratios.
    pub median: f64,
    /// The smallest ratio.
    pub min: f64,
    /// The largest ratio.
    pub max: f64,
}

impl PairedRatio {
    /// Each pair's first value over its second.
    ///
    /// Nothing without pairs, or if a ratio is no number (a second value of zero).
    pub fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        let ratios: Vec<f64> = pairs.iter().map(|(first, second)| first / second).collect();
        let sorted = sorted(&ratios)?;
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        max.is_finite().then_some(())?;
        Some(Self {
            n: sorted.len(),
            median: nearest_rank(&sorted, 50)?,
            min,
            max,
        })
    }
}

fn sorted(values: &[f64]) -> Option<Vec<f64>> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.iter().all(|value| !value.is_nan()).then_some(sorted)
}

/// Nearest rank: the smallest value such that at least `percent` of all are not above it.
fn nearest_rank(sorted: &[f64], percent: usize) -> Option<f64> {
    (percent <= 100).then_some(())?;
    let rank = (percent * sorted.len()).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_quantile(values: &[f64], percent: usize, expected: Option<f64>) {
        assert_eq!(
            quantile(values, percent),
            expected,
            "{percent} % of {values:?}"
        );
    }

    #[test]
    fn quantiles_are_values_that_were_measured() {
        // The textbook example of nearest rank.
        let five = [15.0, 50.0, 20.0, 40.0, 35.0];
        check_quantile(&five, 5, Some(15.0));
        check_quantile(&five, 30, Some(20.0));
        check_quantile(&five, 40, Some(20.0));
        check_quantile(&five, 50, Some(35.0));
        check_quantile(&five, 100, Some(50.0));
        check_quantile(&five, 0, Some(15.0));
        check_quantile(&[7.0], 99, Some(7.0));
        check_quantile(&[], 50, None);
        check_quantile(&[1.0, f64::NAN], 50, None);
        check_quantile(&five, 101, None);
    }

    #[test]
    fn a_summary_of_a_hundred_values() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let expected = Summary {
            n: 100,
            p50: 50.0,
            p90: 90.0,
            p99: 99.0,
            max: 100.0,
        };
        assert_eq!(Summary::of(&values), Some(expected));
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn few_values_have_no_tail_but_their_largest() {
        let values: Vec<f64> = (1..=99).map(f64::from).collect();
        assert_eq!(quantile(&values, 99), Some(99.0));
    }

    #[test]
    fn ratios_are_taken_pair_by_pair() {
        let pairs = [(1.0, 2.0), (9.0, 10.0), (3.0, 1.0)];
        let expected = PairedRatio {
            n: 3,
            median: 0.9,
            min: 0.5,
            max: 3.0,
        };
        assert_eq!(PairedRatio::of(&pairs), Some(expected));
        assert_eq!(PairedRatio::of(&[]), None);
        assert_eq!(PairedRatio::of(&[(1.0, 0.0)]), None);
        assert_eq!(PairedRatio::of(&[(0.0, 0.0)]), None);
    }
}
