//! What the kubelet's files and flags come to, as far as it matters here.

use std::path::{Path, PathBuf};

use brink_core::base::Quantity;
use brink_core::node::policy::{Capacities, Draft};
use brink_core::node::signal::Signal;
use brink_core::node::threshold::Threshold;

use brink_host::meminfo::MeminfoReader;
use brink_host::pid_limits::PidLimits;
use rustix::fs::{Access, AtFlags, CWD, accessat, statvfs};
use rustix::io::Errno;

use super::super::source::under;
use super::{Files, flags};
use crate::config::document::{Node, Origins, Reader, Value};
use crate::config::eviction::{self, Source};
use crate::config::finding::Report;
use crate::config::kubelet;

/// Settings of the kubelet.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Its thresholds.
    pub thresholds: Vec<Threshold>,
    /// What is doubtful, one sentence each.
    pub doubts: Vec<String>,
    /// `kubeReserved`.
    pub kube_reserved: Reserved,
    /// `systemReserved`.
    pub system_reserved: Reserved,
    /// `kernelMemcgNotification`.
    pub memcg_notification: bool,
    /// Eviction flags of the command line that win over the files.
    pub flags: Vec<&'static str>,
}

/// What is kept for everything that is no pod, as far as thresholds go by it; nothing of what is not named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    memory: Option<Quantity>,
    storage: Option<Quantity>,
    pids: Option<Quantity>,
}

impl Reserved {
    fn of<'a>(amount: impl Fn(&str) -> Option<&'a str>) -> Self {
        let amount = |key| amount(key)?.parse().ok();
        Self {
            memory: amount("memory"),
            storage: amount("ephemeral-storage"),
            pids: amount("pid"),
        }
    }

    /// Memory, bytes.
    pub fn memory(&self) -> i64 {
        self.memory.map_or(0, Quantity::value)
    }

    /// The kubelet's disk, bytes.
    pub fn storage(&self) -> i64 {
        self.storage.map_or(0, Quantity::value)
    }

    /// Process ids.
    pub fn pids(&self) -> i64 {
        self.pids.map_or(0, Quantity::value)
    }
}

/// Why the kubelet's settings are not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsettled {
    /// We cannot read this file or folder of its, though it could.
    Unread(PathBuf, Errno),
    /// A kubelet would refuse them, one sentence each.
    Refused(Vec<String>),
}

impl Settings {
    /// The hard threshold on a signal.
    pub fn hard(&self, signal: Signal) -> Option<&Threshold> {
        let mut all = self.thresholds.iter();
        all.find(|threshold| threshold.signal == signal && threshold.is_hard())
    }

    /// Memory kept for everything that is no pod, bytes.
    pub fn reserved(&self) -> i64 {
        let (kube, system) = (&self.kube_reserved, &self.system_reserved);
        kube.memory().saturating_add(system.memory())
    }
}

/// Reads files and flags together, or what the kubelet says of itself, in which both are; none where there is nothing.
pub(super) fn read(
    root: &Path,
    files: Option<&Files>,
    configz: Option<&str>,
    arguments: &[String],
) -> Option<Result<Settings, Unsettled>> {
    let arguments: &[String] = if configz.is_some() { &[] } else { arguments };
    if files.is_none() && arguments.is_empty() {
        return None;
    }
    if let Some((path, errno)) = files.and_then(unread) {
        return Some(Err(Unsettled::Unread(path, errno)));
    }
    let (mut origins, mut report) = (Origins::default(), Report::default());
    let file = files.and_then(|files| files.file.as_deref());
    let folder = files.and_then(|files| files.folder.as_deref());
    let tree = match configz {
        Some(text) => kubelet::of_configz(text, &mut origins, &mut report),
        None => kubelet::load(file, folder, &mut origins, &mut report),
    };
    let mut draft = written(&tree, &origins);
    let given = flags::apply(arguments, &mut draft);
    let source = Source {
        tree: &tree,
        prefix: "",
        origins: &origins,
    };
    let policy = eviction::check(&draft, source, &mut report);
    eviction::add_doubts(&draft, source, &memory_and_tasks(root), &mut report);
    let reserved = |key: &str, flag| {
        let flag = flags::reserved(arguments, flag);
        flag.map_or_else(
            || Reserved::of(|resource| tree.get(key)?.get(resource)?.scalar()),
            |given| Reserved::of(|resource| given.get(resource).map(String::as_str)),
        )
    };
    let settings = Settings {
        thresholds: policy.map_or_else(Vec::new, |policy| policy.thresholds().to_vec()),
        doubts: Vec::new(),
        kube_reserved: reserved("kubeReserved", "--kube-reserved"),
        system_reserved: reserved("systemReserved", "--system-reserved"),
        memcg_notification: is_true(tree.get("kernelMemcgNotification"))
            || flags::value(arguments, "--kernel-memcg-notification") == Some("true"),
        flags: given,
    };
    Some(match report.into_result() {
        Ok(warnings) => Ok(Settings {
            doubts: warnings.iter().map(ToString::to_string).collect(),
            ..settings
        }),
        Err(faults) => {
            let faults = faults.list.iter().map(ToString::to_string);
            Err(Unsettled::Refused(faults.collect()))
        }
    })
}

/// Why we cannot read them, if so.
fn unread(files: &Files) -> Option<(PathBuf, Errno)> {
    let file = files.file.iter().map(|path| (path, Access::READ_OK));
    let folder = files.folder.iter();
    let folder = folder.map(|path| (path, Access::READ_OK | Access::EXEC_OK));
    file.chain(folder).find_map(|(path, wanted)| {
        let errno = accessat(CWD, path, wanted, AtFlags::EACCESS).err()?;
        Some((path.clone(), errno))
    })
}

/// The eviction keys. What is wrong with them was reported when they were loaded.
fn written(tree: &Node, origins: &Origins) -> Draft {
    let mut told_already = Report::default();
    kubelet::read_keys(&mut Reader::new(tree, origins, &mut told_already))
}

fn is_true(node: Option<&Node>) -> bool {
    node.is_some_and(|node| matches!(node.value, Value::Bool(true, _)))
}

/// How much there is of what a kubelet with these flags has thresholds on, its disk included.
pub(super) fn capacities(root: &Path, arguments: &[String]) -> Capacities {
    let folder = flags::value(arguments, "--root-dir").unwrap_or("/var/lib/kubelet");
    let disk = statvfs(under(root, Path::new(folder))).ok();
    let size = disk.map(|disk| disk.f_blocks.saturating_mul(disk.f_frsize));
    let mut capacities = memory_and_tasks(root);
    capacities[Signal::NodefsAvailable] = size.and_then(|size| i64::try_from(size).ok());
    capacities
}

/// How much there is of what is told without a disk; everything else is unknown.
pub(crate) fn memory_and_tasks(root: &Path) -> Capacities {
    let memory = MeminfoReader::open(root).ok();
    let memory = memory.and_then(|reader| Some(reader.read().ok()?.total));
    let tasks = PidLimits::read(root).effective();
    let signed = |amount: Option<u64>| amount.and_then(|amount| i64::try_from(amount).ok());
    Capacities::from_fn(|signal| match signal {
        Signal::MemoryAvailable => signed(memory),
        Signal::PidAvailable => signed(tasks),
        _ => None,
    })
}
