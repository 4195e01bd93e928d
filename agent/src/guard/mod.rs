//! The guard: one synchronous thread from kernel event to kill.
//!
//! It selects outside and applies inside: a turn waits for a signal of the kernel, a command or a deadline, turns what
//! it heard into inputs of the engine, and carries the answers out. From the event to the kill it allocates nothing,
//! takes no lock and waits for nobody. Whatever can wait goes through [`ports`] to the runtime.

pub mod again;
pub mod board;
pub mod disks;
pub mod figures;
pub mod files;
pub mod ids;
pub mod kernel;
pub mod page;
mod parked;
pub mod pods;
pub mod ports;
pub mod roster;
pub mod rung;
pub mod step;
pub mod storage;
pub mod swap;
pub mod watches;

mod act;
mod assess;
mod breaks;
mod compared;
mod follow;
mod hear;
mod keep;
mod limits;
mod measuring;
mod omitted;
mod quiet;
mod reclaim;
mod rehearse;
#[cfg(test)]
mod scene;
mod take_up;
mod turn;
mod unreaped;
mod usage;
mod verify;

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use brink_core::base::{Moment, Span};
use brink_core::node::action::Actions;
use brink_core::node::engine::{Engine, MemoryPolicy};
use brink_core::node::input::Input;
use brink_core::node::threshold::ThresholdSet;
use brink_core::node::workload::PodUsage;
use brink_host::cgroup::Layout;
use brink_host::kill::Killer;
use brink_host::ledger::Ledger;
use brink_host::probe::Growth;
use brink_host::realtime::FifoPriority;
use brink_host::{HostError, clock};

use crate::ledger::Author;
use again::Newcomers;
use files::{NodeFiles, NodePlan, page};
use follow::{Current, LINGERING};
use hear::Item;
use kernel::Kernel;
use measuring::Measuring;
use parked::Parked;
use ports::{Evicted, Interrupted, Ports};
use rehearse::Approach;
use roster::Roster;
use take_up::Unrecalled;
use turn::{Awake, Times};
use unreaped::Unreaped;
use watches::Terrain;

/// What a guard is made of.
pub struct Plan {
    /// The root of the file system to read from.
    pub root: PathBuf,
    /// Where the cgroups are.
    pub layout: Layout,
    /// What the node is.
    pub node: NodePlan,
    /// The engine.
    pub engine: Engine,
    /// What it is told before anything else: what outlived the last run, and whether it may enforce.
    pub first: Vec<Input<'static>>,
    /// Pods that the last run has evicted lately.
    pub evicted: Vec<Evicted>,
    /// The order that the last run has left open.
    pub interrupted: Option<Interrupted>,
    /// Whose word is enough for a kill.
    pub memory: MemoryPolicy,
    /// Why there is no sampler at first. The guard protects from files until one is handed to it.
    pub without_sampler: String,
    /// Kills.
    pub killer: Killer,
    /// Where decisions are recorded before they are carried out; none for an agent that may not.
    pub ledger: Option<Ledger>,
    /// What every record says of its author.
    pub author: Author,
    /// How the thread wants to be scheduled.
    pub realtime: Realtime,
    /// How often everything is read and armed again.
    pub housekeeping: Span,
    /// The workloads at the start.
    pub roster: Box<Roster>,
}

/// How the guard thread wants to be scheduled.
#[derive(Clone, Copy, Debug)]
pub struct Realtime {
    /// The priority; none to stay an ordinary thread at nice −20.
    pub priority: Option<FifoPriority>,
    /// Whether it may move itself to the root cpu group to get it.
    pub may_move: bool,
}

