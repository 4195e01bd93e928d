//! From a checked configuration to a running agent: what is opened, loaded and locked before the guard starts.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::Context as _;
use brink_core::base::Moment;
use brink_core::node::engine::Engine;
use brink_core::node::input::Control;
use brink_core::node::safety::Mode;
use brink_core::node::signal::Signal;
use brink_host::cgroup::Layout;
use brink_host::clock::{BootId, ClockPair};
use brink_host::ledger::{Ledger, Opening};
use brink_host::lock::{Enforcer, EnforcerLock};
use brink_host::probe::{EvidenceReader, Meters, Probe, Wishes};
use brink_host::realtime::{self, FifoPriority, oom_score};
use brink_host::{open_files, realtime::trim_heap};
use tracing::{info, warn};

use super::clerk::{BoardCell, Clerk};
use super::hooks::Hooks;
use super::journal::Journal;
use super::state::{Shared, State};
use super::stop_button::StopButton;
use super::watch::{Bell, Watcher, manifests};
use crate::backend::build::Builder;
use crate::config::{AgentConfig, NodeScope};
use crate::equip;
use crate::guard::files::{NodePlan, Scope};
use crate::guard::ports::{Command, Ports};
use crate::guard::{self, Plan, Realtime};
use crate::ledger::{Author, DECISIONS, Record, Rung};
use crate::record::DecisionRecord;
use crate::warmer::Warmer;

/// Empty steps for the guard, and the memory they may take together.
const STEPS: usize = 64;
const STEP_BYTES: usize = 2 << 20;

/// A running agent. Stop it with [`Running::stop`].
pub struct Running {
    /// What everybody sees.
    pub shared: Arc<Shared>,
    /// To and from the guard.
    pub ports: Arc<Ports>,
    /// Wakes the watcher.
    pub bell: Arc<Bell>,
    /// The stop button.
    pub button: StopButton,
    /// Counters of the kernel's programs.
    pub meters: Option<Arc<Meters>>,
    /// Each program, and why it does not run if so.
    pub programs: Vec<ProgramState>,
    /// This boot.
    pub boot: BootId,
    /// Both clocks at the start.
    pub started: ClockPair,
    lock: Option<EnforcerLock>,
    threads: Vec<(&'static str, JoinHandle<()>)>,
}

/// A program of the kernel's, for doctor and status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramState {
    /// Its name.
    pub name: String,
    /// Its family.
    pub family: String,
    /// Why it does not run; none if it does.
    pub absent: Option<String>,
}

