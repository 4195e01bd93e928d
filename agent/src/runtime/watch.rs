//! The watcher: notices changes of cgroups, manifests and the stop button, and makes the guard know of them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use brink_host::clock;
use brink_host::probe::abi::record::{CGROUP_ATTACH, CGROUP_MKDIR, CGROUP_POPULATED, CGROUP_RMDIR};
use brink_host::probe::{Evidence, EvidenceReader, Row};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::inotify;
use rustix::time::Timespec;
use tracing::{info, warn};

use super::clerk::BoardCell;
use super::equipment::Loaded;
use super::state::Shared;
use super::stop_button::{Pressed, StopButton};
use crate::backend::build::{Builder, Built};
use crate::config::{CgroupRule, Selection};
use crate::guard::ports::{Command, Ports};
use crate::pod::{Manifest, read_folder};
use crate::warmer::Warmer;

/// Changes that come together become one roster.
const SETTLE: Duration = Duration::from_millis(10);
/// Making rosters may take this part of a processor at most: one in five.
const SHARE: u32 = 4;
/// However long one took, the next is not put off longer.
const LONGEST_REST: Duration = Duration::from_millis(100);
/// Without hooks on cgroups, and in any case, everything is looked at again so often.
const SLOWEST: Duration = Duration::from_secs(10);
/// Records taken from the ring at a time.
const BOUND: usize = 4096;

/// What the watcher needs.
pub struct Watcher {
    /// Makes rosters.
    pub builder: Builder,
    /// The folder of manifests, if there is one.
    pub manifests: Option<PathBuf>,
    /// The stop button.
    pub button: StopButton,
    /// Changes of cgroups, if the kernel tells.
    pub evidence: Option<EvidenceReader>,
    /// Where the changes come from once the programs are loaded.
    pub loaded: Arc<Loaded>,
    /// To the guard.
    pub ports: Arc<Ports>,
    /// What everybody sees.
    pub shared: Arc<Shared>,
    /// Follows each roster.
    pub warmer: Arc<Warmer>,
    /// Remembers each roster's board.
    pub board: Arc<BoardCell>,
    /// What a reload of the configuration has left for us.
    pub reload: Arc<Reload>,
    /// Ends the watcher, and wakes it to look at once.
    pub bell: Arc<Bell>,
    /// Changes of cgroups that found no room in the ring, as of the last look.
    pub lost: u64,
}

/// What a reload of the configuration leaves for the watcher.
#[derive(Debug, Default)]
pub struct Reload(Mutex<Option<Reloaded>>);

/// The parts of a configuration that are about workloads.
#[derive(Clone, Debug)]
pub struct Reloaded {
    /// The folder of manifests.
    pub manifests: Option<PathBuf>,
    /// Cgroups without a manifest.
    pub rules: Vec<CgroupRule>,
    /// Who goes sooner, later or never.
    pub selection: Selection,
    /// Whether processes are to be counted.
    pub count_processes: bool,
}

impl Reload {
    /// Leaves it.
    pub fn leave(&self, reloaded: Reloaded) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(reloaded);
    }

    fn take(&self) -> Option<Reloaded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Wakes the watcher.
#[derive(Debug)]
pub struct Bell {
    fd: OwnedFd,
    stop: std::sync::atomic::AtomicBool,
}

/// Why the watcher woke.
#[derive(Clone, Copy, Debug, Default)]
struct Woken {
    workloads: bool,
    button: bool,
}

impl Bell {
    /// A silent bell.
    ///
    /// # Errors
    /// When the kernel has no event descriptor for us.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self {
            fd: eventfd(0, flags)?,
            stop: false.into(),
        })
    }

    /// Makes the watcher look at everything now.
    pub fn ring(&self) {
        let _rung_already = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
    }

    /// Ends the watcher.
    pub fn stop(&self) {
        self.stop.store(true, std::sync::atomic::Ordering::Release);
        self.ring();
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(std::sync::atomic::Ordering::Acquire)
    }
}

impl Watcher {
    /// Runs until stopped.
    pub fn run(mut self) {
        let mut inotify = self.inotify();
        let mut dirty: Option<Instant> = None;
        let mut earliest = Instant::now();
        let mut pressed = Pressed::No;
        while !self.bell.is_stopped() {
            let timeout = dirty.map_or(SLOWEST, |since| {
                (since + SETTLE)
                    .max(earliest)
                    .saturating_duration_since(Instant::now())
            });
            let woken = self.wait(inotify.as_ref(), timeout, dirty.is_none());
            self.evidence = self.evidence.take().or_else(|| self.loaded.take_evidence());
            if let Some(reloaded) = self.reload.take() {
                self.manifests = reloaded.manifests;
                self.builder.reconfigure(reloaded.rules, reloaded.selection);
                self.warmer.count_processes(reloaded.count_processes);
                inotify = self.inotify();
            }
            if woken.button {
                pressed = self.look_at_button(pressed);
            }
            if woken.workloads {
                dirty.get_or_insert_with(Instant::now);
            }
            let now = Instant::now();
            let due = dirty.is_some_and(|since| now >= (since + SETTLE).max(earliest));
            if due || now >= earliest + SLOWEST {
                dirty = None;
                let before = clock::thread_cpu();
                self.rebuild();
                let spent = clock::thread_cpu().saturating_sub(before);
                earliest = Instant::now() + (spent * SHARE).min(LONGEST_REST);
            }
        }
    }

