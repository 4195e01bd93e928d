//! Starting a hog in a group, watching how far it has come, and making sure it ends.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use brink_host::cgroup::owned::OwnedCgroup;
use brink_host::hog::{HogSpec, Load, Progress};

use crate::slowed;

static NEXT: AtomicU32 = AtomicU32::new(0);
/// How many stand ready for the kernel's killer behind the one that it is to take.
const NEXT_TO_GO: usize = 4;

/// A running hog. Dropping it kills it and removes its files.
#[derive(Debug)]
pub struct Hog {
    child: Child,
    /// Kept until the start.
    start: Option<ChildStdin>,
    folder: PathBuf,
    /// Whom the kernel takes next, should it choose again.
    next: Vec<Hog>,
}

impl Hog {
    /// Starts a hog that enters a group before it takes anything. With `spec.wait` it takes nothing until
    /// [`Hog::start`].
    ///
    /// `program` is a program that is a hog: `env!("CARGO_BIN_EXE_brink-hog")` in the tests of this crate.
    ///
    /// # Errors
    /// When it cannot be started, or its files not be made.
    pub fn spawn(program: &Path, group: Option<&OwnedCgroup>, spec: &HogSpec) -> io::Result<Self> {
        Self::spawn_by(Command::new(program), group, spec)
    }

    /// The same, and it does not listen when it is asked to end.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn_deaf(
        program: &Path,
        group: Option<&OwnedCgroup>,
        spec: &HogSpec,
    ) -> io::Result<Self> {
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' TERM; exec \"$@\"", "sh"]);
        command.arg(program);
        Self::spawn_by(command, group, spec)
    }

    /// Starts one that takes all memory of the machine, which must be a guest, until the kernel kills it before anybody else.
    ///
    /// The kernel passes a victim over whose memory it could not take back at once, and may choose again before that is free,
    /// in whose context ever. A few that take nothing stand ready for that: without them it would be the test, or the agent.
    ///
    /// # Errors
    /// When it cannot be started, or not be made the first to go.
    pub fn exhaust(program: &Path) -> io::Result<Self> {
        let mut spec = HogSpec::new(Load::Anon, 64 << 30, Duration::from_mins(5));
        (spec.floor, spec.wait) = (0, true);
        let mut hog = Self::spawn(program, None, &spec)?;
        hog.goes_before_anybody(program)?;
        hog.start();
        Ok(hog)
    }

    /// Has the kernel's killer take this one first when the node is out of memory, and a few others before anybody else.
    ///
    /// # Errors
    /// When those cannot be started, or the score not be written.
    pub fn goes_before_anybody(&mut self, program: &Path) -> io::Result<()> {
        let mut spec = HogSpec::new(Load::Anon, 1 << 20, Duration::from_mins(5));
        (spec.floor, spec.wait) = (0, true);
        for _ in 0..NEXT_TO_GO {
            let next = Self::spawn(program, None, &spec)?;
            fs::write(format!("/proc/{}/oom_score_adj", next.pid()), "999")?;
            self.next.push(next);
        }
        fs::write(format!("/proc/{}/oom_score_adj", self.pid()), "1000")
    }

    fn spawn_by(
        mut command: Command,
        group: Option<&OwnedCgroup>,
        spec: &HogSpec,
    ) -> io::Result<Self> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("brink-hog-{}-{number}", std::process::id()));
        fs::create_dir(&folder)?;
        let waits = spec.wait;
        let spec = HogSpec {
            parent: Some(std::process::id()),
            join: group.map(OwnedCgroup::entrances).unwrap_or_default(),
            progress: Some(folder.join("progress")),
            folder: Some(folder.clone()),
            deadline: slowed(spec.deadline).min(HogSpec::LONGEST),
            ..spec.clone()
        };
        command.args(spec.to_args()).stdout(Stdio::null());
        command.stdin(if waits { Stdio::piped() } else { Stdio::null() });
        match command.spawn() {
            Ok(mut child) => Ok(Self {
                start: child.stdin.take(),
                child,
                folder,
                next: Vec::new(),
            }),
            Err(error) => {
                fs::remove_dir_all(&folder)?;
                Err(error)
            }
        }
    }

    /// Lets a waiting hog begin.
    pub fn start(&mut self) {
        // It waits for the end of its standard input.
        self.start = None;
    }

    /// Its process.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(0)
    }

    /// How far it has come.
    ///
    /// # Errors
    /// When its file cannot be read.
    pub fn progress(&self) -> io::Result<Progress> {
        Progress::read(&self.folder.join("progress")).map_err(io::Error::other)
    }

    /// Waits until it is in the group that it was to enter.
    ///
    /// # Errors
    /// When it is not after `patience`, [slowed].
    pub fn wait_in(&self, group: &OwnedCgroup, patience: Duration) -> io::Result<()> {
        let is_in = || group.processes().ok()?.contains(&self.pid()).then_some(());
        wait_until(patience, is_in)
            .ok_or_else(|| io::Error::other("the hog did not join its group"))
    }

    /// Waits until it has taken so much, or has ended.
    ///
    /// # Errors
    /// When it ends before, or has not come so far after `patience`, [slowed].
    pub fn wait_touched(&mut self, bytes: u64, patience: Duration) -> io::Result<Progress> {
        let deadline = Instant::now() + slowed(patience);
        loop {
            let progress = self.progress()?;
            if progress.touched >= bytes {
                return Ok(progress);
            }
            if let Some(status) = self.child.try_wait()? {
                return Err(io::Error::other(format!(
                    "the hog ended ({status}) after {progress:?}"
                )));
            }
            if Instant::now() > deadline {
                return Err(io::Error::other(format!(
                    "the hog is too slow: {progress:?}"
                )));
            }
            sleep(Duration::from_millis(1));
        }
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it has not ended after `patience`, [slowed].
    pub fn wait(&mut self, patience: Duration) -> io::Result<ExitStatus> {
        let deadline = Instant::now() + slowed(patience);
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                return Err(io::Error::other("the hog has not ended"));
            }
            sleep(Duration::from_micros(200));
        }
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        // It may have ended already, and whoever wants to know has asked.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Looks every millisecond until something is there; `None` after `patience`, [slowed].
pub fn wait_until<T>(patience: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + slowed(patience);
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() > deadline {
            return None;
        }
        sleep(Duration::from_millis(1));
    }
}
