//! One pass over a subtree: list, hold each process by a pidfd, list again, signal those that are still there.
//!
//! The first batch can be held before there is anything to kill; it is then signalled before the pass.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::cgroup::dir::CgroupId;
use crate::clock::{monotonic_ns, thread_cpu};
use crate::hot_file::retry;
use crate::kill::outcome::{KillOutcome, Stage};
use crate::kill::pid_set::{PidSet, ProtectedPids};
use crate::kill::release::ReleasePool;
use crate::kill::roster::{Look, Roster, each_process};
use crate::kill::target::KillTarget;

/// Processes held by pidfds at a time. Each further batch costs one more listing. The first is small, so that the first
/// signal does not wait for hundreds of pidfds: few workloads have more processes, and those that do fork.
const FIRST_BATCH: usize = 32;
const BATCH: usize = 256;

/// The room a kill works in, made in advance.
#[derive(Debug)]
pub(super) struct Workspace {
    roster: Roster,
    batch: Vec<Held>,
    /// Whom the batch is held for while nobody is killed.
    prepared: Option<CgroupId>,
    /// Where in the roster the batches have come to.
    next: usize,
    /// Processes that were signalled in the current kill and need not be again.
    signalled: PidSet,
}

/// A process on its way to the signal.
#[derive(Debug)]
struct Held {
    pid: i32,
    /// `None` when we ran out of descriptors: then it is signalled by its number, right after it was listed again.
    pidfd: Option<OwnedFd>,
    still_there: bool,
}

/// What to do in a pass.
#[derive(Clone, Copy)]
pub(super) struct Order<'a> {
    pub(super) signal: Signal,
    pub(super) protected: &'a ProtectedPids,
    pub(super) release: Option<&'a ReleasePool>,
    /// Stop after the first batch, because `cgroup.kill` will reach the rest.
    pub(super) first_batch_only: bool,
}

/// What a pass found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    /// Whether the list had a process that was not signalled before. One that went away before its signal counts too:
    /// it may have left a child.
    pub(super) any_new: bool,
    /// Whether the whole subtree was looked at: whoever in it is to be spared is known.
    pub(super) seen: bool,
    /// Whether all of it had room, too: whoever is not new was signalled.
    pub(super) complete: bool,
}

impl Workspace {
    pub(super) fn new() -> Self {
        Self {
            roster: Roster::new(),
            batch: Vec::with_capacity(BATCH),
            prepared: None,
            next: 0,
            signalled: PidSet::new(),
        }
    }

    /// Forgets who was signalled.
    pub(super) fn begin(&mut self) {
        self.signalled.clear();
    }

    /// One pass over the subtree of a target.
    pub(super) fn pass(
        &mut self,
        target: &KillTarget,
        order: Order<'_>,
        outcome: &mut KillOutcome,
    ) -> Found {
        self.prepared = None;
        let look = self.list(target, order.protected, outcome);
        if outcome.passes == 0 {
            outcome.times.listed = Some(monotonic_ns());
        }
        outcome.passes += 1;
        let found = Found {
            any_new: !self.roster.as_slice().is_empty(),
            seen: look.complete,
            complete: look.complete && self.roster.left_out() == 0,
        };
        self.next = 0;
        while self.next < self.roster.as_slice().len() {
            self.hold(outcome);
            self.confirm(target, outcome);
            self.signal(order, outcome);
            if order.first_batch_only {
                break;
            }
        }
        found
    }

    /// The first batch of a pass, listed and held, for [`Workspace::signal_held`].
    pub(super) fn prepare(
        &mut self,
        target: &KillTarget,
        protected: &ProtectedPids,
        outcome: &mut KillOutcome,
    ) {
        self.list(target, protected, outcome);
        self.next = 0;
        self.hold(outcome);
        self.confirm(target, outcome);
        // A number alone may be somebody else's by then.
        self.batch.retain(|held| held.pidfd.is_some());
        self.prepared = Some(target.id());
    }

    /// Lets go of who is held for a target.
    pub(super) fn let_go(&mut self) {
        if self.prepared.take().is_some() {
            self.batch.clear();
        }
    }

    /// Signals who was held for this target, and nobody if that was another.
    pub(super) fn signal_held(
        &mut self,
        target: &KillTarget,
        order: Order<'_>,
        outcome: &mut KillOutcome,
    ) {
        if self.prepared.take() == Some(target.id()) {
            self.signal(order, outcome);
        }
    }

