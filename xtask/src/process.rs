//! One child process to its end or its deadline, with all it printed and without what it left running.
use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Read},
    os::unix::process::ExitStatusExt as _,
    process::{Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, WaitOptions};

/// How often the child is looked at.
const TICK: Duration = Duration::from_millis(5);
/// How long a child's own children may take to follow it before they count as left behind.
const GRACE: Duration = Duration::from_millis(500);
/// How long the killed may take to be gone.
const DEATH: Duration = Duration::from_secs(10);
/// The most output that is kept of one child, in bytes.
const OUTPUT: usize = 64 << 20;

/// How a child came to its end.
#[derive(Debug)]
pub struct Ended {
    /// Its exit status; nothing if the deadline passed and it was killed.
    pub status: Option<ExitStatus>,
    /// Its stdout and stderr, line by line as they came.
    pub output: String,
    /// What it left behind: processes, which have been killed, as `pid (name)`.
    pub left: Vec<String>,
    /// How long it ran.
    pub elapsed: Duration,
}

impl Ended {
    /// What it printed, set in, so that no line of it can be taken for one of ours.
    pub fn quoted(&self) -> String {
        self.output
            .lines()
            .map(|line| ["    ", line, "\n"].concat())
            .collect()
    }

    /// Why the child as a whole has failed, if it has.
    pub fn fault(&self) -> Option<String> {
        match self.status {
            None => Some(format!("killed at its deadline after {:.1?}", self.elapsed)),
            Some(status) if !status.success() => Some(status.to_string()),
            Some(_) if self.left.is_empty() => None,
            Some(_) => Some(format!("left behind: {}", self.left.join(", "))),
        }
    }
}

/// Makes orphans of our children our own, so that none of them escapes by leaving its parent.
///
/// # Errors
/// When the kernel refuses.
pub fn adopt_orphans() -> anyhow::Result<()> {
    let own = Some(rustix::process::getpid());
    rustix::process::set_child_subreaper(own).context("becoming the reaper of orphans")
}

/// Leaves orphans to the machine again: what is to outlive the command that started it is nobody's leftover.
///
/// # Errors
/// When the kernel refuses.
pub fn leave_orphans() -> anyhow::Result<()> {
    rustix::process::set_child_subreaper(None).context("leaving orphans to others")
}

/// Runs `command`; at `deadline` it is killed with all its descendants. One at a time: what is left
/// over afterwards is taken to be the command's, and whichever child of ours ends is reaped.
///
/// # Errors
/// When it cannot be started or waited for, or its descendants cannot be killed.
pub fn run(command: &mut Command, deadline: Duration) -> anyhow::Result<Ended> {
    let began = Instant::now();
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .with_context(|| format!("starting {command:?}"))?;
    let output = Arc::new(Mutex::new(Vec::new()));
    let readers: Vec<JoinHandle<()>> = [
        child.stdout.take().map(|pipe| collect(pipe, &output)),
        child.stderr.take().map(|pipe| collect(pipe, &output)),
    ]
    .into_iter()
    .flatten()
    .collect();
    let status = wait(child.id(), began + deadline)?;
    let elapsed = began.elapsed();
    if status.is_none() {
        // The child is still ours to wait for, so its number cannot have been given to another.
        kill_descendants(&descendants_of(child.id()))?;
        child.kill().context("killing a child at its deadline")?;
        child.wait().context("waiting for a killed child")?;
    }
    let left = clear_descendants()?;
    let until = Instant::now() + DEATH;
    while Instant::now() < until && !readers.iter().all(JoinHandle::is_finished) {
        thread::sleep(TICK);
    }
    let bytes = output.lock().unwrap_or_else(PoisonError::into_inner);
    let output = String::from_utf8_lossy(&bytes).into_owned();
    Ok(Ended {
        status,
        output,
        left,
        elapsed,
    })
}

