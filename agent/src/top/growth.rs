//! How fast each workload's use grows: the difference over the last seconds of what was seen.

use std::collections::{HashMap, VecDeque};

use crate::control::protocol::Ranking;
use crate::record::wire::RankedWorkload;

/// Over so many nanoseconds.
const WINDOW_NS: i64 = 10_000_000_000;
/// Moments that are kept of a workload at most.
const MOST: usize = 64;

/// What was seen of each workload, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Growth {
    signal: String,
    seen: HashMap<String, VecDeque<(i64, i64)>>,
}

impl Growth {
    /// Takes what a ranking says. Whoever is not in it is forgotten, and so is everything when the signal is another or the
    /// clock began anew.
    pub(super) fn see(&mut self, ranking: &Ranking) {
        if self.signal != ranking.signal {
            self.seen.clear();
            self.signal.clone_from(&ranking.signal);
        }
        let age = ranking.figures_age_ms.saturating_mul(1_000_000);
        let at = ranking.now.monotonic_ns.saturating_sub(age);
        let mut before = std::mem::take(&mut self.seen);
        for workload in &ranking.workloads {
            let mut seen = before.remove(key(workload)).unwrap_or_default();
            if let Some(usage) = workload.usage {
                note(&mut seen, at, usage);
            }
            self.seen.insert(key(workload).to_owned(), seen);
        }
    }

    /// Growth in one second; none before two moments were seen.
    pub(super) fn of(&self, workload: &RankedWorkload) -> Option<i64> {
        let seen = self.seen.get(key(workload))?;
        let (&(since, from), &(until, to)) = (seen.front()?, seen.back()?);
        let nanos = i128::from(until) - i128::from(since);
        let grown = (i128::from(to) - i128::from(from)) * 1_000_000_000;
        i64::try_from(grown.checked_div(nanos)?).ok()
    }
}

fn note(seen: &mut VecDeque<(i64, i64)>, at: i64, usage: i64) {
    match seen.back() {
        Some(&(last, _)) if last > at => seen.clear(),
        // The same figures once more.
        Some(&(last, _)) if last == at => return,
        _ => {}
    }
    seen.push_back((at, usage));
    let is_old = |first: Option<&(i64, i64)>| {
        first.is_some_and(|&(first, _)| at.saturating_sub(first) > WINDOW_NS)
    };
    while seen.len() > MOST || (seen.len() > 2 && is_old(seen.front())) {
        seen.pop_front();
    }
}

/// A uid, or a name where there is none.
fn key(workload: &RankedWorkload) -> &str {
    if workload.uid.is_empty() {
        &workload.name
    } else {
        &workload.uid
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::wire::Time;

    fn ranking(seconds: i64, signal: &str, usage: &[Option<i64>]) -> Ranking {
        let workload = |(index, usage): (usize, &Option<i64>)| RankedWorkload {
            namespace: String::new(),
            name: "same".to_owned(),
            uid: format!("u{index}"),
            preference: "normal".to_owned(),
            preference_by: None,
            usage_to_request: "over".to_owned(),
            priority: 0,
            usage: *usage,
            request: 0,
            processes: None,
            refusal: None,
        };
        Ranking {
            api_version: String::new(),
            kind: String::new(),
            signal: signal.to_owned(),
            now: Time {
                wall: String::new(),
                monotonic_ns: seconds * 1_000_000_000 + 500_000_000,
            },
            figures_age_ms: 500,
            workloads: usage.iter().enumerate().map(workload).collect(),
            why: Vec::new(),
            met: Vec::new(),
        }
    }

    #[track_caller]
    fn check(looks: &[(i64, &str, &[Option<i64>])], expected: &[Option<i64>]) {
        let mut growth = Growth::default();
        for (seconds, signal, usage) in looks {
            growth.see(&ranking(*seconds, signal, usage));
        }
        let (seconds, signal, usage) = looks.last().unwrap();
        let last = ranking(*seconds, signal, usage);
        let found: Vec<_> = last.workloads.iter().map(|one| growth.of(one)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn growth_is_of_the_last_seconds_and_of_the_same_signal() {
        let two = [Some(100), Some(900)];
        check(&[(1, "m", &two)], &[None, None]);
        check(&[(1, "m", &two), (1, "m", &two)], &[None, None]);
        check(
            &[(1, "m", &two), (3, "m", &[Some(300), Some(500)])],
            &[Some(100), Some(-200)],
        );
        // What is unknown for a while is not zero.
        check(
            &[
                (1, "m", &[Some(100)]),
                (2, "m", &[None]),
                (3, "m", &[Some(300)]),
            ],
            &[Some(100)],
        );
        check(&[(1, "m", &two), (3, "p", &two)], &[None, None]);
        check(&[(9, "m", &two), (3, "m", &two)], &[None, None]);
        check(
            &[(1, "m", &two), (2, "m", &[]), (3, "m", &two)],
            &[None, None],
        );
        check(
            &[(0, "m", &[Some(-i64::MAX)]), (1, "m", &[Some(i64::MAX)])],
            &[None],
        );
    }

    #[test]
    fn only_the_window_counts_and_little_is_kept() {
        let looks: Vec<(i64, &str, Vec<Option<i64>>)> = (0..200)
            .map(|second| {
                (
                    second,
                    "m",
                    vec![Some(if second < 100 { 0 } else { second })],
                )
            })
            .collect();
        let looks: Vec<(i64, &str, &[Option<i64>])> = looks
            .iter()
            .map(|(second, signal, usage)| (*second, *signal, usage.as_slice()))
            .collect();
        check(&looks, &[Some(1)]);
        let mut growth = Growth::default();
        for second in 0..1000 {
            let mut look = ranking(0, "m", &[Some(1)]);
            look.now.monotonic_ns += second;
            growth.see(&look);
        }
        assert_eq!(growth.seen["u0"].len(), MOST);
    }
}
