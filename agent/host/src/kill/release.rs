//! A small pool of threads, started in advance, that gives the memory of dying processes back early.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_queue::ArrayQueue;

use crate::cgroup::layout::Layout;
use crate::clock::monotonic_ns;
use crate::error::HostError;
use crate::kill::mrelease::{Release, process_mrelease};
use crate::realtime::{self, FifoPriority, Standing};

/// How often a request that the kernel puts off is repeated, and how long apart.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(1);

/// How the pool is made.
#[derive(Debug, Clone)]
pub struct ReleaseConfig {
    /// How many threads.
    pub threads: usize,
    /// How many processes may wait. Further ones are not helped, and counted.
    pub capacity: usize,
    /// The priority they ask for; `None` leaves them ordinary threads.
    pub priority: Option<FifoPriority>,
    /// Whether they may move themselves to the root cpu group to get it.
    pub may_move: bool,
    /// The root of the file system their refusals are diagnosed from.
    pub root: PathBuf,
}

impl Default for ReleaseConfig {
    fn default() -> Self {
        Self {
            threads: 2,
            capacity: 256,
            priority: Some(FifoPriority::RELEASE),
            may_move: false,
            root: "/".into(),
        }
    }
}

/// What the pool has done since it was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReleaseCounts {
    /// Processes whose memory was given back.
    pub released: u64,
    /// Processes that were faster.
    pub already_gone: u64,
    /// Processes given up after the last attempt: their memory is shared with a living one, or they dump core.
    pub given_up: u64,
    /// Requests the kernel does not know or permit.
    pub unsupported: u64,
    /// Requests that failed otherwise.
    pub failed: u64,
    /// Processes that found the queue full.
    pub dropped: u64,
    /// When the last request was done with, nanoseconds of `CLOCK_MONOTONIC`; 0 before the first.
    pub last_done_ns: u64,
}

/// The pool. Dropping it ends its threads.
#[derive(Debug)]
pub struct ReleasePool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    standings: Vec<Standing>,
}

#[derive(Debug)]
struct Shared {
    queue: ArrayQueue<OwnedFd>,
    stop: AtomicBool,
    counters: Counters,
}

#[derive(Debug, Default)]
struct Counters {
    released: AtomicU64,
    already_gone: AtomicU64,
    given_up: AtomicU64,
    unsupported: AtomicU64,
    failed: AtomicU64,
    dropped: AtomicU64,
    last_done_ns: AtomicU64,
}

impl ReleasePool {
    /// Starts the threads and waits until each has its priority.
    ///
    /// # Errors
    /// [`HostError::Call`] when a thread cannot be started.
    pub fn start(config: &ReleaseConfig, layout: &Layout) -> Result<Self, HostError> {
        let shared = Arc::new(Shared {
            queue: ArrayQueue::new(config.capacity.max(1)),
            stop: AtomicBool::new(false),
            counters: Counters::default(),
        });
        let mut pool = Self {
            shared,
            threads: Vec::new(),
            standings: Vec::new(),
        };
        let (sender, receiver) = mpsc::channel();
        for number in 0..config.threads.max(1) {
            let started = thread::Builder::new()
                .name(format!("brink-free-{number}"))
                .stack_size(128 << 10)
                .spawn(Self::body(
                    Arc::clone(&pool.shared),
                    config.clone(),
                    layout.clone(),
                    sender.clone(),
                ));
            pool.threads.push(started.map_err(|source| HostError::Call {
                what: "starting a release thread",
                source,
            })?);
        }
        drop(sender);
        pool.standings = receiver.iter().flatten().collect();
        Ok(pool)
    }

    /// What each thread does: gets its priority, tells how that went, serves.
    fn body(
        shared: Arc<Shared>,
        config: ReleaseConfig,
        layout: Layout,
        tell: mpsc::Sender<Option<Standing>>,
    ) -> impl FnOnce() + Send {
        move || {
            let raise =
                |priority| realtime::raise_thread(&config.root, &layout, priority, config.may_move);
            // The pool may have been dropped already; then nobody wants to know.
            let _ = tell.send(config.priority.map(raise));
            drop((tell, config, layout));
            realtime::prefault_stack::<16_384>();
            shared.serve();
        }
    }

