//! The incident record: one kill, whole, with everything that explains it.
//!
//! It is told when it opens, with what was known then, and once more when it closes; `revision` says which it is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::data::Configuration;
use super::event::Time;
use super::field::{Field, Missing};
use super::workloads::Workloads;

/// Kills by others that the record of an order of ours has room for.
pub const MOST_OTHER_KILLS: usize = 16;

/// One OOM, one eviction, or one kill by somebody else.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Incident {
    /// Unique on this node: boot and number, short enough to type (`3f2a-17`).
    pub id: String,
    /// What killed.
    pub cause: Cause,
    /// What tells that it was that, in words.
    pub evidence: Vec<String>,
    /// 1 when it opens, and one more each time it is told again; a thousand more by a run that finds no end, for that may have been told
    /// and be in a part of the journal that is missing.
    pub revision: u32,
    /// Nothing more is to come.
    pub is_final: bool,
    /// When the first victim was chosen or signalled.
    pub at: Time,
    /// Who was killed, first victim in front; a group OOM has them all.
    pub victims: Vec<Victim>,
    /// Victims that found no room in this record.
    pub more_victims: u32,
    /// Whom somebody else killed while our order for their workload was open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_kills: Vec<OtherKill>,
    /// More of those, which found no room in this record; none where there are no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more_other_kills: Option<u32>,
    /// The workload of the first victim, as it was known before its death.
    pub workload: Field<Identity>,
    /// In whose context the kernel ran out of memory, or who sent the signal.
    pub trigger: Field<Trigger>,
    /// Of an eviction for process ids: the process that the victim's processes come from.
    #[serde(default = "untold")]
    pub fork_root: Field<ForkRoot>,
    /// The cgroup whose limit was hit.
    pub limit: Field<Limit>,
    /// The victim's cgroup and every one above it, innermost first.
    pub cgroups: Field<Vec<CgroupState>>,
    /// `memory.stat` of the victim's cgroup.
    pub memory_stat: Field<BTreeMap<String, u64>>,
    /// The processes of the victim's cgroup with the most memory.
    pub top_of_cgroup: Field<Vec<ProcessLine>>,
    /// The processes of the node with the most memory.
    pub top_of_node: Field<Vec<ProcessLine>>,
    /// The node's workloads as they were known then. Our own evictions have their ranking in the decision.
    #[serde(default = "untold")]
    pub workloads: Field<Workloads>,
    /// What the agent was configured with when the incident opened, as `configuration-changed` tells it.
    #[serde(default = "untold")]
    pub configuration: Field<Configuration>,
    /// The node at that moment.
    pub node: Field<NodeState>,
    /// What became of it.
    pub course: Course,
    /// Our own decision, for an eviction: the record that `brink explain` shows.
    pub decision: Field<Value>,
    /// The minute before it.
    pub recording: Field<Recording>,
}

/// What killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Cause {
    /// The kernel: a cgroup was at its limit.
    MemcgOom,
    /// The kernel: the same, and the group was taken whole (`memory.oom.group`).
    GroupOom,
    /// The kernel: the node was out of memory.
    GlobalOom,
    /// The kernel, and it is not known for whose limit.
    KernelOom,
    /// We.
    Eviction,
    /// We would have, in observe mode.
    WouldEvict,
    /// Somebody else, with SIGKILL.
    ForeignKill,
}

/// One process that was killed. Memory in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Victim {
    /// Its process id.
    pub pid: u32,
    /// When it was started, in nanoseconds since boot (`CLOCK_BOOTTIME`).
    pub start_ns: Field<u64>,
    /// Its name.
    pub comm: String,
    /// Its arguments: the first 4,096 bytes of them, and then `…`.
    pub argv: Field<Vec<String>>,
    /// Its user.
    pub uid: Field<u32>,
    /// Its `oom_score_adj`.
    pub oom_score_adj: Field<i32>,
    /// Anonymous memory.
    pub anon: Field<u64>,
    /// Memory of files.
    pub file: Field<u64>,
    /// Shared memory.
    pub shmem: Field<u64>,
    /// Memory in swap.
    pub swap: Field<u64>,
    /// Page tables.
    pub page_tables: Field<u64>,
    /// Its age in nanoseconds.
    pub age_ns: Field<u64>,
    /// Its cgroup.
    pub cgroup: Field<String>,
    /// When it exited.
    pub exited: Field<Time>,
}

