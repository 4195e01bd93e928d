//! The checked configuration of the agent: every value possible, every default filled in.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use brink_core::base::Span;
use brink_core::node::engine::{Disks, LiveSettings, MemoryPolicy};
use brink_core::node::policy::{Draft, Policy};
use brink_core::node::safety::Limits;
use brink_core::node::workload::ResourceList;
use brink_host::cgroup::glob::Glob;
use regex_lite::Regex;

use super::kubernetes::Kubernetes;
use super::margin::{LeadMargin, Raised};
use super::outlets::{EventJournal, Outlets};
use super::storage::Storage;
use crate::guard::pods::PodsGroup;

/// Everything the agent is told.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// Whether anything is really done.
    pub mode: RunMode,
    /// Whose word is enough for a kill.
    pub memory_policy: MemoryPolicy,
    /// Thresholds and what goes with them, Brink's own included; layout still [`single`].
    ///
    /// [`single`]: brink_core::node::observe::Layout::Single
    pub policy: Policy,
    /// The draft the policy was checked from, for doubts once capacities are known.
    pub draft: Draft,
    /// Where thresholds are inherited from.
    pub kubelet: KubeletFiles,
    /// What the kubelet says of itself, where it was asked: they are inherited from that, in place of its files.
    pub configz: Option<Arc<str>>,
    /// The kubelet's own thresholds, not raised, whatever is set over them here; none where nothing is inherited, or
    /// the kubelet would not take them.
    pub kubelets_policy: Option<Policy>,
    /// By how much inherited ones are raised.
    pub lead_margin: LeadMargin,
    /// The inherited thresholds that were raised and are in force.
    pub raised: Vec<Raised>,
    /// What counts as the node.
    pub node: NodeScope,
    /// The group all pods live in, for allocatable memory, if it is named; [`Self::pods`] is the one to go by.
    pub pods_cgroup: Option<String>,
    /// What is watched over beside the machine itself.
    pub workloads: Workloads,
    /// Where the pods of a kubelet keep their files, and how often all of them are measured.
    pub storage: Storage,
    /// What is measured as which filesystem.
    pub filesystems: Filesystems,
    /// The container runtime.
    pub runtime: RuntimeConfig,
    /// For how long an image stays at least, as the kubelet's configuration has it; none where that is not known.
    pub image_min_age: Option<Span>,
    /// Whether pods come from the Kubernetes API, and how it is reached.
    pub kubernetes: Kubernetes,
    /// Who goes sooner, later or never.
    pub selection: Selection,
    /// Limits on how often Brink may kill.
    pub limits: Limits,
    /// How often everything is read again and cross-checked.
    pub housekeeping_interval: Span,
    /// How the guard thread runs.
    pub realtime: Realtime,
    /// Whether programs are loaded into the kernel; without them the guard polls.
    pub kernel_programs: bool,
    /// What is called around a kill.
    pub hooks: Hooks,
    /// What is told of what happens, and to whom.
    pub events: Events,
    /// An address, of any network, that metrics and probes are served on.
    pub metrics_listen: Option<SocketAddr>,
    /// Where things are.
    pub paths: Paths,
    /// What is logged, and how.
    pub log: LogSettings,
}

impl AgentConfig {
    /// What the live engine needs beyond the policy.
    pub fn live_settings(&self) -> LiveSettings {
        LiveSettings {
            enforce: self.mode == RunMode::Enforce,
            memory: self.memory_policy,
            limits: self.limits,
            disks: self.disks(),
        }
    }

    /// The group all pods live in: the one that is named, or a kubelet's where pods come from the Kubernetes API.
    pub fn pods(&self) -> PodsGroup {
        PodsGroup::of(self.pods_cgroup.as_deref(), self.kubernetes.enabled)
    }

    /// Who keeps the filesystems: a kubelet's garbage collection has to come first, and where we may not stand in for it, nobody
    /// goes for a filesystem.
    const fn disks(&self) -> Disks {
        match (self.runtime.reclaim, self.kubernetes.enabled) {
            (ReclaimPolicy::Always, _) => Disks::Ours,
            (_, true) => Disks::Kubelets,
            (_, false) => Disks::UnlessKubelets,
        }
    }
}

/// Folders that filesystems are measured by; none to find them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filesystems {
    /// The kubelet's.
    pub nodefs: Option<PathBuf>,
    /// Images.
    pub imagefs: Option<PathBuf>,
    /// Writable layers.
    pub containerfs: Option<PathBuf>,
}

/// The container runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeConfig {
    /// Its socket; none to look where known ones listen.
    pub endpoint: Option<PathBuf>,
    /// What may be removed from it.
    pub reclaim: ReclaimPolicy,
}

/// What may be removed from the container runtime before pods go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReclaimPolicy {
    /// Nothing.
    Off,
    /// Nothing; it is told what would be.
    DryRun,
    /// Dead containers and unused images, unless a kubelet owns the runtime.
    #[default]
    Standalone,
    /// The same beside a kubelet.
    Always,
}

impl ReclaimPolicy {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Off, Self::DryRun, Self::Standalone, Self::Always];

    /// Its name in the configuration.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::DryRun => "dryRun",
            Self::Standalone => "standalone",
            Self::Always => "always",
        }
    }
}

/// Whether anything is really done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunMode {
    /// Everything is decided and told, nothing done.
    #[default]
    Observe,
    /// Orders are carried out.
    Enforce,
}

