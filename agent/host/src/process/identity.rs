//! Which process an id stands for: ids are given anew, and only with its start does one name a process for good.

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::behind_name;
use crate::error::{HostError, HotError};
use crate::hot_file::HotFile;
use crate::scan;

/// Longer than any `/proc/<pid>/stat`: a name of 64 bytes and 50 numbers.
const LONGEST_STAT: usize = 2048;
/// Longer than any `<pid>/stat`.
const LONGEST_PATH: usize = 24;

/// One process of this boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// Its id.
    pub pid: i32,
    /// When it began, clock ticks since boot. An id comes round again after thousands of others at the least, which takes
    /// longer than a tick.
    pub start_ticks: u64,
}

/// Reads when processes began. Allocates nothing after it was opened.
#[derive(Debug)]
pub struct StartReader {
    proc: OwnedFd,
}

impl StartReader {
    /// Opens proc under a root.
    ///
    /// # Errors
    /// [`HostError::Open`] with the path.
    pub fn open(root: &Path) -> Result<Self, HostError> {
        let path = root.join("proc");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(&path, flags, Mode::empty()) {
            Ok(proc) => Ok(Self { proc }),
            Err(errno) => Err(HostError::Open {
                path,
                source: errno.into(),
            }),
        }
    }

    /// When the process that has this id now began, clock ticks since boot; none when nobody has it.
    ///
    /// # Errors
    /// [`HotError`] when that cannot be read or understood.
    pub fn start_ticks(&self, pid: i32) -> Result<Option<u64>, HotError> {
        let mut path = [0; LONGEST_PATH];
        let written = write!(&mut path[..LONGEST_PATH - 1], "{pid}/stat");
        let path = std::ffi::CStr::from_bytes_until_nul(&path);
        let (Ok(()), Ok(path)) = (written, path) else {
            return Err(HotError::Malformed("pid"));
        };
        let mut text = [0; LONGEST_STAT];
        let file = match HotFile::open_at(self.proc.as_fd(), path) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::SRCH) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        match file.read_record(&mut text) {
            Ok(text) => start_ticks(text)
                .map(Some)
                .ok_or(HotError::Malformed("stat")),
            Err(HotError::Io(Errno::SRCH)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// When a process began, by its `stat`: the twentieth field behind the name.
pub(super) fn start_ticks(stat: &[u8]) -> Option<u64> {
    scan::number(behind_name(stat)?.nth(19)?)
}

/// Whether a process is on its way out (`PF_EXITING`), by its `stat`: the seventh field behind the name.
pub(super) fn is_exiting(stat: &[u8]) -> Option<bool> {
    const EXITING: u64 = 0x4;
    let flags = scan::number(behind_name(stat)?.nth(6)?)?;
    Some(flags & EXITING != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::ProcessInfo;
    use crate::process::fake::{self, FakeProcess};

    #[test]
    fn the_start_is_read_whatever_a_process_calls_itself() {
        let root = tempfile::tempdir().expect("temporary folder");
        let process = FakeProcess {
            pid: 42,
            parent: 1,
            session: 42,
            name: "a) S 1 2 (b",
            user: 0,
            group: "/",
            is_contained: false,
        };
        fake::add(root.path(), &process);
        let starts = StartReader::open(root.path()).expect("a folder");
        assert_eq!(starts.start_ticks(42), Ok(Some(77)));
        assert_eq!(starts.start_ticks(43), Ok(None), "nobody");
        std::fs::write(root.path().join("proc/42/stat"), "42 (a) S 1").expect("fake file");
        assert_eq!(starts.start_ticks(42), Err(HotError::Malformed("stat")));
    }

    #[test]
    fn both_readers_know_the_same_start_of_ourselves() {
        let own = i32::try_from(std::process::id()).expect("a pid");
        let info = ProcessInfo::read(Path::new("/"), own).expect("readable");
        let starts = StartReader::open(Path::new("/")).expect("proc");
        let start = starts.start_ticks(own).expect("readable");
        assert_eq!(start, info.map(|info| info.start_ticks));
    }
}
