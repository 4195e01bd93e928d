//! Whether memory that somebody waits for comes back fast enough to be waited for any longer.

use crate::base::time::{Moment, Span};

/// So many parts the whole has. Single bytes that come back for ever keep nobody waiting.
const PARTS: u64 = 32;

/// How much was owed when the last part had come back, and when that was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct Pace {
    owed: u64,
    since: Moment,
}

impl Pace {
    /// Waits from `now` on for `owed` bytes.
    pub(super) const fn new(owed: u64, now: Moment) -> Self {
        Self { owed, since: now }
    }

    /// Takes in how much of `whole` is still owed, both in bytes.
    pub(super) fn observe(&mut self, now: Moment, owed: u64, whole: u64) {
        if self.owed.saturating_sub(owed) >= (whole / PARTS).max(1) {
            *self = Self::new(owed, now);
        }
    }

    /// Time that does not count, until `now`.
    pub(super) fn missed(&mut self, now: Moment, time: Span) {
        self.since = (self.since + time).min(now);
    }

    /// It began then already, if that is earlier.
    pub(super) fn began(&mut self, at: Moment) {
        self.since = self.since.min(at);
    }

    /// Something else than memory went on.
    pub(super) fn renew(&mut self, now: Moment) {
        self.since = self.since.max(now);
    }

    /// When nobody waits any longer, if no other part comes back until then and each may take so long.
    pub(super) fn end(&self, longest: Span) -> Moment {
        self.since + longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: u64 = 3200;
    const LONGEST: Span = Span::from_secs(5);

    fn ms(value: i64) -> Moment {
        Moment::from_nanos(value * 1_000_000)
    }

    #[test]
    fn another_part_is_waited_for_as_long_again_and_less_than_one_is_not() {
        let mut pace = Pace::new(WHOLE, ms(0));
        pace.observe(ms(4_000), WHOLE - 99, WHOLE);
        assert_eq!(pace.end(LONGEST), ms(5_000));
        pace.observe(ms(4_500), WHOLE - 100, WHOLE);
        assert_eq!(pace.end(LONGEST), ms(9_500));
        pace.observe(ms(9_000), WHOLE - 199, WHOLE);
        assert_eq!(pace.end(LONGEST), ms(9_500));
        pace.missed(ms(9_200), Span::from_millis(1_000));
        assert_eq!(pace.end(LONGEST), ms(10_500));
        pace.began(ms(100));
        assert_eq!(pace.end(LONGEST), ms(5_100));
    }
}
