//! How long to wait before the API server is asked again.

use std::time::Duration;

/// The first wait.
const FIRST: Duration = Duration::from_millis(500);
/// The longest by our own choice.
const LONGEST: Duration = Duration::from_secs(30);
/// What is refused stays so until somebody changes something: the waits grow to this, and up to half of it more.
pub(crate) const SELDOM: Duration = Duration::from_mins(10);
/// The longest that a server may ask for.
const OBEYED: Duration = Duration::from_mins(5);

/// Waits that double from failure to failure, spread so that the agents of a cluster do not all come back at once.
#[derive(Clone, Debug)]
pub struct Backoff {
    failures: u32,
    /// State of a xorshift generator; never zero.
    chance: u64,
}

impl Backoff {
    /// Waits of whoever has this name; two names wait differently.
    pub fn new(name: &str, seed: u64) -> Self {
        // FNV-1a: all it has to do is to tell names apart.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self {
            failures: 0,
            chance: (hash ^ seed) | 1,
        }
    }

    /// It went well: the next failure is a first one.
    pub const fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// It failed: how long to wait now. What the server asks for is waited at least, and longer where our own wait has grown past it.
    pub fn failed(&mut self, asked: Option<Duration>) -> Duration {
        let whole = FIRST
            .saturating_mul(1 << self.failures.min(16))
            .min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        let ours = whole / 2 + self.part_of(whole / 2);
        asked.map_or(ours, |asked| {
            let asked = asked.min(OBEYED);
            // Whoever was told the same time would otherwise come back in the same moment.
            ours.max(asked + self.part_of((asked / 4).max(FIRST)))
        })
    }

    /// It was refused: how long to wait now. The waits double as those of failures do, and go on to double up to [`SELDOM`].
    pub fn refused(&mut self) -> Duration {
        let least = FIRST.saturating_mul(1 << self.failures.min(16)).min(SELDOM);
        self.failures = self.failures.saturating_add(1);
        least + self.part_of(least / 2)
    }

    /// Some of a time, each part as likely as any.
    pub fn part_of(&mut self, whole: Duration) -> Duration {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        let nanos = u64::try_from(whole.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.chance % nanos.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound_and_begin_anew() {
        let mut backoff = Backoff::new("node", 7);
        let mut whole = FIRST;
        for _ in 0..40 {
            let wait = backoff.failed(None);
            assert!(wait >= whole / 2 && wait <= whole, "{wait:?} of {whole:?}");
            whole = (whole * 2).min(LONGEST);
        }
        backoff.succeeded();
        assert!(backoff.failed(None) <= FIRST);
    }

    #[test]
    fn what_is_refused_is_asked_for_ten_to_fifteen_minutes_later_in_the_end() {
        let mut backoff = Backoff::new("node", 7);
        let mut least = FIRST;
        for _ in 0..40 {
            let wait = backoff.refused();
            assert!(
                wait >= least && wait <= least * 3 / 2,
                "{wait:?}, {least:?}"
            );
            least = (least * 2).min(SELDOM);
        }
        assert_eq!(least, SELDOM);
        backoff.succeeded();
        assert!(backoff.refused() <= FIRST * 3 / 2);
    }

    #[test]
    fn a_server_that_asks_for_time_gets_it_within_reason() {
        let mut backoff = Backoff::new("node", 7);
        let wait = backoff.failed(Some(Duration::from_mins(1)));
        assert!((60..=75).contains(&wait.as_secs()), "{wait:?}");
        let wait = backoff.failed(Some(Duration::from_secs(1 << 40)));
        assert!(wait <= OBEYED * 5 / 4, "{wait:?}");
        backoff.succeeded();
        let wait = backoff.failed(Some(Duration::ZERO));
        assert!(wait <= FIRST, "{wait:?}");
    }

    #[test]
    fn a_server_that_asks_for_a_second_again_and_again_is_asked_less_and_less() {
        let mut backoff = Backoff::new("node", 7);
        let mut asked = || backoff.failed(Some(Duration::from_secs(1)));
        let first = asked();
        assert!((1000..=1500).contains(&first.as_millis()), "{first:?}");
        let later = (0..20).map(|_| asked()).last().unwrap();
        assert!(later >= LONGEST / 2 && later <= LONGEST, "{later:?}");
    }

    #[test]
    fn nodes_do_not_wait_alike() {
        let waits = |name| {
            let mut backoff = Backoff::new(name, 7);
            [(); 4].map(|()| backoff.failed(None))
        };
        assert_ne!(waits("node-1"), waits("node-2"));
        assert_eq!(waits("node-1"), waits("node-1"));
    }
}
