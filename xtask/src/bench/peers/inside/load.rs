//! A load in a pod: a process of ours that waits until it is told to begin, with the score its pod would give it.
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use brink_host::hog::{HogSpec, Progress};

use super::pods::{Pod, ROOT};

const PROGRAM: &str = "/bin/brink-hog";
/// Progress is kept where it costs no disk.
const RUN: &str = "/run";
/// Files of the loads are on a disk, as users' are: in memory they could not be given back.
const SCRATCH: &str = "/peers/tmp";
const PATIENCE: Duration = Duration::from_secs(20);

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A process that waits or works. Dropping it ends it.
pub(super) struct Load {
    child: Child,
    start: Option<ChildStdin>,
    progress: PathBuf,
}

impl Load {
    /// Starts it in its pod, where it waits.
    pub(super) fn spawn(pod: Pod, spec: &HogSpec) -> anyhow::Result<Self> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let progress = Path::new(RUN).join(format!("progress-{number}"));
        let entrance = pod.folder().join("cgroup.procs");
        let spec = HogSpec {
            wait: true,
            floor: 0,
            parent: Some(std::process::id()),
            join: vec![entrance.clone()],
            progress: Some(progress.clone()),
            folder: Some(SCRATCH.into()),
            ..spec.clone()
        };
        let log = File::options()
            .append(true)
            .create(true)
            .open("/run/loads.log")?;
        let mut command = Command::new(PROGRAM);
        command.args(spec.to_args()).stdin(Stdio::piped());
        command.stdout(Stdio::null()).stderr(log);
        let mut child = command.spawn().context(PROGRAM)?;
        let mut load = Self {
            start: child.stdin.take(),
            child,
            progress,
        };
        load.settle(pod, &entrance)?;
        Ok(load)
    }

    /// Waits until it is in its pod, and gives it the pod's score.
    fn settle(&mut self, pod: Pod, entrance: &Path) -> anyhow::Result<()> {
        let own = self.pid().to_string();
        let began = Instant::now();
        loop {
            let inside = fs::read_to_string(entrance)?;
            // It tells of its progress when it has done everything else that comes before the start.
            if inside.lines().any(|pid| pid == own) && self.progress.exists() {
                break;
            }
            if began.elapsed() > PATIENCE {
                bail!("a load has not come into {ROOT}/{}", pod.name());
            }
            sleep(Duration::from_millis(2));
        }
        fs::write(
            format!("/proc/{own}/oom_score_adj"),
            pod.score()?.to_string(),
        )
        .context("oom_score_adj")
    }

    /// Lets it begin.
    pub(super) fn start(&mut self) {
        self.start = None;
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How far it has come.
    pub(super) fn progress(&self) -> anyhow::Result<Progress> {
        Ok(Progress::read(&self.progress)?)
    }

    /// Whether it has ended.
    pub(super) fn is_over(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until it has taken everything, or has ended.
    pub(super) fn wait_done(&mut self, patience: Duration) -> anyhow::Result<Progress> {
        let began = Instant::now();
        loop {
            let progress = self.progress()?;
            if progress.finished_ns > 0 || self.is_over() {
                return Ok(progress);
            }
            if began.elapsed() > patience {
                bail!("a load is too slow: {progress:?}");
            }
            sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // It may have been killed, which is what it is for; the first process may have collected it.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
        let _removed = fs::remove_file(&self.progress);
    }
}