impl RunMode {
    /// Its name in the configuration.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Enforce => "enforce",
        }
    }
}

/// The kubelet's files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeletFiles {
    /// `kubeletConfig`: its configuration file.
    pub file: Option<PathBuf>,
    /// `kubeletConfigDir`: its folder of drop-ins.
    pub folder: Option<PathBuf>,
}

/// What counts as the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NodeScope {
    /// The whole machine.
    #[default]
    Machine,
    /// One control group, whose limit is the capacity.
    Cgroup(String),
}

impl NodeScope {
    /// The control group that is the node, `/` for the machine.
    pub fn group(&self) -> &str {
        match self {
            Self::Machine => "/",
            Self::Cgroup(group) => group,
        }
    }
}

/// What is watched over.
#[derive(Clone, Debug, Default)]
pub struct Workloads {
    /// A folder of pod manifests.
    pub manifests: Option<PathBuf>,
    /// Control groups that are workloads without a manifest, first match first.
    pub cgroups: Vec<CgroupRule>,
    /// What becomes of `oom_score_adj`.
    pub oom_scores: OomScores,
}

/// What becomes of the `oom_score_adj` of workloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OomScores {
    /// Nobody looks.
    Off,
    /// What differs from what a kubelet sets is told.
    #[default]
    Audit,
    /// That too, and what no kubelet runs is given it, where orders are carried out.
    Set,
}

/// Control groups that are workloads, and what is assumed of them.
#[derive(Clone, Debug)]
pub struct CgroupRule {
    /// Which groups; each that matches is one workload.
    pub glob: Glob,
    /// `namespace/name` in reports; the path of the group where it is not set.
    pub name: Option<String>,
    /// The namespace; `cgroup` where it is not set.
    pub namespace: Option<String>,
    /// As a pod's `spec.priority`.
    pub priority: Option<i32>,
    /// As a pod's `spec.terminationGracePeriodSeconds`.
    pub termination_grace: Option<i64>,
    /// As the sum of a pod's requests.
    pub requests: ResourceList,
    /// Folders whose files are its own; they count as local volumes.
    pub directories: Vec<PathBuf>,
}

/// Who goes sooner, later or never.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Evicted before all others.
    pub prefer: Vec<Pattern>,
    /// Evicted after all others.
    pub avoid: Vec<Pattern>,
    /// Never evicted.
    pub ignore: Vec<Pattern>,
    /// Groups that are never evicted, on top of those that are protected always.
    pub protect: Vec<Glob>,
    /// Namespaces whose pods are asked themselves, by their annotation; `*` stands for all.
    pub annotation_namespaces: Vec<String>,
}

impl Selection {
    /// Whether what a pod of this namespace asks for counts.
    pub fn heeds(&self, namespace: &str) -> bool {
        let mut allowed = self.annotation_namespaces.iter();
        allowed.any(|allowed| allowed == "*" || allowed == namespace)
    }
}

/// A regular expression over the name of a command and the path of a control group.
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

impl Pattern {
    /// Compiles an expression.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(text: &str) -> Result<Self, regex_lite::Error> {
        Regex::new(text).map(Self)
    }

    /// Whether it is found in `text`, anywhere unless it is anchored.
    pub fn is_found_in(&self, text: &str) -> bool {
        self.0.is_match(text)
    }

    /// The expression as it was written.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

/// How the guard thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Realtime {
    /// Its `SCHED_FIFO` priority, 1 to 99; nothing for the ordinary policy at nice −20.
    pub priority: Option<u8>,
    /// Whether the agent's memory is locked.
    pub lock_memory: bool,
    /// Whether the guard thread leaves a cpu group that grants no real time.
    pub move_guard_to_root_cpu_group: bool,
}

/// What is called around a kill; neither ever delays it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hooks {
    /// Program and arguments, called when a kill is ordered.
    pub before_kill: Option<Vec<String>>,
    /// The same, called when it has been carried out.
    pub after_kill: Option<Vec<String>>,
    /// How long each may run.
    pub timeout: Duration,
}

/// What is told of what happens, and to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Events {
    /// Whether anything is told at all.
    pub enabled: bool,
    /// The socket that events are served on.
    pub socket: PathBuf,
    /// An address on loopback that they are served on as well.
    pub listen: Option<SocketAddr>,
    /// Whether the page for browsers is served there.
    pub page: bool,
    /// Whether incidents have the arguments of processes.
    pub command_lines: bool,
    /// What is kept of them over a restart.
    pub journal: EventJournal,
    /// Where else they go.
    pub outlets: Outlets,
}

/// Where things are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// What `/` is: the machine's root file system, as it is mounted for us.
    pub root: PathBuf,
    /// Ledger, lock and stop button.
    pub state_dir: PathBuf,
    /// The socket that the command line talks to.
    pub socket: PathBuf,
    /// The file that inputs are journalled to.
    pub journal: Option<PathBuf>,
}

/// What is logged, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// From this level on.
    pub level: LogLevel,
    /// In this form.
    pub format: LogFormat,
}

/// A level of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// What keeps the agent from its work.
    Error,
    /// What it works around.
    Warn,
    /// What it does.
    Info,
    /// Why.
    Debug,
    /// Everything.
    Trace,
}

/// A form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    Auto,
    /// Lines for people.
    Text,
    /// Lines of JSON.
    Json,
}
