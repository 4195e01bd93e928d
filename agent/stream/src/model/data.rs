//! What the events that are no incidents tell.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// [`Kind::AgentStarted`](super::kind::Kind::AgentStarted).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentStarted {
    /// Version of the agent.
    pub version: String,
    /// Its process id.
    pub pid: u32,
    /// `enforce` or `observe`.
    pub mode: String,
    /// The highest number that the run before it may have given; none for the first of a boot.
    pub after: Option<u64>,
}

/// [`Kind::Pressure`](super::kind::Kind::Pressure).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pressure {
    /// The conditions that hold now: `MemoryPressure`, `DiskPressure`, `PIDPressure`.
    pub conditions: Vec<String>,
}

/// [`Kind::ThresholdCrossed`](super::kind::Kind::ThresholdCrossed) and `ThresholdCleared`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Threshold {
    /// Its signal, in the kubelet's words.
    pub signal: String,
    /// Whether it acts at once.
    pub hard: bool,
    /// Its grace, in seconds.
    pub grace_seconds: i64,
    /// Its amount at the observed capacity: bytes, inodes or processes; none where the capacity is not known.
    pub quantity: Option<i64>,
    /// What was available; none where it was not observed.
    pub available: Option<i64>,
    /// Out of how much.
    pub capacity: Option<i64>,
}

/// [`Kind::WorkloadStarted`](super::kind::Kind::WorkloadStarted) and `WorkloadEnded`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Workload {
    /// Its `QoS` class, if it is known.
    pub qos: Option<String>,
    /// Its priority.
    pub priority: i32,
    /// Its cgroups, as paths in the hierarchy of the memory controller.
    pub cgroups: Vec<String>,
}

/// [`Kind::LimitImminent`](super::kind::Kind::LimitImminent).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LimitImminent {
    /// The cgroup whose limit is near.
    pub cgroup: String,
    /// Bytes in use.
    pub usage: u64,
    /// Its limit in bytes.
    pub limit: u64,
    /// How fast its use grows, in bytes a second.
    pub growth: u64,
    /// When the limit is reached at this pace, in milliseconds.
    pub time_to_limit_ms: u64,
}

/// [`Kind::OomScoreAdjDiffers`](super::kind::Kind::OomScoreAdjDiffers).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OomScoreAdj {
    /// The container's name; none of a workload that is one whole, and where it is not known which container it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Its cgroup, as a path in the hierarchy of the memory controller.
    pub cgroup: String,
    /// Its first process: the one in the cgroup that began first.
    pub pid: i32,
    /// The name of that process, at most 15 bytes.
    pub process: String,
    /// What that process had, −1000 to 1000.
    pub value: i64,
    /// What a kubelet gives it: by class, priority and memory request.
    pub expected: i64,
    /// How many other processes in the cgroup had another value than the first.
    pub others: u64,
    /// What was done about it.
    pub result: ScoreResult,
    /// Processes that were given what is expected.
    pub set: u64,
    /// Why it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What was done about a value that differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScoreResult {
    /// Nothing: nobody asked for it, or nobody with that value was left.
    Differs,
    /// All processes that had it were given what is expected.
    Set,
    /// The kernel refused it for some of them, or all.
    Refused,
}

/// [`Kind::NodeReclaim`](super::kind::Kind::NodeReclaim).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeReclaim {
    /// Whether it begins or is over.
    pub phase: ReclaimPhase,
    /// For which signal, in the kubelet's words.
    pub signal: String,
    /// The threshold's amount, in bytes or inodes.
    pub quantity: i64,
    /// What was left when it was asked for.
    pub available: i64,
    /// Nothing is removed: it is only told what would be.
    pub dry_run: bool,
    /// What is tried, in this order: `deadContainers`, `unusedImages`.
    pub functions: Vec<String>,
    /// The container runtime that is asked; none where none has answered yet.
    pub runtime: Option<String>,
    /// What came of it; none while it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<ReclaimOutcome>,
}

/// Whether a reclaim begins or is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReclaimPhase {
    /// It begins.
    Started,
    /// It is over.
    Finished,
}

