//! What a way out has lost, told at once and then ever more seldom: what tells of it is an event too, and may be lost in its turn.

use std::time::{Duration, Instant};

use super::{Lost, OnLoss};

/// After a loss was told the next one waits for so long, and twice as long each time until something goes out.
pub(super) const SOONEST: Duration = Duration::from_secs(10);
/// However often it has happened: whoever counts what is told sees within a quarter of an hour that it goes on.
const LATEST: Duration = Duration::from_mins(10);

/// Losses of one way out.
pub(super) struct Losses {
    on_loss: OnLoss,
    place: &'static str,
    total: u64,
    untold: Option<Untold>,
    /// When something was told last.
    told: Option<Instant>,
    pause: Duration,
}

/// Events that nobody was told of yet.
#[derive(Clone, Copy)]
struct Untold {
    count: u64,
    numbers: Option<(u64, u64)>,
}

impl Losses {
    pub(super) fn new(place: &'static str, on_loss: OnLoss) -> Self {
        Self {
            on_loss,
            place,
            total: 0,
            untold: None,
            told: None,
            pause: Duration::ZERO,
        }
    }

    /// Takes down so many more; the count of all.
    pub(super) fn add(&mut self, count: u64, numbers: Option<(u64, u64)>) -> u64 {
        self.total += count;
        self.untold = Some(match self.untold {
            None => Untold { count, numbers },
            Some(before) => Untold {
                count: before.count + count,
                // Only where none between them went out.
                numbers: before
                    .numbers
                    .zip(numbers)
                    .and_then(|(one, next)| (one.1 + 1 == next.0).then_some((one.0, next.1))),
            },
        });
        self.total
    }

    /// Something has gone out: the next loss is news.
    pub(super) const fn settle(&mut self) {
        self.pause = SOONEST;
    }

    /// Tells what nobody was told of yet, if it is time for that.
    pub(super) fn tell(&mut self, now: Instant) {
        let pause = self.pause;
        let is_due = |told: Instant| now.saturating_duration_since(told) >= pause;
        if self.told.is_none_or(is_due) && self.tell_rest() {
            self.told = Some(now);
            self.pause = (pause * 2).clamp(SOONEST, LATEST);
        }
    }

    /// Tells it whatever the time; whether there was anything.
    pub(super) fn tell_rest(&mut self) -> bool {
        let Some(untold) = self.untold.take() else {
            return false;
        };
        (self.on_loss)(Lost {
            place: self.place,
            count: untold.count,
            total: self.total,
            numbers: untold.numbers,
        });
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn a_loss_is_told_at_once_and_those_behind_it_together_and_seldom() {
        let told = Arc::<Mutex<Vec<Lost>>>::default();
        let telling = Arc::clone(&told);
        let mut losses = Losses::new(
            "otlp",
            Box::new(move |lost| telling.lock().unwrap().push(lost)),
        );
        let begin = Instant::now();
        let count_told = || told.lock().unwrap().len();
        // One a second for two hours, while nothing goes out.
        for second in 0..7200 {
            losses.add(1, None);
            losses.tell(begin + Duration::from_secs(second));
        }
        // At 0, 10, 30, 70, 150, 310 and 630 seconds, and then every ten minutes.
        assert_eq!(count_told(), 17);
        losses.settle();
        losses.tell_rest();
        let counts: Vec<u64> = told.lock().unwrap().iter().map(|one| one.count).collect();
        assert_eq!(counts[..3], [1, 10, 20]);
        assert_eq!(counts.iter().sum::<u64>(), 7200);
        assert_eq!(told.lock().unwrap().last().unwrap().total, 7200);
        assert!(!losses.tell_rest());
        // What left the memory is told with its numbers as long as nothing else is among it, or between.
        losses.add(5, Some((10, 14)));
        losses.add(3, Some((15, 17)));
        losses.tell_rest();
        assert_eq!(told.lock().unwrap().last().unwrap().numbers, Some((10, 17)));
        for next in [Some((26, 29)), None] {
            losses.add(5, Some((20, 24)));
            losses.add(4, next);
            losses.tell_rest();
            assert_eq!(told.lock().unwrap().last().unwrap().numbers, None);
        }
        losses.add(5, Some((20, 24)));
        losses.add(1, None);
        losses.tell_rest();
        assert_eq!(told.lock().unwrap().last().unwrap().numbers, None);
    }
}
