//! One cgroup's files, held open, and read no more than its usage calls for.

use brink_host::cgroup::stat::{MemoryStat, StatReader};
use brink_host::cgroup::usage::UsageReader;
use brink_host::cgroup::{CgroupDir, Hierarchy, Version};
use brink_host::probe::abi::survey::movement;
use brink_host::psi::PressureReader;
use brink_host::{HostError, HotError};

use super::point::{Counts, Reading, Stamp};

/// What usage consists of is read again when usage has moved by [`movement`], and after so long in any case, in milliseconds: at once
/// if usage moved at all, later if not.
const STALE_MS: u32 = 1_000;
const STALE_UNMOVED_MS: u32 = 10_000;
/// The same far from a limit.
const STALE_CALM_MS: u32 = 60_000;
/// How long its tasks waited is read again when anything else has moved, and after so long in any case, in milliseconds.
const WAITED_MS: u32 = 1_000;
/// The same far from a limit, where reclaims are counted and there were none.
const WAITED_CALM_MS: u32 = 10_000;

/// Whether what the kernel's programs count of cgroups has changed: while this number stays, nothing of it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulse {
    /// The number now.
    pub now: u64,
    /// The number in the beat before. It may change a moment before the counts do, so they are read once more in the beat after.
    pub before: u64,
}

/// Readers of one cgroup.
#[derive(Debug)]
pub struct GroupReader {
    dir: CgroupDir,
    usage: UsageReader,
    stat: StatReader,
    pressure: Option<PressureReader>,
    parts: Option<Parts>,
    waited: Option<Waited>,
    /// What was counted, and the pulse that it was counted at.
    counts: Option<(Counts, Option<u64>)>,
}

/// What usage consisted of when that was read last.
#[derive(Clone, Copy, Debug)]
struct Parts {
    at: Stamp,
    usage: u64,
    stat: MemoryStat,
}

/// How long its tasks had waited for memory when that was read last.
#[derive(Clone, Copy, Debug)]
struct Waited {
    at: Stamp,
    usage: u64,
    reclaims: Option<u64>,
    stall_us: u64,
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
            waited: None,
            counts: None,
            dir,
        })
    }

    /// Its folder.
    pub const fn dir(&self) -> &CgroupDir {
        &self.dir
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
            self.waited = None;
        } else if self.pressure.is_none() && is_v2 {
            let path = self.dir.path().join("memory.pressure");
            self.pressure = PressureReader::open(&path).ok();
        }
    }

    /// Reads it now; its usage only where that is not `given`. Where `is_calm`, far from any limit of its own, what does not move is
    /// read more seldom: at its limit usage hardly moves, while what it consists of does. `count` asks for what is counted of a cgroup by its id, if anybody
    /// counts. A cgroup that was removed answers `ENODEV`.
    ///
    /// # Errors
    /// [`HotError`].
    pub fn read(
        &mut self,
        at: Stamp,
        (given, is_calm): (Option<u64>, bool),
        pulse: Option<Pulse>,
        count: impl FnOnce(u64) -> Option<Counts>,
    ) -> Result<Reading, HotError> {
        let usage = given.map_or_else(|| self.usage.read(), Ok)?;
        let parts = match self.parts {
            Some(parts) if !is_stale(&parts, at, (usage, is_calm)) => parts,
            _ => self.read_parts(at, usage)?,
        };
        let counts = self.counted(pulse, count);
        let reclaims = counts.and_then(|counts| counts.reclaims);
        let stall_us = self.waits(at, (usage, reclaims), is_calm);
        Ok(reading(usage, &parts.stat, stall_us, counts))
    }

    /// What it was when it used so much, without a look at it: all but usage is as of the last reading. None before the first.
    pub fn assumed(&self, usage: u64) -> Option<Reading> {
        let stall_us = self.waited.map(|waited| waited.stall_us);
        let counts = self.counts.map(|(counts, _)| counts);
        let parts = self.parts.as_ref()?;
        Some(reading(usage, &parts.stat, stall_us, counts))
    }

    fn read_parts(&mut self, at: Stamp, usage: u64) -> Result<Parts, HotError> {
        let stat = self.stat.read()?;
        let parts = Parts { at, usage, stat };
        self.parts = Some(parts);
        Ok(parts)
    }

    /// What is counted of it; asked for again only when something was counted of anybody.
    fn counted(
        &mut self,
        pulse: Option<Pulse>,
        count: impl FnOnce(u64) -> Option<Counts>,
    ) -> Option<Counts> {
        if let (Some((counts, Some(at))), Some(pulse)) = (self.counts, pulse)
            && at == pulse.now
        {
            return Some(counts);
        }
        let found = count(self.dir.id().0);
        self.counts = found.map(|counts| (counts, pulse.map(|pulse| pulse.before)));
        found
    }

    /// How long its tasks waited for memory. At its limit a cgroup's usage hardly moves while they do, so reclaims count as well.
    fn waits(
        &mut self,
        at: Stamp,
        (usage, reclaims): (u64, Option<u64>),
        is_calm: bool,
    ) -> Option<u64> {
        let file = self.pressure.as_ref()?;
        let longest = if is_calm && reclaims.is_some() {
            WAITED_CALM_MS
        } else {
            WAITED_MS
        };
        if let Some(waited) = &self.waited
            && waited.usage == usage
            && waited.reclaims == reclaims
            && waited.at.before(at).is_some_and(|age| age < longest)
        {
            return Some(waited.stall_us);
        }
        let stall_us = file.read().ok()?.some.total_us;
        self.waited = Some(Waited {
            at,
            usage,
            reclaims,
            stall_us,
        });
        Some(stall_us)
    }
}

