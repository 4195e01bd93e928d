//! The versioned wire form of a decision: what `-o json` prints and the journal keeps. Fields are only ever added.

use brink_core::base::Moment;
use brink_core::node::limits::{Exceeded, message};
use brink_core::node::signal::Signal;
use brink_core::node::workload::full_name;
use brink_host::clock::BootId;
pub use brink_stream::model::API_VERSION;
pub use brink_stream::model::event::Time;
use brink_stream::model::field::Field;
use brink_stream::model::incident::ForkRoot;
use serde::{Deserialize, Serialize};

use super::kubelet::KubeletView;
use super::told::ToldView;
use super::why;
use super::words::{
    excess_word, memory_word, mode_word, preference_by_word, preference_word, word_of,
};
use crate::ledger::entry::{
    Completion, Crossed, Kill, Limit, Place, ReclaimCost, Record, Seen, Stages,
};

/// One decision, whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionRecord {
    /// [`API_VERSION`].
    pub api_version: String,
    /// Always `Decision`.
    pub kind: String,
    /// The order's number; unique on this node since the ledger was made.
    pub order: u64,
    /// The boot that monotonic times belong to.
    pub boot_id: String,
    /// When the victim was chosen.
    pub decided: Time,
    /// What carried the signal.
    pub rung: String,
    /// `enforcing`, or why it was only observed.
    pub mode: String,
    /// Whose word was enough: `kubelet` or `confirmed`.
    pub memory_policy: String,
    /// What was crossed.
    pub threshold: CrossedThreshold,
    /// The limit of local storage that the victim exceeded, if it went for that and for no threshold; then `threshold` has
    /// the limit as its quantity, and what was left of it, which is below zero. Left out otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<LimitView>,
    /// Every signal that was known.
    pub signals: Vec<SignalValue>,
    /// What else was known of memory.
    pub memory: MemoryFacts,
    /// Who was chosen.
    pub victim: RankedWorkload,
    /// How many workloads were ranked.
    pub candidates: u32,
    /// The first places of the ranking, first to go in front.
    pub ranking: Vec<RankedWorkload>,
    /// Why the victim, and why nobody before it, in sentences.
    #[serde(default)]
    pub why: Vec<String>,
    /// Every stage that was reached, in order of time.
    pub stages: Vec<StageTime>,
    /// What the kill did; none where nothing was killed.
    pub kill: Option<KillFacts>,
    /// Bytes that came back.
    pub freed_bytes: u64,
    /// What reclaim had cost the victim's tasks before; none where the kernel's programs do not tell.
    pub reclaim: Option<ReclaimCost>,
    /// Why the order is over; none while it is open.
    pub end: Option<String>,
    /// What the kubelet would have done instead; none where the course is not known.
    pub kubelet: Option<KubeletView>,
    /// What a kubelet started in the victim again and was killed too; left out where there was nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<AgainFacts>,
    /// Cgroups of the victim that were left alone, since nobody knows what runs there; left out where there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_alone: Vec<String>,
    /// What Kubernetes was told of it; none where the victim is no pod of its API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<ToldView>,
    /// Of an order for process ids the process that the victim's processes come from, as its incident has it; nobody can know that before
    /// the kill. Left out until it was looked for, of other orders, and where no events are told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fork_root: Option<Field<ForkRoot>>,
}

/// What was started again in an evicted pod, and killed by the same order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgainFacts {
    /// How often.
    pub kills: u32,
    /// Processes that were signalled.
    pub processes: u32,
    /// The latest time.
    pub last: Time,
}

/// The threshold that was crossed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CrossedThreshold {
    /// Its signal.
    pub signal: String,
    /// Whether it acts at once.
    pub hard: bool,
    /// Its grace, in seconds.
    pub grace_seconds: i64,
    /// Its amount at the observed capacity: bytes, inodes or processes.
    pub quantity: i64,
    /// What was available.
    pub available: i64,
    /// Out of how much.
    pub capacity: i64,
}

