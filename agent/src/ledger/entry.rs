//! One decision as it lies in the ledger: a record written before the act, a completion after it, both without allocation.

use brink_core::base::{Moment, Reason};
use brink_core::node::decision::{Decision, PLACES, Ranked, Standing};
use brink_core::node::engine::MemoryPolicy;
use brink_core::node::input::Confirmation;
use brink_core::node::limits::Exceeded;
use brink_core::node::order::End;
use brink_core::node::safety::Mode;
use brink_core::node::signal::{PerSignal, Signal};
use brink_core::node::workload::WorkloadTable;
use brink_host::clock::ClockPair;
use brink_host::ledger::{Entry, MARKS};
use serde::{Deserialize, Serialize};

use super::Rung;

/// A decision and the figures it rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record<'a> {
    /// The order's number; unique on this node since the ledger was made.
    pub order: u64,
    /// The boot it happened in: monotonic times of another boot mean nothing.
    pub boot: [u8; 16],
    /// Wall-clock time of monotonic zero, in nanoseconds since the epoch.
    pub wall_of_zero: i64,
    /// What carried the signal.
    pub rung: Rung,
    /// Hard or soft.
    pub reason: Reason,
    /// Whether it was carried out.
    pub mode: Mode,
    /// Whose word was enough.
    pub policy: MemoryPolicy,
    /// What was crossed.
    pub crossed: Crossed,
    /// All observations of the moment.
    pub signals: PerSignal<Option<Seen>>,
    /// What confirmed that memory is short.
    pub confirmation: Confirmation,
    /// Credit for the dying, in bytes.
    pub credit: u64,
    /// How many workloads were ranked.
    pub candidates: u32,
    /// Who was chosen.
    #[serde(borrow)]
    pub victim: Place<'a>,
    /// The first places.
    #[serde(borrow)]
    pub ranking: [Option<Place<'a>>; PLACES],
    /// The stages up to the decision.
    pub stages: Stages,
    /// End of the grace of a soft order that is carried out.
    pub until: Option<Moment>,
    /// The limit of its own that the victim exceeded, if it goes for that; then what was crossed is the limit.
    #[serde(borrow)]
    pub limit: Option<Limit<'a>>,
}

/// How far an order has come, marked in its slot as it goes: it outlives an agent that ends in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Mark {
    /// SIGTERM has been sent.
    Asked,
    /// SIGKILL is about to be sent.
    Hardened,
    /// SIGKILL has been sent.
    Signalled,
    /// The order is over.
    Ended,
}

const _: () = assert!(Mark::Ended as usize + 1 == MARKS);

/// When each mark of an entry was set; none where it was not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks([Option<Moment>; MARKS]);

impl Marks {
    /// Those of an entry.
    pub fn read(entry: &Entry<'_>) -> Self {
        let moment = |mark: u64| i64::try_from(mark).ok().filter(|&nanos| nanos > 0);
        Self(entry.marks.map(|mark| moment(mark).map(Moment::from_nanos)))
    }

    /// When a mark was set.
    pub const fn at(&self, mark: Mark) -> Option<Moment> {
        self.0[mark as usize]
    }

    /// What is known of a decision whose completion was not written to its end.
    fn completion(&self, record: &Record<'_>) -> Option<Completion> {
        let stages = Stages {
            asked: self.at(Mark::Asked),
            last_signal: self.at(Mark::Signalled),
            ended: self.at(Mark::Ended),
            ..record.stages
        };
        (stages != record.stages).then(|| Completion {
            stages,
            ..Completion::default()
        })
    }
}

/// The threshold that was crossed, and the observation that crossed it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Crossed {
    /// What is measured.
    pub signal: Signal,
    /// Grace in nanoseconds; zero for a hard threshold.
    pub grace: i64,
    /// The amount at the observed capacity: bytes, inodes or processes.
    pub quantity: i64,
    /// The observation.
    pub seen: Seen,
}

