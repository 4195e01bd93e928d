//! A process that was killed: what the kernel told of it as it chose it, and what its files still say.

use std::path::Path;

use brink_host::HostError;
use brink_host::cgroup::membership::Membership;
use brink_host::cgroup::{CgroupDir, Controller, Layout, Version};
use brink_host::process::arguments::command_line;
use brink_host::process::brief::{self, Brief};
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::incident::Victim;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use super::why;

/// What is known of a victim before its files are read. Memory in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Its process, or one of its threads.
    pub pid: u32,
    /// Its name; empty where it is not known.
    pub comm: String,
    /// Its user.
    pub uid: Option<u32>,
    /// Its `oom_score_adj`.
    pub oom_score_adj: Option<i32>,
    /// Anonymous memory.
    pub anon: Option<u64>,
    /// Memory of files.
    pub file: Option<u64>,
    /// Shared memory.
    pub shmem: Option<u64>,
    /// Memory in swap.
    pub swap: Option<u64>,
    /// Page tables.
    pub page_tables: Option<u64>,
    /// When it was started, in nanoseconds since boot.
    pub start_ns: Option<u64>,
}

/// Where and how victims are read.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    /// The root of the file system.
    pub root: &'a Path,
    /// Where the cgroups are.
    pub layout: &'a Layout,
    /// Whether arguments may be told.
    pub command_lines: bool,
}

/// What the files of an id say.
struct Seen {
    brief: Brief,
    /// Why nothing is known that is not in there.
    gone: Missing,
    argv: Field<Vec<String>>,
    cgroup: Field<String>,
}

impl Seen {
    /// Reads them, quickest to vanish first.
    fn read(reader: Reader<'_>, pid: i32) -> Self {
        let Reader { root, layout, .. } = reader;
        let brief = Brief::read(root, pid);
        let argv = if reader.command_lines {
            arguments(root, pid)
        } else {
            Field::Missing(Missing::Redacted)
        };
        let gone = brief.as_ref().err();
        let gone = gone.map_or(Missing::ProcessGone, |error| unread(error, pid));
        Self {
            brief: brief.unwrap_or_default(),
            gone,
            argv,
            cgroup: membership(root, layout, pid),
        }
    }

    /// None of it counts.
    fn drop_all(&mut self, reason: Missing) {
        self.brief = Brief::default();
        self.gone = reason;
        self.cgroup = Field::Missing(reason);
        if self.argv != Field::Missing(Missing::Redacted) {
            self.argv = Field::Missing(reason);
        }
    }
}

/// A victim as read. What the kernel told at the kill goes before what its files say later, and those count only where they are
/// its own: a process that has been reaped leaves its id to somebody else.
pub fn read(reader: Reader<'_>, told: &Told, since_boot_ns: u64) -> Victim {
    let pid = i32::try_from(told.pid).unwrap_or(0);
    let mut seen = Seen::read(reader, pid);
    // After all else: whoever has the id now, and was started then, has had it all the while.
    let ticks = brief::start_ticks(reader.root, pid);
    let start = match told.start_ns {
        Some(start) => {
            if let Some(reason) = not_its(start, &ticks, pid) {
                seen.drop_all(reason);
            }
            Field::Value(start)
        }
        None => found(ticks.map(|ticks| ticks.saturating_mul(tick())), pid),
    };
    let Seen {
        brief,
        gone,
        argv,
        cgroup,
    } = seen;
    let resident = brief.resident;
    Victim {
        pid: brief.process.map_or(told.pid, i32::unsigned_abs),
        start_ns: start.clone(),
        comm: if told.comm.is_empty() {
            brief.name
        } else {
            told.comm.clone()
        },
        argv,
        uid: Field::or(told.uid.or(brief.user), gone),
        oom_score_adj: Field::or(told.oom_score_adj.or(brief.oom_score_adj), gone),
        anon: Field::or(told.anon.or(resident.anon), gone),
        file: Field::or(told.file.or(resident.file), gone),
        shmem: Field::or(told.shmem.or(resident.shmem), gone),
        swap: Field::or(told.swap.or(resident.swap), gone),
        page_tables: Field::or(told.page_tables.or(brief.page_tables), gone),
        age_ns: start.map(|start| since_boot_ns.saturating_sub(start)),
        cgroup,
        exited: Field::Missing(Missing::Pending),
    }
}

