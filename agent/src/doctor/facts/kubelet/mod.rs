//! The kubelet of this node: whether it runs, where its configuration is, and what that comes to.

pub(crate) mod flags;
pub mod lead;
mod settings;

use std::path::{Path, PathBuf};

use brink_core::node::policy::Capacities;
use brink_host::cgroup::stat::StatReader;
use brink_host::cgroup::usage::UsageReader;
use brink_host::cgroup::{CgroupDir, Controller, Home, Layout};
use brink_host::process::essential::{Essential, find};
use brink_host::process::{ProcessInfo, Role};

use super::source::{Known, known, under};
use crate::config::AgentConfig;
use crate::guard::pods::PodsGroup;

pub(crate) use settings::memory_and_tasks;
pub use settings::{Reserved, Settings, Unsettled};

/// Where distributions keep the kubelet's configuration, below the root, for a kubelet whose command line does not say.
const USUAL_PLACES: [&str; 5] = [
    "var/lib/kubelet/config.yaml",
    "etc/kubernetes/kubelet/config.json",
    "etc/kubernetes/kubelet/kubelet-config.json",
    "home/kubernetes/kubelet-config.yaml",
    "etc/kubernetes/kubelet-config.yaml",
];

/// The kubelet.
#[derive(Debug)]
pub struct Kubelet {
    /// Its process, if it runs.
    pub process: Known<Option<Running>>,
    /// Its configuration, if a file of it was found.
    pub files: Option<Files>,
    /// What files and flags come to; none where neither says anything.
    pub settings: Option<Result<Settings, Unsettled>>,
    /// How much there is of what its thresholds are about; nothing of its disk where none of its files is there.
    pub capacities: Capacities,
    /// The working set of all pods, bytes; none where their group is not to be seen.
    pub pods_working_set: Option<u64>,
}

/// A kubelet that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// Its process.
    pub pid: i32,
    /// The name of its program.
    pub name: String,
    /// Its command line, without the program.
    pub arguments: Vec<String>,
}

/// Its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The file.
    pub file: Option<PathBuf>,
    /// The folder of drop-ins.
    pub folder: Option<PathBuf>,
    /// How they were found.
    pub origin: FilesOrigin,
}

/// How the kubelet's files were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilesOrigin {
    /// Our own configuration names them, so that thresholds are inherited.
    Configured,
    /// There are none: the kubelet was asked, so that thresholds are inherited from what it says.
    Asked,
    /// The kubelet's command line names them.
    CommandLine,
    /// The same, and they are in a file system that is not ours: it is looked into by way of the kubelet's process.
    ThroughProcess,
    /// A file lies where distributions keep it.
    UsualPlace,
}

impl Kubelet {
    /// Looks for it under a root.
    pub fn read(root: &Path, config: &AgentConfig, layout: &Known<Layout>) -> Self {
        let process = running(root);
        let kubelet = of_its_own(&process);
        let arguments = arguments_of(kubelet);
        let files = files_of(root, config, kubelet);
        let settings = settings::read(root, files.as_ref(), config.configz.as_deref(), arguments);
        Self {
            capacities: settings::capacities(root, arguments),
            settings,
            files,
            pods_working_set: layout
                .as_ref()
                .ok()
                .and_then(|layout| pods_working_set(layout, config)),
            process,
        }
    }
}

/// Its settings alone; none where neither files nor flags say anything.
pub(crate) fn settings_of(
    root: &Path,
    config: &AgentConfig,
) -> Option<Result<Settings, Unsettled>> {
    let process = running(root);
    let kubelet = of_its_own(&process);
    let files = files_of(root, config, kubelet);
    let configz = config.configz.as_deref();
    settings::read(root, files.as_ref(), configz, arguments_of(kubelet))
}

/// A kubelet that is a program of its own: a distribution in one program has flags of its own with the same names.
fn of_its_own(process: &Known<Option<Running>>) -> Option<&Running> {
    let running = process.as_ref().ok()?.as_ref();
    running.filter(|running| running.name == "kubelet")
}

fn arguments_of(kubelet: Option<&Running>) -> &[String] {
    kubelet.map_or(&[][..], |kubelet| kubelet.arguments.as_slice())
}

