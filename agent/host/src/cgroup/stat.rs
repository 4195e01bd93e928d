//! memory.stat of a group, both versions behind one type: what its usage consists of and what reclaim could give back.

use crate::cgroup::dir::CgroupDir;
use crate::cgroup::layout::Version;
use crate::error::{HostError, HotError};
use crate::hot_file::HotFile;
use crate::scan;

/// Room for the file with as much again for kernels to come (2 KiB on Linux 6.18).
const BUFFER: usize = 8192;

/// The parts of a group's memory and of all groups below it, bytes. What the version or kernel does not print is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryStat {
    /// Anonymous memory (v2 `anon`, v1 `total_rss`).
    pub anon: Option<u64>,
    /// Page cache, tmpfs and shared memory included (v2 `file`, v1 `total_cache`).
    pub file: Option<u64>,
    /// tmpfs and shared memory.
    pub shmem: Option<u64>,
    /// Page cache that processes of any group have mapped, tmpfs and shared memory included.
    pub file_mapped: Option<u64>,
    /// File pages on the inactive list: what the kubelet does not count as working set.
    pub inactive_file: Option<u64>,
    /// File pages on the active list.
    pub active_file: Option<u64>,
    /// Memory on no reclaimable list: locked, ramfs.
    pub unevictable: Option<u64>,
    /// File pages that must be written first.
    pub dirty: Option<u64>,
    /// File pages being written now.
    pub writeback: Option<u64>,
    /// Slab that reclaim can take back. v1 does not print it.
    pub slab_reclaimable: Option<u64>,
    /// Other slab. v1 does not print it.
    pub slab_unreclaimable: Option<u64>,
    /// Kernel stacks (v2).
    pub kernel_stack: Option<u64>,
    /// Page tables (v2).
    pub page_tables: Option<u64>,
    /// The tightest limit from here to the root (v1 `hierarchical_memory_limit`).
    pub hierarchical_limit: Option<u64>,
}

impl MemoryStat {
    /// Understands the text of a memory.stat. On v1 only the `total_` fields count, so that both versions include the
    /// groups below.
    ///
    /// # Errors
    /// [`HotError::Malformed`] when a field we know is no number; [`HotError::Missing`] when there is no inactive file
    /// memory, without which no working set can be told.
    pub fn parse(version: Version, text: &[u8]) -> Result<Self, HotError> {
        let mut stat = Self::default();
        for line in scan::lines(text) {
            let mut words = scan::words(line);
            let (Some(name), value) = (words.next(), words.next()) else {
                continue;
            };
            if let Some((slot, known_as)) = stat.slot(version, name) {
                *slot = Some(
                    value
                        .and_then(scan::number)
                        .ok_or(HotError::Malformed(known_as))?,
                );
            }
        }
        match stat.inactive_file {
            Some(_) => Ok(stat),
            None => Err(HotError::Missing("inactive_file")),
        }
    }

    fn slot(&mut self, version: Version, name: &[u8]) -> Option<(&mut Option<u64>, &'static str)> {
        Some(match (version, name) {
            (Version::V2, b"anon") | (Version::V1, b"total_rss") => (&mut self.anon, "anon"),
            (Version::V2, b"file") | (Version::V1, b"total_cache") => (&mut self.file, "file"),
            (Version::V2, b"shmem") | (Version::V1, b"total_shmem") => (&mut self.shmem, "shmem"),
            (Version::V2, b"file_mapped") | (Version::V1, b"total_mapped_file") => {
                (&mut self.file_mapped, "file_mapped")
            }
            (Version::V2, b"inactive_file") | (Version::V1, b"total_inactive_file") => {
                (&mut self.inactive_file, "inactive_file")
            }
            (Version::V2, b"active_file") | (Version::V1, b"total_active_file") => {
                (&mut self.active_file, "active_file")
            }
            (Version::V2, b"unevictable") | (Version::V1, b"total_unevictable") => {
                (&mut self.unevictable, "unevictable")
            }
            (Version::V2, b"file_dirty") | (Version::V1, b"total_dirty") => {
                (&mut self.dirty, "dirty")
            }
            (Version::V2, b"file_writeback") | (Version::V1, b"total_writeback") => {
                (&mut self.writeback, "writeback")
            }
            (Version::V2, b"slab_reclaimable") => (&mut self.slab_reclaimable, "slab_reclaimable"),
            (Version::V2, b"slab_unreclaimable") => {
                (&mut self.slab_unreclaimable, "slab_unreclaimable")
            }
            (Version::V2, b"kernel_stack") => (&mut self.kernel_stack, "kernel_stack"),
            (Version::V2, b"pagetables") => (&mut self.page_tables, "pagetables"),
            (Version::V1, b"hierarchical_memory_limit") => {
                (&mut self.hierarchical_limit, "hierarchical_memory_limit")
            }
            _ => return None,
        })
    }