/// One observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// What was left.
    pub available: i64,
    /// Out of how much.
    pub capacity: i64,
    /// When it was measured.
    pub at: Option<Moment>,
}

/// A limit of local storage, and what was used against it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit<'a> {
    /// The limit, and what was measured.
    pub exceeded: Exceeded,
    /// The volume or container whose limit it is; empty for the whole pod.
    pub part: &'a str,
}

/// One place in the ranking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place<'a> {
    /// Namespace of the workload.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its uid.
    pub uid: &'a str,
    /// What decided its place.
    pub standing: Standing,
    /// Why it could not be evicted, if so.
    pub refusal: Option<Reason>,
}

/// When each stage was reached; none where it was not, or not yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stages {
    /// The last moment known to be above the threshold: the crossing lies between this and the sample.
    pub above: Option<Moment>,
    /// The sample that was below it.
    pub sampled: Option<Moment>,
    /// The kernel handed it over.
    pub submitted: Option<Moment>,
    /// The guard was awake.
    pub woke: Option<Moment>,
    /// The victim was chosen.
    pub decided: Option<Moment>,
    /// This entry was in place.
    pub recorded: Option<Moment>,
    /// The first SIGTERM, for a soft order.
    pub asked: Option<Moment>,
    /// The first SIGKILL was sent.
    pub first_signal: Option<Moment>,
    /// Nobody was left to signal.
    pub last_signal: Option<Moment>,
    /// The first memory was back.
    pub first_back: Option<Moment>,
    /// The last process was gone.
    pub gone: Option<Moment>,
    /// The signal was above the threshold again.
    pub above_again: Option<Moment>,
    /// The order was over.
    pub ended: Option<Moment>,
}

impl Stages {
    /// Each stage with its name, in the order in which they are usually reached.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, Option<Moment>)> {
        [
            ("above", self.above),
            ("sampled", self.sampled),
            ("submitted", self.submitted),
            ("woke", self.woke),
            ("decided", self.decided),
            ("recorded", self.recorded),
            ("asked", self.asked),
            ("firstSignal", self.first_signal),
            ("lastSignal", self.last_signal),
            ("firstMemoryBack", self.first_back),
            ("aboveAgain", self.above_again),
            ("gone", self.gone),
            ("ended", self.ended),
        ]
        .into_iter()
    }
}

/// What a kill did, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kill {
    /// How the subtree was reached.
    pub means: Means,
    /// How often it was listed.
    pub passes: u32,
    /// Processes signalled.
    pub signalled: u32,
    /// Processes the kernel did not let us signal.
    pub refused: u32,
    /// Protected processes left alone.
    pub spared: u32,
    /// Processes whose memory the release pool was asked to give back.
    pub releasing: u32,
    /// The first error number.
    pub errno: Option<i32>,
    /// Nanoseconds between waking and the first signal in which the guard did not run; none without a signal.
    pub waited_ns: Option<u64>,
}

/// How the subtree was reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Means {
    /// A signal to each process.
    #[default]
    Signals,
    /// `cgroup.kill`.
    CgroupKill,
    /// Signals while frozen (v1).
    Freezer,
    /// `cgroup.kill` of the same group in the v2 tree.
    UnifiedCgroupKill,
}

/// What every entry of one agent shares.
#[derive(Clone, Copy, Debug)]
pub struct Author {
    /// The boot.
    pub boot: [u8; 16],
    /// What wall-clock time a monotonic one is.
    pub clocks: ClockPair,
    /// Whose word is enough.
    pub policy: MemoryPolicy,
    /// What carries the signals now.
    pub rung: Rung,
}

/// What became of a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completion {
    /// All stages that were reached.
    pub stages: Stages,
    /// What the kill did.
    pub kill: Option<Kill>,
    /// Bytes that came back.
    pub freed: u64,
    /// What reclaim had cost the victim's tasks; none where the kernel's programs do not tell.
    pub reclaim: Option<ReclaimCost>,
    /// Why the order is over.
    pub end: Option<End>,
}

