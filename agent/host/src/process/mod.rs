//! Who runs on this machine: what a process is, who must never be killed, who else kills.
//!
//! None of this is for the way from event to kill: it allocates and reads several files a process.

use std::fs;
use std::io;
use std::path::Path;

use procfs::FromRead;
use procfs::process::Stat;

use crate::error::HostError;
use crate::hot_file::read_bytes;
use crate::scan;

pub mod arguments;
pub mod brief;
pub mod essential;
pub mod identity;
pub mod lineage;
pub mod oom_scores;
pub mod rivals;
pub mod wards;

pub use essential::{Essential, Role};
pub use identity::Identity;
pub use rivals::{Rival, RivalKind};

/// The kernel's flag for its own threads (`PF_KTHREAD` in `linux/sched.h`).
const KERNEL_THREAD: u32 = 0x0020_0000;

/// The kernel's flag for a task that is on its way out (`PF_EXITING`).
const EXITING: u32 = 0x0000_0004;

/// The resident memory of a process, bytes. A process that is just going, and a kernel thread, has none to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resident {
    /// Anonymous.
    pub anon: Option<u64>,
    /// Mapped files.
    pub file: Option<u64>,
    /// Shared memory and tmpfs.
    pub shmem: Option<u64>,
    /// In swap, so not resident.
    pub swap: Option<u64>,
}

/// What is known of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Its id.
    pub pid: i32,
    /// Its parent's id; 0 for those the kernel started.
    pub parent: i32,
    /// The id of its session's leader.
    pub session: i32,
    /// Its name, at most 15 bytes. Any process can choose its own.
    pub name: String,
    /// Its command line; empty for kernel threads and zombies.
    pub command_line: Vec<String>,
    /// Its effective user.
    pub user: u32,
    /// Whether it is a thread of the kernel.
    pub is_kernel_thread: bool,
    /// When it began, clock ticks since boot: with the id, this names a process for good.
    pub start_ticks: u64,
    /// Its threads.
    pub threads: u64,
    /// −1000 (never kill) to 1000, for the kernel's killer.
    pub oom_score_adj: Option<i64>,
    /// Its memory.
    pub resident: Resident,
    /// Whether it lives in a pid namespace below ours: a container.
    pub is_contained: Option<bool>,
}

/// The processes of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Processes {
    /// Those that could be read, in ascending order of their ids.
    pub known: Vec<ProcessInfo>,
    /// Those that could not, although they are there.
    pub unreadable: Vec<i32>,
}

