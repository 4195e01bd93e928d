//! The watcher: notices changes of cgroups, manifests and the stop button, and makes the guard know of them.

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use brink_host::clock;
use brink_host::probe::abi::record::{CGROUP_ATTACH, CGROUP_MKDIR, CGROUP_RMDIR};
use brink_host::probe::{Evidence, EvidenceReader, Row};
use jiff::Timestamp;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use tracing::{info, warn};

use super::deliver::Deliver;
use super::equipment::Loaded;
use super::folders::Folders;
use super::foresight::BoardCell;
use super::outbox::Outbox;
use super::starts::Starts;
use super::state::Shared;
use super::steps::make_room;
use super::stop_button::{Pressed, StopButton, Written};
use crate::backend::build::{Builder, Scan};
use crate::backend::source::{PodSource as _, Sources};
use crate::bell::Bell;
use crate::config::{CgroupRule, OomScores, Selection};
use crate::forensics::Collector;
use crate::guard;
use crate::guard::ports::{Command, Ports};
use crate::pod::Manifest;
use crate::storage::Keeper;
use crate::telling::Telling;
use crate::warmer::Warmer;

/// Changes that come together become one roster.
const SETTLE: Duration = Duration::from_millis(10);
/// A process that came into a cgroup may make it an essential one, or one that a pattern names; each probe that is run in
/// a container comes so, and is worth no hurry.
const SETTLE_PROCESSES: Duration = Duration::from_secs(1);
/// Making rosters may take this part of a processor at most: one in five.
const SHARE: u32 = 4;
/// However long one took, the next is not put off longer.
const LONGEST_REST: Duration = Duration::from_millis(100);
/// Everything is looked at again so often.
const SLOWEST: Duration = Duration::from_secs(10);
/// The same where the kernel tells what happens to cgroups and files: only an owner's attribute is told by nobody, the end of an
/// essential process, and what happened while the kernel left a program out.
const SLOWEST_TOLD: Duration = Duration::from_secs(30);
/// The stop button is looked at so often where nobody tells of it, and at every other wake: it holds within 100 ms.
const BUTTON: Duration = Duration::from_millis(50);
/// Records taken from the ring at a time.
const BOUND: usize = 4096;

/// What the watcher needs.
pub struct Watcher {
    /// Makes rosters.
    pub builder: Builder,
    /// Where pods come from.
    pub sources: Sources,
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
    /// Follows each roster's folders.
    pub keeper: Arc<Keeper>,
    /// Remembers each roster's board.
    pub board: Arc<BoardCell>,
    /// What a reload of the configuration has left for us.
    pub reload: Arc<Reload>,
    /// Ends the watcher, and wakes it to look at once.
    pub bell: Arc<Bell>,
    /// Where workloads that come and go are told.
    pub telling: Telling,
    /// Who makes incidents of kills, and must know whom.
    pub collector: Collector,
    /// Where Kubernetes is told.
    pub deliver: Deliver,
    /// What was said of the pods at the last look.
    pub told: Vec<String>,
    /// Changes of cgroups and starts of programs that found no room in the ring, as of the last look.
    pub lost: u64,
    /// Whether programs have been started since processes were looked at.
    pub(super) starts: Starts,
    /// The newest roster, while the guard has no room for it.
    pub(super) unsent: Outbox,
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
    /// What becomes of `oom_score_adj`.
    pub oom_scores: OomScores,
    /// Whether anybody wants to know what workloads use of disks.
    pub measure_disks: bool,
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

/// Why the watcher woke.
#[derive(Clone, Copy, Debug, Default)]
struct Woken {
    workloads: bool,
    processes: bool,
}

impl Woken {
    /// When a roster is due for what has changed.
    fn due(self, now: Instant) -> Option<Instant> {
        let changes = [(self.workloads, SETTLE), (self.processes, SETTLE_PROCESSES)];
        let settle = changes.into_iter().find(|(changed, _)| *changed);
        settle.map(|(_, settle)| now + settle)
    }
}

impl Watcher {
    /// Runs until stopped.
    pub fn run(mut self) {
        let mut folders = self.folders();
        // When the next roster is due for what has changed.
        let mut wanted: Option<Instant> = None;
        let mut earliest = Instant::now();
        // What the guard has been told of the stop button, and whether that is how it stands.
        let (mut told, mut heard) = (None, true);
        // What the kernel had kept to itself when everything was looked at last.
        let mut untold = 0;
        while !self.bell.is_stopped() {
            let is_told = self.evidence.is_some() && self.loaded.tells_of_all();
            let is_told = is_told && folders.tell_of_all();
            let slowest = if is_told { SLOWEST_TOLD } else { SLOWEST };
            let due = wanted.map(|wanted| wanted.max(earliest));
            let latest = due.unwrap_or(earliest + slowest);
            let timeout = latest.saturating_duration_since(Instant::now());
            let timeout = timeout.min(patience(self.button.path(), &folders, heard));
            // Once a roster is due at once, more changes of cgroups are no news.
            let for_evidence = due.is_none_or(|due| due > Instant::now() + SETTLE);
            let mut woken = self.wait(&folders, timeout, for_evidence);
            self.evidence = self.evidence.take().or_else(|| self.loaded.take_evidence());
            if self.take_reload() || folders.are_others() {
                folders = self.folders();
                woken.workloads = true;
            }
            // Only now: of what was made in a folder before it was watched nobody tells.
            heard = self.tell_button(&mut told, heard);
            let now = Instant::now();
            wanted = wanted.into_iter().chain(woken.due(now)).min();
            let due = wanted.is_some_and(|wanted| now >= wanted.max(earliest));
            if due || now >= earliest + slowest {
                let before = std::mem::replace(&mut untold, self.loaded.untold());
                let has_changed = wanted.is_some() || untold != before;
                let scan = self.starts.scan(now, has_changed, self.loaded.starts());
                let is_silent = is_told && !has_changed && scan == Scan::Cgroups;
                earliest = if is_silent && self.stands() {
                    now
                } else {
                    self.rebuild_in_turn(scan)
                };
                let unsent = !self.unsent.is_empty();
                wanted = unsent.then(|| Instant::now() + SETTLE);
            }
        }
        self.sources.close();
    }