    /// The kubelet's working set for a usage: usage less inactive file memory, never below zero.
    pub fn working_set(&self, usage: u64) -> Option<u64> {
        Some(usage.saturating_sub(self.inactive_file?))
    }

    /// What processes still have mapped and what therefore comes back only when they let go of it, bytes: anonymous memory, and
    /// of shared memory as much as can be mapped. Counters of the kernel, each up to 256 KiB a processor behind.
    pub fn mapped(&self) -> Option<u64> {
        let shared = self.file_mapped.unwrap_or(0).min(self.shmem.unwrap_or(0));
        Some(self.anon?.saturating_add(shared))
    }

    /// What reclaim could give back without swap, bytes: file pages that are neither dirty nor being written (shmem and
    /// locked pages are on other lists), and reclaimable slab where it is known. Unknown slab counts as nothing, which
    /// errs to the safe side: headroom is then too small, never too large.
    pub fn reclaimable(&self) -> Option<u64> {
        let clean = self
            .inactive_file?
            .saturating_add(self.active_file?)
            .saturating_sub(self.dirty.unwrap_or(0))
            .saturating_sub(self.writeback.unwrap_or(0));
        Some(clean.saturating_add(self.slab_reclaimable.unwrap_or(0)))
    }
}

/// memory.stat of one group, held open.
///
/// One `pread` of about 7 µs: the kernel adds up the counters of all CPUs and groups below first.
#[derive(Debug)]
pub struct StatReader {
    file: HotFile,
    version: Version,
}

impl StatReader {
    /// Opens the statistics of a group.
    ///
    /// # Errors
    /// [`HostError::Open`] with the path.
    pub fn open(dir: &CgroupDir) -> Result<Self, HostError> {
        Ok(Self {
            file: dir.file(c"memory.stat")?,
            version: dir.version(),
        })
    }

    /// Reads the parts now. Allocates nothing.
    ///
    /// # Errors
    /// What the read or [`MemoryStat::parse`] fails with.
    pub fn read(&self) -> Result<MemoryStat, HotError> {
        let mut buffer = [0; BUFFER];
        MemoryStat::parse(self.version, self.file.read_record(&mut buffer)?)
    }

    /// Inactive file memory alone, bytes: the one part that the working sets of all groups are made of again and again.
    /// Allocates nothing.
    ///
    /// # Errors
    /// What the read fails with, or [`MemoryStat::parse`] for this field.
    pub fn inactive_file(&self) -> Result<u64, HotError> {
        let mut buffer = [0; BUFFER];
        inactive_file(self.version, self.file.read_record(&mut buffer)?)
    }
}

