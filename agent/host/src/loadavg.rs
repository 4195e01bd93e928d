//! /proc/loadavg: how many threads the node has, which is what `pid.available` counts.

use std::path::Path;

use crate::error::{HostError, HotError};
use crate::hot_file::HotFile;
use crate::scan;

/// The task counts of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskCounts {
    /// Threads that run or could run now.
    pub runnable: u64,
    /// All threads, those of the kernel included: the kubelet's "running processes".
    pub threads: u64,
    /// The id given to the newest task.
    pub last_pid: u64,
}

impl TaskCounts {
    /// Understands `0.01 0.27 0.21 2/86 8726`.
    ///
    /// # Errors
    /// [`HotError::Malformed`].
    pub fn parse(text: &[u8]) -> Result<Self, HotError> {
        counts(text).ok_or(HotError::Malformed("task counts"))
    }
}

fn counts(text: &[u8]) -> Option<TaskCounts> {
    let mut words = scan::words(text).skip(3);
    let (pair, last) = (words.next()?, words.next()?);
    let slash = pair.iter().position(|byte| *byte == b'/')?;
    Some(TaskCounts {
        runnable: scan::number(&pair[..slash])?,
        threads: scan::number(&pair[slash + 1..])?,
        last_pid: scan::number(last)?,
    })
}

/// /proc/loadavg held open.
#[derive(Debug)]
pub struct TaskCountReader {
    file: HotFile,
}

impl TaskCountReader {
    /// Opens `proc/loadavg` under a root.
    ///
    /// # Errors
    /// [`HostError::Open`].
    pub fn open(root: &Path) -> Result<Self, HostError> {
        Ok(Self {
            file: HotFile::open(&root.join("proc/loadavg"))?,
        })
    }

    /// Reads the counts now. Allocates nothing.
    ///
    /// # Errors
    /// What the read or [`TaskCounts::parse`] fails with.
    pub fn read(&self) -> Result<TaskCounts, HotError> {
        let mut buffer = [0; 128];
        TaskCounts::parse(self.file.read_record(&mut buffer)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn threads_stand_behind_the_slash() {
        let counts = TaskCounts::parse(b"0.01 0.27 0.21 2/86 8726\n");
        assert_eq!(
            counts,
            Ok(TaskCounts {
                runnable: 2,
                threads: 86,
                last_pid: 8726
            })
        );
        assert_eq!(
            TaskCounts::parse(b"0.01 0.27 0.21 286 8726\n"),
            Err(HotError::Malformed("task counts"))
        );
        assert_eq!(
            TaskCounts::parse(b"0.01 0.27"),
            Err(HotError::Malformed("task counts"))
        );
    }

    #[test]
    fn this_machine_runs_us() {
        let counts = TaskCountReader::open(Path::new("/"))
            .expect("open")
            .read()
            .expect("read");
        assert!(
            counts.runnable >= 1 && counts.threads > counts.runnable,
            "{counts:?}"
        );
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = TaskCounts::parse(&text);
        }
    }
}
