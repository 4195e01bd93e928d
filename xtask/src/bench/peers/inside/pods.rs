//! The pods of the guest: control groups as a kubelet lays them out, and those who live in them all the time.
use std::{
    fs,
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use brink_host::{
    hog::{HogSpec, Load as Kind},
    meminfo::MeminfoReader,
};

use super::load::Load;
use crate::bench::{measure::units::MIB, peers::contender::LIMIT};

/// The group of all pods.
pub(super) const ROOT: &str = "/pods";
/// Where it is.
const FOLDER: &str = "/sys/fs/cgroup/pods";
/// What is left above the limit while nothing happens.
pub(super) const ROOM: u64 = 128 * MIB;
/// A process of ours ends after ten minutes at the latest; those who stay are renewed before.
const AGE: Duration = Duration::from_mins(7);
/// The task limit of every pod, as a kubelet may be told.
const TASKS: &str = "3000";

/// A pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pod {
    /// Large, and within its request: whoever goes by size alone kills it.
    Database,
    /// Three processes, within their request.
    Web,
    /// Small, without a request: whoever goes by class alone kills it.
    Job,
    /// The one that grows beyond its request.
    Leaker,
    /// Another one.
    Second,
}

impl Pod {
    /// All of them.
    pub(super) const ALL: [Self; 5] = [
        Self::Database,
        Self::Web,
        Self::Job,
        Self::Leaker,
        Self::Second,
    ];

    /// Its name, and its group's.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Database => "database",
            Self::Web => "web",
            Self::Job => "job",
            Self::Leaker => "leaker",
            Self::Second => "leaker-too",
        }
    }

    /// The request for memory, in MiB.
    pub(super) const fn request(self) -> Option<u64> {
        match self {
            Self::Database => Some(800),
            Self::Web => Some(64),
            Self::Leaker | Self::Second => Some(16),
            Self::Job => None,
        }
    }

    /// Whether it is one of those that grow.
    pub(super) const fn is_right(self) -> bool {
        matches!(self, Self::Leaker | Self::Second)
    }

    /// Where its group is.
    pub(super) fn folder(self) -> PathBuf {
        Path::new(FOLDER).join(self.name())
    }

    /// The processes in it now.
    pub(super) fn processes(self) -> anyhow::Result<Vec<i32>> {
        let text = fs::read_to_string(self.folder().join("cgroup.procs"))?;
        Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// `oom_score_adj` of its processes, by the kubelet's formula for burstable pods and the rest.
    pub(super) fn score(self) -> anyhow::Result<u64> {
        let Some(request) = self.request() else {
            return Ok(1000);
        };
        let capacity = MeminfoReader::open(Path::new("/"))?.read()?.total;
        let share = (1000 * request * MIB).checked_div(capacity).unwrap_or(0);
        Ok(1000_u64.saturating_sub(share).clamp(3, 999))
    }
}

/// Those who live in the pods all the time.
pub(super) struct Pods {
    residents: Vec<Load>,
    since: Instant,
    /// Of the large one.
    ballast: u64,
}

impl Pods {
    /// Makes the groups, empty.
    pub(super) fn new() -> anyhow::Result<Self> {
        make(Path::new(FOLDER), "+memory +pids")?;
        for pod in Pod::ALL {
            let folder = pod.folder();
            make(&folder, "")?;
            fs::write(folder.join("pids.max"), TASKS)?;
            // What a kubelet with memory QoS sets; oomd ranks by what is above it.
            let protected = pod.request().unwrap_or(0) * MIB;
            fs::write(folder.join("memory.low"), protected.to_string())?;
        }
        fs::write(Path::new(FOLDER).join("memory.low"), "max")?;
        Ok(Self {
            residents: Vec::new(),
            since: Instant::now(),
            ballast: 0,
        })
    }

    /// Sees to it that everybody is there, and leaves [`ROOM`] above the limit.
    pub(super) fn settle(&mut self) -> anyhow::Result<()> {
        let is_old = self.since.elapsed() > AGE;
        let is_gone = self.residents.iter_mut().any(Load::is_over);
        if self.residents.is_empty() || is_old || is_gone {
            self.residents.clear();
            self.since = Instant::now();
            settle_memory()?;
            for (pod, bytes) in [
                (Pod::Web, 8 * MIB),
                (Pod::Web, 8 * MIB),
                (Pod::Web, 8 * MIB),
                (Pod::Job, 8 * MIB),
            ] {
                self.residents.push(resident(pod, bytes)?);
            }
            let available = available()?;
            // Its page tables and itself come on top.
            self.ballast = available.saturating_sub(LIMIT + ROOM + 4 * MIB);
            self.residents.push(resident(Pod::Database, self.ballast)?);
        }
        settle_memory()
    }
}

/// A process that takes so much of its pod, and stays.
pub(super) fn resident(pod: Pod, bytes: u64) -> anyhow::Result<Load> {
    let mut load = Load::spawn(pod, &HogSpec::new(Kind::Anon, bytes, HogSpec::LONGEST))?;
    load.start();
    load.wait_done(Duration::from_mins(1))?;
    Ok(load)
}

/// `MemAvailable`, in bytes.
pub(super) fn available() -> anyhow::Result<u64> {
    let info = MeminfoReader::open(Path::new("/"))?.read()?;
    info.available.context("no MemAvailable")
}

/// Gives back all that can be given back, so that every run begins alike.
fn settle_memory() -> anyhow::Result<()> {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").context("drop_caches")?;
    sleep(Duration::from_millis(200));
    Ok(())
}

fn make(folder: &Path, hands_on: &str) -> anyhow::Result<()> {
    fs::create_dir(folder).with_context(|| format!("making {}", folder.display()))?;
    if !hands_on.is_empty() {
        fs::write(folder.join("cgroup.subtree_control"), hands_on)?;
    }
    Ok(())
}
