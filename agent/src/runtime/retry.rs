//! When what the guard had no room for is tried again by itself.

use std::time::Duration;

use tokio::time::Instant;

/// After the first failure of a series.
const FIRST: Duration = Duration::from_secs(2);
/// The longest wait, however long the series is.
const LONGEST: Duration = Duration::from_mins(1);

/// What is owed, and when it is due.
#[derive(Debug, Default)]
pub(super) struct Retry {
    due: Option<Instant>,
    failures: u32,
}

impl Retry {
    /// There was no room for it (`is_owed`), or there is nothing to be tried again.
    pub(super) fn note(&mut self, is_owed: bool, now: Instant) {
        if !is_owed {
            *self = Self::default();
            return;
        }
        let wait = FIRST.saturating_mul(1 << self.failures.min(16));
        self.due = Some(now + wait.min(LONGEST));
        self.failures = self.failures.saturating_add(1);
    }

    /// When it is to be tried again; none where nothing is owed.
    pub(super) const fn due(&self) -> Option<Instant> {
        self.due
    }
}

/// Waits for that; for ever where nothing is to be tried again.
pub(super) async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_minute_and_begin_anew() {
        let now = Instant::now();
        let mut retry = Retry::default();
        assert_eq!(retry.due(), None);
        for seconds in [2, 4, 8, 16, 32, 60, 60] {
            retry.note(true, now);
            assert_eq!(retry.due(), Some(now + Duration::from_secs(seconds)));
        }
        for _ in 0..40 {
            retry.note(true, now);
        }
        assert_eq!(retry.due(), Some(now + LONGEST));
        retry.note(false, now);
        assert_eq!(retry.due(), None);
        retry.note(true, now);
        assert_eq!(retry.due(), Some(now + FIRST));
    }

    #[tokio::test]
    async fn what_is_not_owed_is_waited_for_for_ever() {
        until(Some(Instant::now())).await;
        let moment = Duration::from_millis(10);
        let waits = tokio::time::timeout(moment, until(None)).await;
        assert!(waits.is_err());
    }
}