/// SIGKILL to a process of a workload that an order of ours was open for, sent by somebody else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OtherKill {
    /// When.
    pub at: Time,
    /// The process it was sent to.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// The process that sent it.
    pub sender_pid: u32,
    /// Its name.
    pub sender_comm: String,
    /// The signal's code.
    pub signal_code: i32,
}

/// The task that ran out of memory, or that sent the signal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trigger {
    /// Its process id.
    pub pid: u32,
    /// Its thread id.
    pub tid: u32,
    /// Its name.
    pub comm: String,
    /// Its cgroup.
    pub cgroup: Field<String>,
    /// The signal's code, for a kill by somebody else: `SI_USER` and so on.
    pub signal_code: Field<i32>,
    /// What the kernel was allowed to do for the allocation (`gfp_mask`).
    pub gfp: Field<String>,
    /// The same by the names of this kernel's flags.
    #[serde(default = "untold")]
    pub gfp_flags: Field<Vec<String>>,
    /// The allocation was of 2^order pages.
    pub order: Field<i32>,
    /// Its kernel stack, innermost first: symbols with offsets, `?` where no function is listed.
    pub kernel_stack: Field<Vec<String>>,
    /// Its user stack, innermost first, by frame pointers.
    pub user_stack: Field<Vec<UserFrame>>,
}

/// The process that most of a workload's processes descend from. Of those that run one program, forked without starting another,
/// the first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForkRoot {
    /// Its process id.
    pub pid: u32,
    /// When it was started, in nanoseconds since boot (`CLOCK_BOOTTIME`).
    pub start_ns: Field<u64>,
    /// Its name as it forked.
    pub comm: String,
    /// Its arguments, or those of one that it forked, which are the same.
    pub argv: Field<Vec<String>>,
    /// The process that forked it.
    pub parent: Field<ForkParent>,
    /// How many descend from it, of those that were forked last.
    pub descendants: u32,
    /// How many those are: as many as the workload had processes.
    pub of: u32,
}

/// The process that forked the root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForkParent {
    /// Its process id.
    pub pid: u32,
    /// When it was started, in nanoseconds since boot (`CLOCK_BOOTTIME`).
    pub start_ns: Field<u64>,
    /// Its name as it forked.
    pub comm: String,
}

/// One frame of a user stack. Made by following frame pointers: code without them is skipped or cut off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UserFrame {
    /// The build id of the file, in hex.
    pub build_id: Option<String>,
    /// Why none is told: `kernelLacksIt` where the kernel tells the address alone, of code that lies in no file, or whose file has no
    /// build id or had its head not in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id_missing: Option<Missing>,
    /// The offset in the file, or the address where the file is not known.
    pub offset: u64,
}

/// The cgroup whose limit was hit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Limit {
    /// Its path in the hierarchy of the memory controller; `/` for the node.
    pub cgroup: String,
    /// How it is known.
    pub method: LimitMethod,
    /// How sure that is.
    pub confidence: Confidence,
}

/// How the limit is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LimitMethod {
    /// The kernel's own `oom_control`, read as it decided.
    OomControl,
    /// The cgroup whose count of OOMs rose.
    EventDelta,
    /// The cgroup that stood under OOM.
    UnderOom,
    /// The nearest one at its limit.
    AtLimit,
    /// It is the only one with a limit.
    OnlyLimit,
    /// The node, since the trigger had just reclaimed for it.
    LastReclaim,
}

/// How sure something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Confidence {
    /// Read from the kernel.
    Exact,
    /// Several signs agree.
    High,
    /// One sign.
    Low,
}

