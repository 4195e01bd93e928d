//! From a checked configuration to a running agent: what is opened, loaded and locked before the guard starts.

mod ending;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::Context as _;
use brink_core::base::Span;
use brink_core::node::engine::Engine;
use brink_core::node::input::{Control, Input, Recalled, Reconfiguration};
use brink_core::node::safety::Mode;
use brink_host::cgroup::Layout;
use brink_host::cgroup::pod::PodRoots;
use brink_host::clock::{BootId, ClockPair};
use brink_host::ledger::Ledger;
use brink_host::lock::make_folder;
use brink_host::probe::Wishes;
use tracing::{info, warn};

use super::clerk::Clerk;
use super::cluster::{Cluster, Voice};
use super::configured::{
    author, hooks, journal, keeper, killer, realtime_of, stop_button, uses_pids,
};
use super::deliver::Deliver;
use super::enforcer::{
    Enforcement, dead, evicted as evicted_in, interrupted as interrupted_in, kills, remember,
};
use super::equipment::{Equipment, Loaded};
use super::foresight::BoardCell;
use super::foretold::Foretold;
use super::graces::Graces;
use super::named::{Named, look_for_groups, of_root, warn_of_parts};
use super::outbox::Outbox;
use super::process::{self, go_ahead, go_first, hurried, settle_memory, spawn};
use super::recording;
use super::sentry::Sentry;
use super::starts::Starts;
use super::state::{Shared, State};
use super::steps::{room_for, steps_with};
use super::stop_button::StopButton;
use super::watch::{Reload, Watcher, pods};
use crate::backend::build::{Builder, Scan};
use crate::backend::source::Sources;
use crate::bell::Bell;
use crate::config::AgentConfig;
use crate::disks::caretaker::{Caretaker, Stop};
use crate::disks::handover::Handover;
use crate::disks::{Disks, concerns};
use crate::equip::{builder, node_plan};
use crate::forensics::{self, Collector, Records};
use crate::guard::files::NodePlan;
use crate::guard::ports::{Command, Legacy, Ports};
use crate::guard::roster::Roster;
use crate::guard::rung::LOADING;
use crate::guard::{self, Plan};
use crate::oom_scores::Auditor;
use crate::recorder::Recorder;
use crate::storage::Keeper;
use crate::telling::{RingLosses, Telling};
use crate::warmer::Warmer;

/// The thread that kills.
const GUARD: &str = "brink-guard";
/// The thread that takes what the guard tells.
const CLERK: &str = "brink-clerk";
/// The thread that watches evicted pods.
const SENTRY: &str = "brink-sentry";
/// The thread that makes incidents of kills.
const COLLECTOR: &str = "brink-collector";
/// The thread that has filesystems measured, and asks the container runtime.
const DISK_KEEPER: &str = "brink-disk-keep";
/// The thread that follows the pods of the Kubernetes API.
const KUBE: &str = "brink-kube";

