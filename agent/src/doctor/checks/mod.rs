//! From facts to checks, area by area. A check judges; it reads and tries nothing.

mod cgroups;
mod coverage;
mod disk_signals;
mod disks;
mod kernel;
mod killers;
mod kubelet;
mod kubernetes;
mod memory;
mod oom_scores;
mod programs;
mod reclaim;
mod rights;
mod scheduling;
mod settings;
mod state;
mod swings;
mod watermarks;
mod workloads;

use super::check::Check;
use super::facts::Facts;
pub(super) use rights::capabilities;

/// Every check, in the order in which one would look.
pub fn checks(facts: &Facts) -> Vec<Check> {
    [
        Vec::from_iter(settings::root(facts)),
        rights::checks(facts),
        kernel::checks(facts),
        programs::checks(facts),
        scheduling::checks(facts),
        cgroups::checks(facts),
        memory::checks(facts),
        Vec::from_iter(swings::check(facts)),
        settings::checks(facts),
        disks::checks(facts),
        Vec::from_iter(disk_signals::check(facts)),
        workloads::checks(facts),
        Vec::from_iter(oom_scores::check(facts)),
        Vec::from_iter(reclaim::check(facts)),
        kubernetes::checks(facts),
        killers::checks(facts),
        kubelet::checks(facts),
        state::checks(facts),
    ]
    .concat()
}

/// Some of many, for a sentence.
pub(super) fn some(names: &[String], most: usize) -> String {
    let shown = names
        .iter()
        .take(most)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    match names.len().checked_sub(most) {
        Some(more) if more > 0 => format!("{shown} and {more} more"),
        _ => shown,
    }
}

/// `1 pod`, `2 pods`.
pub(super) fn count(number: usize, one: &str) -> String {
    if number == 1 {
        format!("1 {one}")
    } else {
        format!("{number} {one}s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_many() {
        let names = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(some(&names, 3), "a, b, c");
        assert_eq!(some(&names, 2), "a, b and 1 more");
        assert_eq!(some(&[], 2), "");
        assert_eq!(
            (count(1, "pod"), count(0, "pod")),
            ("1 pod".into(), "0 pods".into())
        );
    }
}
