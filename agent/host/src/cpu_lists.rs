//! Free pages that CPUs hold in lists of their own, read from /proc/zoneinfo without allocation.

use std::path::Path;

use crate::error::{HostError, HotError};
use crate::hot_file::HotFile;
use crate::scan;

/// Read at a time; no line of the file is as long.
const PART: usize = 4096;

/// /proc/zoneinfo held open, for what freed memory that is in no zone's count of free pages.
///
/// Whoever frees memory puts it on a list of the CPU it runs on, which takes up to an eighth of a zone, shared by its CPUs,
/// since Linux 6.7. It is free for whoever runs there, and for everybody once reclaim has failed, but neither headroom nor
/// `MemAvailable` shows it.
#[derive(Debug)]
pub struct CpuListsReader {
    file: HotFile,
}

impl CpuListsReader {
    /// Opens `proc/zoneinfo` under a root.
    ///
    /// # Errors
    /// [`HostError::Open`].
    pub fn open(root: &Path) -> Result<Self, HostError> {
        HotFile::open(&root.join("proc/zoneinfo")).map(|file| Self { file })
    }

    /// The pages on all lists now. Allocates nothing; 20 µs and more, as there are CPUs.
    ///
    /// # Errors
    /// What the read fails with; [`HotError::Malformed`] if a count is none.
    pub fn pages(&self) -> Result<u64, HotError> {
        let mut buffer = [0; PART];
        let mut pages = 0_u64;
        self.file.for_each_line(&mut buffer, |line| {
            let mut words = scan::words(line);
            // Only the list of a CPU has a count with a colon.
            if words.next() == Some(b"count:") {
                let count = words.next().and_then(scan::number);
                pages = pages.saturating_add(count.ok_or(HotError::Malformed("count"))?);
            }
            Ok(())
        })?;
        Ok(pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zoneinfo::Zoneinfo;

    fn check(text: &str, expected: Result<u64, HotError>) {
        let root = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(root.path().join("proc")).expect("a folder");
        std::fs::write(root.path().join("proc/zoneinfo"), text).expect("a file");
        let reader = CpuListsReader::open(root.path()).expect("opened");
        assert_eq!(reader.pages(), expected);
    }

    #[test]
    fn the_lists_of_all_cpus_are_summed() {
        let list =
            |count: u64| format!("    cpu: 0\n              count:    {count}\n      high: 9\n");
        check("", Ok(0));
        check(&format!("Node 0\n{}{}", list(378), list(22)), Ok(400));
        check(&list(7).trim_end().replace("high: 9", "count: 4"), Ok(11));
        // Lines that lie across the parts that are read.
        check(&list(3).repeat(1000), Ok(3000));
        check("      count: many\n", Err(HotError::Malformed("count")));
        check(&"x".repeat(2 * PART), Err(HotError::Truncated));
    }

    #[test]
    fn this_machine_has_as_many_as_zoneinfo_says() {
        let reader = CpuListsReader::open(Path::new("/")).expect("opened");
        let near = |before: u64, pages: u64, after: u64| {
            let slack = 1 << 15;
            pages + slack >= before.min(after) && pages <= before.max(after) + slack
        };
        let totals = || {
            Zoneinfo::read(Path::new("/"))
                .expect("read")
                .totals()
                .on_cpus
        };
        let (before, pages, after) = (totals(), reader.pages().expect("read"), totals());
        assert!(near(before, pages, after), "{before} {pages} {after}");
    }
}