    /// Processes that were listed after the first batch, those without room among them.
    pub(super) fn rest(&self) -> u32 {
        let rest = self.roster.as_slice().len().saturating_sub(self.next);
        u32::try_from(rest)
            .unwrap_or(u32::MAX)
            .saturating_add(self.roster.left_out())
    }

    /// Hands the processes that `cgroup.kill` killed after the first batch to the release pool. They are not confirmed: a
    /// pid that was given away meanwhile is a living process, and releasing the memory of a living process is refused.
    pub(super) fn release_rest(&mut self, pool: &ReleasePool, outcome: &mut KillOutcome) {
        let before = outcome.releasing;
        for pid in &self.roster.as_slice()[self.next..] {
            let pidfd =
                Pid::from_raw(*pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
            match pidfd.map(|pidfd| pool.submit(pidfd)) {
                Some(true) => outcome.releasing += 1,
                Some(false) => {
                    outcome.not_releasing += 1;
                    break;
                }
                None => {}
            }
        }
        if outcome.releasing > before {
            pool.wake();
        }
    }

    /// The rest was killed as a group and need not be signalled again. Returns how many they are.
    pub(super) fn note_killed(&mut self) -> u32 {
        let rest = self.rest();
        for pid in &self.roster.as_slice()[self.next..] {
            // Without room for all of them some are signalled once more.
            let _has_room = self.signalled.insert(*pid);
        }
        self.next = self.roster.as_slice().len();
        rest
    }

    /// Whether a group of the v2 tree holds processes, all of them are in the target's subtree, and none of them is to live. A
    /// process that no list names could be anybody's.
    ///
    /// Those of them that were not signalled yet are the rest then.
    pub(super) fn holds_only(
        &mut self,
        group: BorrowedFd<'_>,
        target: &KillTarget,
        protected: &ProtectedPids,
    ) -> bool {
        self.roster.clear();
        self.next = 0;
        let (mut listed, mut spares) = (0u32, false);
        let there = each_process(group, &mut |pid| {
            listed += 1;
            spares |= protected.could_be(pid);
            if !self.signalled.contains(pid) {
                self.roster.push(pid);
            }
        });
        self.roster.sort();
        let (all_ours, here) = self
            .roster
            .all_found(|visitor| each_process(target.as_fd(), visitor));
        let seen = there.complete && here.complete && self.roster.left_out() == 0;
        seen && listed > 0 && !spares && all_ours
    }

    /// Whether there is no room to remember who else is signalled.
    pub(super) fn is_full(&self) -> bool {
        self.signalled.is_full()
    }

    /// Lists the processes that may be signalled and have not been.
    fn list(
        &mut self,
        target: &KillTarget,
        protected: &ProtectedPids,
        outcome: &mut KillOutcome,
    ) -> Look {
        self.roster.clear();
        let (mut live, mut spared, mut unseen) = (0, 0, 0);
        let look = each_process(target.as_fd(), &mut |pid| {
            if pid <= 0 {
                unseen += 1;
            } else if protected.contains(pid) {
                spared += 1;
            } else {
                live += 1;
                if !self.signalled.contains(pid) {
                    self.roster.push(pid);
                }
            }
        });
        self.roster.sort();
        (outcome.groups, outcome.live, outcome.unseen) = (look.groups, live, unseen);
        outcome.spared = outcome.spared.max(spared);
        note(look, outcome);
        look
    }

    /// Gets hold of the next batch.
    fn hold(&mut self, outcome: &mut KillOutcome) {
        self.batch.clear();
        let size = if self.next == 0 { FIRST_BATCH } else { BATCH };
        let rest = &self.roster.as_slice()[self.next..];
        self.next += rest.len().min(size);
        for pid in rest.iter().take(size) {
            let pidfd = match Pid::from_raw(*pid)
                .ok_or(Errno::SRCH)
                .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()))
            {
                Ok(pidfd) => Some(pidfd),
                Err(Errno::SRCH) => {
                    outcome.gone += 1;
                    continue;
                }
                Err(errno) => {
                    outcome.note(Stage::Hold, Some(*pid), errno);
                    None
                }
            };
            self.batch.push(Held {
                pid: *pid,
                pidfd,
                still_there: false,
            });
        }
    }

    /// Lists again and marks who of the batch is still in the subtree.
    fn confirm(&mut self, target: &KillTarget, outcome: &mut KillOutcome) {
        let batch = &mut self.batch;
        let look = each_process(target.as_fd(), &mut |pid| {
            if let Ok(index) = batch.binary_search_by_key(&pid, |held| held.pid) {
                batch[index].still_there = true;
            }
        });
        note(look, outcome);
    }

    /// Signals the batch and hands it to the release pool.
    fn signal(&mut self, order: Order<'_>, outcome: &mut KillOutcome) {
        for held in &mut self.batch {
            if !held.still_there {
                outcome.gone += 1;
                held.pidfd = None;
                continue;
            }
            if outcome.times.before_first_signal.is_none() {
                outcome.times.before_first_signal = Some(monotonic_ns());
            }
            match send(held, order.signal) {
                Ok(()) => {
                    outcome.signalled += 1;
                    self.signalled.insert(held.pid);
                    if outcome.times.after_first_signal.is_none() {
                        outcome.times.after_first_signal = Some(monotonic_ns());
                        outcome.times.cpu_at_first_signal = Some(thread_cpu());
                    }
                }
                Err(Errno::SRCH) => {
                    outcome.gone += 1;
                    held.pidfd = None;
                }
                Err(errno) => {
                    outcome.refused += 1;
                    outcome.note(Stage::Signal, Some(held.pid), errno);
                    // Asking again in the next pass would not help.
                    self.signalled.insert(held.pid);
                    held.pidfd = None;
                }
            }
        }
        if let Some(pool) = order.release {
            self.hand_over(pool, outcome);
        }
        self.batch.clear();
    }

    fn hand_over(&mut self, pool: &ReleasePool, outcome: &mut KillOutcome) {
        let before = outcome.releasing;
        for pidfd in self.batch.iter_mut().filter_map(|held| held.pidfd.take()) {
            if pool.submit(pidfd) {
                outcome.releasing += 1;
            } else {
                outcome.not_releasing += 1;
            }
        }
        if outcome.releasing > before {
            pool.wake();
        }
    }
}