/// What came of a reclaim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReclaimOutcome {
    /// How it ended: `done`, `enough`, `dryRun`, `off`, `kubelet`, `stopped`, `late`, or why the runtime could not be asked
    /// (`absent`, `denied`, `connect`, `hung`, `refused`, `noCriV1`, `gone`, `unusable`).
    pub result: String,
    /// The same in a sentence, where there is more to say.
    pub why: Option<String>,
    /// How many dead containers were removed, or would be.
    pub containers: u64,
    /// How many unused images, likewise.
    pub images: u64,
    /// Their names, 256 at most, and 32 KiB of them: `namespace/pod container (id)`, and images by theirs.
    pub removed: Vec<String>,
    /// What each of these holds in bytes, in the same order, where the runtime says so; empty where an agent has told that did not
    /// know it.
    #[serde(default)]
    pub removed_bytes: Vec<Option<u64>>,
    /// How many more of them there are than `removed` names.
    #[serde(default)]
    pub more: u64,
    /// How many images stay, by why: `inUse`, `pinned`, `ofSandboxes` (what pods' sandboxes are made of), `young`, `unseen` (nobody
    /// knows for how long it is there), `unnamed` (a container does not say what it uses). Empty where images were not looked at.
    #[serde(default)]
    pub kept: BTreeMap<String, u64>,
    /// What the runtime refused to remove, and why, 16 at most.
    pub refused: Vec<String>,
    /// What the runtime says that all of it held, in bytes; images may share layers.
    pub said_bytes: u64,
    /// What is left afterwards; none where the filesystem has not answered.
    pub available: Option<i64>,
    /// The thresholds on filesystems that are met all the same, minimum reclaim included; where there is none, it was enough.
    pub short: Vec<String>,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
}

/// [`Kind::Loss`](super::kind::Kind::Loss).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Loss {
    /// Where: `kernel-ring/` with what the ring carries (`kernel-ring/oom`), `guard-queue`, `journal`, `reader`, `collector`, or an
    /// outlet's name.
    pub place: String,
    /// How many, this time; with `uncounted`, at least so many.
    pub count: u64,
    /// How many in this run; for a reader, in its connection.
    pub total: u64,
    /// Whether there may be more, which nobody can count: they left the journal before they were read; or they waited for its disk when
    /// an earlier run ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uncounted: bool,
    /// For a reader that was too slow: the first number it missed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<u64>,
    /// For a reader that was too slow: the last number it missed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<u64>,
}

impl Loss {
    /// The place of what one reader is told that it missed; nobody else gets that event, and its number is another one's.
    pub const READER: &str = "reader";
}

/// [`Kind::RungChanged`](super::kind::Kind::RungChanged).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rung {
    /// What carries the signals.
    pub rung: String,
    /// How the guard thread is scheduled.
    pub scheduling: String,
    /// Why it stands no higher.
    pub reasons: Vec<String>,
}

/// [`Kind::ConfigurationChanged`](super::kind::Kind::ConfigurationChanged).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Configuration {
    /// `enforcing`, or why orders are only observed.
    pub mode: String,
    /// `kubelet` or `confirmed`.
    pub memory_policy: String,
    /// Every threshold as written, `memory.available<100Mi` and so on.
    pub thresholds: Vec<String>,
    /// The same ones in their parts, in the same order; empty where an agent has told that did not know them.
    #[serde(default)]
    pub parts: Vec<ThresholdParts>,
    /// How long a condition outlives what it was set for, such as `5m0s`.
    #[serde(default)]
    pub pressure_transition: Option<String>,
    /// The grace that a soft threshold gives a pod at most, in seconds.
    #[serde(default)]
    pub max_pod_grace_seconds: Option<i64>,
}

/// A configured threshold in its parts, each as a configuration has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ThresholdParts {
    /// Its signal, in the kubelet's words.
    pub signal: String,
    /// An amount or a share of the capacity: `100Mi`, `10%`.
    pub value: String,
    /// How long it must be met, such as `1m30s`; none for a hard one.
    pub grace: Option<String>,
    /// How much more must be available before it lets go; none where nothing was asked for.
    pub min_reclaim: Option<String>,
}
