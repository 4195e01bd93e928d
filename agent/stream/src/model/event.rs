//! One event: who tells it, its place in the order, whom it is about, and its data.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::kind::Kind;

/// One moment on both clocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Time {
    /// RFC 3339 in UTC, to the microsecond.
    pub wall: String,
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    pub monotonic_ns: i64,
}

/// One event as it is told: one line of JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// [`API_VERSION`](super::API_VERSION).
    pub api_version: String,
    /// Always `Event`.
    pub kind: String,
    /// What it tells.
    #[serde(rename = "type")]
    pub of: Kind,
    /// The node's name: in a cluster as there, else the machine's.
    pub node: String,
    /// The boot that the number and monotonic times belong to.
    pub boot_id: String,
    /// Its number: rises by one from event to event of a run, and from run to run of a boot.
    pub seq: u64,
    /// When it happened.
    pub at: Time,
    /// Whom it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Subject>,
    /// What is told; its form follows from `type`.
    pub data: Box<RawValue>,
}

/// Whom an event is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Subject {
    /// The namespace of the workload; `cgroup` where it is a cgroup without a manifest, and empty where it is not known.
    pub namespace: String,
    /// The name of the pod or workload.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The incident that the event belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incident: Option<String>,
}

impl Subject {
    /// Whether it has that name. A cgroup may be named as events are shown: by its path without the first slash.
    pub fn is_named(&self, name: &str) -> bool {
        self.name == name || self.name.strip_prefix('/') == Some(name)
    }
}

/// An event before the hub has given it a number.
#[derive(Clone, Debug)]
pub struct Draft {
    /// What it tells.
    pub of: Kind,
    /// When it happened.
    pub at: Time,
    /// Whom it is about.
    pub subject: Option<Subject>,
    /// What is told.
    pub data: Box<RawValue>,
}

impl Draft {
    /// A draft with `data` as JSON.
    ///
    /// # Errors
    /// When `data` cannot be written as JSON: a map with keys that are no strings.
    pub fn new(
        of: Kind,
        at: Time,
        subject: Option<Subject>,
        data: &impl Serialize,
    ) -> serde_json::Result<Self> {
        let data = serde_json::value::to_raw_value(data)?;
        Ok(Self {
            of,
            at,
            subject,
            data,
        })
    }
}
