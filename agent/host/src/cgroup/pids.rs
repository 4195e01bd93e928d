//! How many tasks and which processes a group has.

use std::ffi::CStr;
use std::os::fd::AsFd;
use std::path::Path;

use crate::cgroup::dir::CgroupDir;
use crate::error::{HostError, HotError};
use crate::hot_file::{HotFile, read_bytes};
use crate::scan;

/// More processes than this in one group are not listed (the largest `pid_max` there is).
const MOST_PROCESSES: usize = 1 << 22;

impl CgroupDir {
    /// Tasks (threads) in the group and below it, from `pids.current`.
    ///
    /// # Errors
    /// [`HostError`] with the path; the root has no such file.
    pub fn tasks(&self) -> Result<u64, HostError> {
        let name = c"pids.current";
        let mut buffer = [0; 32];
        scan::lone_number(self.read(name, &mut buffer)?)
            .ok_or_else(|| self.wrong(name, HotError::Malformed("pids.current")))
    }

    /// The processes of this group alone, as our own pid namespace numbers them. Those it cannot see are left out.
    ///
    /// On v1 the kernel keeps the list it made at the first read of an open file, so each call opens the file anew.
    ///
    /// # Errors
    /// [`HostError`] with the path.
    pub fn processes(&self) -> Result<Vec<i32>, HostError> {
        let name = c"cgroup.procs";
        let file =
            HotFile::open_at(self.as_fd(), name).map_err(|errno| self.wrong(name, errno.into()))?;
        let mut room = 4096;
        loop {
            let mut text = vec![0; room];
            match file.read_all(&mut text).and_then(parse_processes) {
                Err(HotError::Truncated) if room < MOST_PROCESSES * 8 => room *= 4,
                answer => return answer.map_err(|error| self.wrong(name, error)),
            }
        }
    }
}

/// `pids.current` of one group, held open: tasks in it and below it, with the dead that nobody has reaped.
#[derive(Debug)]
pub struct TasksReader {
    file: HotFile,
    id: u64,
}

impl TasksReader {
    const NAME: &CStr = c"pids.current";

    /// Opens the count of a group; the root has none.
    ///
    /// # Errors
    /// [`HostError::Open`] with the path.
    pub fn open(dir: &CgroupDir) -> Result<Self, HostError> {
        let file = dir.file(Self::NAME)?;
        let stat = rustix::fs::fstat(&file);
        let stat = stat.map_err(|errno| dir.wrong(Self::NAME, errno.into()))?;
        Ok(Self {
            file,
            id: stat.st_ino,
        })
    }

    /// The number of the file.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Whether that is still the group's file: a controller that was switched off and on again has made another one, with a count
    /// of its own.
    pub fn is_of(&self, dir: &CgroupDir) -> bool {
        let found = rustix::fs::statat(dir, Self::NAME, rustix::fs::AtFlags::empty());
        found.is_ok_and(|found| found.st_ino == self.id)
    }

    /// The tasks now. A group that was removed answers `ENODEV`. Allocates nothing.
    ///
    /// # Errors
    /// [`HotError`].
    pub fn read(&self) -> Result<u64, HotError> {
        let mut buffer = [0; 32];
        scan::lone_number(self.file.read_record(&mut buffer)?)
            .ok_or(HotError::Malformed("pids.current"))
    }
}

/// The processes of the group of a folder alone, as [`CgroupDir::processes`] lists them.
///
/// # Errors
/// [`HostError`] with the path; the group may have gone.
pub fn processes_at(folder: &Path) -> Result<Vec<i32>, HostError> {
    let path = folder.join("cgroup.procs");
    parse_processes(&read_bytes(&path)?).map_err(|error| error.at(&path))
}

/// One process id a line; 0 stands for a process of another pid namespace.
fn parse_processes(text: &[u8]) -> Result<Vec<i32>, HotError> {
    let mut processes = Vec::new();
    for line in scan::lines(text) {
        let pid = scan::number(line)
            .and_then(|pid| i32::try_from(pid).ok())
            .ok_or(HotError::Malformed("process id"))?;
        if pid != 0 {
            processes.push(pid);
        }
    }
    Ok(processes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::dir::fake;
    use crate::cgroup::layout::Version;

    #[test]
    fn processes_are_listed_however_many() {
        let many: Vec<i32> = (1..=20_000).collect();
        let text = many
            .iter()
            .map(i32::to_string)
            .collect::<Vec<_>>()
            .join("\n");
        let (_root, dir) = fake::group(
            Version::V1,
            &[("cgroup.procs", &text), ("pids.current", "3\n")],
        );
        assert_eq!(dir.processes().expect("list"), many);
        assert_eq!(processes_at(dir.path()).expect("list"), many);
        assert_eq!(dir.tasks().expect("count"), 3);
        assert_eq!(TasksReader::open(&dir).expect("open").read(), Ok(3));
    }

    #[test]
    fn processes_of_other_namespaces_are_left_out_and_nonsense_is_an_error() {
        assert_eq!(parse_processes(b"0\n12\n0\n"), Ok(vec![12]));
        assert_eq!(parse_processes(b""), Ok(vec![]));
        assert_eq!(
            parse_processes(b"12\n-1\n"),
            Err(HotError::Malformed("process id"))
        );
        assert_eq!(
            parse_processes(b"99999999999\n"),
            Err(HotError::Malformed("process id"))
        );
    }
}
