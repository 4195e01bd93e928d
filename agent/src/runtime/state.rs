//! What the runtime knows: the latest figures, what is met and held, the decisions of this boot, and how the agent stands.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brink_core::base::{Moment, Reason};
use brink_core::node::condition::ConditionSet;
use brink_core::node::engine::MemoryPolicy;
use brink_core::node::input::{Confirmation, Recalled, Reconfiguration};
use brink_core::node::observe::Observations;
use brink_core::node::policy::Policy;
use brink_core::node::safety::Mode;
use brink_core::node::shadow::{Fate, PHASES};
use brink_core::node::threshold::ThresholdSet;
use brink_core::node::workload::{PodUsage, Workload, WorkloadTable};
use brink_stream::model::field::Field;
use brink_stream::model::incident::ForkRoot;
use tokio::sync::{Notify, watch};

use crate::config::AgentConfig;
use crate::guard::figures::NodeFigures;
use crate::guard::roster::Roster;
use crate::guard::rung::Standing;
use crate::guard::step::{Kind, Step};
use crate::metrics::Counters;
use crate::pod::Broken;
use crate::record::DecisionRecord;
use crate::runtime::oom_tally::OomTally;
use crate::telling::qos_word;

/// Decisions that are remembered beside the ledger.
const DECISIONS: usize = 256;
/// Tables that indexes may still speak of.
const TABLES: usize = 4;
/// Readings that a rate is worked out from.
const READINGS: usize = 64;

/// The shared state; locked for moments only, and never by the guard.
#[derive(Debug)]
pub struct Shared {
    state: Mutex<State>,
    guard_ended: Notify,
    /// What is counted for the metrics.
    pub counters: Counters,
    /// The configuration in force; none before the agent is prepared.
    pub config: watch::Sender<Option<Arc<AgentConfig>>>,
}

/// Everything the runtime knows.
#[derive(Debug)]
pub struct State {
    /// The policy in force.
    pub policy: Policy,
    /// The kubelet's own thresholds, where they are inherited; those in force may be raised or replaced.
    pub kubelets: Option<Policy>,
    /// Whose word is enough for a kill.
    pub memory: MemoryPolicy,
    /// The guard's standing, once it was told.
    pub standing: Option<Standing>,
    /// The cgroup of all pods that the guard measures.
    pub pods_group: Option<String>,
    /// Configurations on their way to the guard, oldest first.
    pub pending: VecDeque<Reconfiguration>,
    /// The configuration that was not taken over when it was read again last.
    pub refused: Option<Refused>,
    /// Manifest files that are not in order.
    pub broken_manifests: Broken,
    /// The latest full reading.
    pub reading: Option<Reading>,
    /// Counts the readings that had the usage of workloads.
    pub closely: u64,
    /// The latest ticket of a request that the guard has heard.
    pub heard: u64,
    /// Earlier readings, oldest first.
    pub readings: VecDeque<Course>,
    /// Thresholds that are met.
    pub met: ThresholdSet,
    /// Since when each has been met.
    pub met_since: [Option<Moment>; ThresholdSet::CAPACITY],
    /// Why ready thresholds are not acted on.
    pub held: [Option<Reason>; ThresholdSet::CAPACITY],
    /// Conditions reported.
    pub conditions: ConditionSet,
    /// Whether orders are carried out.
    pub mode: Mode,
    /// The order that is open.
    pub open_order: Option<u64>,
    /// The latest tables, newest last.
    pub tables: VecDeque<Arc<WorkloadTable>>,
    /// Cgroups of each workload in the newest table.
    pub cgroups: Vec<Vec<String>>,
    /// Cgroups of workloads in which nobody runs that is known, by the workloads' uids.
    pub left_alone: HashMap<String, Vec<String>>,
    /// The `DaemonSet` of workloads that may be evicted, by the workloads' uids: it makes them again at once.
    pub daemons: HashMap<String, String>,
    /// What the kubelet would have done at the latest decision, with the table it speaks of.
    pub foreseen: Option<(u64, [Fate; PHASES], Arc<WorkloadTable>)>,
    /// Decisions, newest last.
    pub decisions: VecDeque<DecisionRecord>,
    /// Kills by the kernel's own killer.
    pub oom_kills: OomTally,
    /// Steps and pages of the guard that found no empty one.
    pub lost: u64,
}

