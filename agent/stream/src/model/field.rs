//! A field that may be missing, with the reason.

use serde::{Deserialize, Serialize};

/// A value, or why there is none. On the wire `{"value": …}` or `{"missing": "…"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Field<T> {
    /// The value.
    Value(T),
    /// There is none.
    Missing(Missing),
}

/// Why a field is missing. The list is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Missing {
    /// This kernel does not tell it.
    KernelLacksIt,
    /// The kernel program that tells it is not loaded.
    ProgramNotLoaded,
    /// The process, or its cgroup, was gone before it could be read.
    ProcessGone,
    /// The agent is not permitted to read it.
    NotPermitted,
    /// The configuration keeps it out.
    Redacted,
    /// It does not apply to this kind of incident.
    NotApplicable,
    /// It is still to come: the incident is open.
    Pending,
    /// It was there, and there was no time or no room to take it.
    Lost,
    /// It was never known: what it rests on happened before this agent ran.
    BeforeStart,
    /// It could be read, and made no sense.
    Malformed,
}

impl Missing {
    /// The reason in words, for people.
    pub const fn words(self) -> &'static str {
        match self {
            Self::KernelLacksIt => "this kernel does not tell it",
            Self::ProgramNotLoaded => "the kernel program that tells it is not loaded",
            Self::ProcessGone => "the process was gone before it could be read",
            Self::NotPermitted => "the agent may not read it",
            Self::Redacted => "left out by configuration",
            Self::NotApplicable => "does not apply",
            Self::Pending => "still to come",
            Self::Lost => "no time or room to take it",
            Self::BeforeStart => "from before the agent's start",
            Self::Malformed => "what was read made no sense",
        }
    }
}

impl<T> Field<T> {
    /// The value, if there is one.
    pub const fn value(&self) -> Option<&T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Missing(_) => None,
        }
    }

    /// Why there is no value, if there is none.
    pub const fn missing(&self) -> Option<Missing> {
        match self {
            Self::Value(_) => None,
            Self::Missing(reason) => Some(*reason),
        }
    }

    /// What is made of the value, or the same reason.
    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> Field<U> {
        match self {
            Self::Value(value) => Field::Value(make(value)),
            Self::Missing(reason) => Field::Missing(reason),
        }
    }

    /// Nothing is still to come: what is pending is missing for `reason`.
    pub fn settle(&mut self, reason: Missing) {
        if matches!(self, Self::Missing(Missing::Pending)) {
            *self = Self::Missing(reason);
        }
    }

    /// A value, or `reason`.
    pub fn or(value: Option<T>, reason: Missing) -> Self {
        value.map_or(Self::Missing(reason), Self::Value)
    }
}