/// A limit of local storage that was exceeded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LimitView {
    /// The volume or container whose limit it is; empty for the whole pod.
    pub part: String,
    /// The limit, in bytes.
    pub limit_bytes: i64,
    /// What was used, in bytes.
    pub used_bytes: u64,
    /// The kubelet's message about it.
    pub message: String,
}

/// One signal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignalValue {
    /// Its name.
    pub signal: String,
    /// What was available.
    pub available: i64,
    /// Out of how much.
    pub capacity: i64,
}

/// Time that tasks lost waiting for one resource, as shares of the last 10 s in percent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PressureView {
    /// `memory`, `io` or `cpu`.
    pub resource: String,
    /// Some task waited.
    pub some: f64,
    /// All tasks that could have run waited; none where the kernel does not tell.
    pub full: Option<f64>,
}

/// What else was known of memory, in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryFacts {
    /// What could still be allocated on the node, swap not counted.
    pub headroom_bytes: Option<i64>,
    /// The same in the cgroup all pods live in.
    pub pods_headroom_bytes: Option<i64>,
    /// Swap that the node could still use.
    pub usable_swap_bytes: u64,
    /// Swap that the cgroup all pods live in could still use.
    pub pods_usable_swap_bytes: u64,
    /// Headroom below this is the kernel's own.
    pub reserve_bytes: u64,
    /// Memory of the dying that was on its way back.
    pub credit_bytes: u64,
}

/// One workload in the ranking.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RankedWorkload {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// `prefer`, `normal` or `avoid`.
    pub preference: String,
    /// `annotation` where the pod itself asked for that by its annotation; left out where it did not, or was not heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preference_by: Option<String>,
    /// `unknown`, `over` or `within` its request; over with any inode, of which none can be requested, and within with any process.
    pub usage_to_request: String,
    /// Its priority.
    pub priority: i32,
    /// What it used of the ranked resource; none if that is unknown.
    pub usage: Option<i64>,
    /// The request that is taken off that, in bytes: for inodes, as the kubelet does, the one for storage; 0 for process ids.
    pub request: i64,
    /// Its processes now; none if they are not known, and in the record of a decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Why it could not be evicted, if so.
    pub refusal: Option<String>,
}

/// An order in a line; the record tells the rest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OrderView {
    /// Its number.
    pub order: u64,
    /// `namespace/name` of its victim.
    pub victim: String,
    /// The signal whose threshold was crossed.
    pub signal: String,
    /// Whether the threshold was a hard one.
    pub hard: bool,
    /// `enforcing`, or why it was only observed.
    pub mode: String,
    /// When the victim was chosen.
    pub decided: Time,
    /// Why it is over; none while it is open.
    pub end: Option<String>,
}

/// When a stage was reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StageTime {
    /// The stage.
    pub stage: String,
    /// When.
    #[serde(flatten)]
    pub at: Time,
    /// Distance from the sample that was below the threshold, in nanoseconds.
    pub since_sample_ns: Option<i64>,
}

/// What a kill did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KillFacts {
    /// How the subtree was reached.
    pub means: String,
    /// How often it was listed.
    pub passes: u32,
    /// Processes signalled.
    pub signalled: u32,
    /// Processes the kernel did not let us signal.
    pub refused: u32,
    /// Protected processes left alone.
    pub spared: u32,
    /// Processes whose memory was asked to be given back early.
    pub releasing: u32,
    /// The first error number.
    pub errno: Option<i32>,
    /// Time between waking and the first signal in which the guard did not run, in nanoseconds: its processor was taken
    /// away, or it slept for a lock or the disk. None without a signal.
    #[serde(default)]
    pub waited_ns: Option<u64>,
}

