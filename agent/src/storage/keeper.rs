//! The thread that measures what workloads use of disks, and what it shares with those who ask.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use brink_core::base::Moment;
use brink_core::node::observe::Observations;
use brink_core::node::policy::Policy;
use brink_core::node::workload::WorkloadTable;
use brink_host::HostError;
use brink_host::disk::feed::FeedCounts;
use tracing::warn;

use super::layers::Silence;
use super::measured::Measured;
use super::need::Need;
use super::owned::Owned;
use super::rounds;
use crate::config::Filesystems;
use crate::guard::ports::Ports;
use crate::guard::roster::Roster;
use crate::guard::storage::Disks;

/// The thread's name.
const NAME: &str = "brink-storage";
/// A walk looks so often whether it is to end; a filesystem that does not answer never lets it.
const LAST_PATIENCE: Duration = Duration::from_secs(2);

/// What there is to measure.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) table: Arc<WorkloadTable>,
    pub(super) owned: Arc<[Owned]>,
    pub(super) disks: Arc<Disks>,
}

/// What the thread and its owner share.
#[derive(Default)]
pub(super) struct Shared {
    work: Mutex<Arc<Work>>,
    book: Mutex<Book>,
    need: AtomicU8,
    /// To the guard, which is told who is over a limit of its own.
    pub(super) ports: Option<Arc<Ports>>,
    is_wanted: AtomicBool,
    pub(super) stop: AtomicBool,
}

/// A folder that has taken so long is told before it is done.
const SLOW: Duration = Duration::from_secs(10);

/// What was measured, and how that goes.
#[derive(Debug, Default)]
pub(super) struct Book {
    pub(super) measured: HashMap<String, Measured>,
    pub(super) standing: Standing,
    /// What is being asked, and since when: a filesystem that does not answer lets nothing else be measured.
    pub(super) asking: Option<(PathBuf, Instant)>,
    /// Why no container runtime tells what containers have written, where one is to.
    pub(super) silence: Option<Silence>,
}

/// How measuring goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Folders that are measured.
    pub folders: usize,
    /// Those of them that the last round could not measure, and why, and why nobody tells of writable layers; folders of pods that are
    /// not there yet are none.
    pub troubles: Vec<String>,
    /// Filesystems whose kernel tells what has changed.
    pub feeds: usize,
    /// What these have told.
    pub told: FeedCounts,
    /// Why others are walked each time, a line for each mount.
    pub without_feed: Vec<String>,
    /// When the last round was over, and how long it took.
    pub last_round: Option<(Moment, Duration)>,
}

/// By what is measured, and how often.
#[derive(Clone, Debug)]
pub struct Means {
    /// The root of the node's files; runtimes of containers are looked for below it.
    pub root: PathBuf,
    /// Folders that filesystems are measured by, as far as they were configured.
    pub filesystems: Filesystems,
    /// The container runtime's socket, if it was configured.
    pub endpoint: Option<PathBuf>,
    /// A round comes so often at least, if its figures are wanted.
    pub period: Duration,
}

/// The thread; it ends when this is dropped. By default there is none, and nothing is measured.
#[derive(Default)]
pub struct Keeper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// When the guard had asked for a round the last time that the thread was woken for it, in nanoseconds.
    woken_for: AtomicI64,
}

impl Keeper {
    /// Starts the thread with nothing to measure.
    ///
    /// # Errors
    /// [`HostError::Call`] when it cannot be started.
    pub fn start(means: Means, is_wanted: bool, ports: Arc<Ports>) -> Result<Self, HostError> {
        let shared = Arc::new(Shared {
            is_wanted: is_wanted.into(),
            ports: Some(ports),
            ..Shared::default()
        });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name(NAME.to_owned())
            .stack_size(256 << 10)
            .spawn(move || rounds::run(&theirs, means))
            .map_err(|source| HostError::Call {
                what: "starting the thread that measures disks",
                source,
            })?;
        Ok(Self {
            shared,
            thread: Some(thread),
            woken_for: AtomicI64::new(0),
        })
    }

