//! A cluster that is told: what the runtime says becomes entries of the outbox and wishes for the node, and tasks carry them on.

mod put;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use anyhow::Context as _;
use brink_core::base::{Moment, Reason, Span};
use brink_core::node::condition::{Condition, ConditionSet};
use brink_core::node::observe::Observations;
use brink_core::node::policy::Policy;
use brink_core::node::safety::Mode;
use brink_core::node::signal::{Resource, Signal};
use brink_core::node::workload::{ContainerUsage, Workload};
use brink_host::cgroup::Layout;
use brink_host::cgroup::pod::PodRoots;
use brink_host::clock::ClockPair;
use brink_host::probe::abi::record::VictimRecord;
use brink_host::probe::decode::name;
use brink_host::probe::shortage::Shortage;
use brink_kube::client::Access;
use brink_kube::outbox::{Cause, Entry, Files, Key};
use brink_kube::pods::Pods;
use brink_kube::write::conflict::Conflict;
use brink_kube::write::deliver::Around;
use brink_kube::write::herald::Wanted;
use brink_kube::write::plan::{Seen, Told};
use tokio::sync::mpsc::{Sender, channel};
use tokio::sync::{Notify, watch};
use tracing::{info, warn};

use super::Tell;
use super::containers::{Groups, Held, container_of, names, usages};
use super::fold::{Fold, Kill};
use super::tasks::Tasks;
use super::words::{Known, evicted, seconds, would_evict};
use crate::config::Kubernetes;
use crate::guard;
use crate::guard::ports::Evicted;
use crate::guard::roster::Roster;
use crate::record::DecisionRecord;
use crate::record::wire::wall_clock;
use crate::record::words::mode_word;
use crate::recorder::Recorder;
use crate::runtime::cluster::{InVain, Voice};
use crate::runtime::state::Shared;
use crate::runtime::stop_button::StopButton;
use crate::storage::Keeper;
use put::view;

/// Folder of the outbox in the state directory.
const OUTBOX: &str = "outbox";
/// File of what was told of the node, likewise.
const NODE: &str = "node.json";
/// File of the last order that was put into the outbox, likewise: later ones of the ledger are still to be.
const LAST: &str = "outbox.last";
/// Entries on their way to the postman; what finds no room is found on disk.
const QUEUE: usize = 64;
/// A pod that would be evicted is told of again only after so long.
const DRY_AGAIN: Span = Span::from_secs(600);
/// Pods that are remembered for that.
const DRY_PODS: usize = 256;

/// What it is made of.
pub struct Plan<'a> {
    /// How the cluster is to be told.
    pub config: &'a Kubernetes,
    /// How it is reached.
    pub access: Access,
    /// Name of this node in it.
    pub node: String,
    /// Anything that differs from run to run.
    pub seed: u64,
    /// The state directory.
    pub folder: &'a Path,
    /// The pods as the API has them.
    pub pods: Arc<Pods>,
    /// Whether the kubelet is asked in vain what it goes by; none where it is not asked.
    pub asked_in_vain: Option<watch::Receiver<Option<InVain>>>,
    /// What else there is here.
    pub of: Voice,
}

/// A cluster that is told.
pub struct Speaker {
    boot: String,
    dry_runs: bool,
    layout: Layout,
    roots: PodRoots,
    pods: Arc<Pods>,
    recorder: Arc<OnceLock<Arc<Recorder>>>,
    keeper: Arc<Keeper>,
    shared: Arc<Shared>,
    files: Arc<Files>,
    last: PathBuf,
    ours: Arc<Notify>,
    new: Sender<Entry>,
    /// None once the end has come.
    wanted: Mutex<Option<watch::Sender<Wanted>>>,
    /// Who acts first; taken with `wanted` in hand alone, so that no look tells an older one.
    beside: Mutex<Beside>,
    groups: Mutex<Groups>,
    fold: Mutex<Fold>,
    dry: Mutex<BTreeMap<String, Moment>>,
    /// Keys of what is still to be told; no more than the outbox has room for.
    owed: Mutex<BTreeSet<Key>>,
}

/// Who acts first by the thresholds of both, where there is something to say of that, and whether we act at all.
#[derive(Clone, Debug, Default)]
struct Beside {
    conflict: Option<Conflict>,
    is_enforcing: bool,
}

impl Beside {
    fn in_force(&self) -> Option<Conflict> {
        let conflict = self.conflict.clone()?;
        Some(if self.is_enforcing {
            conflict
        } else {
            conflict.while_idle()
        })
    }
}

