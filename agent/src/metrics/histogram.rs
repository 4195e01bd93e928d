//! Durations counted in buckets of fixed bounds.

/// Upper bounds: nanoseconds, and how they are written in seconds.
pub type Bounds = &'static [(u64, &'static str)];

/// What ends the buckets.
const END: &str = "+Inf";
/// Buckets at most.
const MOST: usize = 20;

/// The kubelet's own buckets for the age of statistics.
pub const AGES: Bounds = &[
    (5_000_000, "0.005"),
    (10_000_000, "0.01"),
    (25_000_000, "0.025"),
    (50_000_000, "0.05"),
    (100_000_000, "0.1"),
    (250_000_000, "0.25"),
    (500_000_000, "0.5"),
    (1_000_000_000, "1.0"),
    (2_500_000_000, "2.5"),
    (5_000_000_000, "5.0"),
    (10_000_000_000, "10.0"),
];

/// From what one stage of a kill takes to what a slow death takes.
pub const STAGES: Bounds = &[
    (10_000, "1e-05"),
    (25_000, "2.5e-05"),
    (50_000, "5e-05"),
    (100_000, "0.0001"),
    (250_000, "0.00025"),
    (500_000, "0.0005"),
    (1_000_000, "0.001"),
    (2_500_000, "0.0025"),
    (5_000_000, "0.005"),
    (10_000_000, "0.01"),
    (25_000_000, "0.025"),
    (50_000_000, "0.05"),
    (100_000_000, "0.1"),
    (250_000_000, "0.25"),
    (500_000_000, "0.5"),
    (1_000_000_000, "1.0"),
    (2_500_000_000, "2.5"),
    (5_000_000_000, "5.0"),
    (10_000_000_000, "10.0"),
    (30_000_000_000, "30.0"),
];

const _: () = assert!(AGES.len() <= MOST && STAGES.len() <= MOST);

/// Durations by their size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    bounds: Bounds,
    /// By bucket, not cumulated; what is beyond the last bound is in the count alone.
    buckets: [u64; MOST],
    count: u64,
    sum: u64,
}

impl Histogram {
    /// Nothing observed yet.
    pub const fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            buckets: [0; MOST],
            count: 0,
            sum: 0,
        }
    }

    /// Takes a duration, in nanoseconds.
    pub fn observe(&mut self, nanos: u64) {
        let mut buckets = self.bounds.iter().zip(&mut self.buckets);
        if let Some((_, bucket)) = buckets.find(|((bound, _), _)| nanos <= *bound) {
            *bucket += 1;
        }
        self.count += 1;
        self.sum = self.sum.saturating_add(nanos);
    }

    /// How many were at most as long as each bound; all of them at the last.
    pub fn cumulated(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let mut sum = 0;
        let counts = self.bounds.iter().zip(self.buckets);
        let counts = counts.map(move |((_, bound), count)| {
            sum += count;
            (*bound, sum)
        });
        counts.chain([(END, self.count)])
    }

    /// How many there were.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// All of them together, in nanoseconds.
    pub const fn sum(&self) -> u64 {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use brink_core::node::metrics::STATS_AGE_BUCKETS;

    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let mut histogram = Histogram::new(AGES);
        for nanos in [0, 5_000_000, 5_000_001, 10_000_000_000, 10_000_000_001] {
            histogram.observe(nanos);
        }
        let counts: Vec<u64> = histogram.cumulated().map(|(_, count)| count).collect();
        assert_eq!(counts, [2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 4, 5]);
        assert_eq!((histogram.count(), histogram.sum()), (5, 20_010_000_002));
    }

    #[test]
    fn bounds_rise_and_are_written_as_they_are() {
        for bounds in [AGES, STAGES] {
            assert!(bounds.is_sorted_by(|one, next| one.0 < next.0));
            for (nanos, text) in bounds {
                let seconds: f64 = text.parse().unwrap();
                let exact = std::time::Duration::from_secs_f64(seconds).as_nanos();
                assert_eq!(exact, u128::from(*nanos), "{text}");
            }
        }
    }

    #[test]
    fn ages_have_the_kubelets_buckets() {
        let seconds = AGES.iter().map(|(_, text)| text.parse::<f64>().unwrap());
        let pairs = seconds.zip(STATS_AGE_BUCKETS);
        assert!(
            pairs
                .clone()
                .all(|(ours, theirs)| (ours - theirs).abs() < f64::EPSILON)
        );
        assert_eq!(pairs.count(), STATS_AGE_BUCKETS.len());
    }
}
