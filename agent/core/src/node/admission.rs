//! Admission as a pure answer: would the kubelet let this pod in now?

use core::fmt;

use super::condition::{Condition, ConditionSet};
use super::requests::qos_class;
use super::workload::{QosClass, Toleration, TolerationOperator, Workload};

/// The kubelet's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Admission {
    /// The pod may start.
    Admit,
    /// The pod fails: the node has these conditions.
    Reject(ConditionSet),
}

/// `reason` of a rejected pod's status.
pub const REASON: &str = "Evicted";

/// What the status message of a rejected pod starts with.
pub const REJECTED_PREFIX: &str = "Pod was rejected: ";

/// Without a condition, everybody; critical pods, always. Under memory pressure alone, whoever is
/// not best-effort or tolerates its taint. Under anything else, nobody, tolerations or not.
pub fn admit(conditions: ConditionSet, pod: &Workload) -> Admission {
    let only_memory = conditions.iter().eq([Condition::MemoryPressure]);
    let taint = Condition::MemoryPressure.taint();
    let bears_memory_pressure = || {
        qos_class(pod) != QosClass::BestEffort
            || pod
                .tolerations
                .iter()
                .any(|toleration| toleration.bears(taint))
    };
    if conditions.is_empty() || pod.is_critical() || only_memory && bears_memory_pressure() {
        Admission::Admit
    } else {
        Admission::Reject(conditions)
    }
}

impl Toleration {
    /// Whether it bears the `NoSchedule` taint of that key, which has no value.
    fn bears(&self, taint: &str) -> bool {
        let matches = |own: &str, other: &str| own.is_empty() || own == other;
        matches(&self.effect, "NoSchedule")
            && matches(&self.key, taint)
            && match self.operator {
                TolerationOperator::Exists => true,
                TolerationOperator::Equal => self.value.is_empty(),
                TolerationOperator::Other => false,
            }
    }
}

impl fmt::Display for Admission {
    /// The message of a rejection; nothing for an admission.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Admit => Ok(()),
            Self::Reject(conditions) => write!(f, "The node had condition: {conditions}. "),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;

    use super::super::workload::{CRITICAL_PRIORITY, Origin};
    use super::*;

    const MEMORY: Condition = Condition::MemoryPressure;
    const DISK: Condition = Condition::DiskPressure;

    #[track_caller]
    fn check(pod: &Workload, conditions: &[Condition], admitted: bool) {
        let answer = admit(conditions.iter().copied().collect(), pod);
        assert_eq!(
            answer == Admission::Admit,
            admitted,
            "{conditions:?} {pod:?}"
        );
    }

    fn of_class(class: QosClass) -> Workload {
        Workload {
            reported_qos: Some(class),
            ..Workload::default()
        }
    }

    fn tolerating(key: &str, operator: TolerationOperator, value: &str, effect: &str) -> Workload {
        let [key, value, effect] = [key, value, effect].map(Into::into);
        Workload {
            tolerations: vec![Toleration {
                key,
                operator,
                value,
                effect,
            }],
            ..of_class(QosClass::BestEffort)
        }
    }

    #[test]
    fn classes_under_conditions() {
        for class in [
            QosClass::BestEffort,
            QosClass::Burstable,
            QosClass::Guaranteed,
        ] {
            let pod = of_class(class);
            check(&pod, &[], true);
            check(&pod, &[MEMORY], class != QosClass::BestEffort);
            check(&pod, &[DISK], false);
            check(&pod, &[MEMORY, DISK], false);
            check(&pod, &[Condition::PidPressure], false);
        }
    }

    #[test]
    fn critical_pods_always_start() {
        let origins = [Origin::Static, Origin::Mirror];
        for origin in origins {
            check(
                &Workload {
                    origin,
                    ..Workload::default()
                },
                &[MEMORY, DISK],
                true,
            );
        }
        for (priority, admitted) in [(CRITICAL_PRIORITY, true), (CRITICAL_PRIORITY - 1, false)] {
            let pod = Workload {
                priority: Some(priority),
                ..Workload::default()
            };
            check(&pod, &[DISK], admitted);
        }
    }

    #[test]
    fn tolerations_of_memory_pressure() {
        use TolerationOperator::{Equal, Exists, Other};
        let key = "node.kubernetes.io/memory-pressure";
        for (pod, admitted) in [
            (tolerating(key, Exists, "", "NoSchedule"), true),
            (tolerating(key, Exists, "", ""), true),
            (tolerating("", Exists, "", ""), true),
            (tolerating(key, Equal, "", "NoSchedule"), true),
            (tolerating(key, Equal, "x", "NoSchedule"), false),
            (tolerating(key, Exists, "", "NoExecute"), false),
            (tolerating(key, Other, "", ""), false),
            (
                tolerating("node.kubernetes.io/disk-pressure", Exists, "", ""),
                false,
            ),
        ] {
            check(&pod, &[MEMORY], admitted);
            check(&pod, &[DISK], false);
        }
    }

    #[test]
    fn a_rejection_names_the_conditions() {
        let conditions: ConditionSet = [DISK, MEMORY].into_iter().collect();
        let message = admit(conditions, &Workload::default()).to_string();
        assert_eq!(
            message,
            "The node had condition: [MemoryPressure DiskPressure]. "
        );
    }
}
