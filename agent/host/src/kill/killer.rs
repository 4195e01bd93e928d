//! The sequence of a kill, from the first list to nothing left to signal.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::process::Signal;

use crate::cgroup::dir::CgroupId;
use crate::cgroup::layout::Layout;
use crate::clock::monotonic_ns;
use crate::error::HostError;
use crate::kill::escalate::{Beside, Frozen, kill_group};
use crate::kill::outcome::{KillOutcome, Means, Stage};
use crate::kill::pass::{Found, Order, Workspace};
use crate::kill::pid_set::ProtectedPids;
use crate::kill::release::ReleasePool;
use crate::kill::target::KillTarget;

/// Passes before a kill gives the rest to [`Killer::sweep`]. A fork bomb on the other CPU needs three or four.
const MOST_PASSES: u32 = 32;

/// How often a group of the v2 tree is compared with the one that is to go, while processes exit by themselves.
const LISTINGS: u32 = 3;

/// Kills groups. All its room is made when it is made; a kill allocates nothing.
#[derive(Debug)]
pub struct Killer {
    workspace: Workspace,
    beside: Beside,
    protected: ProtectedPids,
    release: Release,
    /// Whose processes the workspace remembers as signalled.
    last: Option<CgroupId>,
}

/// The pool that gives memory back, and whether it is used: memory is what is short.
#[derive(Debug)]
struct Release {
    pool: Option<ReleasePool>,
    is_used: bool,
}

impl Release {
    /// The pool where it is used.
    fn pool(&self) -> Option<&ReleasePool> {
        self.pool.as_ref().filter(|_| self.is_used)
    }
}

impl Killer {
    /// Makes a killer for this layout. Without a release pool the victims free their memory alone.
    ///
    /// # Errors
    /// [`HostError`] when a hierarchy cannot be opened.
    pub fn new(layout: &Layout, release: Option<ReleasePool>) -> Result<Self, HostError> {
        // A process's first look at a clock finds the vDSO, and before Linux 6.4 allocates for that (rustix's `auxv`).
        let _first = monotonic_ns();
        Ok(Self {
            workspace: Workspace::new(),
            beside: Beside::open(layout)?,
            protected: ProtectedPids::new(Path::new("/"), []),
            release: Release {
                pool: release,
                is_used: true,
            },
            last: None,
        })
    }

    /// Takes another set of processes never to be signalled, and leaves the one before in its place: nothing is
    /// allocated or freed.
    pub fn protect(&mut self, protected: &mut ProtectedPids) {
        self.let_go();
        std::mem::swap(&mut self.protected, protected);
    }

    /// The pool that gives memory back.
    pub fn release_pool(&self) -> Option<&ReleasePool> {
        self.release.pool.as_ref()
    }

    /// Whether the memory of whoever is killed from now on is to be given back early. Where something else is short that takes
    /// processor time from the dying: for thousands of small processes as much as their ends do.
    pub const fn release_memory(&mut self, releases: bool) {
        self.release.is_used = releases;
    }

    /// SIGKILL to every process of the target now. Returns when nothing is left to signal, not when all are dead.
    pub fn kill(&mut self, target: &KillTarget) -> KillOutcome {
        self.let_go();
        self.kill_prepared(target)
    }

    /// The same, and whoever [`Killer::prepare`] held of this target gets the signal before the group is listed: the caller
    /// has seen nobody leave a cgroup since.
    pub fn kill_prepared(&mut self, target: &KillTarget) -> KillOutcome {
        self.workspace.begin();
        self.last = Some(target.id());
        let mut outcome = KillOutcome::begin(monotonic_ns());
        let order = Order {
            signal: Signal::KILL,
            protected: &self.protected,
            release: self.release.pool(),
            first_batch_only: true,
        };
        self.workspace.signal_held(target, order, &mut outcome);
        let first = self.pass(target, Signal::KILL, true, &mut outcome);
        outcome.times.first_pass = Some(monotonic_ns());
        // Not when somebody protected is in the subtree, or might be in a part of it that could not be seen. Of more processes than
        // there is room for each was looked at all the same.
        let whole = target.is_v2() && outcome.spared == 0 && first.seen;
        if whole && kill_whole_group(target.as_fd(), Means::GroupKill, &mut outcome) {
            outcome.settled = true;
            outcome.signalled += self.workspace.rest() + outcome.unseen;
            if outcome.unseen > 0 {
                // Whom no list names only this signal reached.
                let first = &mut outcome.times.after_first_signal;
                *first = first.or(outcome.times.group_killed);
            }
            if let Some(pool) = self.release.pool() {
                self.workspace.release_rest(pool, &mut outcome);
            }
        } else {
            self.pursue(target, first, &mut outcome);
        }
        outcome.times.finished = monotonic_ns();
        outcome
    }

