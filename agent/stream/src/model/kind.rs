//! The kinds of events, and which of them outlive the agent.

use serde::{Deserialize, Serialize};

/// What an event tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A run of the agent began; every run's first event. Numbers missing before it were never given, or are what the end of another
    /// run took with it.
    AgentStarted,
    /// The node's conditions changed.
    Pressure,
    /// A threshold is met.
    ThresholdCrossed,
    /// A threshold is no longer met.
    ThresholdCleared,
    /// A workload was ordered to go. Opens an incident.
    EvictionOrdered,
    /// An order is over. Closes its incident, and opens it as well where the order itself could not be told.
    EvictionCompleted,
    /// The kernel's OOM killer chose somebody. Opens an incident.
    OomKill,
    /// Somebody else killed a process of a workload. Opens an incident.
    KillObserved,
    /// An incident that was no order of ours is over.
    IncidentClosed,
    /// A workload appeared.
    WorkloadStarted,
    /// A workload is gone.
    WorkloadEnded,
    /// A workload is about to hit its own limit.
    LimitImminent,
    /// A container's `oom_score_adj` is not what it should be.
    OomScoreAdjDiffers,
    /// The node was asked to give back what it can of a filesystem, or has.
    NodeReclaim,
    /// Something was not seen, or not told.
    Loss,
    /// The guard stands on another rung.
    RungChanged,
    /// A configuration was taken over, or orders are (no longer) carried out.
    ConfigurationChanged,
}

impl Kind {
    /// Every kind, in the order of the reference.
    pub const ALL: [Self; 17] = [
        Self::AgentStarted,
        Self::Pressure,
        Self::ThresholdCrossed,
        Self::ThresholdCleared,
        Self::EvictionOrdered,
        Self::EvictionCompleted,
        Self::OomKill,
        Self::KillObserved,
        Self::IncidentClosed,
        Self::WorkloadStarted,
        Self::WorkloadEnded,
        Self::LimitImminent,
        Self::OomScoreAdjDiffers,
        Self::NodeReclaim,
        Self::Loss,
        Self::RungChanged,
        Self::ConfigurationChanged,
    ];

    /// Its name on the wire.
    pub const fn word(self) -> &'static str {
        match self {
            Self::AgentStarted => "agent-started",
            Self::Pressure => "pressure",
            Self::ThresholdCrossed => "threshold-crossed",
            Self::ThresholdCleared => "threshold-cleared",
            Self::EvictionOrdered => "eviction-ordered",
            Self::EvictionCompleted => "eviction-completed",
            Self::OomKill => "oom-kill",
            Self::KillObserved => "kill-observed",
            Self::IncidentClosed => "incident-closed",
            Self::WorkloadStarted => "workload-started",
            Self::WorkloadEnded => "workload-ended",
            Self::LimitImminent => "limit-imminent",
            Self::OomScoreAdjDiffers => "oom-score-adj-differs",
            Self::NodeReclaim => "node-reclaim",
            Self::Loss => "loss",
            Self::RungChanged => "rung-changed",
            Self::ConfigurationChanged => "configuration-changed",
        }
    }

    /// The kind of a name on the wire.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }

    /// Whether the journal keeps it, so that a reader may resume after it without loss or repetition.
    pub const fn is_journalled(self) -> bool {
        !matches!(
            self,
            Self::WorkloadStarted | Self::WorkloadEnded | Self::LimitImminent | Self::RungChanged
        )
    }

    /// Whether its data is an [`Incident`](super::incident::Incident).
    pub const fn is_incident(self) -> bool {
        matches!(
            self,
            Self::EvictionOrdered
                | Self::EvictionCompleted
                | Self::OomKill
                | Self::KillObserved
                | Self::IncidentClosed
        )
    }

    /// Whether it is the last event of an incident.
    pub const fn closes_incident(self) -> bool {
        matches!(self, Self::EvictionCompleted | Self::IncidentClosed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_wire_and_lead_back() {
        for kind in Kind::ALL {
            let wire = serde_json::to_string(&kind).unwrap_or_default();
            assert_eq!(wire, format!("\"{}\"", kind.word()));
            assert_eq!(Kind::from_word(kind.word()), Some(kind));
        }
        assert_eq!(Kind::from_word("Loss"), None);
    }
}
