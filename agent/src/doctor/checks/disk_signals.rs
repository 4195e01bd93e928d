//! Thresholds on disks beside what is left now: what is met already is acted on as soon as an agent starts.

use super::reclaim::seen;
use crate::doctor::check::{Check, Subject};
use crate::doctor::facts::Facts;
use crate::guard::disks::Role;
use crate::record::text::amount;

const SUBJECT: Subject = Subject("disks.signals", "thresholds on disks now");

/// Thresholds that are told; the rest is counted.
const MOST: usize = 5;

/// None where nothing is known of what any of them is on.
pub(super) fn check(facts: &Facts) -> Option<Check> {
    let thresholds = facts.config.policy.thresholds().iter();
    let of_disks = thresholds.filter(|one| Role::of(one.signal).is_some());
    let known = of_disks.filter_map(|one| Some((one, seen(facts, one.signal)?)));
    let (met, unmet): (Vec<_>, Vec<_>) = known.partition(|(one, seen)| one.is_met(Some(seen)));
    let Some((first, _)) = met.first() else {
        return (!unmet.is_empty()).then(|| SUBJECT.ok("none is met"));
    };
    let words = met.iter().map(|(one, seen)| {
        let of = |value| amount(one.signal.name(), value);
        let (left, all) = (of(seen.available), of(seen.capacity));
        format!("{one} is met: {left} of {all} left")
    });
    let words: Vec<String> = words.collect();
    let check = SUBJECT
        .warning_of(&words, MOST)
        .follows(
            "an agent that enforces acts on a hard one as soon as it starts and on a soft one after its grace, unless the filesystem \
             is left to a kubelet",
        )
        .run(
            "see who would go",
            format!("brink rank --signal {}", first.signal),
        );
    Some(check)
}