impl Speaker {
    /// Opens the outbox.
    ///
    /// # Errors
    /// When its folder cannot be had.
    pub fn open(plan: Plan<'_>) -> anyhow::Result<(Arc<Self>, Tasks)> {
        let folder = plan.folder.join(OUTBOX);
        let files = Files::open(&folder)
            .with_context(|| format!("cannot open the outbox {}", folder.display()))?;
        let (new, receiver) = channel(QUEUE);
        let (wanted, wishes) = watch::channel(Wanted::Unknown);
        let speaker = Arc::new(Self {
            boot: plan.of.boot.to_string(),
            dry_runs: plan.config.dry_run_events,
            layout: plan.of.layout,
            roots: plan.of.roots,
            pods: plan.pods,
            recorder: plan.of.recorder,
            keeper: plan.of.keeper,
            shared: plan.of.shared,
            files: Arc::new(files),
            last: plan.folder.join(LAST),
            ours: Arc::default(),
            new,
            wanted: Mutex::new(Some(wanted)),
            beside: Mutex::default(),
            groups: Mutex::default(),
            fold: Mutex::new(Fold::new(guard::now())),
            dry: Mutex::default(),
            owed: Mutex::default(),
        });
        let tasks = Tasks {
            speaker: Arc::clone(&speaker),
            access: plan.access,
            node: plan.node,
            seed: plan.seed,
            taints: plan.config.taint,
            file: plan.folder.join(NODE),
            button: StopButton::of_node(plan.folder),
            new: receiver,
            changes: speaker.pods.heard(),
            config: speaker.shared.config.subscribe(),
            asked_in_vain: plan.asked_in_vain,
            wanted: wishes,
        };
        Ok((speaker, tasks))
    }

    /// No more is wanted of the node: what was told of it is taken away.
    pub fn close(&self) {
        lock(&self.wanted).take();
    }

    /// Who acts first, we or the kubelet, is this from now on; none where nothing is to be said of that.
    pub(super) fn stand_beside(&self, conflict: Option<Conflict>) {
        let wanted = lock(&self.wanted);
        let new = {
            let mut beside = lock(&self.beside);
            beside.conflict = conflict;
            beside.in_force()
        };
        if let Some(wanted) = &*wanted {
            wanted.send_if_modified(|wanted| match wanted {
                Wanted::Says { beside, .. } => replace(beside, new),
                Wanted::Unknown | Wanted::Nothing => false,
            });
        }
    }

    /// How much is still to be told.
    pub fn owed(&self) -> usize {
        lock(&self.owed).len()
    }

    pub(super) fn ours(&self) -> Arc<Notify> {
        Arc::clone(&self.ours)
    }

    pub(super) fn files(&self) -> Arc<Files> {
        Arc::clone(&self.files)
    }

    /// Whether a pod that would be evicted is to be told of: not again and again while it lasts.
    fn is_news(&self, uid: &str, now: Moment) -> bool {
        let mut told = lock(&self.dry);
        told.retain(|_, at| now.since(*at) < DRY_AGAIN);
        let is_news = !told.contains_key(uid) && told.len() < DRY_PODS;
        if is_news {
            told.insert(uid.to_owned(), now);
        }
        is_news
    }

    fn tell_kills(&self) {
        let due = lock(&self.fold).due(&self.boot, guard::now());
        for entry in due {
            self.put(entry);
        }
    }

    /// What the containers of a victim used of the resource that was short: of memory when it was chosen, of disks when they
    /// were last measured.
    fn usages(&self, record: &DecisionRecord, victim: &Workload) -> Vec<ContainerUsage> {
        match Signal::named(&record.threshold.signal).map(Signal::resource) {
            Some(Resource::Memory) => self.memory(record, victim),
            Some(Resource::EphemeralStorage) => {
                let measured = self.keeper.measured(&victim.uid);
                measured.map_or_else(Vec::new, |measured| measured.detail.containers)
            }
            // Of these the kubelet names no container.
            Some(Resource::Inodes | Resource::Pids) | None => Vec::new(),
        }
    }

    fn memory(&self, record: &DecisionRecord, victim: &Workload) -> Vec<ContainerUsage> {
        let Some(pod) = self.pods.get(&victim.uid) else {
            return Vec::new();
        };
        let at = Moment::from_nanos(record.decided.monotonic_ns);
        let containers = lock(&self.groups).containers(&self.roots, &victim.uid);
        let recorded = |path: &str| self.recorder.get()?.working_set(path, at);
        let whole = record.victim.usage;
        let whole = whole.and_then(|bytes| u64::try_from(bytes).ok());
        // What was recorded may be a second old, and what is there now the dead have begun to give back.
        usages(victim, &containers, &names(&pod.json), whole, |path| {
            Held::of(&self.layout, path, recorded(path))
        })
    }
}