/// A workload as it was known before its death.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// Its namespace.
    pub namespace: String,
    /// The name of the pod or workload.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The container's name, if the cgroup is one's; its id where no name is known.
    pub container: Option<String>,
    /// That container's id, as its runtime has it; null where `container` is, and where the agent was too old to tell it.
    #[serde(default)]
    pub container_id: Option<String>,
    /// Why no container is told; none where one is.
    #[serde(default)]
    pub container_missing: Option<Missing>,
    /// Its `QoS` class.
    pub qos: Option<String>,
    /// Why no class is told; none where one is.
    #[serde(default)]
    pub qos_missing: Option<Missing>,
    /// Its priority.
    pub priority: i32,
    /// What it requested of memory, in bytes.
    pub request: Option<i64>,
    /// Why no request is told; none where one is.
    #[serde(default)]
    pub request_missing: Option<Missing>,
    /// Its owner, `ReplicaSet/web-5d` and the like, where it is known.
    pub owner: Option<String>,
    /// Why no owner is told; none where one is.
    #[serde(default)]
    pub owner_missing: Option<Missing>,
}

/// What an agent that was too old for the field has told of it.
const fn untold<T>() -> Field<T> {
    Field::Missing(Missing::BeforeStart)
}

/// A cgroup at that moment. Bytes; a missing limit is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CgroupState {
    /// Its path in the hierarchy of the memory controller.
    pub path: String,
    /// In use.
    pub usage: Field<u64>,
    /// `memory.max`, or `memory.limit_in_bytes`.
    pub max: Field<Option<u64>>,
    /// `memory.high`.
    pub high: Field<Option<u64>>,
    /// `memory.swap.current`, or what is in use with swap less what is in use.
    pub swap: Field<u64>,
    /// `memory.events`, or the v1 counterparts.
    pub events: Field<BTreeMap<String, u64>>,
    /// Whether its processes are killed together.
    pub group: Field<bool>,
}

/// One process in a table. Bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessLine {
    /// Its process id.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// Resident memory.
    pub rss: u64,
    /// In swap.
    pub swap: Option<u64>,
    /// Why that is not told; none where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap_missing: Option<Missing>,
    /// Its `oom_score_adj`.
    pub oom_score_adj: Option<i32>,
    /// Why that is not told; none where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oom_score_adj_missing: Option<Missing>,
}

/// The node at that moment. Bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeState {
    /// `memory.available`, the kubelet's.
    pub available: Field<i64>,
    /// `memory.headroom`, without swap.
    pub headroom: Field<i64>,
    /// What `memory.available` is a part of: the machine's memory, or the limit of the cgroup that is the node.
    #[serde(default = "untold")]
    pub capacity: Field<i64>,
    /// Swap that the node could still use.
    #[serde(default = "untold")]
    pub usable_swap: Field<u64>,
    /// `/proc/meminfo`.
    pub meminfo: Field<BTreeMap<String, u64>>,
    /// What reclaim, swap and the OOM killer had done since boot, of `/proc/vmstat`: events and pages.
    #[serde(default = "untold")]
    pub vmstat: Field<BTreeMap<String, u64>>,
    /// Every zone with pages, against its watermarks.
    pub zones: Field<Vec<ZoneState>>,
    /// Memory pressure of the node: shares of the last 10 s, in percent.
    pub pressure: Field<PressureState>,
    /// What reclaim had cost the victim's tasks, in nanoseconds.
    pub reclaim_ns: Field<u64>,
}

/// One zone, in pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ZoneState {
    /// NUMA node.
    pub node: u32,
    /// Its name.
    pub zone: String,
    /// Free pages.
    pub free: u64,
    /// Watermarks.
    pub min: u64,
    /// Watermarks.
    pub low: u64,
    /// Watermarks.
    pub high: u64,
}

/// Pressure stall information: averages over 10 s, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PressureState {
    /// Some task waited for memory.
    pub some: f64,
    /// All tasks did.
    pub full: Option<f64>,
    /// Why that is not told; none where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_missing: Option<Missing>,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Course {
    /// When the first signal was sent.
    pub killed: Field<Time>,
    /// When the last victim exited.
    pub exited: Field<Time>,
    /// When its memory was back.
    pub memory_back: Field<Time>,
    /// Bytes that came back.
    pub freed: Field<u64>,
    /// Whether the container still had processes after it: the one that the victim's cgroup is or lies in, else the workload's own
    /// cgroup, else the victim's. Of an eviction of ours: false where all were seen to go, true where nobody was killed or asked to end.
    pub container_survived: Field<bool>,
    /// Why it is over; none while it is open.
    pub end: Option<String>,
}

