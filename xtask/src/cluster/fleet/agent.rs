//! One simulated agent: the tasks of brink-kube as the agent's own thread runs them, beside a tally of what comes of them.
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use brink_core::{
    base::Moment,
    node::condition::{Condition, ConditionSet},
};
use brink_kube::{
    client::Access,
    outbox::{Cause, Entry, EventWords, Eviction, Files, Key, Part, PodRef, entry::VERSION},
    pause::{self, Pause},
    pods::{Pods, follow::Follow},
    watch::Streaming,
    write::{
        deliver::{Around, Postman},
        door::Door,
        herald::{Herald, Wanted},
        plan::{Seen, Told},
    },
};
use jiff::Timestamp;
use tokio::{
    sync::{Notify, mpsc, watch},
    task::{JoinHandle, spawn_local},
    time::timeout,
};

/// How long the last words may take, as in the agent.
const LAST_WORDS: Duration = Duration::from_secs(4);
/// Entries on their way to the postman, as in the agent.
const QUEUE: usize = 64;
/// What an eviction says, as long as the kubelet's words are.
const MESSAGE: &str = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. Container app was using 300Mi, \
                       request is 16Mi, has larger consumption of memory. ";

/// What has come of what one agent was to tell, and what it was told.
#[derive(Debug, Default)]
pub(super) struct Tally {
    entries: Mutex<BTreeMap<String, Outcome>>,
    pause: Mutex<Option<Pause>>,
}

/// What has come of one entry.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    put: Instant,
    /// When both status and event were told.
    told: Option<Instant>,
    /// Why one of them never is.
    pub(super) ended: Option<String>,
}

impl Outcome {
    /// How long it took; from `back`, where the server was away before.
    pub(super) fn took(&self, back: Option<Instant>) -> Option<Duration> {
        let from = back.map_or(self.put, |back| back.max(self.put));
        self.told.map(|told| told.saturating_duration_since(from))
    }
}

impl Tally {
    /// What has come of each entry, by its key.
    pub(super) fn entries(&self) -> MutexGuard<'_, BTreeMap<String, Outcome>> {
        lock(&self.entries)
    }

    /// Whether all of it was told, or never is.
    pub(super) fn is_settled(&self) -> bool {
        self.entries()
            .values()
            .all(|each| each.told.is_some() || each.ended.is_some())
    }

    /// How the node's annotation stands; none before it was heard of.
    pub(super) fn pause(&self) -> Option<Pause> {
        *lock(&self.pause)
    }
}

/// Every change is one assignment, so one who died holding it harms nobody.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who stands around a postman.
struct Bystander {
    pods: Arc<Pods>,
    tally: Arc<Tally>,
}

impl Around for Bystander {
    fn now(&self) -> Moment {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Moment::from_nanos(
            now.tv_sec
                .saturating_mul(1_000_000_000)
                .saturating_add(now.tv_nsec),
        )
    }

    fn seen(&self, uid: &str) -> Seen {
        self.pods.seen(uid)
    }

    fn wake(&self) -> Option<Moment> {
        None
    }

    fn told(&self, told: &Told) {
        let entry = &told.entry;
        if !entry.is_settled() {
            return;
        }
        let mut entries = self.tally.entries();
        let Some(outcome) = entries.get_mut(&entry.key.text()) else {
            return;
        };
        let ends = [&entry.status_part, &entry.event_part].into_iter();
        let mut ends = ends.filter_map(|part| match part {
            Part::Ended(end) => Some(end.words()),
            _ => None,
        });
        match ends.next() {
            Some(why) => outcome.ended = Some(why),
            None => drop(outcome.told.get_or_insert_with(Instant::now)),
        }
    }
}

/// What agents are made of.
#[derive(Debug, Clone)]
pub(super) struct Plan<'a> {
    pub(super) access: Access,
    /// Folder for the outboxes.
    pub(super) folder: &'a Path,
    /// Tells this run's entries from those of others.
    pub(super) run: String,
    pub(super) seed: u64,
}