/// A running agent. Stop it with [`Running::stop`], or [`Running::end`] where others may hold it.
pub struct Running {
    /// What everybody sees.
    pub shared: Arc<Shared>,
    /// To and from the guard.
    pub ports: Arc<Ports>,
    /// Wakes the watcher.
    pub bell: Arc<Bell>,
    /// The stop button.
    pub button: StopButton,
    /// What the kernel's programs offer, once they are loaded.
    pub loaded: Arc<Loaded>,
    /// The root of the file system to read from.
    pub root: PathBuf,
    /// From one housekeeping pass of the guard to the next.
    pub housekeeping: Span,
    /// This boot.
    pub boot: BootId,
    /// Both clocks at the start.
    pub started: ClockPair,
    /// What the watcher takes over at a reload.
    pub reload: Arc<Reload>,
    /// Who enforces here.
    pub enforcement: Enforcement,
    /// What is known of filesystems.
    pub disks: Arc<Disks>,
    /// Configurations on their way to the guard.
    pub handover: Arc<Handover>,
    /// Where events are told.
    pub telling: Telling,
    /// The cluster this node is part of, if one is configured.
    pub cluster: Option<Cluster>,
    /// What workloads use of disks.
    pub keeper: Arc<Keeper>,
    /// What was worked out of the decisions in the ledger after their kills.
    foretold: Foretold,
    /// What the guard is still to be told of a takeover.
    takeover: Mutex<Outbox>,
    disk_keeper: Mutex<Option<JoinHandle<()>>>,
    stop_keeper: Stop,
    collector: Collector,
    /// The flight recorder, once it runs. It ends with us; whoever tells of incidents only borrows it.
    pub recorder: Arc<OnceLock<Arc<Recorder>>>,
    threads: Vec<(&'static str, JoinHandle<()>)>,
    /// Since when the cluster is told the last words.
    leaving: OnceLock<Instant>,
}

/// Starts everything.
///
/// # Errors
/// What could not be had, with what to do about it.
pub fn start(config: &AgentConfig) -> anyhow::Result<Running> {
    let before = go_first();
    let running = prepare(config)?;
    go_ahead(before);
    Ok(running)
}

fn prepare(config: &AgentConfig) -> anyhow::Result<Running> {
    let root = config.paths.root.as_path();
    let layout = layout_of(config)?;
    process::prepare(root);
    make_folder(&config.paths.state_dir).context(Named::STATE_DIR)?;
    let clocks = Clocks {
        boot: BootId::read(root)?,
        started: ClockPair::now(),
    };
    let (enforcement, ledger) =
        Enforcement::begin(root, &config.paths.state_dir, clocks.boot).context(Named::STATE_DIR)?;
    let mut builder = builder(config, &layout);
    let bell = Arc::new(Bell::new()?);
    let (mut cluster, pods_of_the_api) = Cluster::begin(config, &bell)?.unzip();
    let mut sources = Sources::new(config.workloads.manifests.clone(), pods_of_the_api);
    let roster = first_roster(&mut sources, &mut builder)?;
    let telling = Telling::start(config, (clocks.boot, clocks.started))?;
    let mut around = Around::new(
        config,
        &roster,
        (clocks.boot, enforcement.is_ours()),
        (telling, bell, &layout),
    )?;
    around.shared.lock().broken_manifests = sources.broken().clone();
    around.shared.configure(config);
    if let Some(cluster) = &mut cluster {
        around.deliver = cluster.speak(config, around.voice(config, clocks.boot, &layout))?;
    }
    if let Some(told) = around.deliver.get() {
        told.follow(&roster);
    }
    let first = around.first_inputs(config, ledger.as_ref());
    let evicted = ledger.as_ref();
    let evicted = evicted.map_or_else(Vec::new, |ledger| evicted_in(ledger, guard::now()));
    if let (Some(told), Some(_)) = (around.deliver.get(), &ledger) {
        told.take_up(&evicted);
    }
    let interrupted = ledger.as_ref();
    let interrupted = interrupted.and_then(|ledger| interrupted_in(ledger, guard::now()));
    let engine = Engine::new(config.policy.clone(), config.live_settings(), guard::now());
    around.take_mode(engine.mode(guard::now()));
    let plan = Plan {
        root: root.to_path_buf(),
        node: node_plan(config),
        engine,
        first,
        evicted,
        interrupted,
        memory: config.memory_policy,
        without_sampler: LOADING.to_owned(),
        killer: killer(config, &layout)?,
        layout,
        ledger,
        author: author(config, (clocks.boot, clocks.started)),
        realtime: realtime_of(config),
        housekeeping: config.housekeeping_interval,
        roster,
    };
    let mut threads = around.start_threads(config, plan, (builder, sources))?;
    let written = Reconfiguration {
        policy: config.policy.clone(),
        live: config.live_settings(),
    };
    let disks = Disks::new(Arc::clone(&around.ports), written.policy.thresholds());
    let disks = Arc::new(disks);
    let handover = Handover::new(Arc::clone(&around.shared), Arc::clone(&disks), written);
    if let Some(cluster) = &cluster {
        threads.push((KUBE, cluster.start(Arc::clone(&around.ports))?));
    }
    let running = Running {
        disks,
        handover: Arc::new(handover),
        disk_keeper: Mutex::default(),
        stop_keeper: Stop::default(),
        shared: around.shared,
        ports: around.ports,
        bell: around.bell,
        button: around.button,
        loaded: around.loaded,
        root: config.paths.root.clone(),
        housekeeping: config.housekeeping_interval,
        boot: clocks.boot,
        started: clocks.started,
        reload: around.reload,
        enforcement,
        foretold: around.foretold,
        telling: around.telling,
        cluster,
        keeper: around.keeper,
        collector: around.collector,
        recorder: around.recorder,
        takeover: Mutex::default(),
        threads,
        leaving: OnceLock::new(),
    };
    running.keep_disks(config)?;
    Ok(running)
}

/// The machine's control groups, with the node among them.
fn layout_of(config: &AgentConfig) -> anyhow::Result<Layout> {
    let root = config.paths.root.as_path();
    let layout = Layout::detect(root).context("no control groups to watch over");
    let layout = of_root(root, layout)?;
    look_for_groups(config, &layout)?;
    warn_of_parts(config, &layout);
    Ok(layout)
}

/// The clocks and the boot that all records refer to.
#[derive(Clone, Copy, Debug)]
struct Clocks {
    boot: BootId,
    started: ClockPair,
}

/// What stands around the guard and is shared between threads.
struct Around {
    shared: Arc<Shared>,
    ports: Arc<Ports>,
    bell: Arc<Bell>,
    button: StopButton,
    warmer: Arc<Warmer>,
    keeper: Arc<Keeper>,
    board: Arc<BoardCell>,
    graces: Graces,
    foretold: Foretold,
    enforces: Arc<AtomicBool>,
    reload: Arc<Reload>,
    loaded: Arc<Loaded>,
    telling: Telling,
    collector: Collector,
    deliver: Deliver,
    /// Empty until it has been started.
    recorder: Arc<OnceLock<Arc<Recorder>>>,
}

impl Around {
    fn new(
        config: &AgentConfig,
        roster: &Roster,
        (boot, enforces): (BootId, Arc<AtomicBool>),
        (telling, bell, layout): (Telling, Arc<Bell>, &Layout),
    ) -> anyhow::Result<Self> {
        let scores = (config.workloads.oom_scores, telling.clone());
        let auditor = Auditor::new(&config.paths.root, layout.clone(), scores);
        let room = room_for(roster.table.len());
        let mut state = State::new(config.policy.clone(), config.memory_policy, Mode::Enforcing);
        state.kubelets.clone_from(&config.kubelets_policy);
        state.add_roster(roster);
        let ports = Arc::new(Ports::new(steps_with(room), room)?);
        let around = Self {
            shared: Arc::new(Shared::new(state)),
            keeper: Arc::new(keeper(config, &ports)?),
            ports,
            bell,
            button: stop_button(config),
            warmer: Arc::new(Warmer::start(telling.hub().is_some(), auditor)?),
            board: Arc::new(BoardCell::default()),
            foretold: Foretold::new(&config.paths.state_dir, boot)
                .of_agent(&enforces, config.events.command_lines),
            enforces,
            graces: Graces::new(&config.paths.state_dir, boot, config.housekeeping_interval),
            reload: Arc::new(Reload::default()),
            loaded: Arc::new(Loaded::default()),
            telling,
            collector: Collector::default(),
            deliver: Deliver::default(),
            recorder: Arc::default(),
        };
        if let Some(hub) = around.telling.hub() {
            around.shared.counters.events.attach(hub);
        }
        around.telling.roster(guard::now(), roster);
        around.warmer.count_processes(uses_pids(config));
        around.board.set(roster);
        around.warmer.follow(roster);
        around.keeper.follow(roster);
        Ok(around)
    }

