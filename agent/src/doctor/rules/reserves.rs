//! What the kubelet keeps from pods, and the thresholds that should lie in it: what pods may not request has to be more than what is to be left.
//!
//! From what pods may request the kubelet takes its reserves, and its hard thresholds on memory and on its disk. Soft
//! thresholds it does not take away, and of process ids no threshold: those have to be in the reserves.

use brink_core::node::policy::Capacities;
use brink_core::node::signal::Signal;
use brink_core::node::threshold::{Threshold, Value};

use crate::doctor::facts::kubelet::{Reserved, Settings};
use crate::record::text::{amount, bytes, unsigned};

/// What follows where a threshold is not covered.
pub(crate) const FOLLOWS: &str =
    "pods that all keep to what they request can bring the node below it, and are evicted for that";

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

/// Whether there are reserves of what a signal is about.
pub(crate) fn concern(signal: Signal) -> bool {
    RESOURCES.iter().any(|(_, own, _)| *own == signal)
}

/// Which thresholds lie within the reserves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Coverage {
    /// How many do.
    pub(crate) covered: usize,
    /// Those that do not.
    pub(crate) short: Vec<Short>,
    /// Those of which it is not known, and why.
    pub(crate) unknown: Vec<String>,
}

/// A threshold that the reserves do not cover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Short {
    /// What it wants, and what there is.
    pub(crate) found: String,
    /// What would cover it.
    pub(crate) next: String,
}

/// Holds the kubelet's thresholds on the signals that are meant to its reserves.
pub(crate) fn coverage(
    settings: &Settings,
    capacities: &Capacities,
    is_meant: impl Fn(Signal) -> bool,
) -> Coverage {
    let mut found = Coverage::default();
    let meant = RESOURCES.into_iter().filter(|(_, own, _)| is_meant(*own));
    for (resource, signal, reserved) in meant {
        for threshold in settings.thresholds.iter().filter(|one| counts(one, signal)) {
            let Some(capacity) = capacity(threshold, capacities) else {
                let why = format!("{threshold}: the capacity is not known");
                found.unknown.push(why);
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
                found.covered += 1;
                continue;
            }
            let name = signal.name();
            found.short.push(Short {
                found: format!(
                    "{threshold} wants {} left, and {} of {resource} are kept from pods",
                    amount(name, wanted),
                    amount(name, kept)
                ),
                next: format!(
                    "kubeReserved and systemReserved of {} {resource} together, and what the system itself uses on top",
                    amount(name, wanted.saturating_sub(hard))
                ),
            });
        }
    }
    found
}

/// Hard ones on memory and disk are kept from pods by the kubelet itself.
fn counts(threshold: &Threshold, signal: Signal) -> bool {
    threshold.signal == signal && (!threshold.is_hard() || signal == Signal::PidAvailable)
}

/// How much there is; of a threshold that is no share it does not matter.
fn capacity(threshold: &Threshold, capacities: &Capacities) -> Option<i64> {
    let known = capacities[threshold.signal];
    match threshold.value {
        Value::Quantity(_) => Some(known.unwrap_or(0)),
        Value::Fraction(_) => known,
    }
}

impl Coverage {
    /// A sentence for each that is not covered.
    pub(crate) fn sentences(&self) -> impl Iterator<Item = String> {
        self.short.iter().map(|Short { found, next }| {
            format!("The kubelet's reserves are small: {found}; {FOLLOWS}. What it takes: {next}.")
        })
    }
}

/// Memory that is kept from pods, `kubeReserved + systemReserved + evictionHard`, and the hard threshold that should lie in it, all in
/// bytes. Pods may request all the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    reserved: i64,
    eviction: i64,
    threshold: i64,
}

impl Kept {
    /// By the kubelet's settings, and our own hard threshold on `memory.available` where there is one.
    pub(crate) fn of(settings: &Settings, ours: Option<i64>, capacity: i64) -> Self {
        let hard = settings.hard(Signal::MemoryAvailable);
        let eviction = hard.map_or(0, |threshold| threshold.quantity(capacity).value());
        Self {
            reserved: settings.reserved(),
            eviction,
            threshold: ours.unwrap_or(0).max(eviction),
        }
    }

    fn all(&self) -> i64 {
        self.reserved.saturating_add(self.eviction)
    }

    /// What it should come to where all that is no pod uses so much.
    fn needed(&self, used: Option<i64>) -> i64 {
        used.unwrap_or(0).saturating_add(self.threshold)
    }

    /// Whether it is enough beside what all that is no pod uses, if that is known.
    pub(crate) fn is_enough(&self, used: Option<i64>) -> bool {
        self.all() >= self.needed(used) && self.reserved > 0
    }

    /// How much is kept, and of what that consists.
    pub(crate) fn in_words(&self) -> String {
        format!(
            "{} kept from pods (kubeReserved and systemReserved {}, evictionHard {})",
            bytes(self.all()),
            bytes(self.reserved),
            bytes(self.eviction)
        )
    }

    /// What follows where it is less than the threshold alone, whatever is used; none where it is not.
    pub(crate) fn short(&self) -> Option<String> {
        (self.all() < self.threshold).then(|| {
            format!(
                "less than the threshold of {}: pods that all keep to their requests can still cross it, and one of them is \
                 evicted for what the system uses",
                bytes(self.threshold)
            )
        })
    }

    /// What would be enough.
    pub(crate) fn next(&self, used: Option<i64>) -> String {
        let wanted = self.needed(used).saturating_sub(self.eviction);
        let wanted = unsigned(u64::try_from(wanted).unwrap_or(0));
        let system = match used {
            Some(_) => "",
            None => ", and on top of it what the system itself uses",
        };
        format!("kubeReserved and systemReserved of {wanted} memory together{system}")
    }

    /// A sentence where it is less than the threshold alone.
    pub(crate) fn sentence(&self) -> Option<String> {
        let short = self.short()?;
        let (kept, next) = (self.in_words(), self.next(None));
        Some(format!(
            "The kubelet's reserves are small: {kept}, {short}. What it takes: {next}."
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_held_to_the_higher_threshold_and_to_what_is_used() {
        const MIB: i64 = 1 << 20;
        let kept = |reserved: i64, eviction: i64, threshold: i64| Kept {
            reserved: reserved * MIB,
            eviction: eviction * MIB,
            threshold: threshold * MIB,
        };
        let check = |kept: Kept, used: Option<i64>, is_enough: bool, is_short: bool, next: &str| {
            let used = used.map(|used| used * MIB);
            assert_eq!(kept.is_enough(used), is_enough, "{kept:?} {used:?}");
            assert_eq!(kept.short().is_some(), is_short, "{kept:?}");
            assert_eq!(kept.sentence().is_some(), is_short, "{kept:?}");
            let told = kept.next(used);
            assert!(told.contains(next), "{told}");
        };
        let on_top = "of 200Mi memory together, and on top of it";
        check(kept(100, 100, 300), None, false, true, on_top);
        check(kept(200, 100, 300), None, true, false, on_top);
        let used = "of 250Mi memory together";
        check(kept(200, 100, 300), Some(50), false, false, used);
        check(kept(250, 100, 300), Some(50), true, false, used);
        // Without any reserve nothing is kept for the system.
        check(kept(0, 100, 100), None, false, false, "of 0B memory");
    }
}
