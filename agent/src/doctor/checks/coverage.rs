//! Thresholds that the kubelet's reserves should cover.

use super::some;
use crate::doctor::check::{Check, Step, Subject};
use crate::doctor::facts::Facts;
use crate::doctor::facts::kubelet::Settings;
use crate::doctor::rules::reserves::{FOLLOWS, Short, coverage};

/// Thresholds that are told; the rest is counted.
const MOST: usize = 5;

const SUBJECT: Subject = Subject("kubelet.coverage", "thresholds that the reserves cover");

pub(super) fn check(settings: &Settings, facts: &Facts) -> Check {
    let all = coverage(settings, &facts.kubelet.capacities, |_| true);
    let told = all.short.len().min(MOST);
    if let Some((last, before)) = all.short[..told].split_last() {
        let found: Vec<String> = all.short.iter().map(|short| short.found.clone()).collect();
        let step = |short: &Short| Step::words(short.next.clone());
        return SUBJECT
            .warning(some(&found, MOST))
            .follows(FOLLOWS)
            .steps(before.iter().map(step), step(last));
    }
    if !all.unknown.is_empty() {
        return SUBJECT.unknown(some(&all.unknown, MOST));
    }
    SUBJECT.ok(match all.covered {
        0 => "none that they would have to cover".to_owned(),
        covered => format!("all {covered}"),
    })
}
