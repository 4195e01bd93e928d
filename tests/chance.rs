//! Seeded chance: the same seed gives the same course of a test.

/// `SplitMix64` (Steele, Lea and Flood, 2014).
#[derive(Debug)]
pub struct Chance(u64);

impl Chance {
    /// The course of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound`; which numbers are a little likelier does not matter here.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }

    /// One of these.
    ///
    /// # Panics
    /// When there is none.
    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        let place = self.below(choices.len() as u64);
        // It is below a length.
        choices[usize::try_from(place).unwrap_or_default()]
    }
}
