//! Whether a minimum reclaim can be had at all: not more than what is available once everybody is gone who may be evicted.

use brink_core::node::observe::Observation;
use brink_core::node::rank::{Preferences, Ranking, held_of_disk};
use brink_core::node::signal::Signal;
use brink_core::node::threshold::Threshold;
use brink_core::node::workload::PodUsage;

use crate::doctor::check::{Check, Subject};
use crate::doctor::facts::Facts;
use crate::doctor::facts::workloads::Bound;
use crate::doctor::rules::reach::{Most, Reachable, judge};
use crate::guard::disks::Role;
use crate::guard::storage::DiskUsage;
use crate::record::text::amount;

/// Thresholds that are told; the rest is counted.
const MOST: usize = 5;

const SUBJECT: Subject = Subject(
    "workloads.minimum-reclaim",
    "minimum reclaim that can be reached",
);

/// A threshold with a minimum reclaim, whose it is, and what is known of its signal.
struct Reach<'a> {
    whose: &'static str,
    threshold: &'a Threshold,
    seen: Option<Observation>,
    /// What those hold together that may be evicted.
    held: Option<i64>,
}

/// What is known of one that can be reached, or is not known to be beyond reach.
enum Found {
    Within,
    Beyond(String),
    Unknown(String),
}

/// None where no threshold has a minimum reclaim.
pub(super) fn check(facts: &Facts) -> Option<Check> {
    let kubelets = facts.kubelet.settings.as_ref();
    let kubelets = kubelets.and_then(|settings| settings.as_ref().ok());
    let kubelets = kubelets.map_or(&[][..], |settings| &settings.thresholds);
    let pods = facts.kubelet.pods_working_set;
    let pods = pods.and_then(|bytes| i64::try_from(bytes).ok());
    let ours = asking(facts.config.policy.thresholds()).map(|threshold| Reach {
        whose: "Brink's",
        threshold,
        seen: seen(facts, threshold.signal),
        held: held(facts, threshold.signal),
    });
    // What pods hold of disks and process ids is looked at for those alone that Brink watches over.
    let of_memory = |threshold: &&Threshold| threshold.signal == Signal::MemoryAvailable;
    let theirs = asking(kubelets).filter(of_memory).map(|threshold| Reach {
        whose: "the kubelet's",
        threshold,
        seen: seen(facts, threshold.signal),
        held: pods,
    });
    let found: Vec<Found> = ours.chain(theirs).map(|reach| reach.judge()).collect();
    (!found.is_empty()).then(|| in_words(found))
}

fn in_words(all: Vec<Found>) -> Check {
    let (mut beyond, mut unknown) = (Vec::new(), Vec::new());
    for found in all {
        match found {
            Found::Within => {}
            Found::Beyond(why) => beyond.push(why),
            Found::Unknown(why) => unknown.push(why),
        }
    }
    if !beyond.is_empty() {
        return SUBJECT
            .warning_of(&beyond, MOST)
            .follows(
                "once such a threshold is met, one after the other is evicted until nobody is left, and it lets go all the same \
                 only when the system itself gives something back",
            )
            .next("a smaller evictionMinimumReclaim, or a lower threshold");
    }
    if !unknown.is_empty() {
        return SUBJECT.unknown_of(&unknown, MOST);
    }
    SUBJECT.ok("what workloads hold now would be enough for each")
}

fn asking(thresholds: &[Threshold]) -> impl Iterator<Item = &Threshold> {
    // The others are the same under another name, or nobody's minimum.
    let is_own = |signal: Signal| {
        matches!(signal, Signal::MemoryAvailable | Signal::PidAvailable)
            || Role::of(signal).is_some()
    };
    thresholds
        .iter()
        .filter(move |one| one.min_reclaim.is_some() && is_own(one.signal))
}

/// What is left by a signal now.
pub(super) fn seen(facts: &Facts, signal: Signal) -> Option<Observation> {
    if Role::of(signal).is_some() {
        return facts.disks.as_ref()?.seen(signal);
    }
    let (figures, slow) = facts.memory.figures.as_ref().ok()?;
    figures.observations(*slow)[signal]
}

