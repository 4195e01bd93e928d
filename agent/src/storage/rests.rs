//! What rounds may take on average: one part of the time in five, and a twentieth of a processor.
//!
//! After each round there is rest. A round that the guard waits for does not wait for that: it begins at once, and what was left of the
//! rest comes after it, on top of its own, a few seconds at most. So a threshold that is crossed once is measured at once, wherever in
//! a rest that is, and one that is crossed all the time, as by a disk that flickers, has no more rounds in the long run than one that
//! stays met.

use std::time::{Duration, Instant};

use super::need::Need;

/// After a round there is rest for so many times as long as it took. Of a round that takes long it is a period at most, what is left of
/// rests before it included: what is known would grow too old. What it took of a processor may ask for more.
const SHARE: u32 = 4;
/// From the beginning of a round to the end of its rest there are so many times what it took of a processor: walks keep to their own
/// pace, and what is not walked again has none.
const PROCESSOR: u32 = 20;
/// Rests that were cut short may come to so much before the next round that the guard waits for is put off: a few thresholds may be
/// crossed in a row. With that, and the guard's patience of nine seconds, rounds that take 1.5 s or less are always in time.
const AHEAD: Duration = Duration::from_secs(6);

/// A round that is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    /// When it began.
    pub(super) began: Instant,
    /// How long it took.
    pub(super) took: Duration,
    /// What of that it was on a processor.
    pub(super) cost: Duration,
}

/// When there is rest. By default there has been no round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rests(Option<Last>);

#[derive(Clone, Copy, Debug)]
struct Last {
    /// When it began.
    began: Instant,
    /// When all rests so far are over.
    rested: Instant,
    /// Whether it began before that was so.
    is_early: bool,
}

impl Rests {
    /// Takes a round in that is over, with a period from one to the next where nothing is near.
    pub(super) fn add(&mut self, round: Round, period: Duration) {
        let Round { began, took, cost } = round;
        let before = self.0.map_or(began, |last| last.rested);
        let owed = before.saturating_duration_since(began).min(AHEAD);
        // However little it took, the container runtime is asked with each.
        let shortest = Need::Met.rest(period).max(cost * PROCESSOR);
        let rest = (took * SHARE + owed).min(period);
        let rest = rest.max(shortest.saturating_sub(took) + owed);
        self.0 = Some(Last {
            began,
            rested: began + took + rest,
            is_early: !owed.is_zero(),
        });
    }

    /// When a round is due that nobody waits for, so long at least after the beginning of the last one; none before the first.
    pub(super) fn due(&self, after: Duration) -> Option<Instant> {
        let last = self.0?;
        Some(last.rested.max(last.began + after))
    }

    /// When one is due that the guard waits for; none for at once.
    pub(super) fn due_early(&self) -> Option<Instant> {
        let last = self.0.filter(|last| last.is_early)?;
        last.rested.checked_sub(AHEAD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_mins(1);

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Takes in a round that begins and takes so much, all of it from a beginning, and of a processor a part.
    fn add(rests: &mut Rests, start: Instant, (began, took, cost): (u64, u64, u64)) {
        let round = Round {
            began: start + ms(began),
            took: ms(took),
            cost: ms(cost),
        };
        rests.add(round, PERIOD);
    }

    #[test]
    fn after_a_round_there_is_rest_by_what_it_took_and_by_what_is_needed() {
        let start = Instant::now();
        assert_eq!(Rests::default().due(PERIOD), None);
        for ((took, cost), after, expected) in [
            ((10, 0), 60_000, 60_000),
            ((10, 0), 2_000, 2_000),
            // A fifth of the time, and of what takes long a period.
            ((1_000, 40), 2_000, 5_000),
            ((30_000, 1_200), 2_000, 90_000),
            // A twentieth of a processor.
            ((500, 500), 2_000, 10_000),
            ((5_000, 5_000), 2_000, 100_000),
        ] {
            let mut rests = Rests::default();
            add(&mut rests, start, (0, took, cost));
            let due = rests.due(ms(after)).unwrap();
            assert_eq!(due - start, ms(expected), "{took} {cost}");
            assert_eq!(rests.due_early(), None, "who waits waits for no rest");
        }
    }

    #[test]
    fn a_rest_that_was_cut_short_is_made_up_for() {
        let start = Instant::now();
        let mut rests = Rests::default();
        // Rests until 10 s, of which 8 are left; no more than what may be ahead is made up for.
        add(&mut rests, start, (0, 2_000, 0));
        add(&mut rests, start, (2_000, 2_000, 0));
        let due = rests.due(ms(2_000)).unwrap();
        assert_eq!(due - start, ms(18_000));
        let early = rests.due_early().unwrap();
        assert_eq!(early - start, ms(12_000));
        // Once it is over nothing is owed any more.
        add(&mut rests, start, (20_000, 2_000, 0));
        assert_eq!(rests.due_early(), None);
        // No rest is longer than a period, whatever is owed.
        let mut rests = Rests::default();
        add(&mut rests, start, (0, 30_000, 0));
        add(&mut rests, start, (30_000, 30_000, 0));
        let due = rests.due(ms(2_000)).unwrap();
        assert_eq!(due - start, ms(120_000));
    }

    /// The rounds of a disk that flickers for so many seconds, each of which takes so much: when each began.
    fn flicker(seconds: u64, took: u64, cost: u64) -> Vec<u64> {
        let start = Instant::now();
        let (mut rests, mut now, mut began) = (Rests::default(), 0, Vec::new());
        while now < seconds * 1_000 {
            // It is crossed every 100 ms.
            let is_due = |due: Option<Instant>| due.is_none_or(|due| start + ms(now) >= due);
            if is_due(rests.due_early()) {
                add(&mut rests, start, (now, took, cost));
                began.push(now);
                now += took;
            } else {
                now += 100;
            }
        }
        began
    }

    #[test]
    fn a_disk_that_flickers_takes_no_more_than_its_share_in_the_long_run() {
        const SECONDS: u64 = 600;
        for (took, cost) in [(5, 5), (100, 100), (300, 12), (1_500, 60), (3_000, 3_000)] {
            let count = flicker(SECONDS, took, cost).len() as u64;
            // The first one, the one that breaks into its rest, and what may be ahead beside that.
            let ahead = 3 + 6_000 / (took * 5).max(cost * 20).max(2_000);
            let most = |each: u64| SECONDS * 1_000 / each + ahead;
            assert!(count <= most(cost * 20), "{took} {cost}: {count}");
            assert!(count <= most(took * 5), "{took} {cost}: {count}");
            assert!(count <= most(2_000), "{took} {cost}: {count}");
            assert!(count >= 2, "{took} {cost}: {count}");
        }
    }

    #[test]
    fn whoever_crosses_while_rounds_are_short_is_measured_within_nine_seconds() {
        for took in [5, 500, 1_000, 1_500] {
            let began = flicker(600, took, took / 25);
            for pair in began.windows(2) {
                // A crossing right after a round's beginning waits for the next one, and for the end of that.
                let waited = pair[1] - pair[0] + took;
                assert!(waited <= 9_100, "{took}: {waited}");
            }
        }
    }
}