/// A configuration that was not taken over.
#[derive(Clone, Debug)]
pub struct Refused {
    /// When.
    pub at: Moment,
    /// What is wrong with it, one finding a line.
    pub why: String,
}

/// One reading of the node.
#[derive(Clone, Debug)]
pub struct Reading {
    /// When.
    pub at: Moment,
    /// Generation of the table.
    pub generation: u64,
    /// The node's own numbers.
    pub figures: NodeFigures,
    /// All observations.
    pub observations: Observations,
    /// What confirms a shortage.
    pub confirmation: Confirmation,
    /// Usage of the workloads, as of the last reading that had it.
    pub usage: Vec<Option<PodUsage>>,
}

/// The part of a reading that rates are worked out from.
#[derive(Clone, Copy, Debug)]
pub struct Course {
    /// When.
    pub at: Moment,
    /// `memory.available`, in bytes.
    pub available: Option<i64>,
    /// `allocatableMemory.available`, in bytes.
    pub allocatable: Option<i64>,
    /// Headroom with usable swap, in bytes.
    pub headroom: Option<i64>,
}

impl Shared {
    /// Shares a state.
    pub fn new(state: State) -> Self {
        Self {
            state: Mutex::new(state),
            guard_ended: Notify::new(),
            counters: Counters::default(),
            config: watch::Sender::new(None),
        }
    }

    /// This configuration is in force from now on.
    pub fn configure(&self, config: &AgentConfig) {
        self.config.send_replace(Some(Arc::new(config.clone())));
    }

    /// Tells that the guard has ended.
    pub fn tell_guards_end(&self) {
        self.guard_ended.notify_one();
    }

    /// Waits for the guard's end.
    pub async fn guards_end(&self) {
        self.guard_ended.notified().await;
    }

    /// The state, for a moment. A thread that died with it locked left it whole: every change of it
    /// is one assignment.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Nothing known yet.
    pub fn new(policy: Policy, memory: MemoryPolicy, mode: Mode) -> Self {
        Self {
            policy,
            kubelets: None,
            memory,
            standing: None,
            pods_group: None,
            pending: VecDeque::new(),
            refused: None,
            broken_manifests: Broken::default(),
            reading: None,
            closely: 0,
            heard: 0,
            readings: VecDeque::with_capacity(READINGS),
            met: ThresholdSet::EMPTY,
            met_since: [None; ThresholdSet::CAPACITY],
            held: [None; ThresholdSet::CAPACITY],
            conditions: ConditionSet::EMPTY,
            mode,
            open_order: None,
            tables: VecDeque::with_capacity(TABLES),
            cgroups: Vec::new(),
            left_alone: HashMap::new(),
            daemons: HashMap::new(),
            foreseen: None,
            decisions: VecDeque::new(),
            oom_kills: OomTally::default(),
            lost: 0,
        }
    }

    /// Takes a policy over as the engine does: what both know of a threshold stays, what else an index said is forgotten.
    pub fn reconfigure(&mut self, new: &Reconfiguration) {
        let before = std::mem::replace(&mut self.policy, new.policy.clone());
        let thresholds = self.policy.thresholds();
        let mut met = ThresholdSet::EMPTY;
        let mut met_since = [None; ThresholdSet::CAPACITY];
        for index in self.met.iter() {
            let known = before.thresholds().get(index);
            let same =
                known.and_then(|known| thresholds.iter().position(|now| now.is_same_as(known)));
            if let Some(now) = same {
                met.insert(now);
                met_since[now] = self.met_since[index];
            }
        }
        self.met = met;
        self.met_since = met_since;
        self.memory = new.live.memory;
        self.held = [None; ThresholdSet::CAPACITY];
    }

    /// Remembers since when a recalled threshold is met; a first look at the node that does not find it met forgets it again.
    pub fn settle_recalled(&mut self, step: &Step) {
        match step.kind {
            Kind::Recall(Recalled::Met { threshold, since }) => {
                self.met_since[threshold] = Some(since);
            }
            Kind::Sample => {
                for index in 0..ThresholdSet::CAPACITY {
                    if !self.met.contains(index) {
                        self.met_since[index] = None;
                    }
                }
            }
            _ => {}
        }
    }

