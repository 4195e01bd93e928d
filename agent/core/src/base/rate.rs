//! Limits on how often something may happen: a token bucket, and a guard on the count in a window.

use alloc::vec::Vec;

use super::time::{Moment, Span};

/// A bucket of tokens that refills steadily; each act takes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TokenBucket {
    capacity: u32,
    /// Time in which one token comes back.
    refill: Span,
    tokens: u32,
    /// Up to when refills are accounted for.
    filled: Moment,
}

impl TokenBucket {
    /// A full bucket at `now`; with a `refill` of zero or less it never runs empty.
    pub const fn new(capacity: u32, refill: Span, now: Moment) -> Self {
        Self {
            capacity,
            refill,
            tokens: capacity,
            filled: now,
        }
    }

    /// Takes a token, or says that there is none. A clock that goes back refills nothing.
    pub fn take(&mut self, now: Moment) -> bool {
        self.fill(now);
        let taken = self.tokens > 0;
        self.tokens = self.tokens.saturating_sub(1);
        taken
    }

    /// Gives the last token back: the act did not take place.
    pub fn put_back(&mut self) {
        self.tokens = self.tokens.saturating_add(1).min(self.capacity);
    }

    /// Tokens in the bucket at `now`.
    pub fn available(&self, now: Moment) -> u32 {
        let mut later = *self;
        later.fill(now);
        later.tokens
    }

    /// When the next token is there: at once if there is one, `None` if the bucket holds none ever.
    pub fn next_token(&self, now: Moment) -> Option<Moment> {
        let mut later = *self;
        later.fill(now);
        match (later.tokens, later.capacity) {
            (_, 0) => None,
            (0, _) => Some(later.filled + later.refill),
            _ => Some(now),
        }
    }

    fn fill(&mut self, now: Moment) {
        let elapsed = now.since(self.filled).as_nanos();
        let refill = self.refill.as_nanos();
        if refill <= 0 {
            self.tokens = self.capacity;
            return;
        }
        let refills = (elapsed / refill).max(0);
        let missing = i64::from(self.capacity - self.tokens);
        if refills >= missing {
            // Full: what is left over of the time is lost, or the bucket would hold more than it does.
            self.tokens = self.capacity;
            self.filled = self.filled.max(now);
        } else {
            self.tokens += u32::try_from(refills).unwrap_or(self.capacity);
            self.filled = self.filled + Span::from_nanos(refills.saturating_mul(refill));
        }
    }
}

/// Counts acts in a sliding window and says when there were too many; allocates only when made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WindowGuard {
    window: Span,
    /// The last `limit` acts as a ring; `next` is the oldest once the ring is full.
    acts: Vec<Moment>,
    limit: usize,
    next: usize,
}

impl WindowGuard {
    /// Allows at most `limit` acts in any `window`.
    pub fn new(limit: usize, window: Span) -> Self {
        Self {
            window,
            acts: Vec::with_capacity(limit),
            limit,
            next: 0,
        }
    }

    /// Whether one more act at `now` stays within the limit.
    pub fn allows(&self, now: Moment) -> bool {
        if self.acts.len() < self.limit {
            return true;
        }
        self.acts
            .get(self.next)
            .is_some_and(|&oldest| now.since(oldest) >= self.window)
    }

    /// How many more acts at `now` stay within the limit.
    pub fn left(&self, now: Moment) -> usize {
        let is_recent = |act: &&Moment| now.since(**act) < self.window;
        let recent = self.acts.iter().filter(is_recent).count();
        self.limit.saturating_sub(recent)
    }

    /// Counts an act at `now`, allowed or not.
    pub fn record(&mut self, now: Moment) {
        if self.acts.len() < self.limit {
            self.acts.push(now);
        } else if let Some(oldest) = self.acts.get_mut(self.next) {
            *oldest = now;
            self.next = (self.next + 1) % self.limit;
        }
    }

    /// Forgets the act recorded last: it did not take place.
    pub fn take_back(&mut self) {
        if self.acts.len() < self.limit {
            self.acts.pop();
            return;
        }
        let last = (self.next + self.limit).saturating_sub(1) % self.limit.max(1);
        if let Some(act) = self.acts.get_mut(last) {
            // As old as can be: the next act takes its place.
            *act = Moment::from_nanos(i64::MIN);
            self.next = last;
        }
    }

    /// Whether no act is remembered.
    pub const fn is_empty(&self) -> bool {
        self.acts.is_empty()
    }

