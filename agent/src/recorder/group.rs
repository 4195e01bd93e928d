//! One cgroup's files, held open, and read no more than its usage calls for.

use brink_host::cgroup::stat::{MemoryStat, StatReader};
use brink_host::cgroup::usage::UsageReader;
use brink_host::cgroup::{CgroupDir, Hierarchy, Version};
use brink_host::probe::Meters;
use brink_host::psi::PressureReader;
use brink_host::{HostError, HotError};

use super::point::{Counts, Reading, Stamp};

/// What usage consists of is read again when usage has moved by this many bytes, or by this part of itself.
const MOVED: u64 = 256 << 10;
const MOVED_PART: u64 = 64;
/// And after so long in any case, in milliseconds: at once if usage moved at all, later if not.
const STALE_MS: u32 = 1_000;
const STALE_UNMOVED_MS: u32 = 10_000;

/// Readers of one cgroup.
#[derive(Debug)]
pub struct GroupReader {
    dir: CgroupDir,
    usage: UsageReader,
    stat: StatReader,
    pressure: Option<PressureReader>,
    parts: Option<Parts>,
}

/// What usage consisted of when that was read last.
#[derive(Clone, Copy, Debug)]
struct Parts {
    at: Stamp,
    usage: u64,
    stat: MemoryStat,
    stall_us: Option<u64>,
}

impl GroupReader {
    /// Opens a cgroup of the memory hierarchy.
    ///
    /// # Errors
    /// [`HostError`] with the path. The root of v2 has no usage of its own.
    pub fn open(hierarchy: &Hierarchy, group: &str) -> Result<Self, HostError> {
        let dir = CgroupDir::open(hierarchy, group)?;
        Ok(Self {
            usage: UsageReader::open(&dir)?,
            stat: StatReader::open(&dir)?,
            pressure: None,
            parts: None,
            dir,
        })
    }

    /// Its own limit, in bytes; none without one, or where it cannot be read.
    pub fn limit(&self) -> Option<u64> {
        self.dir.memory_limit().ok()?.value()
    }

    /// Reads its waits for memory too from now on, or no longer.
    pub fn tell_pressure(&mut self, wanted: bool) {
        let is_v2 = self.dir.version() == Version::V2;
        if !wanted {
            self.pressure = None;
        } else if self.pressure.is_none() && is_v2 {
            let path = self.dir.path().join("memory.pressure");
            self.pressure = PressureReader::open(&path).ok();
        }
    }

    /// Reads it now. A cgroup that was removed answers `ENODEV`.
    ///
    /// # Errors
    /// [`HotError`].
    pub fn read(&mut self, at: Stamp, meters: Option<&Meters>) -> Result<Reading, HotError> {
        let usage = self.usage.read()?;
        let parts = match self.parts {
            Some(parts) if !is_stale(&parts, at, usage) => parts,
            _ => self.read_parts(at, usage)?,
        };
        let known = |bytes: Option<u64>| bytes.unwrap_or(0);
        let stat = &parts.stat;
        let reclaimable = known(stat.inactive_file)
            .saturating_add(known(stat.active_file))
            .saturating_add(known(stat.slab_reclaimable));
        Ok(Reading {
            usage,
            working_set: stat.working_set(usage).unwrap_or(usage),
            anon: known(stat.anon),
            file: known(stat.file),
            held: usage.saturating_sub(reclaimable),
            stall_us: parts.stall_us,
            counts: meters.and_then(|meters| counts(meters, self.dir.id().0)),
        })
    }

    fn read_parts(&mut self, at: Stamp, usage: u64) -> Result<Parts, HotError> {
        let pressure = self.pressure.as_ref().and_then(|file| file.read().ok());
        let parts = Parts {
            at,
            usage,
            stat: self.stat.read()?,
            stall_us: pressure.map(|pressure| pressure.some.total_us),
        };
        self.parts = Some(parts);
        Ok(parts)
    }
}

/// Whether the parts no longer go with this usage.
fn is_stale(parts: &Parts, at: Stamp, usage: u64) -> bool {
    let moved = usage.abs_diff(parts.usage);
    let longest = if moved == 0 {
        STALE_UNMOVED_MS
    } else {
        STALE_MS
    };
    moved >= MOVED.min(usage / MOVED_PART).max(1 << 14)
        || parts.at.before(at).is_none_or(|age| age >= longest)
}

fn counts(meters: &Meters, id: u64) -> Option<Counts> {
    let meter = meters.cgroup(id).ok()?.unwrap_or_default();
    Some(Counts {
        reclaims: meter.direct.saturating_add(meter.memcg),
        forks: meter.forks,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn write(root: &Path, usage: u64, inactive_file: u64) {
        let stat = format!(
            "anon 4096\nfile 8192\ninactive_file {inactive_file}\nactive_file 10\nslab_reclaimable 5\n"
        );
        fs::write(root.join("pod/memory.current"), usage.to_string()).expect("fake file");
        fs::write(root.join("pod/memory.stat"), stat).expect("fake file");
    }

    fn at(millis: u64) -> Stamp {
        Stamp::of(millis * 1_000_000)
    }

    #[test]
    fn parts_are_read_again_when_usage_moves_or_time_has_passed() {
        let root = tempfile::tempdir().expect("temporary folder");
        fs::create_dir(root.path().join("pod")).expect("fake group");
        fs::write(root.path().join("pod/memory.max"), "max").expect("fake file");
        let hierarchy = Hierarchy {
            version: Version::V2,
            path: root.path().to_owned(),
            mount_root: "/".to_owned(),
        };
        write(root.path(), 100 << 20, 1 << 20);
        let mut reader = GroupReader::open(&hierarchy, "/pod").expect("open");
        assert_eq!(reader.limit(), None);
        let mut check = |millis: u64, usage: u64, inactive_file: u64, seen: u64| {
            write(root.path(), usage, inactive_file);
            let reading = reader.read(at(millis), None).expect("readable");
            assert_eq!(reading.usage, usage, "{millis}");
            assert_eq!(reading.working_set, usage - seen, "{millis}");
            assert_eq!(reading.held, usage - seen - 15, "{millis}");
        };
        check(0, 100 << 20, 1 << 20, 1 << 20);
        check(100, 100 << 20, 2 << 20, 1 << 20);
        check(200, (100 << 20) + 4096, 2 << 20, 1 << 20);
        check(300, (100 << 20) + (1 << 20), 2 << 20, 2 << 20);
        check(1_200, (100 << 20) + (1 << 20) + 4096, 3 << 20, 2 << 20);
        check(1_300, (100 << 20) + (1 << 20) + 4096, 3 << 20, 3 << 20);
        check(11_299, (100 << 20) + (1 << 20) + 4096, 4 << 20, 3 << 20);
        check(11_300, (100 << 20) + (1 << 20) + 4096, 4 << 20, 4 << 20);
    }

    #[test]
    fn a_group_without_usage_is_refused_with_its_path() {
        let root = tempfile::tempdir().expect("temporary folder");
        let hierarchy = Hierarchy {
            version: Version::V2,
            path: root.path().to_owned(),
            mount_root: "/".to_owned(),
        };
        let error = GroupReader::open(&hierarchy, "/").expect_err("no memory.current");
        assert!(error.to_string().contains("memory.current"), "{error}");
    }
}