/// Starts everything.
///
/// # Errors
/// What could not be had, with what to do about it.
pub fn start(config: &AgentConfig) -> anyhow::Result<Running> {
    let root = config.paths.root.as_path();
    let layout = Layout::detect(root).context("no control groups to watch over")?;
    std::fs::create_dir_all(&config.paths.state_dir)
        .with_context(|| format!("cannot make {}", config.paths.state_dir.display()))?;
    prepare_process(config, root);
    let boot = BootId::read(root)?;
    let started = ClockPair::now();
    let (lock, standby) = become_enforcer(config)?;
    let ledger = if standby {
        None
    } else {
        open_ledger(config, boot)?
    };
    let mut equipment = Equipment::load(root);
    let bell = Arc::new(Bell::new()?);
    let button = StopButton::new(&config.paths.state_dir);
    let warmer = Arc::new(Warmer::start()?);
    warmer.count_processes(uses_pids(config));
    let board = Arc::new(BoardCell::default());
    let mut builder = builder(config, &layout);
    let built = builder.build(&manifests(config.workloads.manifests.as_deref()))?;
    for trouble in built.troubles {
        warn!(trouble, "a cgroup cannot be watched over");
    }
    let roster = built.roster;
    board.set(&roster);
    warmer.follow(&roster);
    let workloads = roster.table.len().max(256);
    let ports = Arc::new(Ports::new(steps_for(workloads), workloads)?);
    let now = guard::now();
    let mut engine = Engine::new(config.policy.clone(), config.live_settings(), now);
    let mut state = State::new(config.policy.clone(), Mode::Enforcing);
    state.add_table(Arc::clone(&roster.table));
    if let Some(ledger) = &ledger {
        resume(&mut engine, &mut state, ledger);
    }
    let shared = Arc::new(Shared::new(state));
    if standby {
        let _room = ports
            .commands
            .send(Command::Control(Control::Standby(true)));
    }
    let _room = ports
        .commands
        .send(Command::Control(button.read().control()));
    let plan = Plan {
        root: root.to_path_buf(),
        layout: layout.clone(),
        node: node_plan(config),
        engine,
        memory: config.memory_policy,
        probe: equipment.probe,
        meters: equipment.meters.clone(),
        killer: equip::killer(
            root,
            &layout,
            config.realtime.priority.is_some(),
            config.realtime.move_guard_to_root_cpu_group,
        )?,
        ledger,
        author: Author {
            boot: boot.0,
            wall_of_zero: started.realtime_of(0),
            policy: config.memory_policy,
            rung: Rung::Poll,
        },
        realtime: Realtime {
            priority: config.realtime.priority.and_then(FifoPriority::new),
            may_move: config.realtime.move_guard_to_root_cpu_group,
        },
        housekeeping: config.housekeeping_interval,
        roster,
    };
    let journal = config.paths.journal.as_deref().map(|path| {
        Journal::create(path, now, config.policy.clone(), config.live_settings())
            .with_context(|| format!("cannot begin the journal {}", path.display()))
    });
    let clerk = Clerk {
        ports: Arc::clone(&ports),
        shared: Arc::clone(&shared),
        warmer: Arc::clone(&warmer),
        hooks: Hooks::new(
            config.hooks.before_kill.clone(),
            config.hooks.after_kill.clone(),
            config.hooks.timeout,
        )?,
        journal: journal.transpose()?,
        board: Arc::clone(&board),
    };
    let watcher = Watcher {
        builder,
        manifests: config.workloads.manifests.clone(),
        button: button.clone(),
        evidence: equipment.evidence.take(),
        ports: Arc::clone(&ports),
        shared: Arc::clone(&shared),
        warmer,
        board,
        bell: Arc::clone(&bell),
    };
    let threads = vec![
        ("brink-guard", guard::start(plan, Arc::clone(&ports))?),
        ("brink-clerk", spawn("brink-clerk", move || clerk.run())?),
        (
            "brink-watcher",
            spawn("brink-watcher", move || watcher.run())?,
        ),
    ];
    trim_heap();
    Ok(Running {
        shared,
        ports,
        bell,
        button,
        meters: equipment.meters,
        programs: equipment.programs,
        boot,
        started,
        lock,
        threads,
    })
}

/// What the kernel's programs offer here.
struct Equipment {
    probe: Result<Probe, String>,
    meters: Option<Arc<Meters>>,
    evidence: Option<EvidenceReader>,
    programs: Vec<ProgramState>,
}

impl Equipment {
    fn load(root: &Path) -> Self {
        let mut probe = equip::probe(root, Wishes::default());
        if let Err(why) = &probe {
            warn!(why, "the kernel sampler cannot serve; the guard polls");
        }
        let loaded = probe.as_mut().ok();
        let programs = loaded.as_ref().map_or_else(Vec::new, |probe| {
            let state = |(program, state): (
                &brink_host::probe::programs::Program,
                &Result<(), brink_host::probe::Absence>,
            )| ProgramState {
                name: program.name.to_owned(),
                family: format!("{:?}", program.family).to_lowercase(),
                absent: state.as_ref().err().map(ToString::to_string),
            };
            probe.coverage().programs().map(state).collect()
        });
        let (meters, evidence) = loaded.map_or((None, None), |probe| {
            (probe.take_meters().map(Arc::new), probe.take_evidence())
        });
        Self {
            probe,
            meters,
            evidence,
            programs,
        }
    }
}

impl Running {
    /// Ends everything; nothing is left in the kernel.
    pub fn stop(mut self) {
        self.bell.stop();
        while self.ports.commands.send(Command::Stop).is_err() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        for (name, thread) in self.threads.drain(..) {
            if thread.join().is_err() {
                warn!(thread = name, "a thread had died");
            }
        }
        drop(self.lock.take());
    }
}