impl Plan<'_> {
    /// The seed of one agent: no two wait alike.
    pub(super) fn seed_of(&self, index: usize) -> u64 {
        let index = u64::try_from(index).unwrap_or(u64::MAX);
        self.seed
            .wrapping_add(index)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// One agent. It stops when it is told to, or with the runtime.
pub(super) struct Agent {
    /// What its node is called.
    pub(super) node: String,
    pub(super) pods: Arc<Pods>,
    pub(super) tally: Arc<Tally>,
    boot: String,
    orders: u64,
    files: Arc<Files>,
    new: mpsc::Sender<Entry>,
    ours: Arc<Notify>,
    wanted: watch::Sender<Wanted>,
    stopped: Arc<Notify>,
    task: Running,
}

/// A task that ends with whoever holds this.
struct Running(JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The other ends of what an agent holds, and what its tasks are made of.
struct Tasks {
    follow: Follow,
    pods: Arc<Pods>,
    tally: Arc<Tally>,
    files: Arc<Files>,
    new: mpsc::Receiver<Entry>,
    ours: Arc<Notify>,
    wanted: watch::Receiver<Wanted>,
    file: std::path::PathBuf,
    stopped: Arc<Notify>,
}

impl Agent {
    /// Starts one that enforces and finds its node in order; a local set of the runtime must be there, as the tasks keep to one thread.
    ///
    /// # Errors
    /// When there is no room for its outbox.
    pub(super) fn start(plan: &Plan<'_>, index: usize, node: &str) -> anyhow::Result<Self> {
        let folder = plan.folder.join(node);
        let files = Files::open(&folder.join("outbox"));
        let files = Arc::new(files.with_context(|| format!("making {}", folder.display()))?);
        let tally = Arc::new(Tally::default());
        let pods = Arc::new(Pods::new(|| {}));
        let (new, receiver) = mpsc::channel(QUEUE);
        let (wanted, wishes) = watch::channel(wanted(false));
        let (ours, stopped) = (Arc::<Notify>::default(), Arc::<Notify>::default());
        let tasks = Tasks {
            follow: Follow {
                access: plan.access.clone(),
                node: node.to_owned(),
                streaming: Streaming::Auto,
                seed: plan.seed_of(index),
            },
            pods: Arc::clone(&pods),
            tally: Arc::clone(&tally),
            files: Arc::clone(&files),
            new: receiver,
            ours: Arc::clone(&ours),
            wanted: wishes,
            file: folder.join("node.json"),
            stopped: Arc::clone(&stopped),
        };
        // It enforces from its start.
        ours.notify_one();
        Ok(Self {
            node: node.to_owned(),
            pods,
            tally,
            boot: format!("{}-{index}", plan.run),
            orders: 0,
            files,
            new,
            ours,
            wanted,
            stopped,
            task: Running(spawn_local(tasks.run())),
        })
    }

    /// A pod was evicted: put into the outbox and on its way, as the agent's clerk does it. The key of what is to be told.
    ///
    /// # Errors
    /// When there is no room for it.
    pub(super) fn evict(&mut self, pod: PodRef) -> anyhow::Result<String> {
        self.orders += 1;
        let now = Timestamp::now();
        let at = Timestamp::from_second(now.as_second())
            .unwrap_or(now)
            .to_string();
        let annotations = [
            ("offending_containers", "app"),
            ("offending_containers_usage", "300Mi"),
            ("starved_resource", "memory"),
        ];
        let entry = Entry {
            version: VERSION,
            key: Key {
                boot: self.boot.clone(),
                of: Cause::Order(self.orders),
            },
            pod,
            status: Some(Eviction {
                message: MESSAGE.to_owned(),
                generation: Some(1),
                at: at.clone(),
                for_limit: false,
            }),
            status_part: Part::Owed,
            event: EventWords {
                warns: true,
                reason: "Evicted".to_owned(),
                message: MESSAGE.to_owned(),
                annotations: annotations
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .into(),
                count: 1,
                first: at.clone(),
                last: at,
            },
            event_part: Part::Owed,
        };
        let outcome = Outcome {
            put: Instant::now(),
            told: None,
            ended: None,
        };
        let key = entry.key.text();
        self.tally.entries().insert(key.clone(), outcome);
        self.files
            .put(&entry)
            .with_context(|| format!("the outbox of {}", self.node))?;
        if self.new.try_send(entry).is_err() {
            self.ours.notify_one();
        }
        Ok(key)
    }

    /// Whether the node is short of memory from now on.
    pub(super) fn feel(&self, is_short: bool) {
        self.wanted.send_replace(wanted(is_short));
    }

    /// Stops as the agent does: what it said of its node is taken away first.
    ///
    /// # Errors
    /// When its tasks have panicked, at the end or long before.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        drop(self.wanted);
        self.stopped.notify_one();
        let ended = (&mut self.task.0).await;
        ended.with_context(|| format!("the tasks of {}", self.node))
    }
}

impl Tasks {
    /// As the agent's thread beside the API runs them.
    async fn run(self) {
        let Follow {
            access, node, seed, ..
        } = self.follow.clone();
        let postman = Postman {
            door: Door::new(access.clone()),
            node: node.clone(),
            seed,
            files: self.files,
            new: self.new,
            pods: self.pods.heard(),
            ours: self.ours,
            around: Arc::new(Bystander {
                pods: Arc::clone(&self.pods),
                tally: Arc::clone(&self.tally),
            }),
        };
        let pause = pause::Follow {
            access: access.clone(),
            node: node.clone(),
            seed,
        };
        let herald = Herald {
            door: Door::new(access),
            node,
            seed,
            taints: false,
            wanted: self.wanted,
            file: self.file,
        };
        let tally = self.tally;
        let telling = async {
            tokio::select! {
                () = postman.run() => {}
                () = herald.run() => {}
                () = pause.run(|pause| *lock(&tally.pause) = Some(pause)) => {}
            }
        };
        tokio::pin!(telling);
        tokio::select! {
            () = self.stopped.notified() => {}
            () = self.follow.run(&self.pods) => {}
            () = &mut telling => return,
        }
        let _too_late = timeout(LAST_WORDS, telling).await;
    }
}

/// What the node is to say.
fn wanted(is_short: bool) -> Wanted {
    let measured = [Condition::MemoryPressure, Condition::PidPressure];
    let held = measured.into_iter().take(usize::from(is_short));
    Wanted::Says {
        measured: measured.into_iter().collect(),
        held: held.collect::<ConditionSet>(),
        beside: None,
    }
}

/// Our own memory, in bytes.
///
/// # Errors
/// When the kernel does not say.
pub(super) fn resident() -> anyhow::Result<u64> {
    let path = "/proc/self/status";
    let text = fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(kibibytes.with_context(|| format!("{path} has no VmRSS"))? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_short_says_so_of_memory_alone() {
        let Wanted::Says { measured, held, .. } = wanted(true) else {
            panic!("it says something");
        };
        let held: Vec<Condition> = held.iter().collect();
        assert_eq!(held, [Condition::MemoryPressure]);
        assert_eq!(measured.iter().count(), 2);
    }

    #[test]
    fn no_two_agents_have_a_seed_in_common() {
        let plan = Plan {
            access: Access::default(),
            folder: Path::new("/"),
            run: String::new(),
            seed: 7,
        };
        let seeds: std::collections::BTreeSet<u64> =
            (0..5_000).map(|at| plan.seed_of(at)).collect();
        assert_eq!(seeds.len(), 5_000);
        assert!(resident().unwrap() > 1 << 20);
    }
}
