//! The node's workloads at a kill that was not ours: who could have been evicted instead.

use serde::{Deserialize, Serialize};

use super::field::Field;

/// The node's workloads as they were known when an incident opened: whoever would have been evicted first for
/// `memory.available` in front.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Workloads {
    /// Those that can be ranked: neither mirrors of static pods nor pods whose life is over.
    pub lines: Vec<WorkloadLine>,
    /// Workloads that found no room in this record.
    pub more: u32,
}

/// One workload in the table. Memory in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadLine {
    /// Its namespace.
    pub namespace: String,
    /// The name of the pod or workload.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its cgroup in the hierarchy of the memory controller; none where it has none, or several.
    pub cgroup: Option<String>,
    /// Its `QoS` class.
    pub qos: String,
    /// `prefer`, `normal` or `avoid`.
    pub preference: String,
    /// `annotation` where the pod itself asked for that by its annotation; left out where it did not, or was not heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preference_by: Option<String>,
    /// Its priority.
    pub priority: i32,
    /// What it requested of memory.
    pub request: i64,
    /// Its working set: what its cgroups used less their inactive file pages. 0 where it has none.
    pub usage: Field<u64>,
    /// How long before the incident that was read, in milliseconds; 0 for what was read at the kill. None without a reading.
    pub usage_age_ms: Option<u64>,
    /// Why it could not have been evicted, if so: `static`, `critical`, `protected`, `annotated` or `empty`.
    pub refusal: Option<String>,
}
