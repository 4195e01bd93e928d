//! What can be asked over the socket, and the versioned forms of the answers. Fields are only ever added.

use serde::{Deserialize, Deserializer, Serialize};

pub use super::kubernetes_view::KubernetesView;
pub use super::recorder_view::RecorderView;
pub use super::storage_view::{DiskView, StorageView};
use crate::disks::view::DisksView;
use crate::record::DecisionRecord;
use crate::record::wire::{OrderView, PressureView, RankedWorkload, SignalValue, Time};

/// The longest answer a client accepts, in bytes.
pub const LONGEST_ANSWER: u64 = 16 << 20;
/// The longest question an agent accepts, in bytes.
pub const LONGEST_QUESTION: usize = 64 << 10;

/// A question. Those that change something have no field that is not known: what was meant by it would be done without it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "camelCase")]
pub enum Question {
    /// How the agent and the node are.
    Status,
    /// Who would go now.
    Rank {
        /// For which signal; `memory.available` without.
        #[serde(default)]
        signal: Option<String>,
    },
    /// Why a workload stands where it does.
    ExplainWorkload {
        /// The workload: `namespace/name`, a uid, a cgroup's path, or a name that only one has.
        workload: String,
        /// For which signal; `memory.available` without.
        #[serde(default)]
        signal: Option<String>,
        /// Another workload that it is compared with.
        #[serde(default)]
        against: Option<String>,
    },
    /// One decision, or the latest.
    Decision {
        /// Its number.
        #[serde(default)]
        order: Option<u64>,
    },
    /// The latest decisions, newest last.
    Decisions,
    /// Stop enforcing.
    #[serde(deserialize_with = "read_pause")]
    Pause {
        /// For so long, in seconds; until further notice without.
        seconds: Option<u64>,
    },
    /// Enforce again, if the configuration says so.
    #[serde(deserialize_with = "read_resume")]
    Resume,
}

fn read_pause<'a, D: Deserializer<'a>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Pause {
        #[serde(default)]
        seconds: Option<u64>,
    }
    Pause::deserialize(deserializer).map(|said| said.seconds)
}

fn read_resume<'a, D: Deserializer<'a>>(deserializer: D) -> Result<(), D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Resume {}
    Resume::deserialize(deserializer).map(|Resume {}| ())
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", content = "body", rename_all = "camelCase")]
pub enum Answer {
    /// To [`Question::Status`].
    Status(Box<Status>),
    /// To [`Question::Rank`].
    Ranking(Box<Ranking>),
    /// To [`Question::ExplainWorkload`].
    Explanation(Box<Explanation>),
    /// To [`Question::Decision`], and to [`Question::ExplainWorkload`] about one that is gone.
    Decision(Box<DecisionRecord>),
    /// To [`Question::Decisions`].
    Decisions(Vec<DecisionRecord>),
    /// To [`Question::Pause`] and [`Question::Resume`].
    Mode(Box<ModeView>),
    /// To a question that has no answer.
    Refused(Refusal),
}

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// What kind of refusal it is.
    pub reason: RefusalReason,
    /// What is wrong.
    pub message: String,
    /// What to do next.
    pub next: String,
}

/// The kinds of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RefusalReason {
    /// Whoever asks has no right to.
    NotAllowed,
    /// It is no question of this protocol.
    NotUnderstood,
    /// It names what is not known.
    NotFound,
    /// It names several at once.
    Ambiguous,
    /// It cannot be answered or done now.
    NotPossible,
}

/// Whether orders are carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModeView {
    /// `brink.dev/v1alpha1`.
    pub api_version: String,
    /// Always `Mode`.
    pub kind: String,
    /// The time of this answer.
    pub now: Time,
    /// `enforcing`, or why orders are only observed.
    pub mode: String,
    /// The stop button, if it is pressed.
    pub pause: Option<PauseView>,
}

/// The stop button while it is pressed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PauseView {
    /// When it ends by itself; none if it waits for what presses it to be lifted.
    pub until: Option<Time>,
    /// What presses it: `file`, which `brink pause` makes and `brink resume` removes, `annotation` of the node, or both. Nothing of an
    /// agent that does not say so.
    #[serde(default)]
    pub pressed_by: Vec<String>,
}

