//! The files of one control group of either version. Every file has the same bytes.

use std::os::unix::fs::symlink;
use std::path::Path;

use brink_host::cgroup::events::{GroupState, MemoryEvents};
use brink_host::cgroup::membership::Membership;
use brink_host::cgroup::pids::processes_at;
use brink_host::cgroup::stat::{MemoryStat, StatReader};
use brink_host::cgroup::swap::SwapRoomReader;
use brink_host::cgroup::usage::UsageReader;
use brink_host::cgroup::{CgroupDir, Hierarchy, Limit, Version};

use super::node::{read, same_when_doubled};
use crate::Taken;
use crate::scratch::Scratch;

/// What a group has, by the names of both versions.
const FILES: [&str; 16] = [
    "cgroup.procs",
    "cgroup.events",
    "pids.current",
    "pids.max",
    "memory.current",
    "memory.usage_in_bytes",
    "memory.max",
    "memory.limit_in_bytes",
    "memory.high",
    "memory.stat",
    "memory.events",
    "memory.oom_control",
    "memory.swap.max",
    "memory.swap.current",
    "memory.memsw.limit_in_bytes",
    "memory.memsw.usage_in_bytes",
];
const BYTES: &str = "bytes";

thread_local! {
    static GROUP: Scratch = group();
}

/// A group all of whose files are one.
fn group() -> Scratch {
    let root = Scratch::new();
    for name in FILES {
        let made = symlink(BYTES, root.join(name));
        assert!(made.is_ok(), "{name}: {made:?}");
    }
    root
}

/// Statistics, events, limits, usage and processes of a group, and the groups of a process.
pub(crate) fn cgroup_files(bytes: &[u8]) -> Taken {
    let mut taken = false;
    for version in [Version::V1, Version::V2] {
        if let Some(stat) = read(bytes, |text| MemoryStat::parse(version, text)) {
            check_stat(stat);
            same_when_doubled(bytes, |text| MemoryStat::parse(version, text));
            taken = true;
        }
    }
    taken |=
        read(bytes, MemoryEvents::parse).is_some_and(|events| events != MemoryEvents::default());
    taken |= read(bytes, GroupState::parse).is_some();
    if let Some(limit) = read(bytes, Limit::parse) {
        let written = limit
            .value()
            .map_or_else(|| "max".to_owned(), |value| value.to_string());
        assert_eq!(Limit::parse(written.as_bytes()), Ok(limit));
        assert_eq!(limit.tighter(Limit::Unlimited), limit);
        taken = true;
    }
    taken |= Membership::parse(bytes) != Membership::default();
    GROUP.with(|root| {
        root.clear();
        root.write(BYTES, bytes);
        for version in [Version::V1, Version::V2] {
            taken |= check_group(root.path(), version);
        }
    });
    Taken::from_accepted(taken)
}

fn check_stat(stat: MemoryStat) {
    assert!(stat.working_set(u64::MAX).is_some());
    assert_eq!(stat.working_set(0), Some(0));
    if let (Some(reclaimable), Some(inactive)) = (stat.reclaimable(), stat.inactive_file) {
        let most = inactive.saturating_add(stat.active_file.unwrap_or(0));
        assert!(reclaimable <= most.saturating_add(stat.slab_reclaimable.unwrap_or(0)));
    }
}

/// The readers that take a file; whether its processes could be listed.
fn check_group(path: &Path, version: Version) -> bool {
    let hierarchy = Hierarchy {
        version,
        path: path.to_path_buf(),
        mount_root: "/".to_owned(),
    };
    let Ok(dir) = CgroupDir::open(&hierarchy, "/") else {
        return false;
    };
    let listed = dir.processes();
    assert_eq!(listed.as_ref().ok(), processes_at(path).as_ref().ok());
    if let Ok(processes) = &listed {
        assert!(processes.iter().all(|pid| *pid > 0));
    }
    let limits = [dir.memory_limit(), dir.memory_high(), dir.pids_limit()];
    let all_told = limits.into_iter().filter_map(Result::err);
    assert!(
        all_told
            .map(|error| error.to_string())
            .all(|text| !text.is_empty())
    );
    let _answers = (
        dir.tasks().is_ok(),
        dir.memory_events().is_ok(),
        dir.state().is_ok(),
    );
    let _usage = UsageReader::open(&dir).map(|reader| reader.read().ok());
    let _stat = StatReader::open(&dir).map(|reader| reader.read().ok());
    if let Ok(reader) = SwapRoomReader::open(path, &hierarchy, "/") {
        let _room = reader.read(1 << 30);
    }
    listed.is_ok_and(|processes| !processes.is_empty())
}
