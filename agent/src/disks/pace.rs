//! How often a filesystem is measured: as often as it could run short, and no more.

use brink_core::base::Span;

/// Looks that have to fit in before the fastest growth has used up what is left.
const LOOKS: i64 = 8;
/// The fastest that anybody is expected to begin to fill a filesystem, in bytes a second: a good disk, flat out. Whoever is faster
/// is seen all the same, at the next look, and reckoned with from then on.
const FASTEST_BYTES: i64 = 1 << 30;
/// The same in inodes a second: empty files, made by several processes.
const FASTEST_INODES: i64 = 200_000;
/// However far it is, and however near.
pub const SLOWEST: Span = Span::from_secs(10);
/// The other end.
pub const FASTEST: Span = Span::from_millis(5);
/// The fastest while little is being written: a filesystem that rests just above a threshold must not keep a processor awake.
/// Whoever begins to fill it by 500 MiB/s has written 25 MiB by the next look.
pub const RESTING: Span = Span::from_millis(50);
/// Little is at most this part of what anybody is expected to begin with: 16 MiB/s.
const LITTLE: i64 = 64;
/// While a threshold is met there is nothing to foresee, but something to wait for: an order's end, the next one.
pub const MET: Span = Span::from_millis(100);
/// The same once that has lasted for [`LONG`].
pub const LONG_MET: Span = Span::from_secs(1);
/// After so long.
pub const LONG: Span = Span::from_secs(5);

/// How fast something shrinks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Growth {
    before: Option<(i64, i64)>,
    /// A second's worth.
    fastest: i64,
}

impl Growth {
    /// Takes in how much was left at a time in nanoseconds. What was the fastest counts less with every look.
    pub fn observe(&mut self, at: i64, left: i64) {
        let now = self.before.map_or(0, |(before, had)| {
            let used = i128::from(had.saturating_sub(left)) * 1_000_000_000;
            let took = i128::from(at.saturating_sub(before).max(1));
            i64::try_from(used / took).unwrap_or(i64::MAX)
        });
        self.fastest = now.max(self.fastest / 2);
        self.before = Some((at, left));
    }

    /// A second's worth; 0 while nothing is being used.
    pub const fn fastest(&self) -> i64 {
        self.fastest
    }
}

/// What there is of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes.
    Bytes,
    /// Inodes.
    Inodes,
}

/// The time to the next look with so much left to a threshold.
pub fn period(kind: Kind, left: i64, growth: Growth) -> Span {
    let begins = match kind {
        Kind::Bytes => FASTEST_BYTES,
        Kind::Inodes => FASTEST_INODES,
    };
    let grows = growth.fastest().saturating_mul(2);
    let rate = i128::from(begins.max(grows)) * i128::from(LOOKS);
    let nanos = i128::from(left.max(0)) * 1_000_000_000 / rate;
    let fastest = if growth.fastest() > begins / LITTLE {
        FASTEST
    } else {
        RESTING
    };
    Span::from_nanos(i64::try_from(nanos).unwrap_or(i64::MAX)).clamp(fastest, SLOWEST)
}

/// The band that a period lies in: the guard is told when it is another one.
pub fn band(period: Span) -> u32 {
    let millis = u64::try_from(period.as_nanos() / 1_000_000).unwrap_or(0);
    millis.max(1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: i64 = 1 << 20;
    const SECOND: i64 = 1_000_000_000;

    fn growing(mib_a_second: i64) -> Growth {
        let mut growth = Growth::default();
        growth.observe(0, mib_a_second * MIB);
        growth.observe(SECOND, 0);
        growth
    }

    #[test]
    fn the_less_is_left_the_more_often_it_is_looked_at() {
        for (left, mib_a_second, expected) in [
            (1 << 20, 0, SLOWEST),
            (80 << 10, 0, SLOWEST),
            (8 << 10, 0, Span::from_secs(1)),
            (100, 0, RESTING),
            (0, 0, RESTING),
            (-5, 0, RESTING),
            (80, 500, Span::from_nanos(9_765_625)),
            (1, 500, FASTEST),
            (1, 16, RESTING),
            (8 << 10, 4 << 10, Span::from_millis(125)),
        ] {
            let found = period(Kind::Bytes, left * MIB, growing(mib_a_second));
            assert_eq!(found, expected, "{left} MiB at {mib_a_second} MiB/s");
        }
        let few = period(Kind::Inodes, 160_000, Growth::default());
        assert_eq!(few, Span::from_millis(100));
    }

    /// A filler of so many MiB a second that begins right after a look, with so much left: by how much it has passed the
    /// threshold when that is seen.
    fn passed(mib_a_second: i64, left_mib: i64) -> i64 {
        let (mut growth, mut at, mut left) = (Growth::default(), 0, left_mib * MIB);
        growth.observe(at, left);
        while left >= 0 {
            let wait = period(Kind::Bytes, left, growth).as_nanos();
            at += wait;
            let used = i128::from(mib_a_second * MIB) * i128::from(wait) / i128::from(SECOND);
            left -= i64::try_from(used).unwrap();
            growth.observe(at, left);
        }
        -left / MIB
    }

    #[test]
    fn a_filler_is_seen_before_it_has_passed_the_threshold_by_64_mib() {
        for left in [0, 1, 10, 24, 100, 1000, 10_000, 100_000, 1_000_000] {
            assert!(passed(500, left) <= 64, "{left} MiB: {}", passed(500, left));
        }
        // From afar it is met at full pace.
        assert!(passed(500, 100_000) <= 8, "{}", passed(500, 100_000));
        assert!(passed(4000, 100_000) <= 64, "{}", passed(4000, 100_000));
    }

    #[test]
    fn growth_is_forgotten_by_halves() {
        let mut growth = growing(512);
        assert_eq!(growth.fastest(), 512 * MIB);
        growth.observe(2 * SECOND, 0);
        assert_eq!(growth.fastest(), 256 * MIB);
        growth.observe(3 * SECOND, 5 * MIB);
        assert_eq!(growth.fastest(), 128 * MIB);
        for second in 4..64 {
            growth.observe(second * SECOND, 5 * MIB);
        }
        assert_eq!(growth.fastest(), 0);
    }

    #[test]
    fn bands_are_doublings() {
        assert_eq!(band(Span::from_millis(5)), band(Span::from_millis(7)));
        assert_ne!(band(Span::from_millis(7)), band(Span::from_millis(8)));
        assert_eq!(band(Span::ZERO), 0);
    }
}