/// How the agent and the node are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// `brink.dev/v1alpha1`.
    pub api_version: String,
    /// Always `Status`.
    pub kind: String,
    /// Version of the agent.
    pub version: String,
    /// Its process id.
    pub pid: u32,
    /// Since when it runs.
    pub started: Time,
    /// The time of this answer.
    pub now: Time,
    /// `enforcing`, or why orders are only observed.
    pub mode: String,
    /// The stop button, if it is pressed.
    pub pause: Option<PauseView>,
    /// The process that enforces on this node in our place; none if nobody does, or it is not seen from here.
    pub other_enforcer: Option<i32>,
    /// The configuration that was not taken over when it was read again last; none while the one that is written is in force.
    #[serde(default)]
    pub refused_configuration: Option<RefusedView>,
    /// Manifest files that are not in order, 16 at most.
    #[serde(default)]
    pub broken_manifests: Vec<BrokenManifestView>,
    /// How many more of these there are.
    #[serde(default)]
    pub more_broken_manifests: u32,
    /// `kubelet` or `confirmed`.
    pub memory_policy: String,
    /// What carries the signals.
    pub rung: Option<String>,
    /// How the guard thread is scheduled.
    pub scheduling: Option<String>,
    /// Why it stands no higher.
    pub rung_reasons: Vec<String>,
    /// Every signal that is known.
    pub signals: Vec<SignalValue>,
    /// The cgroup that allocatable memory is measured by; none where no cgroup of all pods is read.
    #[serde(default)]
    pub pods_cgroup: Option<String>,
    /// Headroom without swap, in bytes.
    pub headroom_bytes: Option<i64>,
    /// Swap that could still be used, in bytes; 0 while there are no figures.
    pub usable_swap_bytes: u64,
    /// Age of these figures, in milliseconds.
    pub figures_age_ms: Option<i64>,
    /// Pressure stall information of the node; empty where the kernel does not account for it.
    #[serde(default)]
    pub pressure: Vec<PressureView>,
    /// Every threshold.
    pub thresholds: Vec<ThresholdState>,
    /// Conditions reported.
    pub conditions: Vec<String>,
    /// Workloads watched over.
    pub workloads: u32,
    /// Those of them that are never evicted.
    pub protected: u32,
    /// The order that is open.
    pub open_order: Option<OrderView>,
    /// Decisions of this boot that are remembered.
    pub decisions: u32,
    /// The latest decision.
    pub last_order: Option<OrderView>,
    /// Kills by the kernel's own killer on this machine since the start of the agent; 0 where [`Self::counts_oom_kills`] says that nobody
    /// counts them.
    pub oom_kills: u32,
    /// What those were for.
    pub oom: OomView,
    /// The kernel's programs.
    pub programs: Vec<ProgramView>,
    /// What became of the occasions to send a record: seen = sent + dropped + filtered.
    pub rings: Vec<RingView>,
    /// Reports of the guard that were lost because its queues were full.
    pub reports_lost: u64,
    /// Cost of the sampler; none where it does not run.
    pub sampler: Option<SamplerView>,
    /// How the event stream stands; none where events are switched off.
    #[serde(default)]
    pub events: Option<EventsView>,
    /// How often the flight recorder records; none where it does not run.
    #[serde(default)]
    pub recorder: Option<RecorderView>,
    /// How the pods of the Kubernetes API stand; none where they are not asked for.
    #[serde(default)]
    pub kubernetes: Option<KubernetesView>,
    /// What workloads use of disks; none where no folder of theirs is measured.
    #[serde(default)]
    pub storage: Option<StorageView>,
    /// What is measured of filesystems, and the container runtime; none where no threshold is on a filesystem.
    #[serde(default)]
    pub disks: Option<DisksView>,
}

impl Status {
    /// Whether kills by the kernel's own killer are counted: one program of the kernel tells of them, whatever others know of them.
    pub fn counts_oom_kills(&self) -> bool {
        let mut programs = self.programs.iter();
        programs.any(|program| program.name == "mark_victim" && program.running)
    }
}