/// The guard's state; owned by its thread.
#[expect(
    clippy::struct_excessive_bools,
    reason = "three independent facts, each with its own life"
)]
struct Guard {
    root: PathBuf,
    layout: Layout,
    ports: Arc<Ports>,
    engine: Engine,
    actions: Actions,
    memory: MemoryPolicy,
    files: NodeFiles,
    /// What the node is.
    node: NodePlan,
    /// What the guard waits on.
    waiter: Option<OwnedFd>,
    kernel: Option<Kernel>,
    /// Why the sampler does not serve, for the standing.
    without_kernel: Vec<String>,
    /// The fastest that anything can grow here.
    growth: Growth,
    /// What the sampler's limits were made for.
    terrain: Option<Terrain>,
    /// Passes in a row in which a distrusted sampler agreed with the files again.
    agreements: u32,
    distrusted: bool,
    is_realtime: bool,
    scheduling: (String, Option<String>),
    killer: Killer,
    ledger: Option<Ledger>,
    author: Author,
    roster: Box<Roster>,
    usage: Vec<Option<PodUsage>>,
    order: Vec<u32>,
    threads: Option<i64>,
    /// The kernel's programs count more threads than the limit they were given.
    is_over_threads: bool,
    current: Option<Current>,
    /// Victims that outlive their orders.
    lingering: [Option<Current>; LINGERING],
    newcomers: Newcomers,
    unrecalled: Unrecalled,
    unreaped: Unreaped,
    parked: Parked,
    approach: Approach,
    /// How many tasks had come into another cgroup when a kill was prepared.
    attaches: Option<u64>,
    heard: Vec<Item>,
    times: Times,
    awake: Awake,
    last_evaluated: Moment,
    /// When each threshold was not met for the last time.
    last_above: [Option<Moment>; ThresholdSet::CAPACITY],
    met_before: ThresholdSet,
    /// What the kernel's last sample showed as met; none before the first one, and after a change of thresholds.
    heard_met: Option<ThresholdSet>,
    /// The engine asked the node to reclaim; nobody can, and it is told so.
    reclaim_asked: bool,
    /// When the newest figures of filesystems were measured that anybody could have gone for.
    disks_seen: Option<Moment>,
    measuring: Measuring,
    /// The last evaluation was left to the next turn.
    is_put_off: bool,
    /// The node could not be read when it was last tried.
    unreadable: Option<brink_host::HotError>,
    /// Something that failed in housekeeping, for the standing.
    trouble: Option<String>,
    /// The standing as it was told last.
    told: Option<rung::Standing>,
    /// The cgroup of all pods as it was told last.
    told_pods: Option<String>,
}

/// What the last run has left.
struct Left {
    first: Vec<Input<'static>>,
    evicted: Vec<Evicted>,
    interrupted: Option<Interrupted>,
}

/// One function of each layer that a kill runs through: guard, core, host.
pub fn way_of_a_kill() -> [*const (); 5] {
    [
        Guard::run as *const (),
        Guard::conclude as *const (),
        Engine::step as *const (),
        Killer::kill as *const (),
        Killer::sweep as *const (),
    ]
}

/// Starts the guard thread.
///
/// # Errors
/// [`HostError`] when the node's files cannot be opened or the thread cannot be started.
pub fn start(plan: Plan, ports: Arc<Ports>) -> Result<JoinHandle<()>, HostError> {
    let files = NodeFiles::open(&plan.root, &plan.layout, &plan.node)?;
    let realtime = plan.realtime;
    let left = Left {
        first: plan.first.clone(),
        evicted: plan.evicted.clone(),
        interrupted: plan.interrupted.clone(),
    };
    let guard = Guard::new(plan, files, ports);
    let thread = std::thread::Builder::new().name("brink-guard".into());
    let started = thread.spawn(move || guard.run(realtime, left));
    started.map_err(|source| HostError::Call {
        what: "starting the guard thread",
        source,
    })
}

/// The present moment of the clock all records use.
pub fn now() -> Moment {
    Moment::from_nanos(i64::try_from(clock::monotonic_ns()).unwrap_or(i64::MAX))
}

impl Guard {
    fn new(mut plan: Plan, mut files: NodeFiles, ports: Arc<Ports>) -> Self {
        let workloads = plan.roster.table.len();
        plan.killer.protect(&mut plan.roster.protected);
        files.follow_pods(plan.roster.pods_group.as_deref());
        let parked = Parked::new(files.cpu_lists(), page());
        Self {
            root: plan.root,
            layout: plan.layout,
            ports,
            engine: plan.engine,
            actions: Actions::default(),
            memory: plan.memory,
            files,
            node: plan.node,
            waiter: None,
            kernel: None,
            without_kernel: vec![plan.without_sampler],
            growth: Growth::of_this_machine(),
            terrain: None,
            agreements: 0,
            distrusted: false,
            is_realtime: false,
            scheduling: (String::new(), None),
            killer: plan.killer,
            ledger: plan.ledger,
            author: plan.author,
            roster: plan.roster,
            usage: Vec::with_capacity(workloads),
            order: Vec::with_capacity(workloads),
            threads: None,
            is_over_threads: false,
            current: None,
            lingering: [const { None }; LINGERING],
            newcomers: Newcomers::new(),
            unrecalled: Unrecalled::default(),
            unreaped: Unreaped::new(),
            parked,
            approach: Approach::new(),
            attaches: None,
            heard: Vec::with_capacity(hear::BOUND),
            times: Times::new(plan.housekeeping),
            awake: Awake::now(),
            last_evaluated: Moment::START,
            last_above: [None; ThresholdSet::CAPACITY],
            met_before: ThresholdSet::EMPTY,
            heard_met: None,
            reclaim_asked: false,
            disks_seen: None,
            measuring: Measuring::default(),
            is_put_off: false,
            unreadable: None,
            trouble: None,
            told: None,
            told_pods: None,
        }
    }
}