fn files_of(root: &Path, config: &AgentConfig, kubelet: Option<&Running>) -> Option<Files> {
    asked(config)
        .or_else(|| configured(config))
        .or_else(|| named(root, kubelet?))
        .or_else(|| in_usual_place(root))
}

/// The kubelet that runs under a root, if one does.
pub(crate) fn running(root: &Path) -> Known<Option<Running>> {
    let kubelet = kubelets_process(root)?;
    Ok(kubelet.map(|kubelet| told_by(root, &kubelet)))
}

/// The process of the kubelet that runs under a root, if one does; all processes are gone through for it.
pub(crate) fn kubelets_process(root: &Path) -> Known<Option<Essential>> {
    let own = i32::try_from(std::process::id()).unwrap_or(i32::MAX);
    // Where no layout is known the groups have no better names than those the kernel tells.
    let home = Layout::detect(root).map_or_else(|_| Home::default(), |found| found.home().clone());
    let all = known(find(root, &home, own))?;
    Ok(all.into_iter().find(is_kubelet))
}

/// The kubelet among processes that were found under a root.
pub(crate) fn among(root: &Path, all: &[Essential]) -> Option<Running> {
    let kubelet = all.iter().find(|one| is_kubelet(one))?;
    Some(told_by(root, kubelet))
}

/// What is known of a kubelet by its process.
pub(crate) fn told_by(root: &Path, kubelet: &Essential) -> Running {
    let process = ProcessInfo::read(root, kubelet.identity.pid).ok().flatten();
    let command_line = process.map_or_else(Vec::new, |process| process.command_line);
    Running {
        pid: kubelet.identity.pid,
        name: kubelet.name.clone(),
        arguments: command_line.into_iter().skip(1).collect(),
    }
}

fn is_kubelet(one: &Essential) -> bool {
    one.role == Role::Kubelet
}

fn asked(config: &AgentConfig) -> Option<Files> {
    config.configz.as_ref().map(|_| Files {
        file: None,
        folder: None,
        origin: FilesOrigin::Asked,
    })
}

fn configured(config: &AgentConfig) -> Option<Files> {
    let configured = &config.kubelet;
    (configured.file.is_some() || configured.folder.is_some()).then(|| Files {
        file: configured.file.clone(),
        folder: configured.folder.clone(),
        origin: FilesOrigin::Configured,
    })
}

/// The files that the command line names.
fn named(root: &Path, kubelet: &Running) -> Option<Files> {
    let flag = |flag| flags::value(&kubelet.arguments, flag).map(Path::new);
    let (file, folder) = (flag("--config"), flag("--config-dir"));
    file.or(folder)?;
    let below = |root: &Path, origin| Files {
        file: file.map(|path| under(root, path)),
        folder: folder.map(|path| under(root, path)),
        origin,
    };
    let ours = below(root, FilesOrigin::CommandLine);
    // From within a container the kubelet's file system is another one.
    let its_root = root.join(format!("proc/{}/root", kubelet.pid));
    let theirs = below(&its_root, FilesOrigin::ThroughProcess);
    Some(if !ours.are_there() && theirs.are_there() {
        theirs
    } else {
        ours
    })
}

fn in_usual_place(root: &Path) -> Option<Files> {
    let mut places = USUAL_PLACES.iter().map(|path| root.join(path));
    Some(Files {
        file: Some(places.find(|path| path.is_file())?),
        folder: None,
        origin: FilesOrigin::UsualPlace,
    })
}

impl Files {
    fn are_there(&self) -> bool {
        let mut paths = self.file.iter().chain(&self.folder);
        paths.all(|path| path.exists())
    }
}

fn pods_working_set(layout: &Layout, config: &AgentConfig) -> Option<u64> {
    let hierarchy = layout.hierarchy(Controller::Memory)?;
    // Here a kubelet is looked for whether pods come from its API server or not.
    let pods = PodsGroup::of(config.pods_cgroup.as_deref(), true);
    let found = pods.find(layout, config.node.group())?;
    let group = CgroupDir::open(hierarchy, &found.group).ok()?;
    let usage = UsageReader::open(&group).ok()?.read().ok()?;
    let stat = StatReader::open(&group).ok()?.read().ok()?;
    stat.working_set(usage)
}