    /// Does what a kill does up to its first signal, sends none, and keeps hold of the first processes until the next kill,
    /// look or preparation.
    pub fn prepare(&mut self, target: &KillTarget) {
        let mut outcome = KillOutcome::begin(monotonic_ns());
        self.workspace
            .prepare(target, &self.protected, &mut outcome);
    }

    /// Lets go of who was held.
    pub fn let_go(&mut self) {
        self.workspace.let_go();
    }

    /// Looks again after a kill: signals what has appeared since, resumes what is stopped, and tells who is left.
    ///
    /// Cheap (one or two listings), for every time the caller looks whether the memory has come back.
    pub fn sweep(&mut self, target: &KillTarget) -> KillOutcome {
        if self.last != Some(target.id()) {
            self.workspace.begin();
            self.last = Some(target.id());
        }
        let mut outcome = KillOutcome::begin(monotonic_ns());
        let found = self.pass(target, Signal::KILL, false, &mut outcome);
        outcome.settle(found);
        if outcome.live > 0
            && let Err(errno) = self.beside.thaw(target)
        {
            outcome.note(Stage::Freeze, None, errno);
        }
        outcome.times.finished = monotonic_ns();
        outcome
    }

    /// SIGTERM to every process of the target, once. The caller sends SIGKILL when the grace is over.
    pub fn terminate(&mut self, target: &KillTarget) -> KillOutcome {
        self.workspace.begin();
        // Who got SIGTERM must still get SIGKILL.
        self.last = None;
        let mut outcome = KillOutcome::begin(monotonic_ns());
        let found = self.pass(target, Signal::TERM, false, &mut outcome);
        outcome.settled = found.complete && outcome.refused == 0 && outcome.unseen == 0;
        outcome.times.finished = monotonic_ns();
        outcome
    }

    fn pass(
        &mut self,
        target: &KillTarget,
        signal: Signal,
        first_batch_only: bool,
        outcome: &mut KillOutcome,
    ) -> Found {
        let release = self.release.pool().filter(|_| signal == Signal::KILL);
        let order = Order {
            signal,
            protected: &self.protected,
            release,
            first_batch_only,
        };
        self.workspace.pass(target, order, outcome)
    }

    /// The rest after the first batch: all of it kept from forking, and then pass after pass until one finds nothing new. Of a group
    /// that was all in the first batch, the same from the second pass that still does.
    fn pursue(&mut self, target: &KillTarget, first: Found, outcome: &mut KillOutcome) {
        let (mut found, mut frozen) = (first, None);
        if self.workspace.rest() > 0 && !self.stop(target, &mut frozen, outcome) {
            found = self.pass(target, Signal::KILL, false, outcome);
        }
        let listed = outcome.passes;
        while found.any_new && outcome.passes < MOST_PASSES {
            if outcome.passes == listed + 1 && frozen.is_none() {
                let _lists_again = self.stop(target, &mut frozen, outcome);
            }
            found = self.pass(target, Signal::KILL, false, outcome);
            // Nobody dies while he is stopped, and whom there is no room to remember would be found again each time.
            if frozen.is_some() && self.workspace.is_full() {
                break;
            }
        }
        outcome.settle(found);
        // Stopped processes die only when resumed.
        drop(frozen);
    }

