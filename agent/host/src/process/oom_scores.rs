//! `oom_score_adj` of the processes of a control group: what the first of them has, how many have another value, and setting it.
//!
//! A runtime sets the value on a container's first process, and all others inherit it; whoever has another has chosen it.
//! Anybody may raise the value of a process of his own, also back up to what it was lowered to. Below the lowest value that a holder of
//! `CAP_SYS_RESOURCE` has set the kernel lets only such a holder go (`oom_score_adj_min`), with `EACCES` for everybody else.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::Glimpse;
use super::identity::Identity;
use crate::cgroup::membership::Membership;
use crate::cgroup::{Controller, Layout};
use crate::error::HostError;
use crate::hot_file::{HotFile, read_bytes, retry};
use crate::kill::KillTarget;
use crate::scan;

/// Processes of one group that are looked at; the first of a container is among the first that its group lists.
pub const MOST: usize = 4096;
/// Rounds that processes which were born meanwhile are looked for.
const ROUNDS: usize = 3;
/// Longer than a `/proc/<pid>/cgroup` of sixteen hierarchies with paths of any length that systemd makes.
const LONGEST_CGROUP: usize = 16 << 10;

/// The processes of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scores {
    /// The one that began first: a container's own.
    pub first: Identity,
    /// Its name, at most 15 bytes.
    pub name: String,
    /// Its value, −1000 to 1000.
    pub value: i64,
    /// How many others have another value.
    pub others: usize,
    /// How many were looked at, the first included.
    pub seen: usize,
}

/// What came of setting a value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Done {
    /// Processes that have it now.
    pub set: usize,
    /// Processes that the kernel refused it for.
    pub refused: usize,
    /// The first refusal.
    pub why: Option<Refused>,
}

/// Why a value was not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// It is lower than we may go.
    Rights,
    /// For another reason.
    Other(i32),
}

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rights => {
                out.write_str("lowering oom_score_adj takes CAP_SYS_RESOURCE, and raising that of others' processes root")
            }
            Self::Other(errno) => write!(out, "{}", io::Error::from_raw_os_error(*errno)),
        }
    }
}