/// A process that has given its memory back has no arguments any more: an empty list then says nothing.
fn arguments(root: &Path, pid: i32) -> Field<Vec<String>> {
    match found(command_line(root, pid), pid) {
        Field::Value(argv) if argv.is_empty() => Field::Missing(Missing::ProcessGone),
        found => found,
    }
}

/// Why what was read of an id is not the victim's, or may not be: `start_ns` is when that was started, as the kernel told, and `ticks`
/// what the id's `stat` says, which is cut to whole ticks.
fn not_its(start_ns: u64, ticks: &Result<u64, HostError>, pid: i32) -> Option<Missing> {
    match ticks {
        Ok(ticks) if *ticks == start_ns / tick() => None,
        Ok(_) => Some(Missing::ProcessGone),
        // Nobody knows whose it was.
        Err(error) => Some(unread(error, pid)),
    }
}

/// A clock tick of `/proc`, in nanoseconds.
fn tick() -> u64 {
    1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)
}

/// The cgroup of the memory controller that a process is in. By v1 one that is exiting is in the root, wherever it was.
pub fn membership(root: &Path, layout: &Layout, pid: i32) -> Field<String> {
    let is_v1 = layout
        .hierarchy(Controller::Memory)
        .map(|found| found.version)
        == Some(Version::V1);
    match Membership::read(root, layout.home(), &pid.to_string()) {
        Ok(groups) => match groups.of(layout, Controller::Memory) {
            Some("/") if is_v1 && brief::is_exiting(root, pid).unwrap_or(true) => {
                Field::Missing(Missing::ProcessGone)
            }
            Some(path) => {
                let path = path.trim_end_matches(" (deleted)");
                if is_garbled(layout, path) {
                    Field::Missing(Missing::Malformed)
                } else {
                    Field::Value(path.to_owned())
                }
            }
            None => Field::Missing(Missing::KernelLacksIt),
        },
        Err(error) => Field::Missing(unread(&error, pid)),
    }
}

/// Whether a path is not the cgroup's own: bytes that are no text have been replaced in it, and it leads nowhere.
fn is_garbled(layout: &Layout, path: &str) -> bool {
    let hierarchy = layout.hierarchy(Controller::Memory);
    let leads = || hierarchy.is_some_and(|found| CgroupDir::open(found, path).is_ok());
    path.contains(char::REPLACEMENT_CHARACTER) && !leads()
}

/// What was read of a process.
fn found<T>(reading: Result<T, HostError>, pid: i32) -> Field<T> {
    reading.map_or_else(|error| Field::Missing(unread(&error, pid)), Field::Value)
}

