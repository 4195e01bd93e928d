//! Thinning: the nearer to the incident, the denser the points that are kept of a recording.

/// How dense, band after band: points younger than `until_ms` are kept one for every `step_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Band {
    /// Where the band ends, in milliseconds before the incident.
    pub until_ms: u32,
    /// From one kept point to the next, in milliseconds.
    pub step_ms: u32,
}

/// A band.
pub const fn band(until_ms: u32, step_ms: u32) -> Band {
    Band { until_ms, step_ms }
}

/// Takes points oldest first, and keeps of each step the one that `worse` prefers.
#[derive(Debug)]
pub struct Thinner<P> {
    bands: &'static [Band],
    worse: fn(&P, &P) -> bool,
    kept: Vec<(Step, P)>,
}

impl<P> Thinner<P> {
    /// Nothing kept yet.
    pub const fn new(bands: &'static [Band], worse: fn(&P, &P) -> bool) -> Self {
        Self {
            bands,
            worse,
            kept: Vec::new(),
        }
    }

    /// Takes a point from so many milliseconds before the incident. What is older than the last band goes.
    pub fn push(&mut self, before_ms: u32, point: P) {
        let Some(step) = step_of(self.bands, before_ms) else {
            return;
        };
        match self.kept.last_mut() {
            Some((last, best)) if *last == step => {
                if (self.worse)(&point, best) {
                    *best = point;
                }
            }
            _ => self.kept.push((step, point)),
        }
    }

    /// What was kept, oldest first.
    pub fn finish(self) -> Vec<P> {
        self.kept.into_iter().map(|(_, point)| point).collect()
    }
}

/// The band, and the step in it.
type Step = (usize, u32);

fn step_of(bands: &[Band], before_ms: u32) -> Option<Step> {
    let index = bands.iter().position(|band| before_ms < band.until_ms)?;
    let step = bands.get(index)?.step_ms.max(1);
    Some((index, before_ms / step))
}

/// The most points that may be left, if they come no more often than every `period_ms`.
#[cfg(test)]
pub fn most(bands: &[Band], period_ms: u32) -> usize {
    let mut from = 0;
    let mut sum = 0;
    for band in bands {
        sum += (band.until_ms - from).div_ceil(band.step_ms.max(period_ms)) + 1;
        from = band.until_ms;
    }
    sum as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    static BANDS: [Band; 3] = [band(300, 10), band(1_000, 50), band(6_000, 500)];

    fn thinned(points: &[(u32, i64)]) -> Vec<(u32, i64)> {
        let mut thinner = Thinner::new(&BANDS, |one: &(u32, i64), other| one.1 < other.1);
        for point in points {
            thinner.push(point.0, *point);
        }
        thinner.finish()
    }

    #[test]
    fn the_worst_point_of_each_step_stays() {
        let check = |points: &[(u32, i64)], expected: &[(u32, i64)]| {
            assert_eq!(thinned(points), expected, "{points:?}");
        };
        check(&[], &[]);
        check(&[(6_000, 1), (5_999, 2)], &[(5_999, 2)]);
        check(&[(1_400, 5), (1_200, 3), (1_100, 4)], &[(1_200, 3)]);
        check(
            &[(999, 5), (990, 7), (20, 1), (10, 1), (0, 1)],
            &[(999, 5), (20, 1), (10, 1), (0, 1)],
        );
        // A band's end parts what one step would hold.
        check(&[(1_000, 1), (999, 2)], &[(1_000, 1), (999, 2)]);
    }

    proptest! {
        #[test]
        fn it_keeps_the_order_the_worst_and_the_bound(values in proptest::collection::vec(any::<i64>(), 0..700)) {
            let count = u32::try_from(values.len()).unwrap_or(0);
            let points: Vec<(u32, i64)> = (0..count).map(|index| (count - 1 - index) * 10).zip(values).collect();
            let kept = thinned(&points);
            prop_assert!(kept.windows(2).all(|pair| pair[0].0 > pair[1].0));
            prop_assert!(kept.len() <= most(&BANDS, 10));
            let inside = points.iter().filter(|point| point.0 < 6_000);
            prop_assert_eq!(kept.iter().map(|point| point.1).min(), inside.map(|point| point.1).min());
            prop_assert!(kept.iter().all(|point| points.contains(point)));
        }
    }
}
