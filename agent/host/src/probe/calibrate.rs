//! The cross-check: the kernel's numbers against those of its files, at each housekeeping pass.
//!
//! Both move while they are read, so the files are read before and after the sample: its number must lie between the
//! two readings, give or take the tolerance. One miss is read again at once; a second one ends the guard's trust.

/// Largest difference allowed on any machine, in bytes.
const MOST: u64 = 16 << 20;

/// Largest difference allowed, in bytes: the smallest of one percent of the capacity, a tenth of the smallest armed
/// threshold (where one is armed), and 16 MiB.
pub fn tolerance(capacity: u64, smallest_threshold: Option<u64>) -> u64 {
    let tenth = smallest_threshold.map_or(MOST, |threshold| threshold / 10);
    (capacity / 100).min(tenth).min(MOST)
}

/// Numbers of the node, in bytes; `None` for one that was not read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// `memory.available`
    pub available: Option<i64>,
    /// `memory.headroom`
    pub headroom: Option<i64>,
}

/// One number that lies too far from the files'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// which number
    pub name: &'static str,
    /// the kernel's, in bytes
    pub kernel: i64,
    /// the nearer of the files' two readings, in bytes
    pub files: i64,
}

/// Outcome of one comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// every number that both sides know agrees
    Agrees,
    /// the first that does not
    Differs(Difference),
    /// nothing could be compared
    Unknown,
}

/// Compares the kernel's numbers with the files read before and after them.
pub fn compare(before: &Numbers, kernel: &Numbers, after: &Numbers, tolerance: u64) -> Verdict {
    let pairs = [
        (
            "memory.available",
            before.available,
            kernel.available,
            after.available,
        ),
        (
            "memory.headroom",
            before.headroom,
            kernel.headroom,
            after.headroom,
        ),
    ];
    let mut verdict = Verdict::Unknown;
    for (name, before, kernel, after) in pairs {
        let (Some(before), Some(kernel), Some(after)) = (before, kernel, after) else {
            continue;
        };
        verdict = Verdict::Agrees;
        let files = kernel.clamp(before.min(after), before.max(after));
        if kernel.abs_diff(files) > tolerance {
            return Verdict::Differs(Difference {
                name,
                kernel,
                files,
            });
        }
    }
    verdict
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: i64 = 1 << 20;

    #[test]
    fn the_tolerance_is_the_smallest_of_three() {
        let mib = |count: u64| count << 20;
        assert_eq!(tolerance(mib(100_000), Some(mib(1_000))), mib(16));
        assert_eq!(tolerance(mib(100_000), Some(mib(100))), mib(10));
        assert_eq!(tolerance(mib(1_000), Some(mib(1_000))), mib(10));
        assert_eq!(tolerance(mib(100_000), None), mib(16));
        assert_eq!(tolerance(mib(100_000), Some(0)), 0);
    }

    fn numbers(available: i64) -> Numbers {
        Numbers {
            available: Some(available),
            ..Numbers::default()
        }
    }

    fn check(before: i64, kernel: i64, after: i64, agrees: bool) {
        let found = compare(
            &numbers(before),
            &numbers(kernel),
            &numbers(after),
            10 << 20,
        );
        assert_eq!(
            found == Verdict::Agrees,
            agrees,
            "{before} {kernel} {after}: {found:?}"
        );
    }

    #[test]
    fn a_number_between_two_readings_is_right_however_far_they_are_apart() {
        check(1_000 * MIB, 500 * MIB, 100 * MIB, true);
        check(100 * MIB, 110 * MIB, 100 * MIB, true);
        check(100 * MIB, 111 * MIB, 100 * MIB, false);
        check(-5 * MIB, -15 * MIB, -5 * MIB, true);
        check(-5 * MIB, -16 * MIB, 0, false);
    }

    #[test]
    fn what_is_not_known_is_not_compared() {
        let unread = Numbers::default();
        assert_eq!(compare(&unread, &numbers(0), &unread, 0), Verdict::Unknown);
        assert_eq!(
            compare(&numbers(1), &unread, &numbers(1), 0),
            Verdict::Unknown
        );
    }

    proptest! {
        #[test]
        fn agreement_is_nearness_to_the_span(a in -1_000i64..1_000, k in -1_000i64..1_000, b in -1_000i64..1_000, t in 0u64..100) {
            let outside = (a.min(b) - k).max(k - a.max(b)).max(0);
            let found = compare(&numbers(a), &numbers(k), &numbers(b), t);
            prop_assert_eq!(found == Verdict::Agrees, outside.unsigned_abs() <= t);
        }
    }
}