    /// How many acts lie within the window that ends at `now`, the limit at most.
    pub fn count(&self, now: Moment) -> usize {
        self.acts
            .iter()
            .filter(|&&act| now.since(act) < self.window)
            .count()
    }

    /// Forgets all acts, as when somebody lifts the alarm.
    pub fn clear(&mut self) {
        self.acts.clear();
        self.next = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: i64) -> Moment {
        Moment::from_secs(seconds)
    }

    #[test]
    fn what_did_not_take_place_counts_for_nothing() {
        let mut bucket = TokenBucket::new(1, Span::from_secs(60), at(0));
        assert!(bucket.take(at(0)) && !bucket.take(at(0)));
        bucket.put_back();
        bucket.put_back();
        assert_eq!(bucket.available(at(0)), 1);
        let mut guard = WindowGuard::new(2, Span::from_secs(60));
        guard.take_back();
        for second in [0, 1, 70] {
            guard.record(at(second));
        }
        guard.take_back();
        assert_eq!(guard.count(at(71)), 0);
        assert_eq!(guard.count(at(2)), 1);
        guard.record(at(72));
        guard.record(at(73));
        assert!(!guard.allows(at(74)));
        assert_eq!(guard.count(at(74)), 2);
    }

    #[test]
    fn a_bucket_empties_and_refills() {
        let mut bucket = TokenBucket::new(2, Span::from_secs(10), at(0));
        assert!(bucket.take(at(0)) && bucket.take(at(0)));
        assert!(!bucket.take(at(9)));
        assert_eq!(bucket.next_token(at(9)), Some(at(10)));
        assert!(bucket.take(at(10)));
        assert!(!bucket.take(at(19)));
        assert_eq!(bucket.available(at(1000)), 2);
        // Back in time: nothing comes and nothing is lost.
        assert!(!bucket.take(at(5)));
    }

    #[test]
    fn degenerate_buckets() {
        let mut endless = TokenBucket::new(1, Span::ZERO, at(0));
        assert!((0..5).all(|_| endless.take(at(0))));
        let mut never = TokenBucket::new(0, Span::from_secs(1), at(0));
        assert!(!never.take(at(100)));
        assert_eq!(never.next_token(at(0)), None);
    }

    #[test]
    fn a_guard_counts_in_a_sliding_window() {
        let mut guard = WindowGuard::new(2, Span::from_secs(60));
        for second in [0, 30] {
            assert!(guard.allows(at(second)));
            guard.record(at(second));
        }
        assert!(!guard.allows(at(59)));
        assert_eq!(guard.count(at(59)), 2);
        assert!(guard.allows(at(60)));
        guard.record(at(60));
        assert!(!guard.allows(at(89)));
        guard.clear();
        assert!(guard.allows(at(89)));
        assert!(!WindowGuard::new(0, Span::from_secs(1)).allows(at(0)));
    }

    proptest! {
        /// The oracle: over any stretch of time no more is given than the bucket plus its refills.
        #[test]
        fn never_more_than_capacity_and_refills(
            capacity in 1u32..5,
            refill in 1i64..50,
            mut times in proptest::collection::vec(0i64..500, 1..200),
        ) {
            times.sort_unstable();
            let mut bucket =
                TokenBucket::new(capacity, Span::from_nanos(refill), Moment::from_nanos(0));
            let taken: Vec<i64> =
                times.into_iter().filter(|&t| bucket.take(Moment::from_nanos(t))).collect();
            for (i, first) in taken.iter().enumerate() {
                for (j, last) in taken.iter().enumerate().skip(i) {
                    let given = i64::try_from(j - i + 1).unwrap();
                    prop_assert!(given <= i64::from(capacity) + (last - first) / refill + 1);
                }
            }
        }

        #[test]
        fn never_more_than_the_limit_in_a_window(
            limit in 1usize..6,
            window in 1i64..60,
            mut times in proptest::collection::vec(0i64..500, 1..200),
        ) {
            times.sort_unstable();
            let mut guard = WindowGuard::new(limit, Span::from_nanos(window));
            let mut acts = Vec::new();
            for time in times {
                let within = acts.iter().filter(|&&act| time - act < window).count();
                let now = Moment::from_nanos(time);
                prop_assert_eq!(guard.allows(now), within < limit);
                if guard.allows(now) {
                    guard.record(now);
                    acts.push(time);
                }
            }
        }
    }
}