    /// What is needed to tell a cluster what happens here.
    fn voice(&self, config: &AgentConfig, boot: BootId, layout: &Layout) -> Voice {
        Voice {
            boot,
            layout: layout.clone(),
            roots: PodRoots::new(config.node.group(), config.pods_cgroup.as_deref()),
            recorder: Arc::clone(&self.recorder),
            keeper: Arc::clone(&self.keeper),
            shared: Arc::clone(&self.shared),
        }
    }

    /// Takes over whether orders are carried out, and tells what is in force.
    fn take_mode(&self, mode: Mode) {
        let mut state = self.shared.lock();
        state.mode = mode;
        let (policy, memory) = (state.policy.clone(), state.memory);
        drop(state);
        self.telling
            .configuration(guard::now(), &policy, memory, mode);
    }

    /// What the engine is told before anything else: what outlived the last run, and whether it may enforce.
    fn first_inputs(&self, config: &AgentConfig, ledger: Option<&Ledger>) -> Vec<Input<'static>> {
        let pressed = self.button.read();
        let mut state = self.shared.lock();
        let last =
            ledger.map(|ledger| Recalled::LastOrder(remember(&mut state, ledger, &self.foretold)));
        // Not those of one window alone: the bucket may take longer to fill.
        let unreaped = || dead(&config.paths.root);
        let kills = ledger.map_or_else(Vec::new, |ledger| kills(ledger, guard::now(), unreaped));
        let recalled = last.into_iter().chain(kills);
        let recalled = recalled.chain(self.graces.recall(&config.policy, guard::now()));
        let standby = ledger.is_none().then_some(Control::Standby(true));
        let controls = standby.into_iter().chain([pressed.control()]);
        recalled
            .map(Input::Recall)
            .chain(controls.map(Input::Control))
            .collect()
    }