/// A configuration that was not taken over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusedView {
    /// When.
    pub at: Time,
    /// What is wrong with it, one finding a line.
    pub why: String,
}

/// A manifest file that is not in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BrokenManifestView {
    /// The file, or the folder where that cannot be listed.
    pub file: String,
    /// What is wrong with it, one finding a line.
    pub why: String,
    /// Whether the pods that it had stand until it is in order again; otherwise nobody knows its pods.
    pub pods_stand: bool,
}

/// How the event stream stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventsView {
    /// The number of the last event that was told.
    pub last: u64,
    /// Why numbers are not kept over a restart for now; none while they are.
    pub numbers: Option<String>,
    /// The journal; none where none is to be kept.
    pub journal: Option<EventJournalView>,
    /// The other ways out.
    pub outlets: Vec<OutletView>,
    /// Where they are to be served.
    #[serde(default)]
    pub doors: Vec<DoorView>,
}

/// An address where events, or the metrics alone, are to be served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DoorView {
    /// The setting it comes from: `events.socket`, `events.listen` or `metrics.listen`.
    pub setting: String,
    /// The path of the socket, or address and port.
    pub address: String,
    /// Why nobody can be served there for now, and what to do; none while it is served.
    pub why: Option<String>,
}

/// How the event journal stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventJournalView {
    /// `writing`, `full` (the disk), `failed` or `unopened`.
    pub state: String,
    /// Why it is not written; none while it is.
    pub why: Option<String>,
    /// Bytes of its files.
    pub size: u64,
    /// Events written by this run.
    pub written: u64,
    /// Events that wait for it.
    pub waiting: u64,
    /// Events of this run that are not in it, and never will be.
    pub lost: u64,
}

/// How another way out of events stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OutletView {
    /// Its name: `file`, `stdout`, `journald` or `otlp`.
    pub name: String,
    /// Why it fails; none while it works.
    pub why: Option<String>,
    /// Events that it has handed out.
    pub sent: u64,
    /// Events that it has missed, or that were refused.
    pub lost: u64,
}

/// Kills by the kernel's own killer, by what they were for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OomView {
    /// Processes killed because the node was out of memory.
    pub node: u32,
    /// Processes killed because a cgroup was at its limit.
    pub cgroup: u32,
    /// Processes of which it is not known.
    pub unknown: u32,
    /// Times that more than one process was killed at once, as `memory.oom.group` asks for.
    pub groups: u32,
}

/// One threshold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ThresholdState {
    /// Its signal.
    pub signal: String,
    /// As written: `100Mi`, `10%`.
    pub value: String,
    /// Whether it acts at once.
    pub hard: bool,
    /// Its grace, in seconds.
    pub grace_seconds: i64,
    /// Its amount at the observed capacity: bytes, inodes or processes; none for a percentage of what is not observed.
    pub quantity: Option<i64>,
    /// Whether its signal is observed here at all. What is not observed is never met.
    pub observed: bool,
    /// Whether it is met, minimum reclaim included.
    pub met: bool,
    /// For how long, in milliseconds.
    pub met_for_ms: Option<i64>,
    /// Why it is due and not acted on.
    pub held: Option<String>,
}

/// One program in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProgramView {
    /// Its name.
    pub name: String,
    /// Its family.
    pub family: String,
    /// Whether it runs.
    pub running: bool,
    /// Why not.
    pub why: Option<String>,
    /// How often the kernel left it out because it ran on that processor already; null where it does not tell.
    #[serde(default)]
    pub skipped: Option<u64>,
}

/// Losses of one family of hooks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RingView {
    /// Which hooks.
    pub row: String,
    /// Occasions to send a record.
    pub seen: u64,
    /// Sent.
    pub sent: u64,
    /// The ring was full.
    pub dropped: u64,
    /// Not worth a record.
    pub filtered: u64,
}

/// Cost of the sampler, or of another timer in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SamplerView {
    /// Ticks since its start.
    pub ticks: u64,
    /// Mean time of a tick, in nanoseconds.
    pub mean_ns: u64,
    /// The longest, in nanoseconds.
    pub max_ns: u64,
}