/// Waits for the child, and reaps the orphans that end meanwhile: they hold process ids until then.
fn wait(child: u32, deadline: Instant) -> anyhow::Result<Option<ExitStatus>> {
    loop {
        let ended = rustix::process::waitpid(None, WaitOptions::NOHANG);
        match ended.context("waiting for a child")? {
            Some((pid, status)) if pid_of(child) == Some(pid) => {
                return Ok(Some(ExitStatus::from_raw(status.as_raw())));
            }
            _ if Instant::now() >= deadline => return Ok(None),
            Some(_) => {}
            None => thread::sleep(TICK),
        }
    }
}

/// Collects a pipe's lines until its end; past the limit they are read and dropped.
fn collect(pipe: impl Read + Send + 'static, output: &Arc<Mutex<Vec<u8>>>) -> JoinHandle<()> {
    let output = Arc::clone(output);
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while pipe.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
            if output.len() + line.len() <= OUTPUT {
                output.extend_from_slice(&line);
            }
            line.clear();
        }
    })
}

/// A process as `/proc/<pid>/stat` has it.
struct Process {
    parent: u32,
    name: String,
    is_zombie: bool,
}

fn processes() -> BTreeMap<u32, Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    // One that has ended between the listing and the reading is no process any more.
    let read = |pid: u32| {
        Some((
            pid,
            parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?,
        ))
    };
    pids.filter_map(read).collect()
}

/// `pid (name) state parent …`, where the name may hold anything, parentheses too.
fn parse_stat(stat: &str) -> Option<Process> {
    let (head, tail) = stat.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    let mut fields = tail.split_whitespace();
    let is_zombie = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    Some(Process {
        parent,
        name: name.to_owned(),
        is_zombie,
    })
}

/// Everything below `ancestor`.
fn descendants_of(ancestor: u32) -> BTreeMap<u32, Process> {
    let mut all = processes();
    let mut found = BTreeMap::new();
    let mut parents = vec![ancestor];
    while let Some(parent) = parents.pop() {
        for (pid, process) in all.extract_if(.., |_, process| process.parent == parent) {
            parents.push(pid);
            found.insert(pid, process);
        }
    }
    found
}

fn kill_descendants(processes: &BTreeMap<u32, Process>) -> anyhow::Result<()> {
    for (pid, process) in processes {
        let Some(id) = pid_of(*pid) else { continue };
        match rustix::process::kill_process(id, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => bail!("killing {pid} ({}), left by a test: {error}", process.name),
        }
    }
    Ok(())
}

fn pid_of(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

/// Waits for what the ended child left, kills what does not end, and names the killed.
fn clear_descendants() -> anyhow::Result<Vec<String>> {
    let own = std::process::id();
    let began = Instant::now();
    let mut left = BTreeMap::new();
    loop {
        let found = descendants_of(own);
        for pid in found.keys().copied().filter_map(pid_of) {
            // Only our own zombies answer; for all others this does nothing.
            let _status = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
        }
        let alive: BTreeMap<_, _> = found
            .into_iter()
            .filter(|(_, each)| !each.is_zombie)
            .collect();
        if alive.is_empty() {
            return Ok(left.into_values().collect());
        }
        if began.elapsed() > GRACE {
            kill_descendants(&alive)?;
            left.extend(
                alive
                    .iter()
                    .map(|(pid, each)| (*pid, format!("{pid} ({})", each.name))),
            );
        }
        if began.elapsed() > GRACE + DEATH {
            bail!("these do not die: {left:?}");
        }
        thread::sleep(TICK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let process = parse_stat("12 (a) (b) c) S 34 12 12 0").unwrap();
        assert_eq!((process.name.as_str(), process.parent), ("a) (b) c", 34));
        assert!(!process.is_zombie);
        assert!(parse_stat("12 (a) Z 1").unwrap().is_zombie);
        assert!(parse_stat("12 (a").is_none());
    }
}
