//! What is said of many values: quantiles by nearest rank, tails of few runs, and ratios of what was measured in pairs.

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

/// How many of `n` runs may be above a figure that one in a hundred may exceed.
///
/// From a hundred runs on this is the 99th percentile by nearest rank. Fewer runs cannot show it; they can only refute
/// it: allowed is what a thing that does exceed the figure once in a hundred would exceed it by chance, but for 2 % of
/// all tries. So `--short` fails a thing that holds the figure once in fifty times at most, and with 20 runs it
/// catches a thing that exceeds the figure every fifth time in 93 % of all tries.
pub fn allowed_above(n: usize) -> usize {
    const SHARE: f64 = 0.01;
    const DOUBT: f64 = 0.02;
    if n >= 100 {
        return n - (99 * n).div_ceil(100);
    }
    let runs = u32::try_from(n).unwrap_or(u32::MAX);
    // The chance of exactly `above` exceedances, from none upwards.
    let mut exactly = (1.0 - SHARE).powi(i32::try_from(runs).unwrap_or(i32::MAX));
    let mut at_most = exactly;
    let mut above = 0;
    while 1.0 - at_most > DOUBT {
        exactly *= f64::from(runs - above) / f64::from(above + 1) * SHARE / (1.0 - SHARE);
        at_most += exactly;
        above += 1;
    }
    usize::try_from(above).unwrap_or(n)
}

/// The value that is compared with a figure one in a hundred may exceed: the largest but those that
/// [`allowed_above`] lets pass. Nothing without values, or if one of them is no number.
pub fn tail(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values)?;
    let place = sorted.len().checked_sub(1 + allowed_above(sorted.len()))?;
    sorted.get(place).copied()
}

/// Between which two values the median of what was drawn lies, with 95 % confidence: no assumption is made of how they are
/// spread, only that each is above the median as often as below. Nothing of fewer than six values, which cannot say it.
pub fn interval_of_median(values: &[f64]) -> Option<(f64, f64)> {
    const DOUBT: f64 = 0.05;
    let sorted = sorted(values)?;
    let n = u32::try_from(sorted.len()).ok()?;
    // The chance that so few of them are below the median, from none upwards.
    let mut exactly = 0.5_f64.powi(i32::try_from(n).ok()?);
    let mut at_most = exactly;
    let mut below = 0;
    while 2.0 * at_most <= DOUBT {
        exactly *= f64::from(n - below) / f64::from(below + 1);
        at_most += exactly;
        below += 1;
    }
    let outside = usize::try_from(below).ok()?.checked_sub(1)?;
    Some((*sorted.get(outside)?, *sorted.iter().rev().nth(outside)?))
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
    fn a_tail_of_many_runs_is_their_percentile() {
        let values: Vec<f64> = (1..=250).map(f64::from).collect();
        assert_eq!(tail(&values), quantile(&values, 99));
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(tail(&values), Some(99.0));
    }

    #[test]
    fn a_tail_of_few_runs_lets_chance_pass_and_no_more() {
        // By the binomial distribution: P(X >= 1) of one run is 1 %, of three 3 %; P(X >= 2) of 20 is 1.7 %, of 30
        // 3.6 %; P(X >= 3) of 30 is 0.3 %, of 60 2.2 %.
        for (n, expected) in [(1, 0), (2, 0), (3, 1), (20, 1), (30, 2), (60, 3)] {
            assert_eq!(allowed_above(n), expected, "{n} runs");
        }
        let mut values = vec![1.0; 18];
        values.extend([7.0, 9.0]);
        assert_eq!(tail(&values), Some(7.0));
        assert_eq!(tail(&[]), None);
        assert_eq!(tail(&[f64::NAN]), None);
    }

    #[test]
    fn the_interval_of_a_median_leaves_out_what_chance_does() {
        // By the binomial distribution with 1/2: of 20 values 5 or fewer are below the median in 2.07 % of all tries, 6 or
        // fewer in 5.77 %; of 6 none in 1.56 %, of 5 none in 3.13 %.
        let check = |n: u32, expected| {
            let values: Vec<f64> = (1..=n).rev().map(f64::from).collect();
            assert_eq!(interval_of_median(&values), expected, "{n}");
        };
        check(20, Some((6.0, 15.0)));
        check(6, Some((1.0, 6.0)));
        check(5, None);
        check(0, None);
        assert_eq!(interval_of_median(&[f64::NAN; 20]), None);
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