/// Why nothing could be read of a process. One without a folder is gone, or a `/proc` that is mounted with `hidepid=2` hides it.
fn unread(error: &HostError, pid: i32) -> Missing {
    let absent = match Pid::from_raw(pid).map(test_kill_process) {
        Some(Ok(()) | Err(Errno::PERM)) => Missing::NotPermitted,
        _ => Missing::ProcessGone,
    };
    why(error, absent)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Above the largest process id that there can be.
    const NOBODY: u32 = (1 << 22) + 1;

    #[test]
    fn we_are_read_whole_and_what_was_told_goes_before() {
        let layout = Layout::detect(Path::new("/")).unwrap();
        let mut reader = Reader {
            root: Path::new("/"),
            layout: &layout,
            command_lines: true,
        };
        let told = Told {
            pid: std::process::id(),
            anon: Some(7),
            ..Told::default()
        };
        let now = brink_host::clock::since_boot_ns();
        let own = read(reader, &told, now);
        assert_eq!((own.pid, &own.anon), (told.pid, &Field::Value(7)));
        assert!(own.file.value().is_some_and(|bytes| *bytes > 0), "{own:?}");
        assert!(own.start_ns.value().is_some_and(|start| *start < now));
        assert!(own.cgroup.value().is_some_and(|path| path.starts_with('/')));
        assert!(own.argv.value().is_some_and(|argv| !argv.is_empty()));
        reader.command_lines = false;
        let own = read(reader, &told, now);
        assert_eq!(own.argv, Field::Missing(Missing::Redacted));
    }

    /// Here it is us who have got the id of a victim.
    #[test]
    fn what_an_id_says_counts_only_of_the_process_that_was_started_when_the_victim_was() {
        let layout = Layout::detect(Path::new("/")).unwrap();
        let mut reader = Reader {
            root: Path::new("/"),
            layout: &layout,
            command_lines: true,
        };
        let pid = std::process::id();
        let told = |start_ns| Told {
            pid,
            comm: "leak".to_owned(),
            anon: Some(7),
            start_ns,
            ..Told::default()
        };
        let start = *read(reader, &told(None), 0).start_ns.value().unwrap();
        // The kernel tells it to the nanosecond, and `/proc` to the tick.
        let own = read(reader, &told(Some(start + tick() - 1)), 0);
        assert!(own.argv.value().is_some() && own.cgroup.value().is_some());
        assert!(own.file.value().is_some() && own.uid.value().is_some());
        let before = told(Some(start - 1));
        let other = read(reader, &before, 0);
        assert_eq!((other.pid, other.comm.as_str()), (pid, "leak"));
        assert_eq!(other.start_ns, Field::Value(start - 1));
        assert_eq!(other.anon, Field::Value(7));
        assert_eq!(other.argv, Field::Missing(Missing::ProcessGone));
        assert_eq!(other.cgroup, Field::Missing(Missing::ProcessGone));
        assert_eq!(other.file, Field::Missing(Missing::ProcessGone));
        assert_eq!(other.uid, Field::Missing(Missing::ProcessGone));
        reader.command_lines = false;
        let other = read(reader, &before, 0);
        assert_eq!(other.argv, Field::Missing(Missing::Redacted));
    }

    #[test]
    fn a_cgroup_whose_name_is_no_text_is_not_told_by_another() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt as _;

        let root = tempfile::tempdir().unwrap();
        crate::fake::mount_unified(root.path());
        let layout = Layout::detect(root.path()).unwrap();
        let tree = root.path().join("sys/fs/cgroup");
        let own = root.path().join("proc/7");
        std::fs::create_dir(&own).unwrap();
        let check = |name: &[u8], expected: Field<String>| {
            std::fs::create_dir(tree.join(OsStr::from_bytes(name))).unwrap();
            let line = [b"0::/", name, b"\n"].concat();
            std::fs::write(own.join("cgroup"), line).unwrap();
            assert_eq!(membership(root.path(), &layout, 7), expected);
        };
        check(b"a\xff", Field::Missing(Missing::Malformed));
        let odd = "a\u{fffd}";
        check(odd.as_bytes(), Field::Value(format!("/{odd}")));
        check(b"b", Field::Value("/b".to_owned()));
    }

    #[test]
    fn one_that_is_gone_is_told_by_what_the_kernel_said() {
        let layout = Layout::detect(Path::new("/")).unwrap();
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        let reader = Reader {
            root: root.path(),
            layout: &layout,
            command_lines: true,
        };
        let told = Told {
            pid: NOBODY,
            comm: "leak".to_owned(),
            anon: Some(4096),
            ..Told::default()
        };
        let gone = read(reader, &told, 0);
        assert_eq!((gone.pid, gone.comm.as_str()), (NOBODY, "leak"));
        assert_eq!(gone.anon, Field::Value(4096));
        assert_eq!(gone.argv, Field::Missing(Missing::ProcessGone));
        assert_eq!(gone.uid, Field::Missing(Missing::ProcessGone));
        let hidden = Told {
            pid: std::process::id(),
            ..Told::default()
        };
        let hidden = read(reader, &hidden, 0);
        let not_permitted = Field::Missing(Missing::NotPermitted);
        assert_eq!(hidden.argv, not_permitted, "it runs, and has no folder");
        assert_eq!(hidden.cgroup, Field::Missing(Missing::NotPermitted));
        // Between its exit and the end of its entry it is told as nobody.
        let folder = root.path().join(format!("proc/{NOBODY}"));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("status"), "Name:\tleak\nTgid:\t0\nPid:\t0\n").unwrap();
        assert_eq!(read(reader, &told, 0).pid, NOBODY);
    }
}