    /// Takes a new roster's table, and the names of its cgroups.
    pub fn add_roster(&mut self, roster: &Roster) {
        let mut cgroups = vec![Vec::new(); roster.table.len()];
        for member in &roster.members {
            if let Some(of) = cgroups.get_mut(member.workload) {
                of.push(member.group.target.dir().group().to_owned());
            }
        }
        self.cgroups = cgroups;
        let workloads = roster.table.workloads().iter();
        let pairs = workloads.zip(&roster.left_alone);
        let strange = pairs.filter(|(_, paths)| !paths.is_empty());
        self.left_alone = strange
            .map(|(workload, paths)| (workload.uid.clone(), paths.clone()))
            .collect();
        let owned = roster.table.workloads().iter().zip(&roster.owners);
        let daemons = owned.filter_map(|(workload, owner)| {
            let name = owner.as_deref()?.strip_prefix("DaemonSet/")?;
            let is_open = workload.spared().is_none();
            is_open.then(|| (workload.uid.clone(), name.to_owned()))
        });
        self.daemons = daemons.collect();
        keep(&mut self.tables, Arc::clone(&roster.table), TABLES);
    }

    /// Cgroups of each workload in the table of a generation; none if it is not the newest one.
    pub fn cgroups_of(&self, generation: u64) -> &[Vec<String>] {
        match self.table() {
            Some(table) if table.generation() == generation => &self.cgroups,
            _ => &[],
        }
    }

    /// Whether that threshold of the policy is a soft one.
    pub fn is_soft(&self, threshold: usize) -> bool {
        let found = self.policy.thresholds().get(threshold);
        found.is_some_and(|threshold| !threshold.is_hard())
    }

    /// The workload with that uid, as the newest table has it that does.
    pub fn workload(&self, uid: &str) -> Option<&Workload> {
        let mut tables = self.tables.iter().rev();
        tables.find_map(|table| table.workloads().iter().find(|known| known.uid == uid))
    }

    /// The class of the workload with that uid, if it is in the newest table.
    pub fn qos_of(&self, uid: &str) -> Option<&'static str> {
        let table = self.table()?;
        let mut pairs = table.workloads().iter().zip(table.rows());
        let (_, row) = pairs.find(|(workload, _)| workload.uid == uid)?;
        Some(qos_word(row.qos))
    }

    /// The newest table.
    pub fn table(&self) -> Option<&Arc<WorkloadTable>> {
        self.tables.back()
    }

    /// The table of a generation, if it is remembered.
    pub fn table_of(&self, generation: u64) -> Option<&Arc<WorkloadTable>> {
        self.tables
            .iter()
            .find(|table| table.generation() == generation)
    }

    /// Takes a decision, in place of what was known of the same order.
    pub fn add_decision(&mut self, mut record: DecisionRecord) {
        let same = self
            .decisions
            .iter_mut()
            .find(|known| known.order == record.order);
        if let Some(known) = same {
            record.kubelet = record.kubelet.or_else(|| known.kubelet.take());
            record.again = record.again.or_else(|| known.again.take());
            if record.left_alone.is_empty() {
                record.left_alone = std::mem::take(&mut known.left_alone);
            }
            record.kubernetes = record.kubernetes.or_else(|| known.kubernetes.take());
            record.fork_root = record.fork_root.or_else(|| known.fork_root.take());
            *known = record;
        } else {
            keep(&mut self.decisions, record, DECISIONS);
        }
    }

    /// Takes down where the processes of the victim with that uid came from, if the decision with that number is remembered: whether it is.
    pub fn add_fork_root(&mut self, order: u64, uid: &str, root: Field<ForkRoot>) -> bool {
        let mut decisions = self.decisions.iter_mut().rev();
        // Whoever enforced before us numbered orders as well.
        let meant = decisions.find(|record| record.order == order && record.victim.uid == uid);
        let Some(record) = meant else {
            return false;
        };
        record.fork_root = Some(root);
        true
    }

    /// The decision with that number.
    pub fn decision(&self, order: u64) -> Option<&DecisionRecord> {
        self.decisions
            .iter()
            .rev()
            .find(|record| record.order == order)
    }

    /// Takes a reading's course.
    pub fn add_course(&mut self, course: Course) {
        keep(&mut self.readings, course, READINGS);
    }
}

fn keep<T>(queue: &mut VecDeque<T>, item: T, most: usize) {
    if queue.len() == most {
        queue.pop_front();
    }
    queue.push_back(item);
}
