//! Whether a look at the workloads has to look at all processes too, which is most of what it costs.

use std::time::{Duration, Instant};

use crate::backend::build::Scan;

/// Processes are looked at so often even where none was started or moved: one may take another name, or another user's
/// rights. Whoever is started under a name that matters, comes into a cgroup or ends is noticed without it.
const LONGEST: Duration = Duration::from_mins(5);
/// And no more often, where programs are started all the time: each probe that is run in a container is one.
const SHORTEST: Duration = Duration::from_mins(1);

/// The last look at all processes.
#[derive(Debug, Default)]
pub(super) struct Starts(Option<(Instant, Option<u64>)>);

impl Starts {
    /// What the next look is at. `is_told` is a look because something has changed; `started` counts the starts of programs
    /// and moves of processes so far, where the kernel does.
    pub(super) fn scan(&mut self, now: Instant, is_told: bool, started: Option<u64>) -> Scan {
        let is_known = self.0.is_some_and(|(at, before)| {
            let patience = if before == started { LONGEST } else { SHORTEST };
            started.is_some() && before.is_some() && now.saturating_duration_since(at) < patience
        });
        if is_known && !is_told {
            return Scan::Cgroups;
        }
        self.0 = Some((now, started));
        Scan::All
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(age: Duration, before: Option<u64>, started: Option<u64>, expected: Scan) {
        let at = Instant::now();
        let (mut starts, now) = (Starts(Some((at, before))), at + age);
        assert_eq!(starts.scan(now, false, started), expected, "{age:?}");
        assert_eq!(
            starts.scan(now, true, started),
            Scan::All,
            "something has changed"
        );
    }

    #[test]
    fn processes_are_looked_at_less_often_where_the_kernel_tells_that_there_is_nothing_new() {
        const TICK: Duration = Duration::from_nanos(1);
        let (seen, more) = (Some(7), Some(8));
        check(Duration::ZERO, seen, seen, Scan::Cgroups);
        check(SHORTEST, seen, seen, Scan::Cgroups);
        check(LONGEST.saturating_sub(TICK), seen, seen, Scan::Cgroups);
        check(LONGEST, seen, seen, Scan::All);
        check(Duration::ZERO, seen, more, Scan::Cgroups);
        check(SHORTEST.saturating_sub(TICK), seen, more, Scan::Cgroups);
        check(SHORTEST, seen, more, Scan::All);
        check(Duration::ZERO, seen, None, Scan::All);
        check(Duration::ZERO, None, None, Scan::All);
        check(Duration::ZERO, None, seen, Scan::All);
        assert_eq!(
            Starts::default().scan(Instant::now(), false, seen),
            Scan::All,
            "the first look"
        );
    }
}