impl ProcessInfo {
    /// Reads one process under a root. `None` when there is none (any more).
    ///
    /// # Errors
    /// [`HostError`] when its files cannot be read or understood.
    pub fn read(root: &Path, pid: i32) -> Result<Option<Self>, HostError> {
        let folder = root.join("proc").join(pid.to_string());
        match Self::from_folder(&folder, pid) {
            Ok(info) => Ok(Some(info)),
            Err(error) if matches!(error.errno(), Some(libc::ENOENT | libc::ESRCH)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn from_folder(folder: &Path, pid: i32) -> Result<Self, HostError> {
        let path = folder.join("stat");
        let stat =
            parse_stat(&read_bytes(&path)?).ok_or(HostError::Malformed { path, what: "stat" })?;
        let path = folder.join("status");
        let status = read_bytes(&path)?;
        let bytes = |name: &str| {
            status_number(&status, name).and_then(|kibibytes| kibibytes.checked_mul(1024))
        };
        let user = status_words(&status, "Uid:").nth(1).and_then(scan::number);
        let score = read_bytes(&folder.join("oom_score_adj")).ok();
        Ok(Self {
            pid,
            parent: stat.ppid,
            session: stat.session,
            name: stat.comm,
            // A zombie has none, and neither has a process that ends just now.
            command_line: read_bytes(&folder.join("cmdline"))
                .map(|text| parse_command_line(&text))
                .unwrap_or_default(),
            user: user
                .and_then(|user| u32::try_from(user).ok())
                .ok_or(HostError::Missing { path, what: "Uid" })?,
            is_kernel_thread: stat.flags & KERNEL_THREAD != 0,
            start_ticks: stat.starttime,
            threads: u64::try_from(stat.num_threads).unwrap_or(0),
            oom_score_adj: score.and_then(|text| scan::signed_number(text.trim_ascii())),
            resident: Resident {
                anon: bytes("RssAnon:"),
                file: bytes("RssFile:"),
                shmem: bytes("RssShmem:"),
                swap: bytes("VmSwap:"),
            },
            is_contained: Some(status_words(&status, "NSpid:").count())
                .filter(|ids| *ids > 0)
                .map(|ids| ids > 1),
        })
    }
}

impl Processes {
    /// Reads all processes under a root. Those that end meanwhile are left out.
    ///
    /// # Errors
    /// [`HostError::Read`] when the list itself cannot be read.
    pub fn read(root: &Path) -> Result<Self, HostError> {
        let mut processes = Self::default();
        for pid in ids(root)? {
            match ProcessInfo::read(root, pid) {
                Ok(info) => processes.known.extend(info),
                Err(_) => processes.unreadable.push(pid),
            }
        }
        Ok(processes)
    }
}

/// The name of a process's command alone, at most 15 bytes, by the one file that tells it. `None` when there is no such
/// process (any more).
///
/// # Errors
/// [`HostError`] when the file cannot be read.
pub fn command_name(root: &Path, pid: i32) -> Result<Option<String>, HostError> {
    let path = root.join("proc").join(pid.to_string()).join("comm");
    match read_bytes(&path) {
        Ok(text) => {
            let name = text.strip_suffix(b"\n").unwrap_or(&text);
            Ok(Some(String::from_utf8_lossy(name).into_owned()))
        }
        Err(error) if matches!(error.errno(), Some(libc::ENOENT | libc::ESRCH)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// How many processes hold their ids although they are dead or have been killed: nobody has reaped them yet.
///
/// # Errors
/// [`HostError`] when the processes cannot be listed.
pub fn unreaped(root: &Path) -> Result<u64, HostError> {
    let is_unreaped = |pid: &i32| {
        let folder = root.join("proc").join(pid.to_string());
        let stat = read_bytes(&folder.join("stat")).unwrap_or_default();
        let is_dead = is_exiting(&stat).unwrap_or(false);
        is_dead || read_bytes(&folder.join("status")).is_ok_and(|status| is_killed(&status))
    };
    let found = ids(root)?.iter().filter(|pid| is_unreaped(pid)).count();
    Ok(u64::try_from(found).unwrap_or(u64::MAX))
}

/// The words of a process's `stat` behind its name, which is whatever stands between the first bracket and the last: the third field
/// and those after it. None where there is no name.
fn behind_name(stat: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let close = stat.iter().rposition(|byte| *byte == b')')?;
    Some(scan::words(stat.get(close + 1..)?))
}

/// Whether a process has ended, or is about to; none where its file cannot be understood.
fn is_exiting(stat: &[u8]) -> Option<bool> {
    let mut words = behind_name(stat)?;
    let state = words.next()?;
    let flags = scan::number(words.nth(5)?)?;
    Some(matches!(state, b"Z" | b"X" | b"x") || flags & u64::from(EXITING) != 0)
}

/// Whether SIGKILL is on its way to a process.
fn is_killed(status: &[u8]) -> bool {
    let pending = |name: &str| {
        let mut words = status_words(status, name);
        let set = words.next().and_then(|set| str::from_utf8(set).ok());
        set.and_then(|set| u64::from_str_radix(set, 16).ok())
    };
    let kill = 1 << (libc::SIGKILL - 1);
    ["SigPnd:", "ShdPnd:"]
        .into_iter()
        .any(|name| pending(name).is_some_and(|set| set & kill != 0))
}

/// The ids of all processes under a root, in ascending order.
pub(crate) fn ids(root: &Path) -> Result<Vec<i32>, HostError> {
    let folder = root.join("proc");
    let failed = |source: io::Error| HostError::Read {
        path: folder.clone(),
        source,
    };
    let mut ids = Vec::new();
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        ids.extend(name.to_str().and_then(|name| name.parse::<i32>().ok()));
    }
    ids.sort_unstable();
    Ok(ids)
}

/// The little of a process that one file tells: enough to see that most of them are of no interest.
pub(crate) struct Glimpse {
    /// Its name, at most 15 bytes.
    pub(crate) name: String,
    /// Whether it is a thread of the kernel.
    pub(crate) is_kernel_thread: bool,
    /// When it began, clock ticks since boot.
    pub(crate) start_ticks: u64,
}

impl Glimpse {
    /// Reads it; none when the process is gone or its file cannot be understood.
    pub(crate) fn of(root: &Path, pid: i32) -> Option<Self> {
        let path = root.join("proc").join(pid.to_string()).join("stat");
        Self::parse(&read_bytes(&path).ok()?)
    }

    /// The name between the first bracket and the last; behind it state, parent, group, session, terminal and its group, and
    /// the flags.
    fn parse(text: &[u8]) -> Option<Self> {
        let open = text.iter().position(|byte| *byte == b'(')?;
        let close = text.iter().rposition(|byte| *byte == b')')?;
        let name = text.get(open + 1..close)?;
        let flags = behind_name(text)?.nth(6)?;
        Some(Self {
            name: String::from_utf8_lossy(name).into_owned(),
            is_kernel_thread: scan::number(flags)? & u64::from(KERNEL_THREAD) != 0,
            start_ticks: identity::start_ticks(text)?,
        })
    }
}

/// `42 (any (bytes)) S 1 …`. The crate's parser takes for granted that something stands in front of the first bracket
/// and behind the last.
fn parse_stat(text: &[u8]) -> Option<Stat> {
    let open = text.iter().position(|byte| *byte == b'(')?;
    let close = text.iter().rposition(|byte| *byte == b')')?;
    let (pid, rest) = (text.get(..open)?, text.get(close + 1..)?);
    let is_whole =
        open < close && pid.first()?.is_ascii_digit() && pid.ends_with(b" ") && pid.is_ascii();
    let has_fields = rest.starts_with(b" ") && rest.trim_ascii().len() > 1 && rest.is_ascii();
    if is_whole && has_fields {
        Stat::from_read(text).ok()
    } else {
        None
    }
}

/// What stands behind a name in /proc/&lt;pid&gt;/status.
fn status_words<'a>(status: &'a [u8], name: &str) -> impl Iterator<Item = &'a [u8]> {
    let line = scan::lines(status).find_map(|line| line.strip_prefix(name.as_bytes()));
    scan::words(line.unwrap_or_default())
}

fn status_number(status: &[u8], name: &str) -> Option<u64> {
    status_words(status, name).next().and_then(scan::number)
}

fn parse_command_line(text: &[u8]) -> Vec<String> {
    let text = text.strip_suffix(b"\0").unwrap_or(text);
    if text.is_empty() {
        return Vec::new();
    }
    text.split(|byte| *byte == 0)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect()
}

/// A fake /proc with the files that are read here.
#[cfg(test)]
pub(crate) mod fake {
    use std::fs;
    use std::path::Path;

    /// One process of a fake machine.
    pub(crate) struct FakeProcess<'a> {
        pub(crate) pid: i32,
        pub(crate) parent: i32,
        pub(crate) session: i32,
        pub(crate) name: &'a str,
        pub(crate) user: u32,
        pub(crate) group: &'a str,
        pub(crate) is_contained: bool,
    }

    pub(crate) fn add(root: &Path, process: &FakeProcess<'_>) {
        let FakeProcess {
            pid,
            parent,
            session,
            name,
            user,
            group,
            is_contained,
        } = process;
        let folder = root.join("proc").join(pid.to_string());
        fs::create_dir_all(&folder).expect("fake process");
        let rest = "0 0 0 0 0 0 0 0 0 0 0 20 0 3 0 77 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0";
        let stat = format!("{pid} ({name}) S {parent} {pid} {session} {rest}");
        let nested = if *is_contained {
            format!("{pid}\t5")
        } else {
            pid.to_string()
        };
        let status = format!(
            "Name:\t{name}\nTgid:\t{pid}\nUid:\t{user}\t{user}\t{user}\t{user}\nNSpid:\t{nested}\n\
             RssAnon:\t       4 kB\nRssFile:\t8 kB\nRssShmem:\t0 kB\nVmSwap:\t12 kB\nThreads:\t3\n"
        );
        fs::write(folder.join("stat"), stat).expect("fake file");
        fs::write(folder.join("status"), status).expect("fake file");
        fs::write(folder.join("cmdline"), format!("/usr/bin/{name}\0--flag\0")).expect("fake file");
        fs::write(folder.join("oom_score_adj"), "-500\n").expect("fake file");
        fs::write(folder.join("cgroup"), format!("0::{group}\n")).expect("fake file");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one() -> fake::FakeProcess<'static> {
        fake::FakeProcess {
            pid: 42,
            parent: 1,
            session: 40,
            name: "a (b) c",
            user: 33,
            group: "/",
            is_contained: true,
        }
    }

    #[test]
    fn everything_about_a_process_is_read() {
        let root = tempfile::tempdir().expect("temporary folder");
        fake::add(root.path(), &one());
        let info = ProcessInfo::read(root.path(), 42)
            .expect("readable")
            .expect("there");
        assert_eq!(
            (info.parent, info.session, info.user, info.start_ticks),
            (1, 40, 33, 77)
        );
        assert_eq!(
            (info.name.as_str(), info.command_line.as_slice()),
            (
                "a (b) c",
                &["/usr/bin/a (b) c".to_owned(), "--flag".to_owned()][..]
            )
        );
        let resident = Resident {
            anon: Some(4096),
            file: Some(8192),
            shmem: Some(0),
            swap: Some(12_288),
        };
        assert_eq!(
            (info.resident, info.oom_score_adj, info.threads),
            (resident, Some(-500), 3)
        );
        assert_eq!(
            (info.is_contained, info.is_kernel_thread),
            (Some(true), false)
        );
        let all = Processes::read(root.path()).expect("list");
        assert_eq!(
            all,
            Processes {
                known: vec![info],
                unreadable: vec![]
            }
        );
        assert_eq!(ProcessInfo::read(root.path(), 43).expect("no error"), None);
    }

    #[test]
    fn a_glimpse_is_of_the_name_and_the_flags() {
        fn check(text: &str, expected: Option<(&str, bool)>) {
            let found = Glimpse::parse(text.as_bytes());
            let found = found.as_ref();
            let found = found.map(|glimpse| {
                assert_eq!(glimpse.start_ticks, 77);
                (glimpse.name.as_str(), glimpse.is_kernel_thread)
            });
            assert_eq!(found, expected, "{text:?}");
        }
        check(
            "9 (a) (b) S 1 9 9 0 -1 4194304 120 0 0 0 0 0 0 0 20 0 3 0 77",
            Some(("a) (b", false)),
        );
        check(
            "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 77",
            Some(("kthreadd", true)),
        );
        for damaged in [
            "",
            "9 (",
            "9 )a( S 1 9 9 0 -1 0",
            "9 (a)",
            "9 (a) S 1 9 9 0 -1",
            "9 (a) S 1 9 9 0 -1 x 120 0 0 0 0 0 0 0 20 0 3 0 77",
            "9 (a) S 1 9 9 0 -1 4194304 120 0 0 0 0 0 0 0 20 0 3 0",
        ] {
            check(damaged, None);
        }
    }

    #[test]
    fn the_dead_and_the_killed_hold_their_ids() {
        for (stat, expected) in [
            ("9 (a) b) Z 1 9 9 0 -1 4194304 0", Some(true)),
            ("9 (a) S 1 9 9 0 -1 4194308 0", Some(true)),
            ("9 (Z) S 1 9 9 0 -1 4194304 0", Some(false)),
            ("9 (a) S 1", None),
            ("", None),
        ] {
            assert_eq!(is_exiting(stat.as_bytes()), expected, "{stat:?}");
        }
        for (status, expected) in [
            (
                "SigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n",
                true,
            ),
            (
                "SigPnd:\t0000000000000000\nShdPnd:\t0000000000000100\n",
                true,
            ),
            (
                "SigPnd:\t0000000000004000\nShdPnd:\t0000000000000000\n",
                false,
            ),
            ("", false),
        ] {
            assert_eq!(is_killed(status.as_bytes()), expected, "{status:?}");
        }
        let root = tempfile::tempdir().expect("temporary folder");
        fake::add(root.path(), &one());
        assert_eq!(unreaped(root.path()).expect("list"), 0);
        let dead = "42 (a) Z 1 40 40 0 -1 4194308 0";
        fs::write(root.path().join("proc/42/stat"), dead).expect("fake file");
        assert_eq!(unreaped(root.path()).expect("list"), 1);
    }

    #[test]
    fn we_find_ourselves() {
        let own = i32::try_from(std::process::id()).expect("a pid");
        let all = Processes::read(Path::new("/")).expect("list").known;
        let found = all.iter().find(|info| info.pid == own).expect("ourselves");
        assert!(
            found.threads >= 1 && !found.is_kernel_thread && found.resident.anon.is_some(),
            "{found:?}"
        );
    }

    #[test]
    fn a_name_of_any_bytes_hides_nobody_and_a_broken_file_is_counted() {
        let root = tempfile::tempdir().expect("temporary folder");
        fake::add(root.path(), &one());
        let stat = fs::read(root.path().join("proc/42/stat")).expect("fake file");
        let open = stat
            .iter()
            .position(|byte| *byte == b'(')
            .expect("a bracket");
        let close = stat
            .iter()
            .rposition(|byte| *byte == b')')
            .expect("a bracket");
        let odd = [&stat[..=open], &b"\xff) R 1 (\n\xc3"[..], &stat[close..]].concat();
        fs::write(root.path().join("proc/42/stat"), odd).expect("fake file");
        fs::write(root.path().join("proc/42/cmdline"), b"\xff\0\xfe\0").expect("fake file");
        let info = ProcessInfo::read(root.path(), 42)
            .expect("readable")
            .expect("there");
        assert_eq!(
            (info.parent, info.session, info.command_line.len()),
            (1, 40, 2)
        );
        fs::write(root.path().join("proc/42/stat"), "42 (").expect("fake file");
        assert!(matches!(
            ProcessInfo::read(root.path(), 42),
            Err(HostError::Malformed { what: "stat", .. })
        ));
        assert_eq!(Processes::read(root.path()).expect("list").unreadable, [42]);
    }

    proptest! {
        #[test]
        fn damaged_files_never_panic(
            file in proptest::sample::select(vec!["stat", "status", "cmdline", "oom_score_adj"]),
            text in proptest::collection::vec(any::<u8>(), 0..300),
            from_real: bool,
            at in 0..200usize,
        ) {
            let root = tempfile::tempdir().expect("temporary folder");
            fake::add(root.path(), &one());
            let path = root.path().join("proc/42").join(file);
            let mut damaged = if from_real { fs::read(&path).expect("fake file") } else { Vec::new() };
            damaged.truncate(at);
            damaged.extend(text);
            fs::write(path, damaged).expect("fake file");
            let _ = ProcessInfo::read(root.path(), 42);
            let _ = Glimpse::of(root.path(), 42);
        }
    }
}