/// Limits, score and memory of this process; what is refused is said, and nothing stops for it.
fn prepare_process(config: &AgentConfig, root: &Path) {
    if let Err(error) = open_files::raise_limit() {
        warn!(%error, "the limit on open files stays as it is");
    }
    match oom_score::adjust(root, -999) {
        Ok(oom_score::OomScore::Set(_)) => {}
        Ok(score) => warn!(
            ?score,
            "our own oom_score_adj cannot be lowered: the kernel's killer may choose us"
        ),
        Err(error) => warn!(%error, "our own oom_score_adj cannot be set"),
    }
    if config.realtime.lock_memory
        && let Err(error) = realtime::lock_memory()
    {
        warn!(%error, "memory is not locked: the guard may have to wait for its own pages");
    }
}

/// One enforcer a node; whoever comes second observes.
fn become_enforcer(config: &AgentConfig) -> anyhow::Result<(Option<EnforcerLock>, bool)> {
    let path = config.paths.state_dir.join("enforcer.lock");
    match EnforcerLock::acquire(&path)? {
        Enforcer::We(lock) => Ok((Some(lock), false)),
        Enforcer::Other(pid) => {
            warn!(
                ?pid,
                "another agent enforces on this node; this one only observes"
            );
            Ok((None, true))
        }
    }
}

fn open_ledger(config: &AgentConfig, boot: BootId) -> anyhow::Result<Option<Ledger>> {
    let path = config.paths.state_dir.join("ledger");
    let (ledger, opening) = Ledger::open(&path, DECISIONS, boot)?;
    match opening {
        Opening::Created => {}
        Opening::Resumed { records } => info!(records, "the ledger of this boot goes on"),
        Opening::Replaced { aside, why } => {
            warn!(aside = %aside.display(), why, "a ledger that is not ours was put aside");
        }
    }
    Ok(Some(ledger))
}

/// What the ledger says of this boot: decisions that are known again, and the number that comes next.
fn resume(engine: &mut Engine, state: &mut State, ledger: &Ledger) {
    let mut entries: Vec<_> = ledger.entries().collect();
    entries.sort_by_key(|entry| entry.slot.sequence);
    let mut last = 0;
    for entry in entries {
        let Ok(record) = postcard::from_bytes::<Record<'_>>(entry.record) else {
            warn!("a record of the ledger cannot be read; it is left out");
            continue;
        };
        last = last.max(record.order);
        let completion = entry
            .completion
            .and_then(|bytes| postcard::from_bytes(bytes).ok());
        state.add_decision(DecisionRecord::new(&record, completion.as_ref()));
    }
    engine.continue_after(last);
}

fn builder(config: &AgentConfig, layout: &Layout) -> Builder {
    let scope = match &config.node {
        NodeScope::Machine => "/",
        NodeScope::Cgroup(group) => group,
    };
    let rules = config.workloads.cgroups.clone();
    Builder::new(
        &config.paths.root,
        layout.clone(),
        scope,
        rules,
        config.selection.clone(),
    )
}

fn node_plan(config: &AgentConfig) -> NodePlan {
    NodePlan {
        scope: match &config.node {
            NodeScope::Machine => Scope::Machine,
            NodeScope::Cgroup(group) => Scope::Group(group.clone()),
        },
        pods: config.pods_cgroup.clone(),
    }
}

fn uses_pids(config: &AgentConfig) -> bool {
    config
        .policy
        .thresholds()
        .iter()
        .any(|threshold| threshold.signal == Signal::PidAvailable)
}

fn steps_for(workloads: usize) -> usize {
    let bytes = workloads * size_of::<Option<brink_core::node::workload::PodUsage>>();
    (STEP_BYTES / bytes.max(1)).clamp(4, STEPS)
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> anyhow::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .with_context(|| format!("cannot start the thread {name}"))
}

/// The moment of a reading in words, for those who only log it.
pub fn seconds_since(earlier: Moment, now: Moment) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "seconds for people")]
    let seconds = now.since(earlier).as_nanos() as f64 / 1e9;
    seconds
}
