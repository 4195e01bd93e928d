//! Listing the processes of a subtree into room made in advance.

use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::cgroup::walk::{self, Walk};
use crate::hot_file::retry;
use crate::realtime::prefault_buffer;

/// Groups of one subtree that are visited. A pod has a handful; a whole system slice some hundred.
const MOST_GROUPS: u32 = 8192;

/// Process ids held at once. What does not fit is listed by the next pass.
const MOST_PIDS: usize = 16_384;

/// What one look at a subtree found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    pub(super) groups: u32,
    /// False when a group or list could not be read, or a bound was met.
    pub(super) complete: bool,
    pub(super) walk_error: Option<Errno>,
    pub(super) list_error: Option<Errno>,
}

/// Calls the visitor with each process of a subtree. Allocates nothing.
pub(super) fn each_process(subtree: BorrowedFd<'_>, visitor: &mut dyn FnMut(i32)) -> Look {
    each_until(subtree, &mut |pid| {
        visitor(pid);
        ControlFlow::Continue(())
    })
}

/// Whether nobody is in a subtree, for sure: every list was read to its end. Ends with the first group that has somebody. Allocates
/// nothing.
pub(super) fn nobody_in(subtree: BorrowedFd<'_>) -> bool {
    let mut is_anybody = false;
    let look = each_until(subtree, &mut |_pid| {
        is_anybody = true;
        ControlFlow::Break(())
    });
    look.complete && !is_anybody
}

/// Calls the visitor with each process of a subtree, group by group, until it has broken off in one.
fn each_until(subtree: BorrowedFd<'_>, visitor: &mut dyn FnMut(i32) -> ControlFlow<()>) -> Look {
    let mut list_error = None;
    let mut first = true;
    let walk: Walk = walk::visit(subtree, MOST_GROUPS, &mut |group| {
        let is_first = std::mem::replace(&mut first, false);
        let mut flow = ControlFlow::Continue(());
        let listed = processes_of(group, &mut |pid| {
            if visitor(pid).is_break() {
                flow = ControlFlow::Break(());
            }
        });
        match listed {
            // The group went away while we looked, and its processes before it.
            Ok(()) | Err(Errno::NODEV | Errno::NOENT) => {}
            // A threaded group: the domain above it lists its processes, and that is in the subtree.
            Err(Errno::OPNOTSUPP) if !is_first => {}
            Err(errno) => list_error = list_error.or(Some(errno)),
        }
        flow
    });
    Look {
        groups: walk.groups,
        complete: walk.complete && list_error.is_none(),
        walk_error: walk.first_error,
        list_error,
    }
}

/// Whether a group's own list has anybody on it; also false where it cannot be read. Allocates nothing.
pub(super) fn has_own_process(group: BorrowedFd<'_>) -> bool {
    let mut text = [0u8; 16];
    open_list(group)
        .and_then(|file| retry(|| rustix::io::read(file.as_fd(), &mut text[..])))
        .is_ok_and(|length| length != 0)
}

fn open_list(group: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::openat(group, c"cgroup.procs", flags, Mode::empty())
}

/// Calls the visitor with each line of a group's `cgroup.procs`; 0 is a process of another pid namespace.
fn processes_of(group: BorrowedFd<'_>, visitor: &mut dyn FnMut(i32)) -> Result<(), Errno> {
    let file = open_list(group)?;
    let mut text = [0u8; 4096];
    let mut pid: Option<i32> = None;
    loop {
        let length = retry(|| rustix::io::read(file.as_fd(), &mut text[..]))?;
        if length == 0 {
            break;
        }
        for byte in &text[..length] {
            pid = match byte {
                b'\n' => {
                    pid.into_iter().for_each(&mut *visitor);
                    None
                }
                digit @ b'0'..=b'9' => {
                    let digit = i32::from(digit - b'0');
                    let longer = pid
                        .unwrap_or(0)
                        .checked_mul(10)
                        .and_then(|pid| pid.checked_add(digit));
                    Some(longer.ok_or(Errno::BADMSG)?)
                }
                _ => return Err(Errno::BADMSG),
            };
        }
    }
    pid.into_iter().for_each(visitor);
    Ok(())
}

/// Process ids, in the order they were listed.
#[derive(Debug)]
pub(super) struct Roster {
    pids: Vec<i32>,
    /// How many did not fit.
    left_out: u32,
    /// Which of them were found again, by their place.
    found: Vec<bool>,
}

impl Roster {
    pub(super) fn new() -> Self {
        let mut pids = Vec::with_capacity(MOST_PIDS);
        prefault_buffer(&mut pids, &1);
        Self {
            pids,
            left_out: 0,
            found: Vec::with_capacity(MOST_PIDS),
        }
    }

    pub(super) fn clear(&mut self) {
        self.pids.clear();
        self.left_out = 0;
    }

