//! /proc/meminfo: the node's memory counters in one `pread`, without allocation.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::error::{HostError, HotError};
use crate::hot_file::{HotFile, read_bytes};
use crate::scan;

/// Room for the file with as much again for fields of kernels to come (1.6 KiB on Linux 6.18).
const BUFFER: usize = 4096;

/// The node's memory counters, all in bytes. What not every supported kernel prints is an `Option`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meminfo {
    /// `MemTotal`: what the kernel manages.
    pub total: u64,
    /// `MemFree`.
    pub free: u64,
    /// `MemAvailable`: the kernel's own estimate. Not the kubelet's `memory.available`.
    pub available: Option<u64>,
    /// `Buffers`: page cache of block devices.
    pub buffers: u64,
    /// `Cached`: page cache and shmem, without `Buffers` and `SwapCached`.
    pub cached: u64,
    /// `SwapCached`.
    pub swap_cached: u64,
    /// `Active(file)`.
    pub active_file: u64,
    /// `Inactive(file)`.
    pub inactive_file: u64,
    /// `AnonPages`: anonymous pages mapped into processes.
    pub anon: u64,
    /// `Unevictable`.
    pub unevictable: u64,
    /// `Mlocked`.
    pub mlocked: u64,
    /// `Dirty`: file pages that must be written before they can go.
    pub dirty: u64,
    /// `Writeback`: file pages being written now.
    pub writeback: u64,
    /// `Shmem`: tmpfs and shared memory, in `cached` but not reclaimable without swap.
    pub shmem: u64,
    /// `SReclaimable`: slab that reclaim can take back.
    pub slab_reclaimable: u64,
    /// `SUnreclaim`.
    pub slab_unreclaimable: u64,
    /// `KReclaimable`: reclaimable slab and other kernel memory (Linux 4.20).
    pub kernel_reclaimable: Option<u64>,
    /// `KernelStack`.
    pub kernel_stack: u64,
    /// `PageTables`.
    pub page_tables: u64,
    /// `Percpu` (Linux 4.21).
    pub per_cpu: Option<u64>,
    /// `SwapTotal`.
    pub swap_total: u64,
    /// `SwapFree`.
    pub swap_free: u64,
    /// `Zswap`: memory that holds compressed pages (Linux 5.19).
    pub zswap: Option<u64>,
    /// `Hugetlb`: all hugetlb pages of all sizes, gone from `free` for good (Linux 4.19).
    pub hugetlb: Option<u64>,
}

/// What the kubelet's `memory.available` of a cgroup v2 node is made of, bytes.
///
/// The root of cgroup v2 has no `memory.current`; the kubelet's library takes `anon + file` of the root instead, and
/// the capacity is `MemTotal`. The root's `file` counts every page of the page cache, so it is
/// `Cached + Buffers + SwapCached` here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryAvailableInputs {
    /// `MemTotal`.
    pub capacity: u64,
    /// `AnonPages`.
    pub anon: u64,
    /// `Cached + Buffers + SwapCached`.
    pub file: u64,
    /// `Inactive(file)`.
    pub inactive_file: u64,
}

impl Meminfo {
    /// Understands the text of /proc/meminfo.
    ///
    /// # Errors
    /// [`HotError::Missing`] or [`HotError::Malformed`] with the field.
    pub fn parse(text: &[u8]) -> Result<Self, HotError> {
        let mut fields = Fields::default();
        for line in scan::lines(text) {
            fields.take(line)?;
        }
        fields.checked()
    }

    /// The parts of the kubelet's working set of this node.
    pub fn memory_available_inputs(&self) -> MemoryAvailableInputs {
        MemoryAvailableInputs {
            capacity: self.total,
            anon: self.anon,
            file: self
                .cached
                .saturating_add(self.buffers)
                .saturating_add(self.swap_cached),
            inactive_file: self.inactive_file,
        }
    }

    /// What reclaim can give back without swap, bytes: file pages that are neither dirty nor being written, and slab.
    /// Shmem and locked pages are on other lists and so are not in it.
    pub fn reclaimable(&self) -> u64 {
        self.active_file
            .saturating_add(self.inactive_file)
            .saturating_sub(self.dirty)
            .saturating_sub(self.writeback)
            .saturating_add(self.slab_reclaimable)
    }
}