    /// Takes over what a reload of the configuration has left; true when it did.
    fn take_reload(&mut self) -> bool {
        let Some(reloaded) = self.reload.take() else {
            return false;
        };
        self.sources.set_folder(reloaded.manifests);
        self.builder.reconfigure(reloaded.rules, reloaded.selection);
        self.warmer.count_processes(reloaded.count_processes);
        self.keeper.want(reloaded.measure_disks);
        self.warmer.auditor().take(reloaded.oom_scores);
        true
    }

    /// Whether the last roster would come out again where nothing was told: nobody but the kernel tells of workloads, and what it
    /// does not tell is as it was.
    fn stands(&self) -> bool {
        self.sources.are_none() && self.builder.stands()
    }

    /// Makes a roster, and tells when the next may be made.
    fn rebuild_in_turn(&mut self, scan: Scan) -> Instant {
        let before = clock::thread_cpu();
        self.rebuild(scan);
        let spent = clock::thread_cpu().saturating_sub(before);
        Instant::now() + (spent * SHARE).min(LONGEST_REST)
    }

    fn folders(&self) -> Folders {
        let folders = [self.button.path().parent(), self.sources.folder()];
        let folders: Vec<&Path> = folders.into_iter().flatten().collect();
        Folders::watch(&folders)
    }

    /// Waits for a reason to look.
    fn wait(&mut self, folders: &Folders, timeout: Duration, for_evidence: bool) -> Woken {
        let bell = self.bell.as_fd();
        let evidence = self.evidence.as_ref().filter(|_| for_evidence);
        let evidence = evidence.map(EvidenceReader::fd);
        let fds = [Some(bell), folders.fd(), evidence];
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
            processes: false,
        };
        self.bell.hush();
        folders.drain(|folder| woken.workloads |= self.sources.folder() == Some(folder));
        self.drain_evidence(&mut woken);
        woken
    }

    /// Whether a cgroup came or went, or a process came into one or was started that may be essential.
    fn drain_evidence(&mut self, woken: &mut Woken) {
        let Some(evidence) = &mut self.evidence else {
            return;
        };
        evidence.drain(BOUND, |record| {
            if let Evidence::Cgroup(change) = record {
                woken.workloads |= matches!(change.change, CGROUP_MKDIR | CGROUP_RMDIR);
                woken.processes |= change.change == CGROUP_ATTACH;
            }
            woken.processes |= matches!(record, Evidence::Exec(_));
        });
        woken.workloads |= self.lost_evidence();
    }

