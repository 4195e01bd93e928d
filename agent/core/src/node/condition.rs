//! The node's three pressure conditions: names, reasons, messages, events and taints.

use alloc::format;
use alloc::string::String;
use core::fmt;

/// A pressure condition of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(u8)]
pub enum Condition {
    /// Memory is short.
    MemoryPressure,
    /// Space or inodes on a local filesystem are short.
    DiskPressure,
    /// Process ids are short.
    PidPressure,
}

/// What the kubelet says about a condition in one of its two states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConditionWords {
    /// `reason` of the node condition.
    pub reason: &'static str,
    /// `message` of the node condition.
    pub message: &'static str,
    /// Reason of the Normal event on the node when the condition enters this state.
    pub event: &'static str,
}

impl Condition {
    /// How many conditions there are.
    pub const COUNT: usize = 3;

    /// Every condition, in the order they are listed.
    pub const ALL: [Self; Self::COUNT] =
        [Self::MemoryPressure, Self::DiskPressure, Self::PidPressure];

    /// `type` of the node condition.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MemoryPressure => "MemoryPressure",
            Self::DiskPressure => "DiskPressure",
            Self::PidPressure => "PIDPressure",
        }
    }

    /// Key of the `NoSchedule` taint that the control plane sets while the condition is true.
    pub const fn taint(self) -> &'static str {
        match self {
            Self::MemoryPressure => "node.kubernetes.io/memory-pressure",
            Self::DiskPressure => "node.kubernetes.io/disk-pressure",
            Self::PidPressure => "node.kubernetes.io/pid-pressure",
        }
    }

    /// Reason, message and transition event for the given state.
    pub const fn words(self, under_pressure: bool) -> ConditionWords {
        let (reason, message, event) = match (self, under_pressure) {
            (Self::MemoryPressure, true) => (
                "KubeletHasInsufficientMemory",
                "kubelet has insufficient memory available",
                "NodeHasInsufficientMemory",
            ),
            (Self::MemoryPressure, false) => (
                "KubeletHasSufficientMemory",
                "kubelet has sufficient memory available",
                "NodeHasSufficientMemory",
            ),
            (Self::DiskPressure, true) => (
                "KubeletHasDiskPressure",
                "kubelet has disk pressure",
                "NodeHasDiskPressure",
            ),
            (Self::DiskPressure, false) => (
                "KubeletHasNoDiskPressure",
                "kubelet has no disk pressure",
                "NodeHasNoDiskPressure",
            ),
            (Self::PidPressure, true) => (
                "KubeletHasInsufficientPID",
                "kubelet has insufficient PID available",
                "NodeHasInsufficientPID",
            ),
            (Self::PidPressure, false) => (
                "KubeletHasSufficientPID",
                "kubelet has sufficient PID available",
                "NodeHasSufficientPID",
            ),
        };
        ConditionWords {
            reason,
            message,
            event,
        }
    }
}

/// Message of the event that a condition's change gives rise to.
pub fn transition_message(node: &str, event: &str) -> String {
    format!("Node {node} status is now: {event}")
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of conditions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(transparent)
)]
pub struct ConditionSet(u8);

impl ConditionSet {
    /// No condition.
    pub const EMPTY: Self = Self(0);

    /// Adds one.
    pub const fn insert(&mut self, condition: Condition) {
        self.0 |= 1 << condition as u8;
    }

    /// Whether it is in the set.
    pub const fn contains(self, condition: Condition) -> bool {
        self.0 & (1 << condition as u8) != 0
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those in the set, in listing order.
    pub fn iter(self) -> impl Iterator<Item = Condition> {
        Condition::ALL
            .into_iter()
            .filter(move |&condition| self.contains(condition))
    }
}

impl FromIterator<Condition> for ConditionSet {
    fn from_iter<I: IntoIterator<Item = Condition>>(conditions: I) -> Self {
        let mut set = Self::EMPTY;
        for condition in conditions {
            set.insert(condition);
        }
        set
    }
}

impl fmt::Display for ConditionSet {
    /// The list as the kubelet prints it: `[MemoryPressure DiskPressure]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (at, condition) in self.iter().enumerate() {
            if at > 0 {
                f.write_str(" ")?;
            }
            f.write_str(condition.name())?;
        }
        f.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn a_set_lists_its_members_in_order() {
        let set: ConditionSet = [Condition::PidPressure, Condition::MemoryPressure]
            .into_iter()
            .collect();
        assert_eq!(set.to_string(), "[MemoryPressure PIDPressure]");
        assert_eq!(ConditionSet::EMPTY.to_string(), "[]");
        assert!(set.contains(Condition::PidPressure) && !set.contains(Condition::DiskPressure));
    }

    #[test]
    fn words_are_the_kubelets() {
        for (condition, under, reason, message, event) in [
            (
                Condition::MemoryPressure,
                true,
                "KubeletHasInsufficientMemory",
                "kubelet has insufficient memory available",
                "NodeHasInsufficientMemory",
            ),
            (
                Condition::DiskPressure,
                false,
                "KubeletHasNoDiskPressure",
                "kubelet has no disk pressure",
                "NodeHasNoDiskPressure",
            ),
            (
                Condition::PidPressure,
                true,
                "KubeletHasInsufficientPID",
                "kubelet has insufficient PID available",
                "NodeHasInsufficientPID",
            ),
        ] {
            assert_eq!(
                condition.words(under),
                ConditionWords {
                    reason,
                    message,
                    event
                }
            );
        }
    }
}
