//! The least that anybody could do about a fork bomb: look at the count without a pause, and kill whoever is in one group.
use std::{fs, io, path::Path, str::FromStr as _, thread, time::Duration, time::Instant};

use anyhow::Context as _;
use brink_host::realtime::{FifoPriority, set_fifo};
use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process},
};

/// Waits until more than `most` tasks are in the node, and kills all in the group until it is empty; a real-time thread, as the
/// guard is.
///
/// # Errors
/// When the node does not get so full in time, or the group does not become empty.
pub(super) fn kill(node: &Path, group: &Path, most: u64, patience: Duration) -> anyhow::Result<()> {
    let (count, members) = (node.join("pids.current"), group.join("cgroup.procs"));
    let killing = move || {
        set_fifo(FifoPriority::GUARD)?;
        let until = Instant::now() + patience;
        while tasks(&count)? <= most {
            anyhow::ensure!(Instant::now() < until, "the bomb stays below the threshold");
        }
        while kill_all(&members)? {
            anyhow::ensure!(Instant::now() < until, "the bomb's processes stay");
            // The dying need a processor.
            thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    };
    let thread = thread::Builder::new().name("lone-killer".to_owned());
    let killer = thread.spawn(killing)?;
    killer
        .join()
        .map_err(|_| anyhow::anyhow!("the lone killer panicked"))?
}

fn tasks(count: &Path) -> anyhow::Result<u64> {
    Ok(u64::from_str(fs::read_to_string(count)?.trim())?)
}

/// Sends SIGKILL to everybody who is there; whether anybody was.
fn kill_all(members: &Path) -> anyhow::Result<bool> {
    let listed = fs::read_to_string(members)?;
    for line in listed.lines() {
        let pid = i32::from_str(line).ok().and_then(Pid::from_raw);
        match kill_process(pid.context("no process id")?, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(errno) => return Err(io::Error::from(errno).into()),
        }
    }
    Ok(!listed.is_empty())
}