fn inactive_file(version: Version, text: &[u8]) -> Result<u64, HotError> {
    let name: &[u8] = match version {
        Version::V1 => b"total_inactive_file ",
        Version::V2 => b"inactive_file ",
    };
    let value = scan::lines(text).find_map(|line| line.strip_prefix(name));
    let value = value.ok_or(HotError::Missing("inactive_file"))?;
    scan::lone_number(value).ok_or(HotError::Malformed("inactive_file"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::dir::fake;
    use proptest::prelude::*;

    const V1: &str = "cache 1\nrss 2\ninactive_file 3\nhierarchical_memory_limit 4096\ntotal_cache 100\ntotal_rss 200\n\
total_shmem 30\ntotal_mapped_file 25\ntotal_dirty 4\ntotal_writeback 5\ntotal_inactive_file 40\ntotal_active_file 20\ntotal_unevictable 7\n";
    const V2: &str = "anon 200\nfile 100\nkernel 9\nkernel_stack 1\npagetables 2\nshmem 30\nfile_mapped 25\nfile_dirty 4\nfile_writeback 5\n\
inactive_file 40\nactive_file 20\nunevictable 7\nslab_reclaimable 50\nslab_unreclaimable 60\nslab 110\n";

    #[test]
    fn both_versions_say_the_same_about_the_same_memory() {
        let v1 = MemoryStat::parse(Version::V1, V1.as_bytes()).expect("v1");
        let v2 = MemoryStat::parse(Version::V2, V2.as_bytes()).expect("v2");
        for (version, text, stat) in [(Version::V1, V1, v1), (Version::V2, V2, v2)] {
            assert_eq!(
                (stat.anon, stat.file, stat.shmem),
                (Some(200), Some(100), Some(30))
            );
            assert_eq!(
                (stat.inactive_file, stat.active_file, stat.unevictable),
                (Some(40), Some(20), Some(7))
            );
            assert_eq!((stat.dirty, stat.writeback), (Some(4), Some(5)));
            assert_eq!((stat.file_mapped, stat.mapped()), (Some(25), Some(225)));
            assert_eq!(stat.working_set(300), Some(260));
            assert_eq!(inactive_file(version, text.as_bytes()), Ok(40));
            assert_eq!(stat.working_set(39), Some(0));
        }
        assert_eq!((v1.reclaimable(), v2.reclaimable()), (Some(51), Some(101)));
        assert_eq!(
            (v1.slab_reclaimable, v1.hierarchical_limit),
            (None, Some(4096))
        );
        assert_eq!((v2.page_tables, v2.kernel_stack), (Some(2), Some(1)));
    }

    #[test]
    fn unknown_is_not_zero() {
        assert_eq!(
            MemoryStat::parse(Version::V2, b"anon 1\n"),
            Err(HotError::Missing("inactive_file"))
        );
        // The plain fields of v1 leave out the groups below and so must not be taken instead.
        assert_eq!(
            MemoryStat::parse(Version::V1, b"inactive_file 3\n"),
            Err(HotError::Missing("inactive_file"))
        );
        assert_eq!(
            MemoryStat::parse(Version::V2, b"inactive_file x\n"),
            Err(HotError::Malformed("inactive_file"))
        );
        assert_eq!(
            MemoryStat::parse(Version::V2, b"inactive_file\n"),
            Err(HotError::Malformed("inactive_file"))
        );
        let partial =
            MemoryStat::parse(Version::V2, b"inactive_file 3\n").expect("enough for a working set");
        assert_eq!(
            (partial.working_set(10), partial.reclaimable()),
            (Some(7), None)
        );
    }

    #[test]
    fn the_reader_reads_its_group() {
        let (_root, dir) = fake::group(Version::V2, &[("memory.stat", V2)]);
        assert_eq!(
            StatReader::open(&dir)
                .expect("open")
                .read()
                .expect("read")
                .anon,
            Some(200)
        );
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text in proptest::collection::vec(any::<u8>(), 0..400), v2: bool) {
            let version = if v2 { Version::V2 } else { Version::V1 };
            let _ = MemoryStat::parse(version, &text);
        }

        #[test]
        fn reclaimable_never_exceeds_what_there_is(inactive: u64, active: u64, dirty: u64, writeback: u64) {
            let stat = MemoryStat {
                inactive_file: Some(inactive),
                active_file: Some(active),
                dirty: Some(dirty),
                writeback: Some(writeback),
                ..MemoryStat::default()
            };
            prop_assert!(stat.reclaimable().expect("known") <= inactive.saturating_add(active));
        }
    }
}
