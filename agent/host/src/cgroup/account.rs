//! Everything the memory controller says of one group, as it says it: for a record that is read long after the group is gone.

use std::collections::BTreeMap;
use std::ffi::CStr;

use crate::cgroup::dir::CgroupDir;
use crate::cgroup::layout::Version;
use crate::error::{HostError, HotError};
use crate::scan;

/// Room for `memory.stat` with as much again for kernels to come (2 KiB on Linux 6.18).
const BUFFER: usize = 8192;

impl CgroupDir {
    /// Bytes in use: `memory.current`, or `memory.usage_in_bytes`. The root of v2 has none.
    ///
    /// # Errors
    /// [`HostError`] with the path.
    pub fn memory_usage(&self) -> Result<u64, HostError> {
        self.number(match self.version() {
            Version::V1 => c"memory.usage_in_bytes",
            Version::V2 => c"memory.current",
        })
    }

    /// Bytes in swap: `memory.swap.current`, or on v1 what is in use with swap less what is in use without.
    ///
    /// # Errors
    /// [`HostError`] with the path; a kernel that does not account for swap has no such file.
    pub fn swap_usage(&self) -> Result<u64, HostError> {
        match self.version() {
            Version::V2 => self.number(c"memory.swap.current"),
            Version::V1 => {
                let both = self.number(c"memory.memsw.usage_in_bytes")?;
                Ok(both.saturating_sub(self.memory_usage()?))
            }
        }
    }

    /// Whether the kernel's killer takes the group whole (`memory.oom.group`, Linux 4.19); v1 never does.
    ///
    /// # Errors
    /// [`HostError`] with the path.
    pub fn is_killed_whole(&self) -> Result<bool, HostError> {
        match self.version() {
            Version::V1 => Ok(false),
            Version::V2 => Ok(self.number(c"memory.oom.group")? != 0),
        }
    }

    /// Every line of `memory.stat`, by its name. v1 has most of them twice: of the group alone, and with `total_` of the
    /// groups below it too.
    ///
    /// # Errors
    /// [`HostError`] with the path.
    pub fn memory_statistics(&self) -> Result<BTreeMap<String, u64>, HostError> {
        self.table(c"memory.stat")
    }

    /// Every count of what happened at the group's limits: `memory.events`, or `memory.oom_control` and `failcnt` on v1.
    ///
    /// # Errors
    /// [`HostError`] with the path.
    pub fn memory_counts(&self) -> Result<BTreeMap<String, u64>, HostError> {
        match self.version() {
            Version::V2 => self.table(c"memory.events"),
            Version::V1 => {
                let mut counts = self.table(c"memory.oom_control")?;
                // Only kernels with the whole of v1 count them.
                if let Ok(failed) = self.number(c"memory.failcnt") {
                    counts.insert("failcnt".to_owned(), failed);
                }
                Ok(counts)
            }
        }
    }

    /// How often the group's own limit could not be kept by reclaim: `oom` of `memory.events.local`, which a limit further
    /// up does not raise. `None` where the kernel does not count it (v1, and Linux before 5.2).
    ///
    /// # Errors
    /// [`HostError`] with the path.
    pub fn own_ooms(&self) -> Result<Option<u64>, HostError> {
        if self.version() == Version::V1 {
            return Ok(None);
        }
        match self.table(c"memory.events.local") {
            Ok(counts) => Ok(counts.get("oom").copied()),
            Err(error) if error.errno() == Some(libc::ENOENT) && self.is_alive() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn number(&self, name: &CStr) -> Result<u64, HostError> {
        let mut buffer = [0; 32];
        scan::lone_number(self.read(name, &mut buffer)?)
            .ok_or_else(|| self.wrong(name, HotError::Malformed("number")))
    }

    fn table(&self, name: &CStr) -> Result<BTreeMap<String, u64>, HostError> {
        let mut buffer = [0; BUFFER];
        table(self.read(name, &mut buffer)?).map_err(|error| self.wrong(name, error))
    }
}

/// A name and a number a line.
fn table(text: &[u8]) -> Result<BTreeMap<String, u64>, HotError> {
    let entry = |line| {
        let mut words = scan::words(line);
        let name = words.next().ok_or(HotError::Missing("name"))?;
        let value = words.next().and_then(scan::number);
        let value = value.ok_or(HotError::Malformed("value"))?;
        Ok((String::from_utf8_lossy(name).into_owned(), value))
    };
    scan::lines(text).map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::dir::fake;
    use proptest::prelude::*;

    #[test]
    fn v2_is_told_in_its_own_words() {
        let (_root, dir) = fake::group(
            Version::V2,
            &[
                ("cgroup.procs", ""),
                ("memory.current", "4096\n"),
                ("memory.swap.current", "0\n"),
                ("memory.oom.group", "1\n"),
                ("memory.stat", "anon 7\nfile 9\n"),
                ("memory.events", "low 0\nmax 3\noom 2\noom_kill 1\n"),
                ("memory.events.local", "low 0\noom 1\n"),
            ],
        );
        assert_eq!(dir.memory_usage().expect("read"), 4096);
        assert_eq!(dir.swap_usage().expect("read"), 0);
        assert!(dir.is_killed_whole().expect("read"));
        assert_eq!(dir.memory_statistics().expect("read").get("file"), Some(&9));
        assert_eq!(dir.memory_counts().expect("read").get("oom"), Some(&2));
        assert_eq!(dir.own_ooms().expect("read"), Some(1));
    }

    #[test]
    fn v1_is_told_by_its_counterparts() {
        let (_root, dir) = fake::group(
            Version::V1,
            &[
                ("memory.usage_in_bytes", "4096\n"),
                ("memory.memsw.usage_in_bytes", "5000\n"),
                (
                    "memory.oom_control",
                    "oom_kill_disable 0\nunder_oom 1\noom_kill 4\n",
                ),
                ("memory.failcnt", "12\n"),
            ],
        );
        assert_eq!(dir.swap_usage().expect("read"), 904);
        assert!(!dir.is_killed_whole().expect("never"));
        let counts = dir.memory_counts().expect("read");
        assert_eq!(
            (counts.get("oom_kill"), counts.get("failcnt")),
            (Some(&4), Some(&12))
        );
        assert_eq!(dir.own_ooms().expect("not counted"), None);
    }

    #[test]
    fn what_is_not_there_is_an_error_and_no_number() {
        let (_root, dir) = fake::group(Version::V2, &[("memory.current", "many\n")]);
        assert!(matches!(
            dir.memory_usage(),
            Err(HostError::Malformed { .. })
        ));
        let error = dir.memory_statistics().expect_err("no such file");
        assert_eq!(error.errno(), Some(libc::ENOENT));
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = table(&text);
        }
    }
}