    /// Begins to make incidents of kills, if anybody is told: the body of the thread that does.
    fn collect(
        &mut self,
        config: &AgentConfig,
        (plan, clocks): (&Plan, ClockPair),
    ) -> anyhow::Result<Option<impl FnOnce() + Send + 'static>> {
        if self.telling.hub().is_none() {
            return Ok(None);
        }
        let (collector, body) = Collector::new(forensics::Plan {
            root: plan.root.clone(),
            layout: plan.layout.clone(),
            node: plan.node.clone(),
            scope: config.node.group().to_owned(),
            command_lines: config.events.command_lines,
            loaded: Arc::clone(&self.loaded),
            clocks,
            outlet: Box::new(Records::new(&self.telling, &self.shared, &self.foretold)),
        })?;
        collector.follow(&plan.roster);
        self.collector = collector;
        Ok(Some(body))
    }

    fn start_threads(
        &mut self,
        config: &AgentConfig,
        plan: Plan,
        (builder, sources): (Builder, Sources),
    ) -> anyhow::Result<Vec<(&'static str, JoinHandle<()>)>> {
        let collecting = self.collect(config, (&plan, plan.author.clocks))?;
        let recorded = (plan.layout.clone(), plan.node.clone());
        let clerk = Clerk {
            ports: Arc::clone(&self.ports),
            shared: Arc::clone(&self.shared),
            warmer: Arc::clone(&self.warmer),
            keeper: Arc::clone(&self.keeper),
            hooks: hooks(config)?,
            journal: journal(config)?,
            board: Arc::clone(&self.board),
            graces: self.graces.clone(),
            foretold: self.foretold.clone(),
            enforces: Arc::clone(&self.enforces),
            steps_lost: 0,
            is_taken_over: false,
            telling: self.telling.clone(),
            collector: self.collector.clone(),
            deliver: self.deliver.clone(),
            loaded: Arc::clone(&self.loaded),
            ring_losses: RingLosses::default(),
        };
        let watcher = Watcher {
            builder,
            sources,
            button: self.button.clone(),
            evidence: None,
            loaded: Arc::clone(&self.loaded),
            ports: Arc::clone(&self.ports),
            shared: Arc::clone(&self.shared),
            warmer: Arc::clone(&self.warmer),
            keeper: Arc::clone(&self.keeper),
            board: Arc::clone(&self.board),
            bell: Arc::clone(&self.bell),
            reload: Arc::clone(&self.reload),
            telling: self.telling.clone(),
            collector: self.collector.clone(),
            deliver: self.deliver.clone(),
            told: Vec::new(),
            lost: 0,
            starts: Starts::default(),
            unsent: Outbox::default(),
        };
        let sentry = Sentry::new(&plan.root, plan.layout.clone(), Arc::clone(&self.ports));
        let loader = self.loader(config, recorded);
        // The guard first: it protects from files while the programs are being loaded, and all else is opened.
        let mut threads = vec![
            (GUARD, guard::start(plan, Arc::clone(&self.ports))?),
            (CLERK, spawn(CLERK, || hurried(|| clerk.run()))?),
            (
                "brink-watcher",
                spawn("brink-watcher", || hurried(|| watcher.run()))?,
            ),
            (SENTRY, spawn(SENTRY, || hurried(|| sentry.run()))?),
            ("brink-loader", spawn("brink-loader", loader)?),
        ];
        if let Some(body) = collecting {
            let ports = Arc::clone(&self.ports);
            let body = move || {
                ports.wait_for_first_look();
                body();
            };
            let thread = spawn(COLLECTOR, || hurried(body))?;
            threads.push((COLLECTOR, thread));
        }
        let ports = Arc::clone(&self.ports);
        let ready = move || ports.wait_for_first_look();
        self.telling.open_ways(&config.events, ready)?;
        Ok(threads)
    }

    /// Starts the flight recorder, loads the kernel's programs and hands each part to whom it is for.
    fn loader(
        &self,
        config: &AgentConfig,
        (layout, node): (Layout, NodePlan),
    ) -> impl FnOnce() + Send + 'static {
        let (ports, loaded, bell) = (
            Arc::clone(&self.ports),
            Arc::clone(&self.loaded),
            Arc::clone(&self.bell),
        );
        let (root, wanted) = (config.paths.root.clone(), config.kernel_programs);
        let (collector, forensics) = (self.collector.clone(), self.telling.hub().is_some());
        let lock = config.realtime.lock_memory;
        let (telling, kept) = (self.telling.clone(), Arc::clone(&self.recorder));
        move || {
            ports.wait_for_first_look();
            let recorder = recording::start(&root, &layout, &node, &telling);
            if let Some(recorder) = &recorder {
                let _only_one = kept.set(Arc::clone(recorder));
            }
            let command = if wanted {
                let wishes = Wishes {
                    forensics,
                    ..recording::wishes(recorder.is_some())
                };
                let mut equipment = Equipment::load(&root, wishes);
                loaded.fill(&mut equipment);
                collector.loaded();
                recording::attach(recorder.as_deref(), &mut equipment);
                equipment
                    .sampler
                    .map_or_else(Command::NoSampler, Command::Sampler)
            } else {
                Command::NoSampler("switched off in the configuration".to_owned())
            };
            bell.ring();
            if ports.commands.send(command).is_err() {
                warn!("the guard's queue is full; it goes on without kernel programs");
            }
            settle_memory(&root, lock);
        }
    }
}