impl DecisionRecord {
    /// The wire form of a ledger's record, with what became of it so far.
    pub fn new(record: &Record<'_>, completion: Option<&Completion>) -> Self {
        let stages = completion.map_or(record.stages, |completion| completion.stages);
        let kill = completion.and_then(|completion| completion.kill);
        let ranking: Vec<RankedWorkload> = record.ranking.iter().flatten().map(ranked).collect();
        let victim = ranked(&record.victim);
        let signal = cause(record);
        Self {
            api_version: API_VERSION.to_owned(),
            kind: "Decision".to_owned(),
            order: record.order,
            boot_id: BootId(record.boot).to_string(),
            decided: time(record, stages.decided.unwrap_or(Moment::START)),
            rung: record.rung.word().to_owned(),
            mode: mode_word(record.mode).to_owned(),
            memory_policy: memory_word(record.policy).to_owned(),
            threshold: CrossedThreshold::of(&record.crossed, signal),
            limit: record.limit.as_ref().map(LimitView::of),
            signals: record.signals.iter().filter_map(signal_value).collect(),
            memory: MemoryFacts::of(record),
            why: match &record.limit {
                Some(limit) => vec![LimitView::of(limit).message.trim_end().to_owned()],
                None => why::sentences(signal, &ranking, &victim),
            },
            victim,
            candidates: record.candidates,
            ranking,
            stages: stage_times(record, &stages),
            kill: kill.as_ref().map(kill_facts),
            freed_bytes: completion.map_or(0, |completion| completion.freed),
            reclaim: completion.and_then(|completion| completion.reclaim),
            end: completion
                .and_then(|completion| completion.end)
                .map(|end| word_of(&end)),
            kubelet: None,
            again: None,
            left_alone: Vec::new(),
            kubernetes: None,
            fork_root: None,
        }
    }

    /// Takes in another kill of what was started in the victim again.
    pub fn add_again(&mut self, processes: u32, last: Time) {
        let before = self.again.take();
        let (kills, sum) = before.map_or((0, 0), |before| (before.kills, before.processes));
        self.again = Some(AgainFacts {
            kills: kills.saturating_add(1),
            processes: sum.saturating_add(processes),
            last,
        });
    }

    /// When a stage was reached, in nanoseconds after the sample.
    pub fn since_sample(&self, stage: &str) -> Option<i64> {
        self.stages
            .iter()
            .find(|time| time.stage == stage)?
            .since_sample_ns
    }

    /// `namespace/name` of the victim.
    pub fn victim_name(&self) -> String {
        self.victim.full_name()
    }
}

impl CrossedThreshold {
    fn of(crossed: &Crossed, signal: &str) -> Self {
        Self {
            signal: signal.to_owned(),
            hard: crossed.grace == 0,
            grace_seconds: crossed.grace / 1_000_000_000,
            quantity: crossed.quantity,
            available: crossed.seen.available,
            capacity: crossed.seen.capacity,
        }
    }
}

impl LimitView {
    fn of(limit: &Limit<'_>) -> Self {
        let Exceeded {
            kind,
            limit: most,
            used,
            ..
        } = limit.exceeded;
        Self {
            part: limit.part.to_owned(),
            limit_bytes: most.value(),
            used_bytes: used,
            message: message(kind, limit.part, most),
        }
    }
}