    /// Whether any of that found no room in the ring.
    fn lost_evidence(&mut self) -> bool {
        let Some(meters) = self.loaded.meters() else {
            return false;
        };
        let rows = [Row::CgroupEvidence, Row::ProcessEvidence];
        let losses = rows.into_iter().filter_map(|row| meters.loss(row).ok());
        let dropped = losses.map(|loss| loss.dropped).sum();
        std::mem::replace(&mut self.lost, dropped) != dropped
    }

    /// Tells the guard how the stop button stands if that is news; false if there was no room for it.
    fn tell_button(&self, told: &mut Option<Written>, heard: bool) -> bool {
        let written = self.button.look();
        if *told == Some(written) {
            return true;
        }
        let pressed = written.at(Timestamp::now());
        let command = Command::Control(pressed.control());
        if self.ports.commands.send(command).is_err() {
            if heard {
                warn!(
                    %pressed,
                    "the guard's queue is full; it is told of the stop button as soon as there is room"
                );
            }
            return false;
        }
        if told.is_some() || pressed != Pressed::No {
            info!(%pressed, "the stop button");
        }
        *told = Some(written);
        true
    }

    fn rebuild(&mut self, scan: Scan) {
        let pods = pods(&mut self.sources, &mut self.told);
        self.shared.lock().broken_manifests = self.sources.broken().clone();
        let was_sent = self.unsent.is_empty();
        match self.builder.build(&pods, scan) {
            Ok(built) => {
                built.tell();
                let roster = built.roster;
                if let Some(cluster) = self.deliver.get() {
                    cluster.follow(&roster);
                }
                if self.builder.changed() {
                    self.shared.lock().add_roster(&roster);
                    self.telling.roster(guard::now(), &roster);
                    self.collector.follow(&roster);
                    self.board.set(&roster);
                    self.warmer.follow(&roster);
                    self.keeper.follow(&roster);
                    make_room(&self.ports.steps, roster.table.len());
                    self.unsent.replace(Command::Roster(roster));
                }
            }
            Err(error) => warn!(%error, "the workloads cannot be listed; the last list stands"),
        }
        // Should the clerk hang, nobody else frees what this one replaces.
        self.ports.free_retired();
        // To the builder it is told already: one that found no room would never come again by itself.
        if !self.unsent.send(&self.ports.commands) && was_sent {
            warn!(
                "the guard's queue is full; it is told of the workloads as soon as there is room"
            );
        }
    }
}

/// All pods; what is wrong with one, or with a file of them, is said once, and leaves the others alone.
pub fn pods(sources: &mut Sources, told: &mut Vec<String>) -> Vec<Manifest> {
    let (pods, troubles) = sources.pods();
    for trouble in troubles.iter().filter(|trouble| !told.contains(trouble)) {
        warn!(trouble, "a pod is not in order");
    }
    *told = troubles;
    pods
}

/// How long the stop button may go without a look.
fn patience(button: &Path, folders: &Folders, heard: bool) -> Duration {
    let is_told = button
        .parent()
        .is_some_and(|folder| folders.tell_of(folder));
    match (heard, is_told) {
        (false, _) => SETTLE,
        (true, false) => BUTTON,
        (true, true) => SLOWEST_TOLD,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_stop_button_that_nobody_tells_of_is_looked_at_well_within_its_promise() {
        const PROMISE: Duration = Duration::from_millis(100);
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("state");
        fs::create_dir(&path).unwrap();
        let button = StopButton::new(&path);
        let patience = |folders: &Folders, heard| patience(button.path(), folders, heard);

        let watched = Folders::watch(&[&path]);
        assert_eq!(patience(&watched, true), SLOWEST_TOLD, "the kernel tells");
        assert!(
            patience(&watched, false) <= PROMISE / 2,
            "the guard does not know yet"
        );
        // No inotify, or a folder that is another by now: nobody tells.
        assert!(patience(&Folders::default(), true) <= PROMISE / 2);
        fs::rename(&path, parent.path().join("old")).unwrap();
        assert!(patience(&watched, true) <= PROMISE / 2);
    }
}
