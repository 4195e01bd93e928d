//! The flight recorder: the minute before an incident, of the node and of up to 512 cgroups, in memory that is taken once.
//!
//! The node's points come from the kernel's sampler, which leaves one every 10 ms in a ring of its own; they are read only
//! when a recording is cut, and where it left none, files tell. An ordinary thread reads the rest: the 32 cgroups nearest to
//! their limit every 100 ms, the others every second, and from files how long tasks wait for memory, and the node where the
//! sampler does not run. What cgroups use a program of the kernel tells in one call, or their files where it cannot run. The
//! guard has no part in it.

pub mod approach;
pub mod book;
pub mod choose;
pub mod cut;
pub mod follow;
pub mod group;
pub mod kernel;
pub mod lanes;
pub mod node;
pub mod pace;
pub mod point;
pub mod thin;
pub mod tracked;
pub mod watch;

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;

use brink_core::base::rate::TokenBucket;
use brink_core::base::{Moment, Span};
use brink_host::HostError;
use brink_host::cgroup::{Controller, Layout, Version};
use brink_host::clock;
use brink_host::probe::{FlightReader, Followed, Meters, Survey};
use brink_host::psi::PressureReader;
use brink_host::realtime;
use brink_stream::model::field::Missing;
use brink_stream::model::incident::Recording;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use tracing::{debug, warn};

use crate::bell::Bell;
use crate::forensics::gather::why;
use crate::guard::files::{NodeFiles, NodePlan, Scope};
use book::{Book, Periods, Wanted, lock};
use cut::{BRIEF, FULL, Request};
use kernel::{Counters, Kernel};
use node::NodeSource;
use point::Stamp;
use tracked::Warning;
use watch::Watch;

/// From one point of the node to the next, in nanoseconds.
pub const NODE_PERIOD_NS: u64 = 10_000_000;
/// Full recordings that may be cut at once, and how often one more.
const FULL_AT_ONCE: u32 = 4;
const FULL_EVERY: Span = Span::from_secs(2);
/// Whoever cuts waits so long for the thread at most, in milliseconds.
const PATIENCE_MS: u32 = 5;
/// A sampler that has left no point for so long records nothing, in nanoseconds.
const SILENCE_NS: u64 = 1_000_000_000;

/// The recorder. Its thread ends when this is dropped.
pub struct Recorder {
    source: Arc<Source>,
    allowance: Mutex<TokenBucket>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread and those who cut share.
pub struct Source {
    /// The rings.
    pub book: Mutex<Book>,
    kernel: Mutex<Option<Kernel>>,
    /// For the thread, until it takes it.
    survey: Mutex<Option<Survey>>,
    /// What the thread works with; none before its first beat. Whoever cuts may have it for a beat of his own.
    hands: OnceLock<Mutex<Hands>>,
    bell: Bell,
}

/// The rounds, and who is told what they find.
struct Hands {
    watch: Watch,
    warn: Box<dyn FnMut(Warning) + Send>,
}

impl Recorder {
    /// Starts the thread, at nice 0: it must not run ahead of those it looks at. `warn` is told, on that thread or on one that
    /// cuts, of each limit that will soon be reached.
    ///
    /// # Errors
    /// [`HostError`] when there is no memory controller, or the thread or what wakes it cannot be made.
    pub fn start(
        root: &Path,
        layout: &Layout,
        plan: &NodePlan,
        warn: impl FnMut(Warning) + Send + 'static,
    ) -> Result<Self, HostError> {
        let hierarchy = layout.require(Controller::Memory)?.clone();
        let scope = match &plan.scope {
            Scope::Machine => "/".to_owned(),
            Scope::Group(group) => group.clone(),
        };
        let files = (root.to_path_buf(), layout.clone(), plan.clone());
        let source = Arc::new(Source::new()?);
        let has_pressure = PressureReader::node(root, "memory").is_ok();
        // Those of v1 have none, whatever the node has.
        let tells_stalls = has_pressure && hierarchy.version == Version::V2;
        let node_is_cgroup = plan.scope != Scope::Machine;
        {
            let mut book = lock(&source.book);
            book.tells_stalls = tells_stalls;
            book.node_is_cgroup = node_is_cgroup;
        }
        let shared = Arc::clone(&source);
        let thread = std::thread::Builder::new()
            .name("brink-recorder".into())
            .stack_size(256 << 10)
            .spawn(move || {
                let (root, layout, plan) = files;
                if let Err(errno) = realtime::set_nice(0) {
                    debug!(%errno, "the flight recorder stays ahead of ordinary threads");
                }
                let files = NodeFiles::open(&root, &layout, &plan);
                let pressure = PressureReader::node(&root, "memory");
                let node = NodeSource::new(
                    files.map_err(|error| why(&error, Missing::Lost)),
                    pressure.map_err(|error| why(&error, Missing::KernelLacksIt)),
                );
                let hands = shared.hands.get_or_init(|| {
                    Mutex::new(Hands {
                        watch: Watch::new(hierarchy, scope, node),
                        warn: Box::new(warn),
                    })
                });
                run(&shared, hands);
            })
            .map_err(|source| HostError::Call {
                what: "starting the flight recorder",
                source,
            })?;
        let now = Moment::from_nanos(i64::try_from(clock::monotonic_ns()).unwrap_or(i64::MAX));
        Ok(Self {
            source,
            allowance: Mutex::new(TokenBucket::new(FULL_AT_ONCE, FULL_EVERY, now)),
            thread: Some(thread),
        })
    }

