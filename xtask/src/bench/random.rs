//! A small seeded generator: the same seed gives the same order of the same runs on every machine.

/// `SplitMix64` (Steele, Lea and Flood, 2014): one addition and three mixing steps a number.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// A generator; every seed serves.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, each as likely as any other; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The largest multiple of the bound that fits: what lies beyond would favour small numbers.
        let fair = u64::MAX - u64::MAX.checked_rem(bound).unwrap_or_default();
        loop {
            let number = self.next_u64();
            if number < fair {
                return number.checked_rem(bound).unwrap_or_default();
            }
        }
    }

    /// Brings the items into a random order, every order as likely as any other (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u64 + 1);
            items.swap(last, usize::try_from(other).unwrap_or(last));
        }
    }

    /// The order of `rounds` runs of each of `cells` cells: round by round, each in an order of its own, so
    /// that a machine that grows warmer or busier meets all cells alike.
    pub fn rounds(&mut self, cells: usize, rounds: usize) -> Vec<usize> {
        let mut order = Vec::with_capacity(cells * rounds);
        for _ in 0..rounds {
            let mut round: Vec<usize> = (0..cells).collect();
            self.shuffle(&mut round);
            order.append(&mut round);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        // First outputs of the reference implementation for these seeds.
        let mut zero = SplitMix64::new(0);
        let first = [zero.next_u64(), zero.next_u64(), zero.next_u64()];
        assert_eq!(
            first,
            [
                0xe220_a839_7b1d_cdaf,
                0x6e78_9e6a_a1b9_65f4,
                0x06c4_5d18_8009_454f
            ]
        );
        assert_eq!(
            SplitMix64::new(1_234_567).next_u64(),
            6_457_827_717_110_365_317
        );
    }

    #[test]
    fn numbers_stay_below_their_bound_and_reach_all_of_it() {
        let mut random = SplitMix64::new(7);
        let mut seen = [0_u32; 5];
        for _ in 0..5_000 {
            seen[usize::try_from(random.below(5)).unwrap()] += 1;
        }
        assert!(
            seen.iter().all(|count| (850..1_150).contains(count)),
            "{seen:?}"
        );
        assert_eq!(random.below(1), 0);
        assert_eq!(random.below(0), 0);
    }

    #[test]
    fn each_round_holds_every_cell_once() {
        let order = SplitMix64::new(3).rounds(4, 50);
        assert_eq!(order, SplitMix64::new(3).rounds(4, 50));
        assert_ne!(order, SplitMix64::new(4).rounds(4, 50));
        for round in order.chunks(4) {
            let mut sorted = round.to_vec();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3]);
        }
        let firsts = order.chunks(4).map(|round| round[0]);
        assert!(
            (0..4).all(|cell| firsts.clone().any(|first| first == cell)),
            "{order:?}"
        );
    }
}
