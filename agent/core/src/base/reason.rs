//! One word per cause, the same in log, metric, event and condition.

use core::fmt;

/// Why something was done, refused or left alone. Closed: a new cause gets a new word here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Reason {
    /// A hard threshold is met.
    Hard,
    /// A soft threshold has been met for its grace.
    Soft,
    /// A local-storage limit is exceeded.
    Limit,
    /// Refused: a static pod.
    Static,
    /// Refused: a mirror pod.
    Mirror,
    /// Refused: its priority makes it critical.
    Critical,
    /// Refused: Brink's configuration or built-in list protects it.
    Protected,
    /// Refused: nothing runs in it.
    Empty,
    /// Refused: the signal is of the pods, and it is not among them.
    Outside,
    /// Nothing done: the signal is low but memory can still be allocated.
    Unconfirmed,
    /// Nothing done: reclaim on the node would be enough where orders are carried out.
    Reclaimed,
    /// Nothing done: the observation is missing.
    Unknown,
    /// Nothing done: the observation is no newer than the last one.
    Stale,
    /// Nothing done: nobody can be evicted.
    Nobody,
    /// Nothing done: an order is still open.
    Waiting,
    /// Nothing done: memory of the dying is still on its way back.
    Credited,
    /// Nothing done: the token bucket is empty.
    Throttled,
    /// Nothing done: too many kills in the window.
    Exhausted,
    /// Nothing done: somebody pressed the stop button.
    Paused,
    /// Nothing done: observing only.
    Observing,
    /// Nothing done: another agent enforces on this node.
    Standby,
    /// Refused: it is evicted already, and whatever a kubelet starts in it again belongs to that.
    Evicted,
    /// Refused: it is not known to hold anything of the filesystem.
    Unused,
    /// Nothing done: what the last victim held of the filesystem is not back yet.
    Owed,
    /// Nothing done: the filesystem is a kubelet's to keep.
    Kubelet,
    /// Nothing done: what workloads hold of the filesystem has not been measured of all of them, or not since it ran short.
    Unmeasured,
    /// Refused: its own annotation asks for it, and the configuration allows that.
    Annotated,
}

impl Reason {
    /// Every cause.
    pub const ALL: [Self; 27] = [
        Self::Hard,
        Self::Soft,
        Self::Limit,
        Self::Static,
        Self::Mirror,
        Self::Critical,
        Self::Protected,
        Self::Empty,
        Self::Outside,
        Self::Unconfirmed,
        Self::Reclaimed,
        Self::Unknown,
        Self::Stale,
        Self::Nobody,
        Self::Waiting,
        Self::Credited,
        Self::Throttled,
        Self::Exhausted,
        Self::Paused,
        Self::Observing,
        Self::Standby,
        Self::Evicted,
        Self::Unused,
        Self::Owed,
        Self::Kubelet,
        Self::Unmeasured,
        Self::Annotated,
    ];

    /// The word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Hard => "hard",
            Self::Soft => "soft",
            Self::Limit => "limit",
            Self::Static => "static",
            Self::Mirror => "mirror",
            Self::Critical => "critical",
            Self::Protected => "protected",
            Self::Empty => "empty",
            Self::Outside => "outside",
            Self::Unconfirmed => "unconfirmed",
            Self::Reclaimed => "reclaimed",
            Self::Unknown => "unknown",
            Self::Stale => "stale",
            Self::Nobody => "nobody",
            Self::Waiting => "waiting",
            Self::Credited => "credited",
            Self::Throttled => "throttled",
            Self::Exhausted => "exhausted",
            Self::Paused => "paused",
            Self::Observing => "observing",
            Self::Standby => "standby",
            Self::Evicted => "evicted",
            Self::Unused => "unused",
            Self::Owed => "owed",
            Self::Kubelet => "kubelet",
            Self::Unmeasured => "unmeasured",
            Self::Annotated => "annotated",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_has_one_word_of_its_own() {
        for (at, reason) in Reason::ALL.into_iter().enumerate() {
            assert!(
                reason.word().bytes().all(|byte| byte.is_ascii_lowercase()),
                "{reason}"
            );
            let twins = Reason::ALL
                .into_iter()
                .filter(|other| other.word() == reason.word());
            assert_eq!(twins.count(), 1, "{reason}");
            assert_eq!(reason as usize, at);
        }
    }
}
