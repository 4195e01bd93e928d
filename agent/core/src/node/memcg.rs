//! The usage threshold the kubelet arms on cgroup v1, as arithmetic, and when it is armed anew.

use super::threshold::Value;
use crate::base::{Moment, Quantity, Span};

/// A cgroup's memory as the kubelet's statistics give it, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemoryStats {
    /// What the cgroup is charged.
    pub usage: Option<u64>,
    /// Usage without inactive file pages.
    pub working_set: Option<u64>,
    /// Limit less working set.
    pub available: Option<u64>,
}

/// The statistics are missing, or a part of them is; the notifier stays as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("memory statistics are incomplete")]
pub struct Incomplete;

/// The usage, in bytes, at which the working set leaves less than `value` available: capacity less
/// threshold, plus inactive file pages, which are used but not in the working set.
///
/// # Errors
/// When a figure is missing, or the cgroup altogether.
pub fn usage_threshold(stats: Option<MemoryStats>, value: Value) -> Result<i64, Incomplete> {
    let MemoryStats {
        usage,
        working_set,
        available,
    } = stats.ok_or(Incomplete)?;
    let usage = usage.ok_or(Incomplete)?;
    let working_set = working_set.ok_or(Incomplete)?;
    let available = available.ok_or(Incomplete)?;
    let inactive_file = usage.wrapping_sub(working_set).cast_signed();
    let capacity = available.wrapping_add(working_set).cast_signed();
    let threshold = Quantity::from_bytes(capacity).minus(value.quantity(capacity));
    Ok(threshold.plus(Quantity::from_bytes(inactive_file)).value())
}

/// Arms at most once in more than ten seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Rearm {
    last: Option<Moment>,
}

impl Rearm {
    /// The interval that must be exceeded.
    pub const INTERVAL: Span = Span::from_secs(10);

    /// Whether it is time; if so, counts as done now.
    pub fn is_due(&mut self, now: Moment) -> bool {
        let due = self
            .last
            .is_none_or(|last| now.since(last) > Self::INTERVAL);
        if due {
            self.last = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GI: u64 = 1 << 30;

    fn stats(available: u64, usage: u64, working_set: u64) -> MemoryStats {
        let [usage, working_set, available] = [usage, working_set, available].map(Some);
        MemoryStats {
            usage,
            working_set,
            available,
        }
    }

    fn threshold(stats: MemoryStats, value: Value) -> Result<i64, Incomplete> {
        usage_threshold(Some(stats), value)
    }

    #[test]
    fn the_threshold_is_in_usage_not_in_working_set() {
        let one = Value::Quantity(Quantity::from_bytes(1 << 30));
        assert_eq!(threshold(stats(3 * GI, 2 * GI, GI), one), Ok(4 << 30));
        assert_eq!(threshold(stats(4 * GI, 3 * GI, GI), one), Ok(6 << 30));
        let tenth = Value::Fraction(0.5);
        assert_eq!(threshold(stats(3 * GI, GI, GI), tenth), Ok(2 << 30));
    }

    #[test]
    fn anything_missing_is_an_error() {
        let value = Value::Fraction(0.1);
        assert_eq!(usage_threshold(None, value), Err(Incomplete));
        let whole = MemoryStats {
            usage: Some(1),
            working_set: Some(1),
            available: Some(1),
        };
        assert!(threshold(whole, value).is_ok());
        for part in [
            MemoryStats {
                usage: None,
                ..whole
            },
            MemoryStats {
                working_set: None,
                ..whole
            },
            MemoryStats {
                available: None,
                ..whole
            },
        ] {
            assert_eq!(threshold(part, value), Err(Incomplete));
        }
    }

    #[test]
    fn armed_anew_after_more_than_ten_seconds() {
        let mut rearm = Rearm::default();
        let due = [0, 0, 10, 11, 20, 22].map(|second| rearm.is_due(Moment::from_secs(second)));
        assert_eq!(due, [true, false, false, true, false, true]);
    }
}