    /// Takes what the kernel's programs record, once they are loaded.
    pub fn attach(&self, flight: FlightReader, meters: Arc<Meters>) {
        *self.source.kernel() = Some(Kernel::new(flight, meters));
    }

    /// Asks this survey what cgroups use from now on, and files no longer.
    pub fn survey_with(&self, survey: Survey) {
        *self.source.survey() = Some(survey);
    }

    /// The minute before `at` (`CLOCK_MONOTONIC`), with the cgroup of the victim, a path in the hierarchy of the memory
    /// controller. Takes some hundred microseconds, and some milliseconds
    /// where the thread is at work. Where many are cut at once, they are brief ones.
    pub fn cut(&self, at: Moment, cgroup: Option<Wanted<'_>>) -> Recording {
        let mut allowance = self
            .allowance
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let form = if allowance.take(at) { FULL } else { BRIEF };
        drop(allowance);
        self.source.catch_up();
        let at_ns = u64::try_from(at.as_nanos()).unwrap_or(0);
        // What it has left is part of the minute, although it may be silent by now.
        let kernel = self.source.kernel();
        let sampled = kernel
            .as_ref()
            .and_then(|kernel| kernel.node(at_ns, form).ok());
        let tells = kernel.as_ref().map(Kernel::tells).unwrap_or_default();
        drop(kernel);
        let request = Request {
            at: Stamp::of(at_ns),
            cgroup,
            form,
        };
        cut::cut(&lock(&self.source.book), request, sampled, tells)
    }
}

/// What is recorded how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// From one point to the next.
    pub periods: Periods,
    /// Cgroups near their limit.
    pub near: u32,
    /// The others.
    pub others: u32,
    /// Of both, those whose usage a program of the kernel's tells, and no file.
    pub surveyed: u32,
    /// Cgroups that are not recorded for want of room, as of the last search.
    pub left_out: u32,
    /// How the kernel's timer stands, where it follows those near their limit.
    pub followed: Option<Followed>,
}

impl Recorder {
    /// What is recorded how often as of `now` (`CLOCK_MONOTONIC`); none before the first round.
    pub fn pace(&self, now: Moment) -> Option<Pace> {
        let since = u64::try_from(now.as_nanos())
            .unwrap_or(0)
            .saturating_sub(SILENCE_NS);
        let kernel = self.source.kernel();
        let recording = kernel.as_ref().filter(|kernel| kernel.is_recording(since));
        let sampled = recording.map(Kernel::period_ms);
        drop(kernel);
        let book = lock(&self.source.book);
        let periods = Periods {
            node_ms: sampled.unwrap_or(book.periods.node_ms),
            ..book.periods
        };
        let alive = || book.entries().filter(|(_, entry)| entry.gone.is_none());
        let near = alive().filter(|(_, entry)| entry.near.is_some()).count();
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        (periods.near_ms > 0).then(|| Pace {
            periods,
            near: count(near),
            others: count(alive().count() - near),
            surveyed: count(book.surveyed),
            left_out: count(book.left_out),
            followed: book.followed,
        })
    }