    /// Measures what the workloads of this roster have from now on, those that are new at once.
    pub fn follow(&self, roster: &Roster) {
        let work = Work {
            table: Arc::clone(&roster.table),
            owned: Arc::clone(&roster.owned),
            disks: Arc::clone(&roster.disks),
        };
        *lock(&self.shared.work) = Arc::new(work);
        self.wake();
    }

    /// Whether anybody wants the figures.
    pub fn want(&self, is_wanted: bool) {
        let before = self.shared.is_wanted.swap(is_wanted, Ordering::Relaxed);
        if is_wanted && !before {
            self.wake();
        }
    }

    /// Tells what is seen of the node: how near thresholds on disks are. A round that the guard waits for begins at once.
    pub fn see(&self, policy: &Policy, seen: &Observations) {
        self.set_need(Need::of(policy, seen));
        let asked = self.shared.round_asked().map_or(0, Moment::as_nanos);
        if self.woken_for.swap(asked, Ordering::Relaxed) != asked {
            self.wake();
        }
    }

    fn set_need(&self, need: Need) {
        let before = self.shared.need.swap(need as u8, Ordering::Relaxed);
        if need as u8 > before {
            self.wake();
        }
    }

    /// What was measured of the workload with that uid.
    pub fn measured(&self, uid: &str) -> Option<Measured> {
        self.shared.book().measured.get(uid).cloned()
    }

    /// Takes that as measured of the workload with that uid.
    #[cfg(test)]
    pub fn take(&self, uid: &str, measured: Measured) {
        self.shared.book().measured.insert(uid.to_owned(), measured);
    }

    /// How measuring goes.
    pub fn standing(&self) -> Standing {
        self.shared.standing()
    }

    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.wake();
        let Some(thread) = self.thread.take() else {
            return;
        };
        let began = Instant::now();
        while !thread.is_finished() {
            if began.elapsed() > LAST_PATIENCE {
                warn!("a filesystem does not answer; the thread that measures it is left to it");
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // A thread that panicked has said so itself.
        let _ended = thread.join();
    }
}

impl Shared {
    pub(super) fn work(&self) -> Arc<Work> {
        Arc::clone(&lock(&self.work))
    }

    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        lock(&self.book)
    }

    /// How measuring goes, as of now.
    pub(super) fn standing(&self) -> Standing {
        let book = self.book();
        let mut standing = book.standing.clone();
        if let Some(silence) = &book.silence {
            standing.troubles.push(silence.in_words(Instant::now()));
        }
        if let Some((path, since)) = &book.asking
            && since.elapsed() >= SLOW
        {
            standing.troubles.push(format!(
                "{} is not measured after {} s: its filesystem does not answer, or it is very large; until then what is known of \
                 others grows old",
                path.display(),
                since.elapsed().as_secs()
            ));
        }
        standing
    }

    /// Notes what is asked next, or that nothing is.
    pub(super) fn note_asking(&self, path: Option<&Path>) {
        let asking = path.map(|path| (path.to_path_buf(), Instant::now()));
        self.book().asking = asking;
    }

    pub(super) fn need(&self) -> Need {
        const MET: u8 = Need::Met as u8;
        const NEAR: u8 = Need::Near as u8;
        match self.need.load(Ordering::Relaxed) {
            MET => Need::Met,
            NEAR => Need::Near,
            _ => Need::Seldom,
        }
    }

    /// When the guard has asked last for a round that begins no sooner.
    fn round_asked(&self) -> Option<Moment> {
        self.ports.as_ref()?.round_asked()
    }

    /// Whether the guard waits for a round that began after this one.
    pub(super) fn is_round_owed(&self, last: Option<Moment>) -> bool {
        self.round_asked() > last
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// Whoever died with it locked left it whole: every change of it is one assignment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
