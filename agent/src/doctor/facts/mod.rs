//! What is known of the machine, of this process and of the configuration. Nothing is judged here.

pub mod cgroups;
pub mod crossings;
pub mod disks;
pub mod kernel;
pub mod killers;
pub mod kubelet;
pub mod memory;
pub mod oom_scores;
pub mod process;
mod source;
pub mod state;
pub mod trials;
pub mod workloads;

use std::path::Path;

use brink_host::cgroup::Layout;
use brink_host::probe;

pub use source::Known;
pub use trials::Trials;

use crate::config::{AgentConfig, Checked, Sources};
use crate::equip::node_plan;
use cgroups::{Cgroups, Obstacle};
use crossings::Crossings;
use disks::Disks;
use kernel::Kernel;
use killers::Killers;
use kubelet::Kubelet;
use memory::Memory;
use process::Process;
use source::known;
use state::StateFiles;
use workloads::Workloads;

/// Everything that was read and tried.
#[derive(Debug)]
pub struct Facts {
    /// The configuration the agent would run with.
    pub config: AgentConfig,
    /// What it was loaded from.
    pub sources: Sources,
    /// What is doubtful about it, one sentence each.
    pub doubts: Vec<String>,
    /// The kernel and the machine under it.
    pub kernel: Kernel,
    /// This process: rights, limits, namespaces.
    pub process: Process,
    /// What was tried.
    pub trials: Trials,
    /// Control groups.
    pub cgroups: Cgroups,
    /// Memory, swap, and both signals.
    pub memory: Memory,
    /// Other killers.
    pub killers: Killers,
    /// The kubelet and its settings.
    pub kubelet: Kubelet,
    /// What is watched over.
    pub workloads: Workloads,
    /// Filesystems and the container runtime; none without a threshold on a disk.
    pub disks: Option<Disks>,
    /// The agent's own files.
    pub state: StateFiles,
    /// When soft thresholds were met; none where no journal of events is kept.
    pub crossings: Option<Known<Crossings>>,
}

/// What trials stand on.
#[derive(Clone, Copy, Debug)]
pub struct Ground<'a> {
    /// What `/` is.
    pub root: &'a Path,
    /// The configuration.
    pub config: &'a AgentConfig,
    /// What the kernel says of itself.
    pub kernel: &'a probe::Facts,
    /// Where the control groups are.
    pub layout: &'a Known<Layout>,
}

impl Facts {
    /// Reads everything under the configured root, and tries what `try_out` tries.
    pub fn gather(checked: &Checked, try_out: impl FnOnce(Ground<'_>) -> Trials) -> Self {
        let config = &checked.config;
        let root = config.paths.root.as_path();
        let kernel = Kernel::read(root);
        let layout = Layout::detect(root);
        let obstacle = layout.as_ref().err().map(Obstacle::of);
        let layout = known(layout);
        let trials = try_out(Ground {
            root,
            config,
            kernel: &kernel.probe,
            layout: &layout,
        });
        let answered = trials.api.as_ref().and_then(|api| api.as_ref().ok());
        let pods = answered.map(|answered| answered.pods.clone());
        let now = jiff::Timestamp::now().as_microsecond();
        Self {
            process: Process::read(root),
            memory: Memory::read(root, &layout, &node_plan(config)),
            killers: Killers::read(root),
            kubelet: Kubelet::read(root, config, &layout),
            workloads: Workloads::read(config, &layout, pods),
            trials,
            disks: Disks::read(root, config),
            state: StateFiles::read(root, config),
            crossings: Crossings::of(config, now),
            cgroups: Cgroups::read(root, config, layout, obstacle),
            kernel,
            doubts: checked.warnings.iter().map(ToString::to_string).collect(),
            sources: checked.sources.clone(),
            config: config.clone(),
        }
    }
}