    fn inotify(&self) -> Option<OwnedFd> {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let inotify = match inotify::init(flags) {
            Ok(inotify) => inotify,
            Err(errno) => {
                warn!(%errno, "files cannot be watched; they are read every ten seconds");
                return None;
            }
        };
        let folders = [self.button.path().parent(), self.manifests.as_deref()];
        for folder in folders.into_iter().flatten() {
            watch(&inotify, folder);
        }
        Some(inotify)
    }

    /// Waits for a reason to look; once there is one, more changes of cgroups are no news.
    fn wait(&mut self, inotify: Option<&OwnedFd>, timeout: Duration, for_evidence: bool) -> Woken {
        let bell = self.bell.fd.as_fd();
        let evidence = self.evidence.as_ref().filter(|_| for_evidence);
        let evidence = evidence.map(EvidenceReader::fd);
        let fds = [Some(bell), inotify.map(AsFd::as_fd), evidence];
        let mut polled: Vec<PollFd<'_>> = fds
            .into_iter()
            .flatten()
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let timeout = Timespec::try_from(timeout).ok();
        // An interrupted wait is an early one.
        let _interrupted = poll(&mut polled, timeout.as_ref());
        let rung = !polled[0].revents().is_empty();
        drop(polled);
        let mut woken = Woken {
            workloads: rung,
            button: rung,
        };
        let mut rings = [0; 8];
        let _silent = rustix::io::read(&self.bell.fd, &mut rings);
        if let Some(inotify) = inotify {
            let mut events = [0; 4096];
            while rustix::io::read(inotify, &mut events).is_ok_and(|length| length > 0) {
                woken = Woken {
                    workloads: self.manifests.is_some(),
                    button: true,
                };
            }
        }
        woken.workloads |= self.drain_evidence();
        woken
    }

    /// Whether a cgroup came, went, or changed its population.
    fn drain_evidence(&mut self) -> bool {
        let Some(evidence) = &mut self.evidence else {
            return false;
        };
        let mut changed = false;
        evidence.drain(BOUND, |record| {
            if let Evidence::Cgroup(change) = record {
                changed |= matches!(
                    change.change,
                    CGROUP_MKDIR | CGROUP_RMDIR | CGROUP_POPULATED | CGROUP_ATTACH
                );
            }
        });
        changed | self.lost_evidence()
    }

    /// Whether a change of cgroups found no room in the ring.
    fn lost_evidence(&mut self) -> bool {
        let loss = self
            .loaded
            .meters()
            .map(|meters| meters.loss(Row::CgroupEvidence));
        let Some(Ok(loss)) = loss else {
            return false;
        };
        std::mem::replace(&mut self.lost, loss.dropped) != loss.dropped
    }

    fn look_at_button(&self, before: Pressed) -> Pressed {
        let pressed = self.button.read();
        if pressed != before {
            info!(?pressed, "the stop button");
            if self
                .ports
                .commands
                .send(Command::Control(pressed.control()))
                .is_err()
            {
                warn!("the guard's queue is full; the stop button is tried again");
                self.bell.ring();
                return before;
            }
        }
        pressed
    }

    fn rebuild(&mut self) {
        let pods = manifests(self.manifests.as_deref());
        match self.builder.build(&pods) {
            Ok(Built { roster, troubles }) => {
                for trouble in troubles {
                    warn!(trouble, "a cgroup cannot be watched over");
                }
                if !self.builder.changed() {
                    return;
                }
                self.shared.lock().add_table(Arc::clone(&roster.table));
                self.board.set(&roster);
                self.warmer.follow(&roster);
                if self.ports.commands.send(Command::Roster(roster)).is_err() {
                    warn!("the guard's queue is full; the workloads are looked at again");
                    self.bell.ring();
                }
            }
            Err(error) => warn!(%error, "the workloads cannot be listed; the last list stands"),
        }
    }
}

/// The pods of the folder; what is wrong with a file is said, and leaves the others alone.
pub fn manifests(folder: Option<&Path>) -> Vec<Manifest> {
    let Some(folder) = folder else {
        return Vec::new();
    };
    match read_folder(folder) {
        Ok(read) => {
            for faults in &read.faults {
                warn!(%faults, "a manifest is not in order; its pods are unknown");
            }
            read.pods
        }
        Err(error) => {
            warn!(%error, folder = %folder.display(), "the manifests cannot be read");
            Vec::new()
        }
    }
}

fn watch(inotify: &OwnedFd, folder: &Path) {
    use inotify::WatchFlags as On;
    let changes = On::CREATE | On::DELETE | On::CLOSE_WRITE | On::MOVED_TO | On::MOVED_FROM;
    if let Err(errno) = inotify::add_watch(inotify, folder, changes) {
        warn!(%errno, folder = %folder.display(), "a folder cannot be watched; it is read every ten seconds");
    }
}
