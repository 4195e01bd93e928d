//! The words that programs read for the core's closed sets.

use brink_core::node::engine::MemoryPolicy;
use brink_core::node::rank::{Decider, Excess};
use brink_core::node::safety::Mode;
use brink_core::node::workload::{Preference, PreferenceBy};
use serde::Serialize;

/// The word for a mode.
pub const fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforcing => "enforcing",
        Mode::Observing(reason) => reason.word(),
    }
}

/// The word for a memory policy.
pub const fn memory_word(policy: MemoryPolicy) -> &'static str {
    match policy {
        MemoryPolicy::Kubelet => "kubelet",
        MemoryPolicy::Confirmed => "confirmed",
    }
}

/// The word serde has for a unit variant.
pub(crate) fn word_of(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

/// The word for a preference.
pub const fn preference_word(preference: Preference) -> &'static str {
    match preference {
        Preference::Prefer => "prefer",
        Preference::Normal => "normal",
        Preference::Avoid => "avoid",
    }
}

/// The word for whose a preference is, where it is not the node's.
pub const fn preference_by_word(by: PreferenceBy) -> Option<&'static str> {
    match by {
        PreferenceBy::Node => None,
        PreferenceBy::Annotation => Some("annotation"),
    }
}

/// The word for how usage stands to the request.
pub const fn excess_word(excess: Excess) -> &'static str {
    match excess {
        Excess::Unknown => "unknown",
        Excess::Over => "over",
        Excess::Within => "within",
    }
}

/// The word for what decides between two workloads.
pub const fn decider_word(decider: Decider) -> &'static str {
    match decider {
        Decider::Preference => "preference",
        Decider::Statistics => "statistics",
        Decider::Excess => "excess",
        Decider::Priority => "priority",
        Decider::Beyond => "beyond",
        Decider::Processes => "processes",
        Decider::Uid => "uid",
    }
}