/// What the kubelet counts an eviction under: the signal of the threshold, or the limit.
pub fn cause(record: &Record<'_>) -> &'static str {
    match &record.limit {
        Some(limit) => limit.exceeded.kind.name(),
        None => record.crossed.signal.name(),
    }
}

impl MemoryFacts {
    const fn of(record: &Record<'_>) -> Self {
        Self {
            headroom_bytes: record.confirmation.node,
            pods_headroom_bytes: record.confirmation.pods,
            usable_swap_bytes: record.confirmation.swap,
            pods_usable_swap_bytes: record.confirmation.pods_swap,
            reserve_bytes: record.confirmation.reserve,
            credit_bytes: record.credit,
        }
    }
}

impl OrderView {
    /// What is said of an order in a line.
    pub fn of(record: &DecisionRecord) -> Self {
        Self {
            order: record.order,
            victim: record.victim_name(),
            signal: record.threshold.signal.clone(),
            hard: record.threshold.hard,
            mode: record.mode.clone(),
            decided: record.decided.clone(),
            end: record.end.clone(),
        }
    }
}

impl RankedWorkload {
    /// `namespace/name`.
    pub fn full_name(&self) -> String {
        full_name(&self.namespace, &self.name)
    }

    /// Its preference, and whose word that is where it is not the node's.
    pub fn preference_words(&self) -> String {
        let by = self.preference_by.as_ref();
        let by = by.map_or_else(String::new, |by| format!(" ({by})"));
        format!("{}{by}", self.preference)
    }
}

fn signal_value((signal, seen): (Signal, &Option<Seen>)) -> Option<SignalValue> {
    let seen = seen.as_ref()?;
    Some(SignalValue {
        signal: signal.name().to_owned(),
        available: seen.available,
        capacity: seen.capacity,
    })
}

fn ranked(place: &Place<'_>) -> RankedWorkload {
    let standing = &place.standing;
    RankedWorkload {
        namespace: place.namespace.to_owned(),
        name: place.name.to_owned(),
        uid: place.uid.to_owned(),
        preference: preference_word(standing.preference).to_owned(),
        preference_by: preference_by_word(standing.preference_by).map(str::to_owned),
        usage_to_request: excess_word(standing.excess).to_owned(),
        priority: standing.priority,
        usage: standing.usage,
        request: standing.request,
        processes: None,
        refusal: place.refusal.map(|reason| reason.word().to_owned()),
    }
}

fn kill_facts(kill: &Kill) -> KillFacts {
    KillFacts {
        means: word_of(&kill.means),
        passes: kill.passes,
        signalled: kill.signalled,
        refused: kill.refused,
        spared: kill.spared,
        releasing: kill.releasing,
        errno: kill.errno,
        waited_ns: kill.waited_ns,
    }
}

fn stage_times(record: &Record<'_>, stages: &Stages) -> Vec<StageTime> {
    let reached = stages.named().filter_map(|(stage, at)| Some((stage, at?)));
    let mut times: Vec<StageTime> = reached
        .map(|(stage, at)| StageTime {
            stage: stage.to_owned(),
            at: time(record, at),
            since_sample_ns: stages.sampled.map(|sampled| at.since(sampled).as_nanos()),
        })
        .collect();
    times.sort_by_key(|stage| stage.at.monotonic_ns);
    times
}

fn time(record: &Record<'_>, at: Moment) -> Time {
    Time {
        wall: wall_clock(record.wall(at)),
        monotonic_ns: at.as_nanos(),
    }
}

/// RFC 3339 in UTC, to the microsecond; empty for a time no calendar has.
pub fn wall_clock(nanos: i64) -> String {
    let stamp = jiff::Timestamp::from_nanosecond(i128::from(nanos / 1000 * 1000));
    stamp.map_or_else(|_| String::new(), |stamp| format!("{stamp:.6}"))
}

#[cfg(test)]
mod tests {
    use brink_core::base::Reason;
    use brink_core::node::decision::Standing;
    use brink_core::node::rank::Excess;
    use brink_core::node::workload::{Preference, PreferenceBy};
    use serde_json::Value;

    use super::*;

    fn written(preference_by: PreferenceBy, refusal: Option<Reason>) -> Value {
        let place = Place {
            namespace: "shop",
            name: "web",
            uid: "u",
            standing: Standing {
                preference: Preference::Avoid,
                preference_by,
                excess: Excess::Over,
                priority: 0,
                usage: Some(7),
                request: 0,
            },
            refusal,
        };
        serde_json::to_value(ranked(&place)).unwrap()
    }

    #[test]
    fn what_came_from_an_annotation_is_said_and_nothing_else() {
        let read = |value: &Value| serde_json::from_value::<RankedWorkload>(value.clone()).unwrap();
        let asked = written(PreferenceBy::Annotation, None);
        assert_eq!(asked["preferenceBy"], "annotation");
        assert_eq!(read(&asked).preference_words(), "avoid (annotation)");
        let refuses = written(PreferenceBy::Node, Some(Reason::Annotated));
        assert_eq!(refuses["refusal"], "annotated");
        assert_eq!(refuses.get("preferenceBy"), None);
        assert_eq!(read(&refuses).preference_words(), "avoid");
    }
}
