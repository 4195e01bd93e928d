//! The least that anybody could do about a fork bomb: look at the count without a pause, and kill whoever is in one group.
use std::{
    io, thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use brink_host::{
    cgroup::CgroupDir,
    realtime::{FifoPriority, set_fifo},
};
use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process},
};

/// Waits until more than `most` tasks are in the node, and kills all in the group until it is empty; a real-time thread, as the
/// guard is.
///
/// # Errors
/// When the node does not get so full in time, or the group does not become empty.
pub(super) fn kill(
    node: &CgroupDir,
    group: &CgroupDir,
    most: u64,
    patience: Duration,
) -> anyhow::Result<()> {
    let killing = || {
        set_fifo(FifoPriority::GUARD)?;
        let until = Instant::now() + patience;
        while node.tasks()? <= most {
            anyhow::ensure!(Instant::now() < until, "the bomb stays below the threshold");
        }
        while kill_all(group)? {
            anyhow::ensure!(Instant::now() < until, "the bomb's processes stay");
            // The dying need a processor.
            thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("lone-killer".to_owned());
        let outcome = thread.spawn_scoped(scope, killing)?.join();
        outcome.map_err(|_| anyhow::anyhow!("the lone killer panicked"))?
    })
}

/// Sends SIGKILL to everybody who is there; whether anybody was.
fn kill_all(group: &CgroupDir) -> anyhow::Result<bool> {
    let listed = group.processes()?;
    for pid in &listed {
        let pid = Pid::from_raw(*pid).context("no process id")?;
        match kill_process(pid, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(errno) => return Err(io::Error::from(errno).into()),
        }
    }
    Ok(!listed.is_empty())
}
