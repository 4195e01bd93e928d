//! Filesystems that thresholds are on, and the container runtime, as an agent would find them.

use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use brink_core::node::observe::{Layout, Observation};
use brink_core::node::signal::Signal;
use brink_host::disk::Filesystem;

use super::source::{Known, known};
use crate::config::AgentConfig;
use crate::disks::caretaker::keeps;
use crate::disks::discover::Discovery;
use crate::disks::plan::{Laid, Measured, Sources, plan};
use crate::disks::runtime::{ContainerRuntime, Stopper};
use crate::disks::{RuntimeState, concerns};
use crate::guard::disks::Role;
use crate::guard::figures::saturated;

/// A filesystem that does not answer for so long hangs.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is known of them.
#[derive(Debug)]
pub struct Disks {
    /// Each with what it is for.
    pub filesystems: Vec<Found>,
    /// The runtime.
    pub runtime: RuntimeState,
    /// Whether they are left to a kubelet; none where nobody can tell, and orders are held then too.
    pub left_to_kubelet: Option<bool>,
}

/// A folder, and the filesystem that it lies on.
#[derive(Debug)]
pub struct Found {
    /// What it is for.
    pub role: Role,
    /// The folder as this process sees it.
    pub path: PathBuf,
    /// Its filesystem.
    pub filesystem: Known<Filesystem>,
}

impl Disks {
    /// Looks and asks; none without a threshold on a disk. Takes 10 s where neither a filesystem nor the runtime answers.
    pub fn read(root: &Path, config: &AgentConfig) -> Option<Self> {
        if !concerns(config.policy.thresholds()) {
            return None;
        }
        let mut runtime = ContainerRuntime::new(
            root.to_path_buf(),
            config.runtime.clone(),
            Stopper::default(),
        );
        runtime.observe();
        // One that has not answered is not asked again.
        let answers = runtime.state().fault.is_none();
        let told = answers.then(|| runtime.folders()).flatten();
        let mut discovery = Discovery::new(root.to_path_buf(), config.filesystems.clone());
        discovery.hear_runtime(told);
        let runs = discovery.find_kubelet();
        let by_kubelet = keeps(runs, runtime.state().is_kubelets);
        let all = Role::ALL.into_iter().zip(discovery.folders());
        let found = all.filter_map(|(role, path)| {
            let path = path?;
            Some(Found {
                role,
                filesystem: answered(&path),
                path,
            })
        });
        Some(Self {
            filesystems: found.collect(),
            runtime: runtime.state().clone(),
            left_to_kubelet: config.live_settings().disks.left_to_kubelet(by_kubelet),
        })
    }
}

impl Disks {
    /// How the filesystems are laid out, as pods are ranked.
    pub fn layout(&self) -> Layout {
        self.plan().0.ranked()
    }

    /// What is left of a filesystem by a signal; none where its filesystem is not known, or may not be written.
    pub fn seen(&self, signal: Signal) -> Option<Observation> {
        let role = Role::of(signal)?;
        let [bytes, inodes] = role.signals();
        let (_, sources) = self.plan();
        let found = self.of((*sources.get(role as usize)?)?)?;
        let (available, capacity) = match signal {
            _ if found.read_only || found.capacity == 0 => return None,
            signal if signal == bytes => (found.available, found.capacity),
            signal if signal == inodes => found.inodes.map(|all| (all.free, all.total))?,
            _ => return None,
        };
        Some(Observation {
            available: saturated(available),
            capacity: saturated(capacity),
            at: None,
        })
    }

    fn of(&self, role: Role) -> Option<Filesystem> {
        let found = self.filesystems.iter().find(|found| found.role == role)?;
        found.filesystem.as_ref().ok().copied()
    }

    fn plan(&self) -> (Laid, Sources) {
        let is_named = |role| self.filesystems.iter().any(|found| found.role == role);
        let measured = Measured {
            nodefs: self.of(Role::Nodefs),
            images: self.of(Role::Imagefs),
            layers: self.of(Role::Containerfs),
        };
        plan(Role::ALL.map(is_named), &measured, Laid::default())
    }
}

/// The filesystem of a folder, if it answers; one that hangs keeps a thread of ours.
fn answered(path: &Path) -> Known<Filesystem> {
    let (tell, told) = channel();
    let asked = path.to_path_buf();
    let asks = move || {
        // Nobody listens any more where it took too long.
        let _late = tell.send(known(Filesystem::read(&asked)));
    };
    known(thread::Builder::new().spawn(asks))?;
    let hangs = || format!("{}: it does not answer", path.display());
    told.recv_timeout(PATIENCE).unwrap_or_else(|_| Err(hangs()))
}