/// Looks at the processes of a group and of all below it. None where nobody is in it, or all that are end just now.
///
/// # Errors
/// [`HostError`] when none of those there can be read.
pub fn look(root: &Path, group: &KillTarget) -> Result<Option<Scores>, HostError> {
    let mut failed = None;
    let mut found: Vec<(Identity, String, i64)> = Vec::new();
    for pid in listed(group) {
        match read(root, pid) {
            Ok(process) => found.extend(process),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    let seen = found.len();
    let first = found
        .iter()
        .min_by_key(|(identity, ..)| (identity.start_ticks, identity.pid));
    match (first, failed) {
        (Some((first, name, value)), _) => Ok(Some(Scores {
            first: *first,
            name: name.clone(),
            value: *value,
            others: found.iter().filter(|(.., other)| other != value).count(),
            seen,
        })),
        (None, Some(error)) => Err(error),
        (None, None) => Ok(None),
    }
}

/// Gives all processes of a group that have the value `from` the value `to`, those born meanwhile too. One that has another
/// value has chosen it, and keeps it.
pub fn set((root, layout): (&Path, &Layout), group: &KillTarget, from: i64, to: i64) -> Done {
    let mut done = Done::default();
    for _ in 0..ROUNDS {
        let mut is_again = false;
        for pid in listed(group) {
            let Some(process) = Open::of(root, pid) else {
                continue;
            };
            // The id may be somebody else's by now; what is open stays one process.
            if !process.is_in(layout, group) || process.value() != Some(from) {
                continue;
            }
            match process.write(to) {
                Ok(()) => {
                    done.set += 1;
                    is_again = true;
                }
                Err(Errno::SRCH | Errno::NOENT) => {}
                Err(errno) => {
                    done.refused += 1;
                    let why = match errno {
                        Errno::ACCESS | Errno::PERM => Refused::Rights,
                        other => Refused::Other(other.raw_os_error()),
                    };
                    done.why.get_or_insert(why);
                }
            }
        }
        // What is refused once is refused again.
        if !is_again || done.refused > 0 {
            break;
        }
    }
    done
}

fn listed(group: &KillTarget) -> Vec<i32> {
    let mut pids = Vec::new();
    group.each_process(&mut |pid| {
        // 0 stands for one of another pid namespace.
        if pid > 0 && pids.len() < MOST {
            pids.push(pid);
        }
    });
    pids
}

/// One process; none if it is gone, or on its way out.
fn read(root: &Path, pid: i32) -> Result<Option<(Identity, String, i64)>, HostError> {
    let folder = root.join("proc").join(pid.to_string());
    let is_gone = |error: &HostError| matches!(error.errno(), Some(libc::ENOENT | libc::ESRCH));
    let text = match read_bytes(&folder.join("stat")) {
        Ok(text) => text,
        Err(error) if is_gone(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let malformed = |what| HostError::Malformed {
        path: folder.join(what),
        what,
    };
    let glimpse = Glimpse::parse(&text).ok_or_else(|| malformed("stat"))?;
    if super::is_exiting(&text) == Some(true) || glimpse.is_kernel_thread {
        return Ok(None);
    }
    let value = match read_bytes(&folder.join("oom_score_adj")) {
        Ok(text) => scan::signed_number(text.trim_ascii()),
        Err(error) if is_gone(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let value = value.ok_or_else(|| malformed("oom_score_adj"))?;
    let start_ticks = glimpse.start_ticks;
    Ok(Some((Identity { pid, start_ticks }, glimpse.name, value)))
}

/// A process by its folder in proc, which leads nowhere once it has ended.
struct Open(OwnedFd);

impl Open {
    fn of(root: &Path, pid: i32) -> Option<Self> {
        let path = root.join("proc").join(pid.to_string());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(&path, flags, Mode::empty()).ok().map(Self)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Whether it is in the group or below it.
    fn is_in(&self, layout: &Layout, group: &KillTarget) -> bool {
        let mut room = vec![0; LONGEST_CGROUP];
        let Ok(file) = HotFile::open_at(self.fd(), c"cgroup") else {
            return false;
        };
        let Ok(text) = file.read_all(&mut room) else {
            return false;
        };
        let groups = Membership::parse(text).seen_from(layout.home());
        let own = group.dir().group().trim_end_matches('/');
        groups
            .of(layout, Controller::Memory)
            .and_then(|path| path.strip_prefix(own))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    fn value(&self) -> Option<i64> {
        let mut room = [0; 16];
        let file = HotFile::open_at(self.fd(), c"oom_score_adj").ok()?;
        let text = file.read_record(&mut room).ok()?;
        scan::signed_number(text.trim_ascii())
    }

    fn write(&self, value: i64) -> Result<(), Errno> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(self.fd(), c"oom_score_adj", flags, Mode::empty())?;
        let text = value.to_string();
        retry(|| rustix::io::write(&file, text.as_bytes())).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::fake::{self, FakeProcess};
    use super::*;

    /// A machine with a v2 tree in which the group `/pod` lists these processes: id, start, value, group.
    fn machine(processes: &[(i32, u64, &str, &str)]) -> (tempfile::TempDir, Layout, KillTarget) {
        let root = tempfile::tempdir().expect("temporary folder");
        let tree = root.path().join("sys/fs/cgroup");
        fs::create_dir_all(tree.join("pod/inner")).expect("fake tree");
        fs::create_dir_all(root.path().join("proc/self")).expect("fake tree");
        let mounts = "1 0 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        fs::write(root.path().join("proc/self/mountinfo"), mounts).expect("fake file");
        fs::write(tree.join("cgroup.controllers"), "memory\n").expect("fake file");
        let mut listed = String::from("0\n");
        for (pid, start, value, group) in processes {
            add(root.path(), *pid, *start, (value, group));
            listed = format!("{listed}{pid}\n");
        }
        fs::write(tree.join("pod/cgroup.procs"), "").expect("fake file");
        fs::write(tree.join("pod/inner/cgroup.procs"), listed).expect("fake file");
        let layout = Layout::detect(root.path()).expect("a layout");
        let target = KillTarget::open(&layout, "/pod").expect("a group");
        (root, layout, target)
    }

    fn add(root: &Path, pid: i32, start: u64, (value, group): (&str, &str)) {
        let process = FakeProcess {
            pid,
            parent: 1,
            session: pid,
            name: "web",
            user: 0,
            group,
            is_contained: true,
        };
        fake::add(root, &process);
        let folder = root.join(format!("proc/{pid}"));
        let text = fs::read_to_string(folder.join("stat")).expect("fake file");
        let text = text.replace(" 3 0 77 ", &format!(" 3 0 {start} "));
        fs::write(folder.join("stat"), text).expect("fake file");
        fs::write(folder.join("oom_score_adj"), value).expect("fake file");
    }

    #[test]
    fn the_oldest_is_the_first_and_others_are_counted() {
        let (root, _, target) = machine(&[
            (9, 500, "0\n", "/pod/inner"),
            (12, 300, "-998\n", "/pod/inner"),
            (20, 400, "-998\n", "/pod/inner"),
            (31, 300, "1000\n", "/pod/inner"),
        ]);
        let seen = look(root.path(), &target).expect("readable").expect("some");
        let first = Identity {
            pid: 12,
            start_ticks: 300,
        };
        let expected = Scores {
            first,
            name: "web".to_owned(),
            value: -998,
            others: 2,
            seen: 4,
        };
        assert_eq!(seen, expected);
    }

    #[test]
    fn nobody_is_no_error_and_nonsense_is_one_unless_somebody_is_known() {
        let (root, _, target) = machine(&[(9, 1, "low\n", "/pod/inner")]);
        assert!(matches!(
            look(root.path(), &target),
            Err(HostError::Malformed {
                what: "oom_score_adj",
                ..
            })
        ));
        fs::remove_dir_all(root.path().join("proc/9")).expect("gone");
        assert_eq!(look(root.path(), &target).expect("no error"), None);
        let (root, _, target) =
            machine(&[(9, 1, "low\n", "/pod/inner"), (10, 2, "7\n", "/pod/inner")]);
        let seen = look(root.path(), &target).expect("readable").expect("one");
        assert_eq!((seen.first.pid, seen.value, seen.seen), (10, 7, 1));
    }

    #[test]
    fn who_has_chosen_another_value_or_lives_elsewhere_keeps_it() {
        let (root, layout, target) = machine(&[
            (9, 1, "0", "/pod/inner"),
            (10, 2, "-500", "/pod/inner"),
            (11, 3, "0", "/pod"),
            (12, 4, "0", "/pods"),
            (13, 5, "0", "/elsewhere"),
        ]);
        let done = set((root.path(), &layout), &target, 0, 937);
        assert_eq!((done.set, done.refused, done.why), (2, 0, None));
        let value = |pid: i32| {
            let path = root.path().join(format!("proc/{pid}/oom_score_adj"));
            fs::read_to_string(path).expect("fake file")
        };
        let values: Vec<String> = (9..=13).map(value).collect();
        assert_eq!(values, ["937", "-500", "937", "0", "0"]);
    }
}
