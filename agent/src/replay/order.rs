//! Whether the steps of a journal are all there, one behind the other, as they were written.

use brink_core::base::{Moment, Span};

use crate::runtime::journal::StepLine;

/// In one turn of the guard a later input may have the earlier time: what woke it, behind what it found then.
const TURN: Span = Span::from_secs(1);

/// What was seen of the order so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Order {
    /// The highest number so far; none where it is not known which one comes next.
    last: Option<u64>,
    /// The time of the step before.
    at: Option<Moment>,
    /// Steps that are not there, though nothing says so.
    pub(super) cut: u64,
    /// Steps that stand behind later ones.
    pub(super) misplaced: u64,
    /// The first line of either.
    pub(super) first: Option<u64>,
}

impl Order {
    /// A journal begins, or goes on behind a gap that it tells of.
    pub(super) fn begin(&mut self, continues: bool) {
        self.last = (!continues).then_some(0);
        self.at = None;
    }

    /// Takes the step of a line.
    pub(super) fn take(&mut self, step: &StepLine, line: u64) {
        if step.number > 0 {
            self.count(step.number);
        } else if self.at.is_some_and(|at| at.since(step.at) > TURN) {
            self.misplaced += 1;
        }
        self.at = Some(step.at);
        if self.cut > 0 || self.misplaced > 0 {
            self.first.get_or_insert(line);
        }
    }

    fn count(&mut self, number: u64) {
        let next = self.last.map(|last| last.saturating_add(1));
        match next {
            Some(next) if number < next => {
                // It is not missing after all.
                self.cut = self.cut.saturating_sub(1);
                self.misplaced += 1;
                return;
            }
            Some(next) => self.cut = self.cut.saturating_add(number - next),
            None => {}
        }
        self.last = Some(number);
    }
}

#[cfg(test)]
mod tests {
    use brink_core::node::input::Confirmation;
    use brink_core::node::observe::Observations;

    use super::*;
    use crate::guard::step::Kind;

    /// Cut, misplaced and the first line of these steps, each with its number and its time in seconds.
    fn seen(continues: bool, steps: &[(u64, i64)]) -> (u64, u64, Option<u64>) {
        let mut order = Order::default();
        order.begin(continues);
        for (&(number, at), line) in steps.iter().zip(1..) {
            let step = StepLine {
                number,
                at: Moment::from_secs(at),
                kind: Kind::Tick,
                generation: 1,
                observations: Observations::default(),
                confirmation: Confirmation::default(),
                usage: Vec::new(),
                actions: Vec::new(),
            };
            order.take(&step, line);
        }
        (order.cut, order.misplaced, order.first)
    }

    #[test]
    fn what_is_missing_or_misplaced_is_seen_by_its_number() {
        assert_eq!(seen(false, &[(1, 5), (2, 5), (3, 4)]), (0, 0, None));
        assert_eq!(seen(false, &[(1, 5), (14, 9), (15, 9)]), (12, 0, Some(2)));
        assert_eq!(seen(false, &[(3, 5), (4, 5)]), (2, 0, Some(1)));
        assert_eq!(seen(true, &[(3, 5), (4, 5)]), (0, 0, None));
        assert_eq!(seen(false, &[(1, 5), (1, 5)]), (0, 1, Some(2)));
        assert_eq!(seen(true, &[(9, 9), (8, 8), (7, 7)]), (0, 2, Some(2)));
        let turned = [(1, 1), (4, 4), (3, 3), (2, 2), (5, 5)];
        assert_eq!(seen(false, &turned), (0, 2, Some(2)));
        assert_eq!(seen(true, &[(u64::MAX, 9), (1, 9)]), (0, 1, Some(2)));
    }

    #[test]
    fn without_numbers_only_times_that_run_back_are_seen() {
        assert_eq!(seen(false, &[(0, 5), (0, 9), (0, 8)]), (0, 0, None));
        assert_eq!(seen(false, &[(0, 9), (0, 7), (0, 5)]), (0, 2, Some(2)));
    }
}