    /// Adds a process if there is room; never grows.
    pub(super) fn push(&mut self, pid: i32) {
        if self.pids.len() < MOST_PIDS {
            self.pids.push(pid);
        } else {
            self.left_out = self.left_out.saturating_add(1);
        }
    }

    /// How many did not fit.
    pub(super) fn left_out(&self) -> u32 {
        self.left_out
    }

    /// In ascending order, without doubles (a process whose threads are in several v1 groups is in several lists).
    pub(super) fn sort(&mut self) {
        self.pids.sort_unstable();
        self.pids.dedup();
    }

    /// Whether a look, done by `look` with a visitor, finds every process of the sorted roster at least once, however
    /// often it finds any of them. Never grows.
    pub(super) fn all_found<T>(
        &mut self,
        look: impl FnOnce(&mut dyn FnMut(i32)) -> T,
    ) -> (bool, T) {
        let Self { pids, found, .. } = self;
        found.clear();
        found.resize(pids.len(), false);
        let looked = look(&mut |pid| {
            if let Ok(place) = pids.binary_search(&pid) {
                found[place] = true;
            }
        });
        (found.iter().all(|found| *found), looked)
    }

    pub(super) fn as_slice(&self) -> &[i32] {
        &self.pids
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(groups: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("temporary folder");
        for (group, processes) in groups {
            let folder = root.path().join(group);
            std::fs::create_dir_all(&folder).expect("fake group");
            std::fs::write(folder.join("cgroup.procs"), processes).expect("fake file");
        }
        root
    }

    fn listed(root: &tempfile::TempDir) -> (Vec<i32>, Look) {
        let dir = std::fs::File::open(root.path()).expect("open");
        let mut pids = Vec::new();
        let look = each_process(dir.as_fd(), &mut |pid| pids.push(pid));
        pids.sort_unstable();
        (pids, look)
    }

    #[test]
    fn processes_of_all_groups_are_listed() {
        let root = tree(&[
            ("", "12\n7\n"),
            ("a", ""),
            ("a/b", "4194304\n0\n"),
            ("c", "9"),
        ]);
        let (pids, look) = listed(&root);
        assert_eq!(pids, [0, 7, 9, 12, 4_194_304]);
        assert!(look.complete && look.groups == 4, "{look:?}");
    }

    #[test]
    fn only_a_groups_own_list_tells_at_once() {
        let root = tree(&[("", ""), ("a", "9\n"), ("a/b", "")]);
        let own = |group: &str| {
            let dir = std::fs::File::open(root.path().join(group)).expect("open");
            has_own_process(dir.as_fd())
        };
        assert!(own("a") && !own("") && !own("a/b"));
        std::fs::remove_file(root.path().join("a/cgroup.procs")).expect("removed");
        assert!(!own("a"), "nothing is known, so the walk decides");
    }

    #[test]
    fn numbers_across_reads_stay_whole() {
        let many: Vec<i32> = (100_000..102_000).collect();
        let text = many
            .iter()
            .map(i32::to_string)
            .collect::<Vec<_>>()
            .join("\n");
        let (pids, look) = listed(&tree(&[("", &text)]));
        assert_eq!(pids, many);
        assert!(look.complete);
    }

    #[test]
    fn what_is_no_list_is_never_taken_for_an_empty_one() {
        for text in ["12\n-3\n", "99999999999\n", "x"] {
            let (_, look) = listed(&tree(&[("", text)]));
            assert_eq!(
                (look.complete, look.list_error),
                (false, Some(Errno::BADMSG)),
                "{text:?}"
            );
        }
    }

    #[test]
    fn one_found_twice_does_not_stand_for_another() {
        fn check(held: &[i32], seen: &[i32], expected: bool) {
            let mut roster = Roster::new();
            let capacity = roster.found.capacity();
            for pid in held {
                roster.push(*pid);
            }
            roster.sort();
            let (all, ()) = roster.all_found(|visitor| {
                for pid in seen {
                    visitor(*pid);
                }
            });
            assert_eq!(all, expected, "{held:?} {seen:?}");
            assert_eq!(roster.found.capacity(), capacity);
        }
        check(&[], &[], true);
        check(&[7, 5], &[5, 7], true);
        check(&[7, 5], &[5, 5], false);
        check(&[5, 5, 7], &[7, 9, 5], true);
        check(&[5], &[9], false);
    }

    #[test]
    fn a_full_roster_says_so_and_does_not_grow() {
        let mut roster = Roster::new();
        let capacity = roster.pids.capacity();
        for pid in 0..=i32::try_from(MOST_PIDS).expect("small") {
            roster.push(pid);
        }
        assert_eq!((roster.left_out(), roster.as_slice().len()), (1, MOST_PIDS));
        assert_eq!(roster.pids.capacity(), capacity);
    }
}