/// What tasks of a workload spent in reclaim, since the agent began to look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReclaimCost {
    /// Reclaims for the whole node (direct).
    pub node: u64,
    /// Time they took, in nanoseconds.
    pub node_ns: u64,
    /// Reclaims for a cgroup's limit.
    pub cgroup: u64,
    /// Time they took, in nanoseconds.
    pub cgroup_ns: u64,
    /// Pages that both brought back.
    pub pages: u64,
}

impl<'a> Record<'a> {
    /// What an entry of the ledger says, and what became of it: as far as it had come where that was not written to its
    /// end. None where it is damaged.
    pub fn read(entry: &Entry<'a>) -> Option<(Self, Option<Completion>)> {
        let record: Self = postcard::from_bytes(entry.record).ok()?;
        let completion = entry.completion;
        let completion = completion.and_then(|bytes| postcard::from_bytes(bytes).ok());
        let completion = completion.or_else(|| Marks::read(entry).completion(&record));
        Some((record, completion))
    }

    /// The record of `decision`, with names from the table it was taken on.
    pub fn of(
        author: &Author,
        decision: &Decision,
        stages: Stages,
        table: &'a WorkloadTable,
    ) -> Self {
        let mut ranking = [None; PLACES];
        for (slot, ranked) in ranking.iter_mut().zip(decision.ranking.as_slice()) {
            *slot = Some(Place::of(ranked, table));
        }
        let seen = |of: brink_core::node::observe::Observation| Seen {
            available: of.available,
            capacity: of.capacity,
            at: of.at,
        };
        Self {
            order: decision.order,
            boot: author.boot,
            wall_of_zero: author.clocks.realtime_of(0),
            rung: author.rung,
            reason: decision.reason,
            mode: decision.mode,
            policy: author.policy,
            crossed: Crossed {
                signal: decision.crossed.signal,
                grace: decision.crossed.grace.as_nanos(),
                quantity: decision.quantity.value(),
                seen: seen(decision.observation),
            },
            limit: decision.limit.map(|exceeded| Limit {
                exceeded,
                part: part_of(&exceeded, decision.victim.workload, table),
            }),
            signals: PerSignal::from_fn(|signal| decision.observations[signal].map(seen)),
            confirmation: decision.confirmation,
            credit: decision.credit,
            candidates: decision.candidates,
            victim: Place::of(&decision.victim, table),
            ranking,
            stages,
            until: None,
        }
    }

    /// The wall-clock time of a monotonic moment, in nanoseconds since the epoch.
    pub fn wall(&self, at: Moment) -> i64 {
        self.wall_of_zero.saturating_add(at.as_nanos())
    }
}

impl<'a> Place<'a> {
    fn of(ranked: &Ranked, table: &'a WorkloadTable) -> Self {
        let workload = table.workloads().get(ranked.workload as usize);
        let text = |field: fn(&brink_core::node::workload::Workload) -> &String| {
            workload.map_or("", |w| cut(field(w)))
        };
        Self {
            namespace: text(|w| &w.namespace),
            name: text(|w| &w.name),
            uid: text(|w| &w.uid),
            standing: ranked.standing,
            refusal: ranked.refusal,
        }
    }
}

/// The name of what a limit is of.
fn part_of<'a>(limit: &Exceeded, workload: u32, table: &'a WorkloadTable) -> &'a str {
    let pod = table.workloads().get(workload as usize);
    pod.and_then(|pod| limit.part(pod)).map_or("", cut)
}

/// A slot has a fixed size; Kubernetes' names have 253 bytes at most, cgroup paths can be longer.
fn cut(text: &str) -> &str {
    const LONGEST: usize = 120;
    if text.len() <= LONGEST {
        return text;
    }
    let end = (0..=LONGEST).rev().find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or(0)]
}