fn first_roster(sources: &mut Sources, builder: &mut Builder) -> anyhow::Result<Box<Roster>> {
    let pods = pods(sources, &mut Vec::new());
    let built = builder.build(&pods, Scan::All)?;
    built.tell();
    Ok(built.roster)
}

impl Running {
    /// Takes enforcement over when the agent that had it is gone. Once the right is ours the guard is told until it has heard:
    /// to hold the right and stand by would keep everybody from enforcing.
    ///
    /// # Errors
    /// When the lock or the ledger cannot be had although nobody else has it; when the guard has no room to be told.
    pub fn try_takeover(&self) -> anyhow::Result<()> {
        let mut takeover = self.takeover();
        if let Some(ledger) = self.enforcement.take_over()? {
            let last = self.remember_instead(&ledger);
            let kills = kills(&ledger, guard::now(), || dead(&self.root));
            let evicted = evicted_in(&ledger, guard::now());
            let interrupted = interrupted_in(&ledger, guard::now());
            info!("the other agent is gone; this one takes over");
            if let Some(cluster) = &self.cluster {
                cluster.take_up(&evicted);
            }
            takeover.put(Command::TakeOver(Box::new(Legacy {
                ledger,
                last,
                kills,
                evicted,
                interrupted,
            })));
        }
        anyhow::ensure!(
            takeover.send(&self.ports.commands),
            "the guard's queue is full"
        );
        Ok(())
    }

    /// Remembers the decisions of the enforcer before us in the place of our own, which bore the same numbers.
    fn remember_instead(&self, ledger: &Ledger) -> u64 {
        let mut state = self.shared.lock();
        state.decisions.clear();
        remember(&mut state, ledger, &self.foretold)
    }

    /// Whether [`Self::try_takeover`] has anything left to do.
    pub fn awaits_takeover(&self) -> bool {
        self.enforcement.is_elsewhere() || !self.takeover().is_empty()
    }

    fn takeover(&self) -> std::sync::MutexGuard<'_, Outbox> {
        self.takeover.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has filesystems measured if a threshold asks for it, and images kept as long as the configuration says; whoever does so stays,
    /// and does nothing once no threshold asks for it any more.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn keep_disks(&self, config: &AgentConfig) -> anyhow::Result<()> {
        self.disks.lock().image_min_age = config.image_min_age;
        let mut keeper = self
            .disk_keeper
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if keeper.is_none() && concerns(config.policy.thresholds()) {
            let known = (Arc::clone(&self.disks), Arc::clone(&self.handover));
            let told = (Arc::clone(&self.shared), self.telling.clone());
            let by_api = self.cluster.as_ref().map(Cluster::pods_are);
            let body = Caretaker::new(config, known, told, &self.stop_keeper).with_api(by_api);
            *keeper = Some(spawn(DISK_KEEPER, || body.run())?);
        }
        // It looks at once whether there is more to measure.
        self.ports.reclaims.ring();
        Ok(())
    }
}