fn reading(
    usage: u64,
    stat: &MemoryStat,
    stall_us: Option<u64>,
    counts: Option<Counts>,
) -> Reading {
    let known = |bytes: Option<u64>| bytes.unwrap_or(0);
    let reclaimable = known(stat.inactive_file)
        .saturating_add(known(stat.active_file))
        .saturating_add(known(stat.slab_reclaimable));
    Reading {
        usage,
        working_set: stat.working_set(usage).unwrap_or(usage),
        anon: known(stat.anon),
        file: known(stat.file),
        held: usage.saturating_sub(reclaimable),
        stall_us,
        counts,
    }
}

/// Whether the parts no longer go with this usage.
fn is_stale(parts: &Parts, at: Stamp, (usage, is_calm): (u64, bool)) -> bool {
    let moved = usage.abs_diff(parts.usage);
    let longest = match (moved, is_calm) {
        (0, true) => STALE_CALM_MS,
        (0, false) => STALE_UNMOVED_MS,
        _ => STALE_MS,
    };
    moved >= movement(usage) || parts.at.before(at).is_none_or(|age| age >= longest)
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
        let mut reader = group(root.path());
        assert_eq!(reader.limit(), None);
        let mut check = |millis: u64, usage: u64, inactive_file: u64, seen: u64| {
            write(root.path(), usage, inactive_file);
            let reading = reader
                .read(at(millis), (None, true), None, |_| None)
                .expect("readable");
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
        check(61_299, (100 << 20) + (1 << 20) + 4096, 4 << 20, 3 << 20);
        check(61_300, (100 << 20) + (1 << 20) + 4096, 4 << 20, 4 << 20);
    }

    fn group(root: &Path) -> GroupReader {
        fs::create_dir(root.join("pod")).expect("fake group");
        fs::write(root.join("pod/memory.max"), "max").expect("fake file");
        write(root, 100 << 20, 1 << 20);
        let hierarchy = Hierarchy {
            version: Version::V2,
            path: root.to_owned(),
            mount_root: "/".to_owned(),
        };
        GroupReader::open(&hierarchy, "/pod").expect("open")
    }

    #[test]
    fn counts_are_asked_for_again_when_anything_was_counted_and_once_more() {
        let root = tempfile::tempdir().expect("temporary folder");
        let mut reader = group(root.path());
        let mut asked = 0;
        let mut check = |millis, pulse: Option<(u64, u64)>, forks: u64, expected: (u64, u32)| {
            let pulse = pulse.map(|(before, now)| Pulse { now, before });
            let count = |_| {
                asked += 1;
                Some(Counts {
                    reclaims: None,
                    forks: Some(forks),
                })
            };
            let reading = reader
                .read(at(millis), (None, true), pulse, count)
                .expect("readable");
            let seen = reading.counts.and_then(|counts| counts.forks);
            assert_eq!((seen, asked), (Some(expected.0), expected.1), "{millis}");
        };
        check(0, Some((4, 5)), 7, (7, 1));
        check(100, Some((5, 5)), 8, (8, 2));
        check(200, Some((5, 5)), 9, (8, 2));
        check(300, Some((5, 5)), 9, (8, 2));
        check(400, Some((5, 6)), 9, (9, 3));
        check(500, Some((6, 6)), 10, (10, 4));
        check(600, Some((6, 6)), 11, (10, 4));
        // Where nobody tells, they are asked for every time.
        check(700, None, 11, (11, 5));
        check(800, None, 12, (12, 6));
        check(900, Some((6, 6)), 13, (13, 7));
    }

    #[test]
    fn waits_are_read_when_anything_moves_and_now_and_then() {
        let root = tempfile::tempdir().expect("temporary folder");
        let mut reader = group(root.path());
        let told = |total: u64| {
            let line = |of| format!("{of} avg10=0.00 avg60=0.00 avg300=0.00 total={total}\n");
            let text = line("some") + &line("full");
            fs::write(root.path().join("pod/memory.pressure"), text).expect("fake file");
        };
        told(0);
        reader.tell_pressure(true);
        let mut check = |millis, usage: u64, reclaims: Option<u64>, total, expected: u64| {
            told(total);
            write(root.path(), usage, 0);
            let forks = Some(0);
            let count = |_| Some(Counts { reclaims, forks });
            let reading = reader
                .read(at(millis), (None, true), None, count)
                .expect("readable");
            assert_eq!(reading.stall_us, Some(expected), "{millis}");
        };
        check(0, 100 << 20, Some(1), 1, 1);
        check(100, 100 << 20, Some(1), 2, 1);
        check(200, 100 << 20, Some(2), 3, 3);
        check(300, (100 << 20) + 4096, Some(2), 4, 4);
        check(10_200, (100 << 20) + 4096, Some(2), 5, 4);
        check(10_300, (100 << 20) + 4096, Some(2), 6, 6);
        // Where nobody counts reclaims.
        check(10_400, (100 << 20) + 4096, None, 7, 7);
        check(11_300, (100 << 20) + 4096, None, 8, 7);
        check(11_400, (100 << 20) + 4096, None, 9, 9);
        reader.tell_pressure(false);
        let reading = reader
            .read(at(11_500), (None, true), None, |_| None)
            .expect("readable");
        assert_eq!(reading.stall_us, None);
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
