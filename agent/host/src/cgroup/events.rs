//! What has happened to a group: `memory.events`, `memory.oom_control` and `cgroup.events`.

use std::ffi::CStr;

use crate::cgroup::dir::CgroupDir;
use crate::cgroup::layout::Version;
use crate::error::{HostError, HotError};
use crate::scan;

/// How often a group met its bounds since it was made. v1 counts only OOM kills; what a kernel does not count is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryEvents {
    /// Reclaimed although under its protection.
    pub low: Option<u64>,
    /// Slowed down above `memory.high`.
    pub high: Option<u64>,
    /// Usage was about to pass the limit.
    pub max: Option<u64>,
    /// Reclaim at the limit failed.
    pub oom: Option<u64>,
    /// Processes killed by an OOM killer of any kind.
    pub oom_kill: Option<u64>,
    /// Times the whole group was killed (Linux 5.17).
    pub oom_group_kill: Option<u64>,
    /// v1: a task waits in the group's OOM now.
    pub under_oom: Option<bool>,
    /// v1: the kernel's killer is switched off for the group.
    pub oom_kill_disabled: Option<bool>,
}

impl MemoryEvents {
    /// Understands `memory.events` (v2) or `memory.oom_control` (v1): a name and a number a line.
    ///
    /// # Errors
    /// [`HotError::Malformed`] when a field we know is no number.
    pub fn parse(text: &[u8]) -> Result<Self, HotError> {
        Ok(Self {
            low: value_of(text, "low")?,
            high: value_of(text, "high")?,
            max: value_of(text, "max")?,
            oom: value_of(text, "oom")?,
            oom_kill: value_of(text, "oom_kill")?,
            oom_group_kill: value_of(text, "oom_group_kill")?,
            under_oom: value_of(text, "under_oom")?.map(|value| value != 0),
            oom_kill_disabled: value_of(text, "oom_kill_disable")?.map(|value| value != 0),
        })
    }
}

/// cgroup.events of a v2 group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupState {
    /// Whether the group or one below it has a process.
    pub populated: bool,
    /// Whether every process in it is frozen (Linux 5.2).
    pub frozen: Option<bool>,
}

impl GroupState {
    /// Understands cgroup.events.
    ///
    /// # Errors
    /// [`HotError`] with the field.
    pub fn parse(text: &[u8]) -> Result<Self, HotError> {
        let populated = value_of(text, "populated")?.ok_or(HotError::Missing("populated"))? != 0;
        Ok(Self {
            populated,
            frozen: value_of(text, "frozen")?.map(|value| value != 0),
        })
    }
}

impl CgroupDir {
    /// The group's memory events.
    ///
    /// # Errors
    /// [`HostError`] with the path.
    pub fn memory_events(&self) -> Result<MemoryEvents, HostError> {
        let name: &CStr = match self.version() {
            Version::V1 => c"memory.oom_control",
            Version::V2 => c"memory.events",
        };
        let mut buffer = [0; 1024];
        MemoryEvents::parse(self.read(name, &mut buffer)?).map_err(|error| self.wrong(name, error))
    }

    /// Whether a v2 group has processes; v1 has no such file ([`CgroupDir::processes`] tells).
    ///
    /// # Errors
    /// [`HostError`] with the path.
    pub fn state(&self) -> Result<GroupState, HostError> {
        let name = c"cgroup.events";
        let mut buffer = [0; 256];
        GroupState::parse(self.read(name, &mut buffer)?).map_err(|error| self.wrong(name, error))
    }
}

fn value_of(text: &[u8], name: &'static str) -> Result<Option<u64>, HotError> {
    let line = scan::lines(text).find(|line| scan::words(line).next() == Some(name.as_bytes()));
    let Some(line) = line else { return Ok(None) };
    scan::words(line)
        .nth(1)
        .and_then(scan::number)
        .map(Some)
        .ok_or(HotError::Malformed(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::dir::fake;
    use proptest::prelude::*;

    #[test]
    fn each_version_tells_what_it_counts() {
        let v2 = "low 0\nhigh 12\nmax 3\noom 2\noom_kill 1\noom_group_kill 0\n";
        let (_root, dir) = fake::group(
            Version::V2,
            &[
                ("memory.events", v2),
                ("cgroup.events", "populated 1\nfrozen 0\n"),
            ],
        );
        let events = dir.memory_events().expect("events");
        assert_eq!(
            (events.high, events.oom, events.oom_kill, events.under_oom),
            (Some(12), Some(2), Some(1), None)
        );
        assert_eq!(
            dir.state().expect("state"),
            GroupState {
                populated: true,
                frozen: Some(false)
            }
        );
        let v1 = "oom_kill_disable 0\nunder_oom 1\noom_kill 4\n";
        let (_root, dir) = fake::group(Version::V1, &[("memory.oom_control", v1)]);
        let events = dir.memory_events().expect("events");
        assert_eq!(
            (events.oom_kill, events.under_oom, events.oom_kill_disabled),
            (Some(4), Some(true), Some(false))
        );
        assert_eq!(events.oom, None);
    }

    #[test]
    fn a_field_that_is_no_number_is_an_error() {
        assert_eq!(
            MemoryEvents::parse(b"oom_kill x\n"),
            Err(HotError::Malformed("oom_kill"))
        );
        assert_eq!(
            MemoryEvents::parse(b"oom_kill\n"),
            Err(HotError::Malformed("oom_kill"))
        );
        assert_eq!(
            GroupState::parse(b"frozen 0\n"),
            Err(HotError::Missing("populated"))
        );
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = MemoryEvents::parse(&text);
            let _ = GroupState::parse(&text);
        }
    }
}
