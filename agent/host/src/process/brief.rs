//! One process in short, file by file: what a record of its death needs, the quickest to vanish first.

use std::path::{Path, PathBuf};

use super::{Resident, identity, status_number, status_words};
use crate::error::HostError;
use crate::hot_file::read_bytes;
use crate::scan;

/// What `/proc/<pid>/status` and `oom_score_adj` say of a process. Memory in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Brief {
    /// Its name, at most 15 bytes.
    pub name: String,
    /// The id of its process, which is another one if what was asked for is a thread's. The kernel tells 0 of one that is being
    /// reaped: then there is none.
    pub process: Option<i32>,
    /// Its effective user.
    pub user: Option<u32>,
    /// Its memory; none once it was given back.
    pub resident: Resident,
    /// Its page tables.
    pub page_tables: Option<u64>,
    /// −1000 (never kill) to 1000.
    pub oom_score_adj: Option<i32>,
}

impl Brief {
    /// Reads a process or thread under a root.
    ///
    /// # Errors
    /// [`HostError`] with the path; there may be no such process any more.
    pub fn read(root: &Path, pid: i32) -> Result<Self, HostError> {
        let folder = folder(root, pid);
        let mut brief = Self::parse(&read_bytes(&folder.join("status"))?);
        let score = read_bytes(&folder.join("oom_score_adj")).ok();
        let score = score.and_then(|text| scan::signed_number(text.trim_ascii()));
        brief.oom_score_adj = score.and_then(|score| i32::try_from(score).ok());
        Ok(brief)
    }

    /// Understands the text of `status`.
    pub fn parse(status: &[u8]) -> Self {
        let bytes = |name: &str| status_number(status, name)?.checked_mul(1024);
        let narrow = |number: Option<u64>| number.and_then(|number| u32::try_from(number).ok());
        let name = scan::lines(status).find_map(|line| line.strip_prefix(b"Name:"));
        let name = name.unwrap_or_default().trim_ascii();
        Self {
            name: String::from_utf8_lossy(name).into_owned(),
            process: status_number(status, "Tgid:")
                .and_then(|id| i32::try_from(id).ok())
                .filter(|id| *id > 0),
            user: narrow(status_words(status, "Uid:").nth(1).and_then(scan::number)),
            resident: Resident {
                anon: bytes("RssAnon:"),
                file: bytes("RssFile:"),
                shmem: bytes("RssShmem:"),
                swap: bytes("VmSwap:"),
            },
            page_tables: bytes("VmPTE:"),
            oom_score_adj: None,
        }
    }
}

impl Resident {
    /// Anonymous, of files and shared; none where none of them is known.
    pub fn total(&self) -> Option<u64> {
        let parts = [self.anon, self.file, self.shmem];
        let known = parts.into_iter().flatten();
        known.reduce(u64::saturating_add)
    }
}

/// When a process began, in clock ticks since boot.
///
/// # Errors
/// [`HostError`] with the path.
pub fn start_ticks(root: &Path, pid: i32) -> Result<u64, HostError> {
    by_stat(root, pid, identity::start_ticks)
}

/// Whether a process is on its way out: it has no memory any more, and cgroup v1 tells it as in the root.
///
/// # Errors
/// [`HostError`] with the path.
pub fn is_exiting(root: &Path, pid: i32) -> Result<bool, HostError> {
    by_stat(root, pid, identity::is_exiting)
}

fn by_stat<T>(root: &Path, pid: i32, of: fn(&[u8]) -> Option<T>) -> Result<T, HostError> {
    let path = folder(root, pid).join("stat");
    let text = read_bytes(&path)?;
    of(&text).ok_or(HostError::Malformed { path, what: "stat" })
}

/// Pages a process has in memory, by the shortest file that tells it: 0 for one that has given them back.
///
/// # Errors
/// [`HostError`] with the path.
pub fn resident_pages(root: &Path, pid: i32) -> Result<u64, HostError> {
    let path = folder(root, pid).join("statm");
    let text = read_bytes(&path)?;
    let pages = scan::words(&text).nth(1).and_then(scan::number);
    pages.ok_or(HostError::Malformed {
        path,
        what: "statm",
    })
}

/// The ids of all processes under a root, in ascending order.
///
/// # Errors
/// [`HostError::Read`] when they cannot be listed.
pub fn ids(root: &Path) -> Result<Vec<i32>, HostError> {
    super::ids(root)
}

fn folder(root: &Path, pid: i32) -> PathBuf {
    root.join("proc").join(pid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::fake::{self, FakeProcess};
    use proptest::prelude::*;

    #[test]
    fn a_process_is_told_in_short() {
        let root = tempfile::tempdir().expect("temporary folder");
        fake::add(
            root.path(),
            &FakeProcess {
                pid: 42,
                parent: 1,
                session: 42,
                name: "a (b) c",
                user: 33,
                group: "/",
                is_contained: false,
            },
        );
        let brief = Brief::read(root.path(), 42).expect("there");
        assert_eq!((brief.name.as_str(), brief.user), ("a (b) c", Some(33)));
        assert_eq!((brief.process, brief.oom_score_adj), (Some(42), Some(-500)));
        assert_eq!(brief.resident.total(), Some(12 << 10));
        assert_eq!(brief.page_tables, None, "this kernel does not tell");
        assert_eq!(start_ticks(root.path(), 42).expect("there"), 77);
        assert_eq!(ids(root.path()).expect("list"), [42]);
        assert!(!is_exiting(root.path(), 42).expect("there"));
        let leaving = "42 (x) Z 1 42 42 0 -1 4228356 0 0 0 0 0 0 0 0 20 0 1 0 77 0 0\n";
        std::fs::write(root.path().join("proc/42/stat"), leaving).expect("written");
        assert!(is_exiting(root.path(), 42).expect("there"));
        let gone = Brief::read(root.path(), 43).expect_err("nobody");
        assert_eq!(gone.errno(), Some(libc::ENOENT));
    }

    #[test]
    fn we_are_resident() {
        let own = i32::try_from(std::process::id()).expect("a pid");
        let pages = resident_pages(Path::new("/"), own).expect("ourselves");
        let brief = Brief::read(Path::new("/"), own).expect("ourselves");
        assert!(pages > 0 && brief.resident.total() > Some(0) && brief.page_tables > Some(0));
        assert_eq!(Resident::default().total(), None, "unknown is not zero");
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Brief::parse(&text);
        }
    }
}
