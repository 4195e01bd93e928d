//! Whose limit was hit, where the kernel's own word for it is not had: worked out from what the cgroups of the victim show.

use brink_host::probe::shortage::Shortage;
use brink_stream::model::incident::{Confidence, Limit, LimitMethod};

/// What is known of one cgroup on the way from the victim's to the root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// Its path.
    pub path: String,
    /// In use, in bytes.
    pub usage: Option<u64>,
    /// Its limit in bytes; `Some(None)` is none.
    pub max: Option<Option<u64>>,
    /// How often its own limit could not be kept: when it was last looked at, and now.
    pub ooms: Option<(u64, u64)>,
    /// A task waits in its OOM.
    pub under_oom: Option<bool>,
    /// Whoever hits its limit waits, and nobody is killed for it (v1, `oom_kill_disable`).
    pub spares: bool,
}

/// The cgroup that was short, from `levels`, innermost first. `slack` is what lies between usage and limit at most when a
/// limit is hit, in bytes: what processors have charged in advance, and what one allocation asked for.
pub fn infer(levels: &[Level], shortage: Shortage, slack: u64) -> Option<Limit> {
    if shortage == Shortage::Node {
        return Some(limit("/", LimitMethod::LastReclaim, Confidence::High));
    }
    let is_cgroups = shortage == Shortage::Cgroup;
    let sure = if is_cgroups {
        Confidence::High
    } else {
        Confidence::Low
    };
    let rose = |level: &&Level| level.ooms.is_some_and(|(before, now)| now > before);
    let risen: Vec<&Level> = levels.iter().filter(rose).collect();
    if let [first, rest @ ..] = &risen[..] {
        // Several have had one since: the innermost is met first, and no more is known.
        let confidence = if rest.is_empty() {
            sure
        } else {
            Confidence::Low
        };
        return Some(limit(&first.path, LimitMethod::EventDelta, confidence));
    }
    // The kernel marks all below the one that is short: the outermost is it, unless its tasks wait for as long as they like. The mark
    // stands for no longer than the shortage, so nothing of before is taken for it.
    let under = levels.iter().rfind(|level| level.under_oom == Some(true));
    if let Some(level) = under.filter(|level| !level.spares) {
        return Some(limit(&level.path, LimitMethod::UnderOom, Confidence::High));
    }
    let limited: Vec<&Level> = levels
        .iter()
        .filter(|level| matches!(level.max, Some(Some(_))) && !level.spares)
        .collect();
    let all_known = levels.iter().all(|level| level.max.is_some());
    if let [only] = limited[..]
        && is_cgroups
        && all_known
    {
        return Some(limit(&only.path, LimitMethod::OnlyLimit, Confidence::High));
    }
    let full: Vec<&&Level> = limited
        .iter()
        .filter(|level| level.is_full(slack))
        .collect();
    match full[..] {
        [] => None,
        [one] => Some(limit(&one.path, LimitMethod::AtLimit, sure)),
        [nearest, ..] => Some(limit(&nearest.path, LimitMethod::AtLimit, Confidence::Low)),
    }
}

impl Level {
    fn is_full(&self, slack: u64) -> bool {
        let (Some(usage), Some(Some(max))) = (self.usage, self.max) else {
            return false;
        };
        usage.saturating_add(slack) >= max
    }
}

fn limit(cgroup: &str, method: LimitMethod, confidence: Confidence) -> Limit {
    Limit {
        cgroup: cgroup.to_owned(),
        method,
        confidence,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLACK: u64 = 10;

    fn level(path: &str, usage: u64, max: Option<u64>) -> Level {
        Level {
            path: path.to_owned(),
            usage: Some(usage),
            max: Some(max),
            ..Level::default()
        }
    }

    fn check(
        levels: &[Level],
        shortage: Shortage,
        expected: Option<(&str, LimitMethod, Confidence)>,
    ) {
        let found = infer(levels, shortage, SLACK);
        let expected = expected.map(|(path, method, sure)| limit(path, method, sure));
        assert_eq!(found, expected, "{levels:?}");
    }

    #[test]
    fn the_one_whose_count_rose_is_it() {
        let mut levels = [
            level("/a/b", 50, Some(100)),
            level("/a", 90, Some(100)),
            level("/", 900, None),
        ];
        levels[0].ooms = Some((3, 3));
        levels[1].ooms = Some((3, 4));
        let found = ("/a", LimitMethod::EventDelta, Confidence::High);
        check(&levels, Shortage::Cgroup, Some(found));
        // Where nobody knows who was short, it may have risen without a kill that was told.
        let unsure = ("/a", LimitMethod::EventDelta, Confidence::Low);
        check(&levels, Shortage::Unknown, Some(unsure));
        levels[0].ooms = Some((3, 4));
        let nearest = ("/a/b", LimitMethod::EventDelta, Confidence::Low);
        check(&levels, Shortage::Cgroup, Some(nearest));
    }

    #[test]
    fn the_outermost_under_oom_is_it() {
        let mut levels = [level("/a/b", 50, Some(100)), level("/a", 90, Some(100))];
        levels[0].under_oom = Some(true);
        levels[1].under_oom = Some(true);
        let found = ("/a", LimitMethod::UnderOom, Confidence::High);
        check(&levels, Shortage::Unknown, Some(found));
    }

    #[test]
    fn a_group_whose_tasks_wait_is_never_it() {
        let mut levels = [
            level("/a/b/c", 50, Some(100)),
            level("/a/b", 100, Some(100)),
            level("/a", 100, Some(100)),
        ];
        // Both are marked by whoever waits in the outer one of them.
        levels[0].under_oom = Some(true);
        levels[1].under_oom = Some(true);
        levels[1].spares = true;
        let found = ("/a", LimitMethod::AtLimit, Confidence::High);
        check(&levels, Shortage::Cgroup, Some(found));
        let only = ("/a", LimitMethod::OnlyLimit, Confidence::High);
        check(&levels[1..], Shortage::Cgroup, Some(only));
    }

    #[test]
    fn without_counts_the_nearest_full_one_is_it() {
        let full = [
            level("/a/b", 50, Some(100)),
            level("/a", 91, Some(100)),
            level("/", 900, None),
        ];
        let found = |confidence| Some(("/a", LimitMethod::AtLimit, confidence));
        check(&full, Shortage::Cgroup, found(Confidence::High));
        check(&full, Shortage::Unknown, found(Confidence::Low));
        let both = [level("/a/b", 90, Some(100)), level("/a", 91, Some(100))];
        let nearest = ("/a/b", LimitMethod::AtLimit, Confidence::Low);
        check(&both, Shortage::Cgroup, Some(nearest));
        let room = [level("/a/b", 50, Some(100)), level("/a", 89, Some(100))];
        check(&room, Shortage::Cgroup, None);
    }

    #[test]
    fn the_only_limit_is_it_however_much_has_come_back_since() {
        let mut levels = [level("/a/b", 5, Some(100)), level("/", 900, None)];
        let found = ("/a/b", LimitMethod::OnlyLimit, Confidence::High);
        check(&levels, Shortage::Cgroup, Some(found));
        check(&levels, Shortage::Unknown, None);
        levels[1].max = None;
        check(&levels, Shortage::Cgroup, None);
    }

    #[test]
    fn the_node_is_told_by_what_was_reclaimed() {
        let node = ("/", LimitMethod::LastReclaim, Confidence::High);
        check(&[], Shortage::Node, Some(node));
        check(&[], Shortage::Unknown, None);
    }
}
