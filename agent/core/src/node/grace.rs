//! How long a victim gets: what eviction asks for, and what the kubelet's pod worker makes of it.

use crate::base::Span;

/// What a hard or local-storage eviction asks for, in seconds. (Before 1.31 it asked for 0, which
/// the pod worker takes for "not set".)
pub const IMMEDIATE: i64 = 1;

/// The grace of a pod that names none: the API server's default, in seconds.
pub const DEFAULT_POD_GRACE: i64 = 30;

/// The grace an eviction asks for, in seconds: one for a hard threshold; for a soft one the
/// configured maximum, or the pod's own if that is smaller. Any maximum is taken as it is.
pub fn override_seconds(hard: bool, maximum: i64, pod: Option<i64>) -> i64 {
    match pod {
        _ if hard => IMMEDIATE,
        Some(pod) => maximum.min(pod),
        None => maximum,
    }
}

/// The grace a pod really gets, in seconds: the smallest of what is set already, what its deletion
/// says and what is asked for now, where nothing and zero are "not set"; the pod's own if nothing
/// is left; at least one. A maximum of zero thus grants the pod its whole grace.
pub fn effective_seconds(
    already: i64,
    deletion: Option<i64>,
    asked: Option<i64>,
    pod: Option<i64>,
) -> i64 {
    let shorter = |grace: i64, other: Option<i64>| match other {
        Some(other) if grace == 0 || other < grace => other,
        _ => grace,
    };
    let grace = shorter(shorter(already, deletion), asked);
    let grace = if grace == 0 { pod.unwrap_or(0) } else { grace };
    grace.max(1)
}

/// How long the kubelet waits for a victim before it goes on: one and a half graces, ten seconds
/// at least.
pub fn kill_timeout(asked: i64) -> Span {
    Span::from_secs(asked.saturating_add(asked / 2).max(10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_eviction_asks_for() {
        for (hard, maximum, pod, expected) in [
            (true, 30, Some(60), 1),
            (true, 0, None, 1),
            (false, 30, Some(60), 30),
            (false, 60, Some(30), 30),
            (false, 30, None, 30),
            (false, 0, Some(30), 0),
            (false, -1, Some(30), -1),
            (false, 30, Some(0), 0),
        ] {
            assert_eq!(
                override_seconds(hard, maximum, pod),
                expected,
                "{hard} {maximum} {pod:?}"
            );
        }
    }

    #[test]
    fn what_the_pod_worker_makes_of_it() {
        for (already, deletion, asked, pod, expected) in [
            (0, None, Some(1), Some(30), 1),
            (0, None, Some(0), Some(30), 30),
            (0, None, Some(-1), Some(30), 1),
            (0, None, Some(0), None, 1),
            (0, None, None, Some(30), 30),
            (0, Some(5), Some(30), Some(60), 5),
            (0, Some(60), Some(30), Some(90), 30),
            (10, None, Some(30), Some(60), 10),
            (10, Some(3), Some(5), Some(60), 3),
            (0, None, None, None, 1),
        ] {
            let grace = effective_seconds(already, deletion, asked, pod);
            assert_eq!(grace, expected, "{already} {deletion:?} {asked:?} {pod:?}");
        }
    }

    #[test]
    fn the_kubelet_waits_ten_seconds_at_least() {
        assert_eq!(kill_timeout(1), Span::from_secs(10));
        assert_eq!(kill_timeout(7), Span::from_secs(10));
        assert_eq!(kill_timeout(60), Span::from_secs(90));
        assert_eq!(kill_timeout(-5), Span::from_secs(10));
    }
}
