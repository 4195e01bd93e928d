//! What is told again for a while after a start: the agent before us may have asked for something else, and be heard late.

use std::time::Duration;

use tokio::time::Instant;

use super::kept::Kept;

/// So long after it was told first it is told again. After a minute a server has done what it was asked to, or never will.
const MOMENTS: [Duration; 4] = [
    Duration::from_secs(4),
    Duration::from_secs(12),
    Duration::from_secs(28),
    Duration::from_mins(1),
];

/// Whether anything is told again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Again {
    /// Nothing is.
    No,
    /// What is told, since it was told first, if it was.
    While {
        /// When that was.
        first: Option<Instant>,
        /// Whether the one before us may have asked for the taint.
        tainted: bool,
    },
}

impl Again {
    /// After an agent that has left this. One that was answered when it took away what it had told has left nothing.
    pub(super) fn after(kept: &Kept) -> Self {
        if *kept == Kept::default() {
            Self::No
        } else {
            Self::While {
                first: None,
                tainted: kept.tainted,
            }
        }
    }

    /// Whether the node may have a taint that nobody but the one before us knows of.
    pub(super) const fn may_be_tainted(&self) -> bool {
        matches!(self, Self::While { tainted: true, .. })
    }

    /// It was told now: in how long it is to be told again, if at all.
    pub(super) fn told(&mut self, now: Instant) -> Option<Duration> {
        let Self::While { first, .. } = self else {
            return None;
        };
        let age = now.duration_since(*first.get_or_insert(now));
        let left = MOMENTS.map(|moment| moment.saturating_sub(age));
        let next = left.into_iter().find(|left| !left.is_zero());
        if next.is_none() {
            *self = Self::No;
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_has_left_is_told_over_at_each_moment_and_then_no_more() {
        assert_eq!(Again::after(&Kept::default()), Again::No);
        let left = Kept {
            tainted: true,
            ..Kept::default()
        };
        let mut again = Again::after(&left);
        assert!(again.may_be_tainted());
        let first = Instant::now();
        let mut told = |millis| {
            let wait = again.told(first + Duration::from_millis(millis));
            wait.map(|wait| wait.as_millis())
        };
        for (at, expected) in [
            (0, Some(4000)),
            // A change of its own is told in between.
            (1000, Some(3000)),
            (4000, Some(8000)),
            (12_001, Some(15_999)),
            (28_000, Some(32_000)),
            (60_000, None),
            (3_600_000, None),
        ] {
            assert_eq!(told(at), expected, "{at}");
        }
        assert_eq!(again, Again::No);
    }

    #[test]
    fn who_has_left_nothing_is_not_heard_late() {
        let mut again = Again::after(&Kept::default());
        assert_eq!(again.told(Instant::now()), None);
        assert_eq!(again, Again::No);
    }
}