    /// Hands over a process that has SIGKILL pending. Allocates nothing and does not wait.
    ///
    /// Returns false when the queue is full; the process then frees its memory alone.
    pub fn submit(&self, process: OwnedFd) -> bool {
        let accepted = self.shared.queue.push(process).is_ok();
        if !accepted {
            self.shared.counters.dropped.fetch_add(1, Ordering::Relaxed);
        }
        accepted
    }

    /// Wakes the threads, after one or more were handed over.
    pub fn wake(&self) {
        for thread in &self.threads {
            thread.thread().unpark();
        }
    }

    /// How the threads are scheduled and why not better; empty when no priority was asked for.
    pub fn standings(&self) -> &[Standing] {
        &self.standings
    }

    /// What has been done so far.
    pub fn counts(&self) -> ReleaseCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.shared.counters;
        ReleaseCounts {
            released: read(&counters.released),
            already_gone: read(&counters.already_gone),
            given_up: read(&counters.given_up),
            unsupported: read(&counters.unsupported),
            failed: read(&counters.failed),
            dropped: read(&counters.dropped),
            last_done_ns: counters.last_done_ns.load(Ordering::Acquire),
        }
    }
}

impl Drop for ReleasePool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.wake();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so itself.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn serve(&self) {
        let counters = &self.counters;
        loop {
            while let Some(process) = self.queue.pop() {
                let counter = match release(&process) {
                    Release::Released => &counters.released,
                    Release::AlreadyGone => &counters.already_gone,
                    Release::NotNow(_) => &counters.given_up,
                    Release::Unsupported(_) => &counters.unsupported,
                    Release::Failed(_) => &counters.failed,
                };
                counter.fetch_add(1, Ordering::Relaxed);
                counters
                    .last_done_ns
                    .store(monotonic_ns(), Ordering::Release);
            }
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            // A wake-up that came since the queue was found empty makes this return at once.
            thread::park();
        }
    }
}

/// Repeats what the kernel puts off.
fn release(process: &OwnedFd) -> Release {
    for _ in 1..ATTEMPTS {
        match process_mrelease(process) {
            Release::NotNow(_) => thread::sleep(PAUSE),
            outcome => return outcome,
        }
    }
    process_mrelease(process)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::process::{Command, Stdio};

    fn pool(capacity: usize) -> ReleasePool {
        let layout = Layout::detect(Path::new("/")).expect("this machine");
        let config = ReleaseConfig {
            capacity,
            priority: None,
            ..ReleaseConfig::default()
        };
        ReleasePool::start(&config, &layout).expect("threads")
    }

    fn pidfd(pid: u32) -> OwnedFd {
        let pid =
            rustix::process::Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("not 0");
        rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
            .expect("a child of ours")
    }

    fn wait_until(pool: &ReleasePool, done: impl Fn(ReleaseCounts) -> bool) -> ReleaseCounts {
        for _ in 0..2000 {
            if done(pool.counts()) {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        pool.counts()
    }

    #[test]
    fn a_killed_child_is_released_or_already_gone() {
        let pool = pool(4);
        let mut child = Command::new("sleep")
            .arg("60")
            .stdout(Stdio::null())
            .spawn()
            .expect("sleep");
        let process = pidfd(child.id());
        child.kill().expect("ours");
        assert!(pool.submit(process));
        pool.wake();
        let counts = wait_until(&pool, |counts| counts.released + counts.already_gone == 1);
        child.wait().expect("ours");
        assert_eq!(counts.released + counts.already_gone, 1, "{counts:?}");
        assert!(counts.last_done_ns > 0);
    }

    #[test]
    fn a_living_process_is_given_up_and_a_full_queue_is_counted() {
        let pool = pool(1);
        let own = std::process::id();
        assert!(pool.submit(pidfd(own)));
        assert!(
            !pool.submit(pidfd(own)),
            "nobody was woken, so the first is still in the queue"
        );
        pool.wake();
        let counts = wait_until(&pool, |counts| counts.given_up == 1);
        assert_eq!(
            (counts.given_up, counts.dropped, counts.released),
            (1, 1, 0)
        );
    }
}