fn send(held: &Held, signal: Signal) -> Result<(), Errno> {
    match (&held.pidfd, Pid::from_raw(held.pid)) {
        (Some(pidfd), _) => retry(|| pidfd_send_signal(pidfd.as_fd(), signal)),
        (None, Some(pid)) => rustix::process::kill_process(pid, signal),
        (None, None) => Err(Errno::SRCH),
    }
}

fn note(look: Look, outcome: &mut KillOutcome) {
    if let Some(errno) = look.walk_error {
        outcome.note(Stage::Walk, None, errno);
    }
    if let Some(errno) = look.list_error {
        outcome.note(Stage::List, None, errno);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::cgroup::layout::{Hierarchy, Version};

    #[test]
    fn a_group_is_the_targets_only_when_every_process_in_it_is_named_there_and_none_is_to_live() {
        fn check(group: &str, target: &str, expected: bool) {
            let root = tempfile::tempdir().expect("temporary folder");
            for (name, processes) in [("group", group), ("target", target)] {
                fs::create_dir(root.path().join(name)).expect("fake group");
                fs::write(root.path().join(name).join("cgroup.procs"), processes)
                    .expect("fake file");
            }
            let hierarchy = Hierarchy {
                version: Version::V1,
                path: root.path().to_path_buf(),
                mount_root: "/".to_owned(),
            };
            let target_group = KillTarget::open_in(&hierarchy, "/target").expect("a target");
            let dir = fs::File::open(root.path().join("group")).expect("a folder");
            let protected = ProtectedPids::new(Path::new("/nonexistent"), []);
            let holds = Workspace::new().holds_only(dir.as_fd(), &target_group, &protected);
            assert_eq!(holds, expected, "{group:?} {target:?}");
        }
        check("5\n7\n", "7\n5\n9\n", true);
        check("5\n7\n", "5\n", false);
        check("", "5\n", false);
        check("0\n", "5\n", false);
        check("0\n5\n", "0\n5\n", false);
        // Of whom the first list of the target said nothing.
        check("1\n5\n", "1\n5\n", false);
    }
}
