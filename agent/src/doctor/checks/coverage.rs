//! Thresholds that the kubelet's reserves should cover: what pods may not request has to be more than what is to be left.
//!
//! From what pods may request the kubelet takes its reserves, and its hard thresholds on memory and on its disk. Soft
//! thresholds it does not take away, and of process ids no threshold: those have to be in the reserves.

use brink_core::node::signal::Signal;
use brink_core::node::threshold::{Threshold, Value};

use super::some;
use crate::doctor::check::{Check, Subject};
use crate::doctor::facts::Facts;
use crate::doctor::facts::kubelet::{Reserved, Settings};
use crate::record::text::amount;

/// Thresholds that are told; the rest is counted.
const MOST: usize = 5;

const SUBJECT: Subject = Subject("kubelet.coverage", "thresholds that the reserves cover");

/// What reserves are for, the threshold that should lie within them, and how much is reserved.
type Resource = (&'static str, Signal, fn(&Reserved) -> i64);

const RESOURCES: [Resource; 3] = [
    ("memory", Signal::MemoryAvailable, Reserved::memory),
    (
        "ephemeral-storage",
        Signal::NodefsAvailable,
        Reserved::storage,
    ),
    ("pid", Signal::PidAvailable, Reserved::pids),
];

pub(super) fn check(settings: &Settings, facts: &Facts) -> Check {
    let (mut covered, mut short, mut unknown) = (0, Vec::new(), Vec::new());
    for (resource, signal, reserved) in RESOURCES {
        for threshold in settings.thresholds.iter().filter(|one| counts(one, signal)) {
            let Some(capacity) = capacity(threshold, facts) else {
                unknown.push(format!("{threshold}: the capacity is not known"));
                continue;
            };
            let wanted = threshold.quantity(capacity).value();
            let hard = settings
                .hard(signal)
                .filter(|_| signal != Signal::PidAvailable);
            let hard = hard.map_or(0, |hard| hard.quantity(capacity).value());
            let reserved = reserved(&settings.kube_reserved)
                .saturating_add(reserved(&settings.system_reserved));
            let kept = reserved.saturating_add(hard);
            if kept >= wanted {
                covered += 1;
                continue;
            }
            let name = signal.name();
            short.push((
                format!(
                    "{threshold} wants {} left, and {} of {resource} are kept from pods",
                    amount(name, wanted),
                    amount(name, kept)
                ),
                format!(
                    "kubeReserved and systemReserved of {} {resource} together, and what the system itself uses on top",
                    amount(name, wanted.saturating_sub(hard))
                ),
            ));
        }
    }
    if !short.is_empty() {
        let (found, next): (Vec<String>, Vec<String>) = short.into_iter().unzip();
        let check = SUBJECT.warning(some(&found, MOST)).follows(
            "pods that all keep to what they request can bring the node below it, and are evicted for that",
        );
        return next.into_iter().take(MOST).fold(check, Check::next);
    }
    if !unknown.is_empty() {
        return SUBJECT.unknown(some(&unknown, MOST));
    }
    SUBJECT.ok(match covered {
        0 => "none that they would have to cover".to_owned(),
        covered => format!("all {covered}"),
    })
}

/// Hard ones on memory and disk are kept from pods by the kubelet itself.
fn counts(threshold: &Threshold, signal: Signal) -> bool {
    threshold.signal == signal && (!threshold.is_hard() || signal == Signal::PidAvailable)
}

/// How much there is; of a threshold that is no share it does not matter.
fn capacity(threshold: &Threshold, facts: &Facts) -> Option<i64> {
    let known = facts.kubelet.capacities[threshold.signal];
    match threshold.value {
        Value::Quantity(_) => Some(known.unwrap_or(0)),
        Value::Fraction(_) => known,
    }
}
