//! The short form's time, and where each kernel begins in the list of its tests.
use std::{path::Path, time::Duration};

use crate::workspace;

/// Of the short form, all guests together, once everything is built: no test is begun later.
pub(super) const SHORT: Duration = Duration::from_mins(4);
/// What the three guests of a kernel need before the first test of the ordinary one, where processors are emulated.
const SETTING_UP: Duration = Duration::from_secs(45);

/// The time of the next kernel, of what is left for so many that wait and so many side by side.
pub(super) fn share(left: Duration, waiting: usize, beside: usize) -> Duration {
    let rounds = waiting.div_ceil(beside.max(1)).max(1);
    left / u32::try_from(rounds).unwrap_or(u32::MAX)
}

/// After how many of the tests each kernel begins, of so many kernels and so many side by side. `turn` shifts them all: a kernel
/// that has no time for a test under one number has it under another.
pub(super) fn firsts((kernels, beside): (usize, usize), tests: usize, turn: u64) -> Vec<usize> {
    let mut firsts = deal(&shares(SHORT, kernels, beside), tests);
    if let Ok(many @ 1..) = u64::try_from(tests) {
        let turn = usize::try_from(turn % many).unwrap_or(0);
        for first in &mut firsts {
            *first = (*first + turn) % tests;
        }
    }
    firsts
}

/// A number of the commit that is checked out: the same commit runs the same tests. Zero where there is none, or no git.
pub(super) fn turn(root: &Path) -> u64 {
    let commit = workspace::commit(root).unwrap_or_default();
    u64::from_str_radix(commit.trim_end_matches('+'), 16).unwrap_or(0)
}

/// The times of all kernels, if each takes the whole of it.
fn shares(length: Duration, kernels: usize, beside: usize) -> Vec<Duration> {
    let mut taken = vec![Duration::ZERO; beside.max(1)];
    let next = |place: usize| {
        let soonest = taken.iter_mut().min()?;
        let share = share(length.saturating_sub(*soonest), kernels - place, beside);
        *soonest += share;
        Some(share)
    };
    (0..kernels).map_while(next).collect()
}

/// After how many of the tests each kernel begins, by the time that it has for tests: what one has no time for, the next one
/// begins with.
fn deal(shares: &[Duration], tests: usize) -> Vec<usize> {
    let for_tests = |share: &Duration| share.saturating_sub(SETTING_UP).as_secs();
    let seconds = |shares: &[Duration]| -> usize {
        let sum: u64 = shares.iter().map(for_tests).sum();
        usize::try_from(sum).unwrap_or(usize::MAX)
    };
    let whole = seconds(shares).max(1);
    let first = |place: usize| {
        let before = shares.get(..place).map_or(0, seconds);
        before.saturating_mul(tests) / whole
    };
    (0..shares.len()).map(first).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_the_short_form_is_shared_out() {
        // Three kernels and two processors: whoever begins first leaves time for the third.
        for (left, waiting, beside, expected) in [
            (600, 3, 2, 300),
            (600, 2, 2, 600),
            (280, 1, 2, 280),
            (600, 3, 1, 200),
            (0, 1, 1, 0),
            (600, 0, 2, 600),
        ] {
            let found = share(Duration::from_secs(left), waiting, beside);
            assert_eq!(
                found,
                Duration::from_secs(expected),
                "{waiting} of {left} s"
            );
        }
    }

    #[test]
    fn each_kernel_begins_where_the_one_before_it_has_no_time_any_more() {
        let seconds =
            |shares: Vec<Duration>| -> Vec<u64> { shares.iter().map(Duration::as_secs).collect() };
        for (kernels, beside, expected) in [
            (3, 2, vec![120, 240, 120]),
            (3, 3, vec![240, 240, 240]),
            (3, 1, vec![80, 80, 80]),
            (1, 1, vec![240]),
            (0, 2, vec![]),
        ] {
            assert_eq!(
                seconds(shares(SHORT, kernels, beside)),
                expected,
                "{beside}"
            );
        }
        for (shares, expected) in [
            (vec![120, 240, 120], vec![0, 3, 14]),
            (vec![240, 240, 240], vec![0, 6, 12]),
            (vec![10, 10], vec![0, 0]),
            (vec![240], vec![0]),
            (vec![], vec![]),
        ] {
            let shares: Vec<_> = shares.into_iter().map(Duration::from_secs).collect();
            assert_eq!(deal(&shares, 18), expected, "{shares:?}");
        }
    }

    #[test]
    fn another_turn_moves_all_of_them_around() {
        let firsts = |turn| firsts((3, 2), 18, turn);
        assert_eq!(firsts(0), [0, 3, 14]);
        assert_eq!(firsts(18), firsts(0));
        assert_eq!(firsts(5), [5, 8, 1]);
        assert_eq!(super::firsts((3, 2), 0, 7), [0, 0, 0]);
        assert_eq!(turn(Path::new("/")), 0, "no checkout");
    }
}