/// What those hold of it that Brink may evict.
fn held(facts: &Facts, signal: Signal) -> Option<i64> {
    let workloads = &facts.workloads;
    match signal {
        Signal::MemoryAvailable => workloads.evictable(|one| one.working_set),
        Signal::PidAvailable => workloads.evictable(|one| one.tasks),
        _ => {
            let ranking = Ranking {
                signal,
                layout: facts.disks.as_ref()?.layout(),
                preferences: Preferences::Ignore,
            };
            workloads.evictable(|one| held_of(one, ranking))
        }
    }
}

/// Nobody goes for a filesystem who is not known to hold any of it.
fn held_of(one: &Bound, ranking: Ranking) -> Option<u64> {
    let DiskUsage {
        rootfs,
        logs,
        volumes,
    } = one.disk?;
    let used = PodUsage {
        rootfs,
        logs,
        volumes,
        ..PodUsage::default()
    };
    Some(held_of_disk(ranking, &used).unwrap_or(0))
}

impl Reach<'_> {
    /// Whether it lets go only above what there can be.
    fn judge(&self) -> Found {
        let (whose, threshold) = (self.whose, self.threshold);
        let signal = threshold.signal;
        let Some(seen) = self.seen else {
            return Found::Unknown(format!(
                "{whose} {threshold}: what there is now is not known"
            ));
        };
        let (release, most) = match judge(threshold, &seen, self.held) {
            Reachable::Yes => return Found::Within,
            Reachable::Unknown => {
                return Found::Unknown(format!(
                    "{whose} {threshold}: what workloads and pods hold now is not known"
                ));
            }
            Reachable::No { release, most } => (release, most),
        };
        let words = |value| amount(signal.name(), value);
        let there_is = match most {
            Most::Evicted(most) => {
                let aside = match Role::of(signal) {
                    Some(_) => ", unused images aside,",
                    None => "",
                };
                format!(
                    "with everybody evicted who may be, {}{aside} would be available",
                    words(most)
                )
            }
            Most::Whole(all) => format!("the whole is {}", words(all)),
        };
        Found::Beyond(format!(
            "{whose} {threshold} lets go at {}, and {there_is}",
            words(release)
        ))
    }
}

#[cfg(test)]
mod tests {
    use brink_core::base::{Quantity, Span};
    use brink_core::node::threshold::Value;

    use super::*;

    #[test]
    fn more_than_the_whole_is_beyond_reach_whatever_is_held() {
        let bytes = |gib: i64| Value::Quantity(Quantity::from_bytes(gib << 30));
        let check = |more: i64, held: Option<i64>, expected: &str| {
            let threshold = Threshold {
                signal: Signal::NodefsAvailable,
                grace: Span::ZERO,
                value: bytes(1),
                min_reclaim: Some(bytes(more)),
            };
            let reach = Reach {
                whose: "Brink's",
                threshold: &threshold,
                seen: Some(Observation {
                    available: 2 << 30,
                    capacity: 10 << 30,
                    at: None,
                }),
                held: held.map(|gib| gib << 30),
            };
            let found = match reach.judge() {
                Found::Within => "within".to_owned(),
                Found::Beyond(why) => format!("beyond: {why}"),
                Found::Unknown(why) => format!("unknown: {why}"),
            };
            assert!(found.starts_with(expected), "{found}");
        };
        check(1, None, "within");
        check(9, None, "unknown: ");
        check(
            10,
            None,
            "beyond: Brink's nodefs.available<1Gi lets go at 11.0Gi, and the whole is 10.0Gi",
        );
        check(
            9,
            Some(7),
            "beyond: Brink's nodefs.available<1Gi lets go at 10.0Gi, and with everybody",
        );
        check(9, Some(8), "within");
        // What is counted twice makes no disk larger.
        check(10, Some(20), "beyond: ");
    }
}
