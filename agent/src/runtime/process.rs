//! How this process and its threads stand: limits, score, memory and niceness. What is refused is said, and nothing stops for it.

use std::path::Path;
use std::thread::JoinHandle;

use anyhow::Context as _;
use brink_host::open_files;
use brink_host::realtime::{self, oom_score, program, trim_heap};
use tracing::{debug, warn};

use crate::guard;

/// Niceness of whoever starts the guard: nobody is protected before.
const STARTING: i32 = -20;
/// Niceness of the threads that take the guard's reports, make its rosters, and tell Kubernetes of evictions.
const HURRIED: i32 = -10;

/// Limits, score and memory of this process.
pub(super) fn prepare(root: &Path) {
    // Whoever may write the stop button or the ledger decides who dies: that is nobody else, whatever started us.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    realtime::keep_heap_small();
    if let Err(error) = open_files::raise_limit() {
        warn!(%error, "the limit on open files stays as it is");
    }
    match oom_score::adjust(root, -999) {
        Ok(oom_score::OomScore::Set(_)) => {}
        Ok(oom_score::OomScore::Kept { current, why }) => warn!(
            current,
            why, "our own oom_score_adj cannot be lowered: the kernel's killer may choose us"
        ),
        Err(error) => warn!(%error, "our own oom_score_adj cannot be set"),
    }
}

/// Reads the program in and keeps what is in memory there. Only after the programs have been loaded: what loading took
/// and gave back could not be returned to the kernel while it was locked, and is several times what we need.
pub(super) fn settle_memory(root: &Path, lock: bool) {
    trim_heap();
    if let Err(error) = program::prefault(root, &guard::way_of_a_kill()) {
        warn!(%error, "our own program is not read in: the first kill may wait for it");
    }
    if lock && let Err(error) = realtime::lock_memory() {
        warn!(%error, "memory is not locked: the guard may have to wait for its own pages");
    }
}

/// Runs a thread ahead of ordinary ones: a fork bomb must not keep it from the guard's queues, nor from the API server.
pub(super) fn hurried(body: impl FnOnce()) {
    go_ahead(HURRIED);
    body();
}

/// Puts the calling thread first until the guard stands; returns where it was.
pub fn go_first() -> i32 {
    go_ahead(STARTING)
}

/// Puts the calling thread ahead of ordinary ones, and returns where it was.
pub fn go_ahead(nice: i32) -> i32 {
    realtime::set_nice(nice).unwrap_or_else(|errno| {
        debug!(%errno, nice, "a thread stays where it is");
        0
    })
}

/// Starts a thread of a name.
pub(super) fn spawn(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> anyhow::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .with_context(|| format!("cannot start the thread {name}"))
}
