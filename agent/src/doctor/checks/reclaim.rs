//! Whether a minimum reclaim can be had at all: not more than what is available once everybody is gone who may be evicted.

use brink_core::node::signal::Signal;
use brink_core::node::threshold::Threshold;

use super::some;
use crate::doctor::check::{Check, Subject};
use crate::doctor::facts::Facts;
use crate::record::text::bytes;

/// Thresholds that are told; the rest is counted.
const MOST: usize = 5;

const SUBJECT: Subject = Subject(
    "workloads.minimum-reclaim",
    "minimum reclaim that can be reached",
);

/// Thresholds, whose they are, and how much memory would be available with nobody left whom they evict.
struct Reach<'a> {
    whose: &'static str,
    thresholds: Vec<&'a Threshold>,
    most: Option<i64>,
}

/// None where no threshold on memory has a minimum reclaim.
pub(super) fn check(facts: &Facts) -> Option<Check> {
    let memory = facts.memory.figures.as_ref().ok();
    let memory = memory.and_then(|(figures, _)| figures.memory);
    let with = |more: Option<i64>| Some(memory?.available.saturating_add(more?));
    let of_pods = facts.kubelet.pods_working_set;
    let kubelets = facts.kubelet.settings.as_ref();
    let kubelets = kubelets.and_then(|settings| settings.as_ref().ok());
    let all = [
        Reach {
            whose: "Brink's",
            thresholds: asking(facts.config.policy.thresholds()),
            most: with(facts.workloads.evictable()),
        },
        Reach {
            whose: "the kubelet's",
            thresholds: asking(kubelets.map_or(&[], |settings| &settings.thresholds)),
            most: with(of_pods.and_then(|bytes| i64::try_from(bytes).ok())),
        },
    ];
    let all: Vec<&Reach<'_>> = all
        .iter()
        .filter(|reach| !reach.thresholds.is_empty())
        .collect();
    if all.is_empty() {
        return None;
    }
    let Some(capacity) = memory.map(|memory| memory.capacity) else {
        return Some(SUBJECT.unknown("the node's memory is not known"));
    };
    let beyond: Vec<String> = all
        .iter()
        .flat_map(|reach| reach.beyond(capacity))
        .collect();
    if !beyond.is_empty() {
        return Some(
            SUBJECT
                .warning(some(&beyond, MOST))
                .follows(
                    "once such a threshold is met, one after the other is evicted until nobody is left, and it lets go all the same \
                     only when the system itself gives memory back",
                )
                .next("a smaller evictionMinimumReclaim, or a lower threshold"),
        );
    }
    if all.iter().any(|reach| reach.most.is_none()) {
        return Some(SUBJECT.unknown("what workloads and pods hold now is not known"));
    }
    Some(SUBJECT.ok("what workloads hold now would be enough for each"))
}

fn asking(thresholds: &[Threshold]) -> Vec<&Threshold> {
    let asks =
        |one: &&Threshold| one.signal == Signal::MemoryAvailable && one.min_reclaim.is_some();
    thresholds.iter().filter(asks).collect()
}

impl Reach<'_> {
    /// Those that let go only above what there can be.
    fn beyond(&self, capacity: i64) -> Vec<String> {
        let Some(most) = self.most else {
            return Vec::new();
        };
        let beyond = self.thresholds.iter().filter_map(|threshold| {
            let release = threshold.release(capacity).value();
            (release > most).then(|| {
                format!(
                    "{} {threshold} lets go at {}, and with everybody evicted who may be, {} would be available",
                    self.whose,
                    bytes(release),
                    bytes(most)
                )
            })
        });
        beyond.collect()
    }
}
