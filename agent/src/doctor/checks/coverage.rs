//! Thresholds that the kubelet's reserves should cover.

use super::some;
use crate::doctor::check::{Check, Subject};
use crate::doctor::facts::Facts;
use crate::doctor::facts::kubelet::Settings;
use crate::doctor::rules::reserves::{FOLLOWS, Short, coverage};

/// Thresholds that are told; the rest is counted.
const MOST: usize = 5;

const SUBJECT: Subject = Subject("kubelet.coverage", "thresholds that the reserves cover");

pub(super) fn check(settings: &Settings, facts: &Facts) -> Check {
    let all = coverage(settings, &facts.kubelet.capacities, |_| true);
    if !all.short.is_empty() {
        let short = all.short.into_iter();
        let (found, next): (Vec<String>, Vec<String>) =
            short.map(|Short { found, next }| (found, next)).unzip();
        let check = SUBJECT.warning(some(&found, MOST)).follows(FOLLOWS);
        return next.into_iter().take(MOST).fold(check, Check::next);
    }
    if !all.unknown.is_empty() {
        return SUBJECT.unknown(some(&all.unknown, MOST));
    }
    SUBJECT.ok(match all.covered {
        0 => "none that they would have to cover".to_owned(),
        covered => format!("all {covered}"),
    })
}
