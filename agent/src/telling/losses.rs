//! What was lost on the way to the agent, as events: reports of the guard, and records of the kernel's programs.

use std::time::{Duration, Instant};

use brink_core::base::Moment;
use brink_host::probe::{Meters, Row};
use brink_stream::model::data::Loss;
use brink_stream::model::kind::Kind;

use super::Telling;

/// The kernel's counters are looked at no more often.
const PACE: Duration = Duration::from_secs(1);

/// What the kernel's rings had lost when they were last looked at.
#[derive(Clone, Debug, Default)]
pub struct RingLosses {
    known: [u64; Row::ALL.len()],
    looked: Option<Instant>,
}

impl Telling {
    /// Tells that the guard's queues were full: how often this time, and in this run.
    pub fn lost_reports(&self, at: Moment, count: u64, total: u64) {
        self.loss(at, "guard-queue", (count, total));
    }

    /// Tells what the kernel's rings have lost since the last look; `now` keeps that to one look a second.
    pub fn lost_records(
        &self,
        losses: &mut RingLosses,
        meters: Option<&Meters>,
        (at, now): (Moment, Instant),
    ) {
        let Some(meters) = meters.filter(|_| self.0.is_some() && losses.is_due(now)) else {
            return;
        };
        for (row, known) in Row::ALL.into_iter().zip(&mut losses.known) {
            let Ok(loss) = meters.loss(row) else {
                continue;
            };
            let count = loss.dropped.saturating_sub(*known);
            *known = loss.dropped;
            if count > 0 {
                self.loss(at, &ring(row), (count, loss.dropped));
            }
        }
    }

    /// Tells that kills found no room with the collector: how many this time, and in this run.
    pub fn lost_kills(&self, at: Moment, count: u64, total: u64) {
        self.loss(at, "collector", (count, total));
    }

    fn loss(&self, at: Moment, place: &str, (count, total): (u64, u64)) {
        let data = Loss {
            place: place.to_owned(),
            count,
            total,
            uncounted: false,
            first: None,
            last: None,
        };
        self.say(Kind::Loss, at, None, &data);
    }
}

impl RingLosses {
    /// Has the next look come at once, however long ago the last one was.
    pub const fn hurry(&mut self) {
        self.looked = None;
    }

    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self
            .looked
            .is_none_or(|looked| now.duration_since(looked) >= PACE);
        if is_due {
            self.looked = Some(now);
        }
        is_due
    }
}

/// The place of a ring's losses, with what it carries.
fn ring(row: Row) -> String {
    format!("kernel-ring/{}", row.label())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_counters_are_looked_at_once_a_second_and_once_more_at_the_end() {
        let mut losses = RingLosses::default();
        let start = Instant::now();
        let mut is_due = |millis, is_last| {
            if is_last {
                losses.hurry();
            }
            losses.is_due(start + Duration::from_millis(millis))
        };
        assert!(is_due(0, false) && !is_due(999, false) && is_due(1_000, false));
        assert!(!is_due(1_001, false) && is_due(1_002, true));
    }
}
