//! Rings of one length side by side, in memory that is taken once.

/// So many lanes of so many points each; the oldest point of a full lane is overwritten.
#[derive(Debug)]
pub struct Lanes<T> {
    points: Box<[T]>,
    ends: Box<[Lane]>,
    length: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    next: usize,
    count: usize,
}

impl<T: Copy + Default> Lanes<T> {
    /// Empty lanes; all their memory is taken now.
    pub fn new(lanes: usize, length: usize) -> Self {
        Self {
            points: vec![T::default(); lanes * length].into(),
            ends: vec![Lane::default(); lanes].into(),
            length,
        }
    }

    /// Adds a point to a lane; one that is not there takes none.
    pub fn push(&mut self, lane: usize, point: T) {
        let Some(found) = self.ends.get_mut(lane) else {
            return;
        };
        if let Some(place) = self.points.get_mut(lane * self.length + found.next) {
            *place = point;
            found.next = (found.next + 1) % self.length;
            found.count = (found.count + 1).min(self.length);
        }
    }

    /// Empties a lane.
    pub fn clear(&mut self, lane: usize) {
        if let Some(found) = self.ends.get_mut(lane) {
            *found = Lane::default();
        }
    }

    /// The points of a lane, oldest first.
    pub fn of(&self, lane: usize) -> impl Iterator<Item = &T> {
        let Lane { next, count } = self.ends.get(lane).copied().unwrap_or_default();
        let first = lane.saturating_mul(self.length);
        let place = move |step: usize| first + (next + self.length - count + step) % self.length;
        (0..count).filter_map(move |step| self.points.get(place(step)))
    }

    /// The newest point of a lane.
    pub fn newest(&self, lane: usize) -> Option<&T> {
        let found = self.ends.get(lane).filter(|found| found.count > 0)?;
        let place = (found.next + self.length - 1) % self.length;
        self.points.get(lane * self.length + place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_lane_that_is_not_there_is_empty() {
        let mut lanes = Lanes::<u32>::new(2, 3);
        lanes.push(2, 7);
        assert_eq!(lanes.of(2).count(), 0);
        assert_eq!(lanes.newest(2), None);
        assert_eq!(lanes.newest(1), None);
    }

    proptest! {
        #[test]
        fn each_lane_keeps_its_own_newest_points(
            steps in proptest::collection::vec((0..3_usize, any::<u32>(), 0..40_u8), 0..200),
            length in 1..9_usize,
        ) {
            let mut lanes = Lanes::new(3, length);
            let mut all = vec![Vec::new(); 3];
            for (lane, point, clear) in steps {
                if clear == 0 {
                    lanes.clear(lane);
                    all[lane].clear();
                }
                lanes.push(lane, point);
                all[lane].push(point);
            }
            for (lane, expected) in all.iter().enumerate() {
                let kept = &expected[expected.len().saturating_sub(length)..];
                let found: Vec<u32> = lanes.of(lane).copied().collect();
                prop_assert_eq!(found.as_slice(), kept);
                prop_assert_eq!(lanes.newest(lane), kept.last());
            }
        }
    }
}