impl Tell for Speaker {
    fn ordered(&self, record: &DecisionRecord, victim: &Workload, policy: &Policy) {
        let nobody_died = record.kill.as_ref().is_some_and(|kill| kill.signalled == 0);
        if nobody_died || self.pods.get(&victim.uid).is_none() {
            return;
        }
        let containers = self.usages(record, victim);
        let known = Known {
            victim,
            policy,
            containers: &containers,
        };
        let is_observed = record.mode == mode_word(Mode::Observing(Reason::Observing));
        let entry = if record.mode == mode_word(Mode::Enforcing) {
            evicted(record, known)
        } else if is_observed && self.dry_runs && self.is_news(&victim.uid, guard::now()) {
            would_evict(record, known)
        } else {
            return;
        };
        if let Some(entry) = entry {
            self.put(entry);
        } else {
            warn!(
                order = record.order,
                "an eviction cannot be put into words for Kubernetes"
            );
        }
    }

    fn looked(&self, (held, seen): (ConditionSet, &Observations), policy: &Policy, mode: Mode) {
        let wanted = lock(&self.wanted);
        let beside = {
            let mut beside = lock(&self.beside);
            beside.is_enforcing = mode == Mode::Enforcing;
            beside.in_force()
        };
        let new = match mode {
            Mode::Observing(Reason::Observing) => Wanted::Nothing,
            Mode::Observing(Reason::Standby) => Wanted::Unknown,
            Mode::Enforcing | Mode::Observing(_) => Wanted::Says {
                measured: measured(policy, held, seen),
                held,
                beside,
            },
        };
        if let Some(wanted) = &*wanted {
            wanted.send_if_modified(|wanted| replace(wanted, new));
        }
    }

    fn oom_kill(&self, kill: &VictimRecord) {
        // Whoever only observes posts nothing unasked.
        let mode = self.shared.lock().mode;
        if matches!(mode, Mode::Observing(Reason::Observing | Reason::Standby)) && !self.dry_runs {
            return;
        }
        let (pod, path) = {
            let groups = lock(&self.groups);
            let Some((pod, path)) = groups.whose(kill.cgroup) else {
                return;
            };
            (pod.clone(), path.to_owned())
        };
        let Some(object) = self.pods.get(&pod.uid) else {
            return;
        };
        let container = container_of(&self.roots, &path, true);
        let container = container.map(|id| names(&object.json).remove(&id).unwrap_or(id));
        let wall = ClockPair::now().realtime_of(kill.head.at_ns);
        let pod_name = pod.name.clone();
        let is_taken = lock(&self.fold).take(Kill {
            pod,
            container,
            pid: kill.pid,
            comm: name(&kill.comm).into_owned(),
            short: Shortage::of(kill).word(),
            at_ns: kill.head.at_ns,
            wall: seconds(&wall_clock(wall)).unwrap_or_default(),
        });
        if !is_taken {
            warn!(
                pod = pod_name,
                "Kubernetes is not told of a kill: too many wait for their turn"
            );
        }
        self.tell_kills();
    }

    fn take_up(&self, evicted: &[Evicted]) {
        self.ours.notify_one();
        self.recall(evicted);
    }

    fn follow(&self, roster: &Roster) {
        *lock(&self.groups) = Groups::of(roster);
    }
}

impl Around for Speaker {
    fn now(&self) -> Moment {
        guard::now()
    }

    fn seen(&self, uid: &str) -> Seen {
        self.pods.seen(uid)
    }

    fn wake(&self) -> Option<Moment> {
        self.tell_kills();
        lock(&self.fold).next(guard::now())
    }

    fn told(&self, told: &Told) {
        let entry = &told.entry;
        if entry.is_settled() {
            lock(&self.owed).remove(&entry.key);
        } else {
            lock(&self.owed).insert(entry.key.clone());
        }
        if let Cause::Order(order) = entry.key.of
            && entry.key.boot == self.boot
        {
            self.remember(order, view(entry, told.waits.clone()));
        }
        if told.is_changed && entry.is_settled() {
            let view = view(entry, None);
            info!(
                key = entry.key.text(),
                namespace = entry.pod.namespace,
                pod = entry.pod.name,
                status = view.status,
                event = view.event,
                why = view.why,
                "Kubernetes was told"
            );
        }
    }
}

/// The conditions whose signals are measured here; what nobody measures, as a disk that does not answer, is not said to be in
/// order.
fn measured(policy: &Policy, held: ConditionSet, seen: &Observations) -> ConditionSet {
    let signals = policy.thresholds().iter().map(|threshold| threshold.signal);
    let is_known = |signal: &Signal| match signal.condition() {
        Condition::MemoryPressure | Condition::PidPressure => true,
        Condition::DiskPressure => seen[*signal].is_some(),
    };
    let known = signals.filter(|signal| is_known(signal) || held.contains(signal.condition()));
    known.map(Signal::condition).collect()
}

/// Puts a new one in the place of the old one, and says whether it is another.
fn replace<T: PartialEq>(old: &mut T, new: T) -> bool {
    let is_other = *old != new;
    *old = new;
    is_other
}

/// Every change is one assignment, so one who died holding it harms nobody.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "speaker_tests.rs"]
mod tests;
