//! Whether a threshold swings: met and left again and again, as under a load that stays near it, and what would calm its condition.
//!
//! A condition outlives its cause by the pressure transition period. Whoever leaves a threshold for longer than that, and comes
//! back, has a node whose condition comes and goes, with taints and schedulers after it.

use crate::base::{Moment, Span};

/// Calms that are longer than this are no swing but two shortages.
pub const LONGEST_CALM: Span = Span::from_secs(1800);
/// So many swings are a habit.
pub const HABIT: usize = 3;

/// How a threshold has swung.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Swings {
    /// How often it was met again after a calm.
    pub times: usize,
    /// How often the calm was so long that the condition had gone.
    pub flips: usize,
    /// The longest of those calms.
    pub longest: Option<Span>,
}

impl Swings {
    /// What the changes of one threshold come to, the oldest first: when it was met, and when no longer. `transition` is the pressure
    /// transition period.
    pub fn of(changes: impl IntoIterator<Item = (Moment, bool)>, transition: Span) -> Self {
        let mut swings = Self::default();
        let mut left: Option<Moment> = None;
        for (at, is_met) in changes {
            if !is_met {
                // Told twice, as by an agent and the one after it, it counts from the first time.
                left.get_or_insert(at);
                continue;
            }
            let Some(calm) = left.take().map(|left| at.since(left)) else {
                continue;
            };
            if calm > LONGEST_CALM {
                continue;
            }
            swings.times += 1;
            swings.flips += usize::from(calm >= transition);
            swings.longest = swings.longest.max(Some(calm));
        }
        swings
    }

    /// The shortest transition period in whole minutes that would have outlived every calm; none where it does not swing.
    pub fn calming(&self) -> Option<Span> {
        const MINUTE: i64 = 60;
        let minutes = self.longest?.as_secs() / MINUTE + 1;
        Some(Span::from_secs(minutes * MINUTE))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// `+` met, `-` left, each with its second.
    #[track_caller]
    fn check(text: &str, transition: i64, expected: (usize, usize, Option<i64>, Option<i64>)) {
        let changes: Vec<(Moment, bool)> = text
            .split_whitespace()
            .map(|word| {
                let seconds: i64 = word[1..].parse().unwrap();
                (
                    Moment::START + Span::from_secs(seconds),
                    word.starts_with('+'),
                )
            })
            .collect();
        let swings = Swings::of(changes, Span::from_secs(transition));
        let seconds = |span: Option<Span>| span.map(Span::as_secs);
        let found = (
            swings.times,
            swings.flips,
            seconds(swings.longest),
            seconds(swings.calming()),
        );
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn a_calm_between_two_times_is_a_swing_and_a_long_one_a_flip() {
        check("", 300, (0, 0, None, None));
        check("+0 -60", 300, (0, 0, None, None));
        check("+0 -60 +100", 300, (1, 0, Some(40), Some(60)));
        // As long as the transition period is too long: the condition is gone by then.
        check("+0 -60 +360", 300, (1, 1, Some(300), Some(360)));
        check("+0 -60 +359 -400 +500", 300, (2, 0, Some(299), Some(300)));
        check("+0 -60 +120", 0, (1, 1, Some(60), Some(120)));
    }

    #[test]
    fn a_calm_that_is_too_long_and_what_is_told_twice_count_for_nothing() {
        check("+0 -60 +1861 -1900 +1910", 300, (1, 0, Some(10), Some(60)));
        check("+0 -60 +1860", 300, (1, 1, Some(1800), Some(1860)));
        check(
            "-0 -60 +100 +110 -120 -130",
            300,
            (1, 0, Some(100), Some(120)),
        );
        // A clock that was set back.
        check("+100 -90 +80", 300, (1, 0, Some(-10), Some(60)));
    }
}