    /// How the kernel's timer stands, where it follows those near their limit.
    pub fn followed(&self) -> Option<Followed> {
        lock(&self.source.book).followed
    }

    /// What a cgroup held at `at` (`CLOCK_MONOTONIC`) without inactive file pages, in bytes: as of the point before that, which is
    /// a second old at most. None where it was not recorded yet.
    pub fn working_set(&self, cgroup: &str, at: Moment) -> Option<u64> {
        let at = Stamp::of(u64::try_from(at.as_nanos()).unwrap_or(0));
        lock(&self.source.book).working_set(cgroup, at)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.source.bell.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            warn!("the flight recorder had died");
        }
    }
}

impl Source {
    fn new() -> Result<Self, HostError> {
        let bell = Bell::new().map_err(|source| HostError::Call {
            what: "making what wakes the flight recorder",
            source,
        })?;
        Ok(Self {
            book: Mutex::default(),
            kernel: Mutex::default(),
            survey: Mutex::default(),
            hands: OnceLock::new(),
            bell,
        })
    }

    /// Takes what the kernel's timer left while the thread slept. Where that is at work for long, it has taken it itself.
    fn catch_up(&self) {
        let Some(hands) = self.hands.get() else {
            return;
        };
        for _ in 0..PATIENCE_MS {
            match hands.try_lock() {
                Ok(mut hands) => {
                    let Hands { watch, warn } = &mut *hands;
                    return watch.catch_up(clock::monotonic_ns(), self, warn);
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
                Err(TryLockError::Poisoned(_)) => return,
            }
        }
    }

    /// Waits for so long, or until that is readable, or the thread is to end.
    fn wait(&self, moved: Option<BorrowedFd<'_>>, timeout: Duration) {
        let bell = self.bell.as_fd();
        let mut fds =
            [bell, moved.unwrap_or(bell)].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let timeout = Timespec::try_from(timeout).ok();
        // An interrupted wait is an early beat.
        let _interrupted = poll(&mut fds, timeout.as_ref());
    }

    fn kernel(&self) -> std::sync::MutexGuard<'_, Option<Kernel>> {
        self.kernel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn survey(&self) -> std::sync::MutexGuard<'_, Option<Survey>> {
        self.survey.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counters of the kernel's programs.
    fn counters(&self) -> Option<Counters> {
        self.kernel().as_ref().map(Kernel::counters)
    }

    /// Whether the kernel's programs tell of every cgroup that comes or goes.
    fn tells_cgroups(&self) -> bool {
        let kernel = self.kernel();
        kernel.as_ref().is_some_and(Kernel::tells_cgroups)
    }

    fn is_kernel_recording(&self, now_ns: u64) -> bool {
        let since = now_ns.saturating_sub(SILENCE_NS);
        self.kernel()
            .as_ref()
            .is_some_and(|kernel| kernel.is_recording(since))
    }
}

fn run(source: &Source, hands: &Mutex<Hands>) {
    let mut counted = clock::thread_cpu();
    while !source.bell.is_stopped() {
        let mut held = hands.lock().unwrap_or_else(PoisonError::into_inner);
        let Hands { watch, warn } = &mut *held;
        let now = clock::monotonic_ns();
        if watch.begins_round(now) {
            let spent = clock::thread_cpu();
            let round = spent.saturating_sub(std::mem::replace(&mut counted, spent));
            watch.spent(u64::try_from(round.as_nanos()).unwrap_or(u64::MAX));
        }
        watch.beat(now, source, warn);
        let (moved, rest) = (watch.moved(), watch.rest(now, clock::monotonic_ns()));
        drop(held);
        source.wait(moved.as_deref().map(AsFd::as_fd), rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_a_storm_recordings_are_brief_until_time_has_passed() {
        let start = Moment::from_secs(100);
        let recorder = Recorder {
            source: Arc::new(Source::new().unwrap()),
            allowance: Mutex::new(TokenBucket::new(FULL_AT_ONCE, FULL_EVERY, start)),
            thread: None,
        };
        let is_brief = |seconds| {
            recorder
                .cut(start + Span::from_secs(seconds), None)
                .is_brief
        };
        let storm = [0, 0, 0, 0, 0, 1, 2, 2, 3].map(is_brief);
        assert_eq!(
            storm,
            [false, false, false, false, true, true, false, true, true]
        );
    }
}