/// /proc/meminfo held open.
#[derive(Debug)]
pub struct MeminfoReader {
    file: HotFile,
    path: PathBuf,
}

impl MeminfoReader {
    /// Opens `proc/meminfo` under a root.
    ///
    /// # Errors
    /// [`HostError::Open`].
    pub fn open(root: &Path) -> Result<Self, HostError> {
        let path = root.join("proc/meminfo");
        Ok(Self {
            file: HotFile::open(&path)?,
            path,
        })
    }

    /// Reads the counters now. Allocates nothing.
    ///
    /// # Errors
    /// What the read or [`Meminfo::parse`] fails with.
    pub fn read(&self) -> Result<Meminfo, HotError> {
        let mut buffer = [0; BUFFER];
        Meminfo::parse(self.file.read_record(&mut buffer)?)
    }

    /// The file that is read.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

macro_rules! fields {
    (required { $($field:ident: $name:literal,)* } optional { $($extra:ident: $extra_name:literal,)* }) => {
        /// The fields as found, before it is known that all are there.
        #[derive(Default)]
        struct Fields { $($field: Option<u64>,)* $($extra: Option<u64>,)* }

        impl Fields {
            /// Takes one line, if it is one of ours.
            fn take(&mut self, line: &[u8]) -> Result<(), HotError> {
                let Some(colon) = line.iter().position(|byte| *byte == b':') else { return Ok(()) };
                let (name, value) = (&line[..colon], &line[colon + 1..]);
                $(if name == $name.as_bytes() {
                    self.$field = Some(kibibytes(value).ok_or(HotError::Malformed($name))?);
                    return Ok(());
                })*
                $(if name == $extra_name.as_bytes() {
                    self.$extra = Some(kibibytes(value).ok_or(HotError::Malformed($extra_name))?);
                })*
                Ok(())
            }

            /// All fields, or the first that is missing.
            fn checked(&self) -> Result<Meminfo, HotError> {
                Ok(Meminfo {
                    $($field: self.$field.ok_or(HotError::Missing($name))?,)*
                    $($extra: self.$extra,)*
                })
            }
        }
    };
}

fields! {
    required {
        total: "MemTotal",
        free: "MemFree",
        buffers: "Buffers",
        cached: "Cached",
        swap_cached: "SwapCached",
        active_file: "Active(file)",
        inactive_file: "Inactive(file)",
        anon: "AnonPages",
        unevictable: "Unevictable",
        mlocked: "Mlocked",
        dirty: "Dirty",
        writeback: "Writeback",
        shmem: "Shmem",
        slab_reclaimable: "SReclaimable",
        slab_unreclaimable: "SUnreclaim",
        kernel_stack: "KernelStack",
        page_tables: "PageTables",
        swap_total: "SwapTotal",
        swap_free: "SwapFree",
    }
    optional {
        available: "MemAvailable",
        kernel_reclaimable: "KReclaimable",
        per_cpu: "Percpu",
        zswap: "Zswap",
        hugetlb: "Hugetlb",
    }
}

/// Every line of `proc/meminfo` under a root by its name, in bytes; what the kernel counts in pages of a size of their own
/// (`HugePages_Total` and the like) as the number that it writes.
///
/// # Errors
/// [`HostError`] with the path.
pub fn table(root: &Path) -> Result<BTreeMap<String, u64>, HostError> {
    let path = root.join("proc/meminfo");
    let text = read_bytes(&path)?;
    let entry = |line: &[u8]| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        let value = kibibytes(value).or_else(|| scan::lone_number(value))?;
        Some((String::from_utf8_lossy(name).into_owned(), value))
    };
    let all: Option<BTreeMap<String, u64>> = scan::lines(&text).map(entry).collect();
    all.ok_or(HostError::Malformed { path, what: "line" })
}