impl SamplerView {
    /// So many ticks, the time they took, and the longest of them, in nanoseconds.
    pub fn of(ticks: u64, cost_ns: u64, max_ns: u64) -> Self {
        Self {
            ticks,
            mean_ns: cost_ns.checked_div(ticks).unwrap_or(0),
            max_ns,
        }
    }
}

/// Who would go now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ranking {
    /// `brink.dev/v1alpha1`.
    pub api_version: String,
    /// Always `Ranking`.
    pub kind: String,
    /// The signal it is for.
    pub signal: String,
    /// The time of this answer.
    pub now: Time,
    /// Age of the figures it rests on, in milliseconds.
    pub figures_age_ms: i64,
    /// First to go in front, refusers included.
    pub workloads: Vec<RankedWorkload>,
    /// For each but the last, why it goes before the next one.
    pub why: Vec<Why>,
    /// Thresholds on the signal that are met now; left out where none is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub met: Vec<ThresholdState>,
}

/// Why one workload goes before another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Why {
    /// What decides: `preference`, `statistics`, `excess`, `priority`, `beyond`, `processes` or `uid`.
    pub by: String,
    /// The same with the figures.
    pub sentence: String,
}

/// Why a workload stands where it does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// `brink.dev/v1alpha1`.
    pub api_version: String,
    /// Always `Explanation`.
    pub kind: String,
    /// The workload.
    pub workload: RankedWorkload,
    /// The signal the place is for.
    pub signal: String,
    /// The time of this answer.
    pub now: Time,
    /// Age of the figures it rests on, in milliseconds.
    pub figures_age_ms: i64,
    /// Its place, counted from one; none if it is no candidate.
    pub place: Option<u32>,
    /// Of so many.
    pub candidates: u32,
    /// Thresholds on the signal that are met now; left out where none is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub met: Vec<ThresholdState>,
    /// Sentences, most important first.
    pub reasons: Vec<String>,
    /// What is wrong with the settings that bear on the signal, and what would be right, as `brink doctor` says it; left out where there
    /// is nothing to say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<String>,
    /// Its cgroups, as paths in the hierarchy of the memory controller.
    pub cgroups: Vec<String>,
    /// The remembered orders against it, newest last.
    pub orders: Vec<OrderView>,
    /// What it uses of disks; left out where nothing of it is measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<DiskView>,
}

/// The remembered decisions, as `brink explain --list` prints them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionList {
    /// `brink.dev/v1alpha1`.
    pub api_version: String,
    /// Always `DecisionList`.
    pub kind: String,
    /// Newest last.
    pub decisions: Vec<DecisionRecord>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_that_changes_something_is_taken_as_it_is_or_not_at_all() {
        let read = |text: &str| serde_json::from_str::<Question>(text);
        let pause = |seconds| Question::Pause { seconds };
        for (text, question) in [
            (r#"{"ask":"pause"}"#, pause(None)),
            (r#"{"ask":"pause","seconds":null}"#, pause(None)),
            (r#"{"seconds":60,"ask":"pause"}"#, pause(Some(60))),
            (r#"{"ask":"resume"}"#, Question::Resume),
            // Who only asks may be of a newer version.
            (r#"{"ask":"status","new":1}"#, Question::Status),
            (r#"{"ask":"rank","new":1}"#, Question::Rank { signal: None }),
        ] {
            assert_eq!(read(text).unwrap(), question, "{text}");
            let again = serde_json::to_string(&question).unwrap();
            assert_eq!(read(&again).unwrap(), question, "{again}");
        }
        for text in [
            r#"{"ask":"pause","body":{"seconds":-1}}"#,
            r#"{"ask":"pause","forSeconds":18446744073709551616}"#,
            r#"{"ask":"pause","seconds":-1}"#,
            r#"{"ask":"pause","seconds":1.5}"#,
            r#"{"ask":"pause","seconds":"60"}"#,
            r#"{"ask":"pause","seconds":60,"seconds":70}"#,
            r#"{"ask":"resume","after":60}"#,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