/// The flight recorder: the minute before an incident, oldest first. The points here may be thinned out; of those that went,
/// the one with the most memory in use stayed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Recording {
    /// The node, every 10 ms.
    pub node: Vec<NodePoint>,
    /// Why there is no point of it: why its files could not be read, where they are what tells of it, else `lost`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_missing: Option<Missing>,
    /// Why points of it have no `stallUs`, where some have none: `kernelLacksIt` without PSI; `lost` where that was not read, as of
    /// points from before its first reading.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_stall_missing: Option<Missing>,
    /// Why points of it have no `reclaims`, where some have none: `programNotLoaded` where the kernel's programs did not count them, or
    /// not yet; `lost` where the sampler had fallen silent, and files told of the node; `notApplicable` of a cgroup that is the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_reclaims_missing: Option<Missing>,
    /// The same of `forks`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_forks_missing: Option<Missing>,
    /// The victim's cgroup, every 100 ms if it was near its limit, else every second.
    pub cgroup: Vec<CgroupPoint>,
    /// Why there is no point of it: `lost` where there was no room for it, where it was not read in time, and where it is not known
    /// which it is; `notApplicable` of the root, which is the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup_missing: Option<Missing>,
    /// Why points of it have no `stallUs`, where some have none: `kernelLacksIt` without PSI for cgroups; `lost` where that was not
    /// read, as of one that was far from its limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall_missing: Option<Missing>,
    /// Why points of it have no `reclaims`, where some have none: `programNotLoaded` where the kernel's programs did not count them, or
    /// not yet; `lost` where they were not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaims_missing: Option<Missing>,
    /// The same of `forks`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forks_missing: Option<Missing>,
    /// Others that were near their limit; those above the victim's come first.
    pub others: Vec<CgroupTrack>,
    /// From one point of the node to the next as it was recorded, in milliseconds; 0 where it was not.
    #[serde(default)]
    pub node_period_ms: u32,
    /// The same of cgroups near their limit.
    #[serde(default)]
    pub near_period_ms: u32,
    /// The same of every other cgroup.
    #[serde(default)]
    pub others_period_ms: u32,
    /// Thinned further than usual, and without the others, because many incidents came at once.
    #[serde(default)]
    pub is_brief: bool,
}

/// Another cgroup's part of the recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CgroupTrack {
    /// Its path.
    pub path: String,
    /// Its own limit, in bytes.
    #[serde(default)]
    pub limit: Option<u64>,
    /// As `stallMissing` of the victim's cgroup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall_missing: Option<Missing>,
    /// As `reclaimsMissing` of the victim's cgroup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaims_missing: Option<Missing>,
    /// As `forksMissing` of the victim's cgroup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forks_missing: Option<Missing>,
    /// Its points.
    pub points: Vec<CgroupPoint>,
}

/// The node at one moment. Bytes; counters since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePoint {
    /// Milliseconds before the incident.
    pub before_ms: u32,
    /// `memory.available`.
    pub available: i64,
    /// `memory.headroom`.
    pub headroom: i64,
    /// Anonymous memory.
    pub anon: u64,
    /// File pages.
    pub file: u64,
    /// Microseconds in which some task had waited for memory, as of the latest reading before, which come every 100 ms
    /// while tasks do, and every second otherwise; where it is none, `nodeStallMissing` beside the points says why.
    pub stall_us: Option<u64>,
    /// Direct reclaims begun, since the kernel's programs were loaded; where it is none, `nodeReclaimsMissing` says why.
    pub reclaims: Option<u64>,
    /// Processes forked, since then; where it is none, `nodeForksMissing` says why.
    pub forks: Option<u64>,
}

/// A cgroup at one moment. Bytes; counters since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CgroupPoint {
    /// Milliseconds before the incident.
    pub before_ms: u32,
    /// In use.
    pub usage: u64,
    /// In use less inactive file pages.
    pub working_set: u64,
    /// Anonymous memory.
    pub anon: u64,
    /// File pages.
    pub file: u64,
    /// Microseconds in which some task of it had waited for memory; where it is none, `stallMissing` beside the points says why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall_us: Option<u64>,
    /// Reclaims that tasks of this very cgroup stalled in; where it is none, `reclaimsMissing` says why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaims: Option<u64>,
    /// Processes forked in this very cgroup; where it is none, `forksMissing` says why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forks: Option<u64>,
}