/// `"   1234 kB"` in bytes.
fn kibibytes(value: &[u8]) -> Option<u64> {
    let mut words = scan::words(value);
    let amount = scan::number(words.next()?)?;
    match (words.next(), words.next()) {
        (Some(b"kB"), None) => amount.checked_mul(1024),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINUX_6_18: &[u8] = b"\
MemTotal:       24684092 kB\nMemFree:        24459972 kB\nMemAvailable:   24393684 kB\nBuffers:             864 kB\n\
Cached:            70552 kB\nSwapCached:            4 kB\nActive:            20500 kB\nInactive:          50476 kB\n\
Active(anon):       1532 kB\nInactive(anon):     6700 kB\nActive(file):      18968 kB\nInactive(file):    43776 kB\n\
Unevictable:       15628 kB\nMlocked:           14732 kB\nSwapTotal:             8 kB\nSwapFree:              4 kB\n\
Zswap:                 0 kB\nZswapped:              0 kB\nDirty:                12 kB\nWriteback:             8 kB\n\
AnonPages:         15132 kB\nMapped:            11024 kB\nShmem:              8856 kB\nKReclaimable:      54952 kB\n\
Slab:              76972 kB\nSReclaimable:      54952 kB\nSUnreclaim:        22020 kB\nKernelStack:        1476 kB\n\
PageTables:         2588 kB\nPercpu:              688 kB\nHugePages_Total:       0\nHugetlb:               0 kB\n";

    #[test]
    fn a_real_file_is_read_to_the_byte() {
        let info = Meminfo::parse(LINUX_6_18).expect("a real file");
        assert_eq!(info.total, 24_684_092 * 1024);
        assert_eq!(info.kernel_reclaimable, Some(54_952 * 1024));
        assert_eq!(
            info.reclaimable(),
            (18_968 + 43_776 - 12 - 8 + 54_952) * 1024
        );
        let inputs = info.memory_available_inputs();
        assert_eq!(inputs.file, (70_552 + 864 + 4) * 1024);
        assert_eq!(inputs.anon, 15_132 * 1024);
        assert_eq!(inputs.inactive_file, 43_776 * 1024);
    }

    #[test]
    fn what_old_kernels_lack_is_unknown_and_what_all_have_is_required() {
        let text = String::from_utf8_lossy(LINUX_6_18);
        let without = |name: &str| {
            let kept: Vec<&str> = text
                .lines()
                .filter(|line| !line.starts_with(name))
                .collect();
            Meminfo::parse(kept.join("\n").as_bytes())
        };
        assert_eq!(without("Zswap:").expect("optional").zswap, None);
        assert_eq!(
            without("Inactive(file):"),
            Err(HotError::Missing("Inactive(file)"))
        );
        let text = text.replace("24459972 kB", "24459972 MB");
        assert_eq!(
            Meminfo::parse(text.as_bytes()),
            Err(HotError::Malformed("MemFree"))
        );
    }

    #[test]
    fn this_machine_is_readable() {
        let reader = MeminfoReader::open(Path::new("/")).expect("open");
        let info = reader.read().expect("read");
        assert!(info.free <= info.total, "{info:?}");
    }

    #[test]
    fn every_line_is_in_the_table() {
        let root = tempfile::tempdir().expect("temporary folder");
        std::fs::create_dir(root.path().join("proc")).expect("fake proc");
        std::fs::write(root.path().join("proc/meminfo"), LINUX_6_18).expect("fake file");
        let all = table(root.path()).expect("a real file");
        assert_eq!(all.get("MemFree"), Some(&(24_459_972 * 1024)));
        assert_eq!(all.get("HugePages_Total"), Some(&0));
        assert_eq!(all.len(), scan::lines(LINUX_6_18).count());
        std::fs::write(root.path().join("proc/meminfo"), "MemFree: x\n").expect("fake file");
        assert!(matches!(
            table(root.path()),
            Err(HostError::Malformed { .. })
        ));
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let _ = Meminfo::parse(&text);
        }

        #[test]
        fn a_damaged_file_never_panics(at in 0..LINUX_6_18.len(), byte: u8) {
            let mut text = LINUX_6_18.to_vec();
            text[at] = byte;
            let _ = Meminfo::parse(&text);
        }
    }
}