    /// Keeps a v1 group from forking: for good through the same group of the v2 tree, or in the freezer hierarchy as long as `frozen` is
    /// held. True where it was killed whole, so that nobody who was there needs a signal.
    ///
    /// The v2 tree comes first: its one write is their signal too, and whoever is frozen does not die before he is resumed. Neither is
    /// done to a group with somebody in it who is to live.
    fn stop(
        &mut self,
        target: &KillTarget,
        frozen: &mut Option<Frozen>,
        outcome: &mut KillOutcome,
    ) -> bool {
        if outcome.spared != 0 {
            return false;
        }
        if self.kill_through_unified(target, outcome) {
            return true;
        }
        match self.beside.freeze(target, &self.protected) {
            Ok(Some(stopped)) => {
                outcome.means = Means::Freezer;
                *frozen = Some(stopped);
            }
            Ok(None) => {}
            Err(errno) => outcome.note(Stage::Freeze, None, errno),
        }
        false
    }

    /// Kills the same group of the v2 tree, after which no fork of it survives; false where there is none, or others may be in it.
    fn kill_through_unified(&mut self, target: &KillTarget, outcome: &mut KillOutcome) -> bool {
        let group = match self.beside.unified_group(target) {
            Ok(Some(group)) => group,
            Ok(None) => return false,
            Err(errno) => {
                outcome.note(Stage::GroupKill, None, errno);
                return false;
            }
        };
        // Who exits between two lists is in one of them alone.
        let (room, protected) = (&mut self.workspace, &self.protected);
        let is_ours = (0..LISTINGS).any(|_| room.holds_only(group.as_fd(), target, protected));
        if !is_ours || !kill_whole_group(group.as_fd(), Means::UnifiedGroupKill, outcome) {
            return false;
        }
        if let Some(pool) = self.release.pool() {
            self.workspace.release_rest(pool, outcome);
        }
        outcome.signalled += self.workspace.note_killed();
        true
    }
}

/// Writes `cgroup.kill`. True when the kernel did it.
fn kill_whole_group(group: BorrowedFd<'_>, means: Means, outcome: &mut KillOutcome) -> bool {
    match kill_group(group) {
        Ok(()) => {
            outcome.times.group_killed = Some(monotonic_ns());
            outcome.means = means;
            true
        }
        // A kernel before 5.14, a group that is gone, a threaded group: signals reach what there is.
        Err(Errno::NOENT | Errno::NODEV | Errno::OPNOTSUPP) => false,
        Err(errno) => {
            outcome.note(Stage::GroupKill, None, errno);
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// More than any process ever has.
    const NOBODYS: i32 = 5_000_000;
    /// More than are signalled before the rest is kept from forking.
    const CROWD: i32 = 40;

    /// So many processes that are not there, as a group lists them.
    fn nobody(count: i32) -> String {
        let pids = NOBODYS..NOBODYS + count;
        let lines = pids.map(|pid| format!("{pid}\n"));
        lines.collect()
    }

    /// A machine of files with these mounts.
    fn machine(mounts: &str, files: &[(&str, &str)]) -> (tempfile::TempDir, Layout) {
        let root = tempfile::tempdir().expect("temporary folder");
        let header = "#subsys_name\thierarchy\tnum_cgroups\tenabled\n";
        let always = [("proc/self/mountinfo", mounts), ("proc/cgroups", header)];
        for (path, text) in always.iter().chain(files) {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("parent")).expect("fake tree");
            fs::write(path, text).expect("fake file");
        }
        let layout = Layout::detect(root.path()).expect("a layout");
        (root, layout)
    }

    /// A v2 tree of files: a group that lists these processes, with `cgroup.kill` or on a kernel without.
    fn tree(processes: &str, can_kill: bool) -> (tempfile::TempDir, Layout) {
        let mounts = "30 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let mut files = vec![
            ("sys/fs/cgroup/cgroup.controllers", "memory pids\n"),
            ("sys/fs/cgroup/pod/cgroup.procs", processes),
        ];
        if can_kill {
            files.push(("sys/fs/cgroup/pod/cgroup.kill", ""));
        }
        machine(mounts, &files)
    }

    #[test]
    fn whom_no_list_names_is_signalled_with_the_group_or_not_at_all() {
        for (processes, can_kill, signalled, settled) in [
            ("0\n0\n", true, 2, true),
            ("0\n0\n", false, 0, false),
            ("", true, 0, true),
        ] {
            let (_root, layout) = tree(processes, can_kill);
            let target = KillTarget::open(&layout, "/pod").expect("a target");
            let outcome = Killer::new(&layout, None).expect("a killer").kill(&target);
            assert_eq!(
                (outcome.signalled, outcome.settled),
                (signalled, settled),
                "{outcome:?}"
            );
            let has_time = outcome.times.after_first_signal.is_some();
            assert_eq!(has_time, signalled > 0, "{outcome:?}");
        }
    }

    #[test]
    fn a_crowd_beyond_all_room_goes_by_its_group_and_one_with_somebody_to_spare_does_not() {
        // Those of the first batch were gone as they were to be signalled.
        const FIRST: u32 = 32;
        for (spared, count, reached, means) in [
            ("", 20_000, 20_000 - FIRST, Means::GroupKill),
            ("1\n", CROWD, 0, Means::Signals),
        ] {
            let listed = format!("{spared}{}", nobody(count));
            let (_root, layout) = tree(&listed, true);
            let target = KillTarget::open(&layout, "/pod").expect("a target");
            let outcome = Killer::new(&layout, None).expect("a killer").kill(&target);
            assert_eq!(
                (outcome.means, outcome.signalled),
                (means, reached),
                "{outcome:?}"
            );
        }
    }

    /// What became of a v1 group that has its processes in other trees too, by what each lists there; none where it is not in that.
    fn killed_on_v1(unified: Option<&str>, freezer: Option<&str>) -> (Means, String, String) {
        let mounts = "32 30 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      33 30 0:31 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n\
                      34 30 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let listed = nobody(CROWD);
        let mut files = vec![
            ("sys/fs/cgroup/memory/pod/cgroup.procs", listed.as_str()),
            ("sys/fs/cgroup/freezer/cgroup.procs", ""),
            ("sys/fs/cgroup/unified/cgroup.controllers", ""),
        ];
        if let Some(processes) = unified {
            files.push(("sys/fs/cgroup/unified/pod/cgroup.procs", processes));
            files.push(("sys/fs/cgroup/unified/pod/cgroup.kill", ""));
        }
        if let Some(processes) = freezer {
            files.push(("sys/fs/cgroup/freezer/pod/cgroup.procs", processes));
            files.push(("sys/fs/cgroup/freezer/pod/freezer.state", ""));
        }
        let (root, layout) = machine(mounts, &files);
        let target = KillTarget::open(&layout, "/pod").expect("a target");
        let outcome = Killer::new(&layout, None).expect("a killer").kill(&target);
        let written = |file: &str| {
            let path = root.path().join("sys/fs/cgroup").join(file);
            fs::read_to_string(path).unwrap_or_default()
        };
        let killed = written("unified/pod/cgroup.kill");
        (outcome.means, killed, written("freezer/pod/freezer.state"))
    }

    #[test]
    fn a_v1_crowd_goes_by_the_v2_tree_or_frozen_and_never_with_somebody_else() {
        let own = format!("{}\n", std::process::id());
        let (crowd, more) = (nobody(CROWD), nobody(CROWD + 1));
        let (with_us, with_unseen) = (format!("{crowd}{own}"), format!("{crowd}0\n"));
        let whole = (Means::UnifiedGroupKill, "1", "");
        // A regular file keeps what was written before.
        let frozen = (Means::Freezer, "", "FROZENTHAWED");
        let signalled = (Means::Signals, "", "");
        for (unified, freezer, expected) in [
            (Some(&crowd), Some(&crowd), whole),
            (Some(&crowd), None, whole),
            (Some(&more), Some(&crowd), frozen),
            (None, Some(&crowd), frozen),
            (Some(&with_us), Some(&with_us), signalled),
            (None, Some(&with_unseen), signalled),
            (None, None, signalled),
        ] {
            let unified = unified.map(String::as_str);
            let (means, killed, state) = killed_on_v1(unified, freezer.map(String::as_str));
            let found = (means, killed.as_str(), state.as_str());
            assert_eq!(found, expected, "{unified:?} {freezer:?}");
        }
    }
}
