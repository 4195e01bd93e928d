//! Why `SCHED_FIFO` was refused: a missing capability, the priority limit, or a cpu group without real-time run time.
//!
//! The kernel answers EPERM to all three (`__sched_setscheduler` in `kernel/sched/syscalls.c`): first the right is
//! checked (`CAP_SYS_NICE`, or `RLIMIT_RTPRIO` at least the priority), then, with `CONFIG_RT_GROUP_SCHED`, whether the
//! thread's cpu group has any `rt_runtime`; a new group has none.

use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::Resource;

use crate::capabilities::{Ability, Capabilities};
use crate::cgroup::layout::{Controller, Layout, Version};
use crate::cgroup::membership::Membership;
use crate::hot_file::read_bytes;
use crate::realtime::FifoPriority;
use crate::scan;

/// The reason, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FifoRefusal {
    /// Neither the capability nor any allowance.
    #[error(
        "CAP_SYS_NICE is missing and RLIMIT_RTPRIO is 0 (add the capability, or LimitRTPRIO= in the unit)"
    )]
    MissingCapability,
    /// An allowance that is too small.
    #[error("RLIMIT_RTPRIO is {limit}, below the priority {asked}, and CAP_SYS_NICE is missing")]
    PriorityLimit {
        /// The allowance.
        limit: u64,
        /// The priority that was asked for.
        asked: u8,
    },
    /// The thread's cpu group may not run real-time threads.
    #[error("the cpu group {} has cpu.rt_runtime_us 0 (the kernel has RT_GROUP_SCHED); let the guard move itself to the root cpu group, or give the group run time", group.display())]
    NoGroupRuntime {
        /// The group's folder.
        group: PathBuf,
    },
    /// Everything seems permitted, but the cpu controller is on v2, which has no run time to give to a group.
    #[error(
        "refused ({errno}) in the v2 cpu group {group}: a kernel with RT_GROUP_SCHED gives groups of v2 no real-time run time (boot with rt_group_sched=0)"
    )]
    UnifiedGroup {
        /// The group's path.
        group: String,
        /// The kernel's answer.
        errno: Errno,
    },
    /// None of the known reasons.
    #[error("refused for no known reason: {errno} (a security module or seccomp filter?)")]
    Unknown {
        /// The kernel's answer.
        errno: Errno,
    },
}

/// What is known when it was refused. Unknown is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The kernel's answer.
    pub errno: Errno,
    /// The priority that was asked for.
    pub asked: FifoPriority,
    /// Whether `CAP_SYS_NICE` is effective.
    pub may_nice: Option<bool>,
    /// `RLIMIT_RTPRIO`; `None` is no limit.
    pub priority_limit: Option<u64>,
    /// The thread's cpu group.
    pub cpu_group: Option<CpuGroup>,
}

/// The cpu group of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CpuGroup {
    /// On v1, with its real-time run time a period, microseconds (−1: all; `None`: the kernel has no `RT_GROUP_SCHED`).
    Legacy {
        /// The group's folder.
        folder: PathBuf,
        /// `cpu.rt_runtime_us`.
        runtime_us: Option<i64>,
    },
    /// On v2.
    Unified {
        /// The group's path.
        group: String,
    },
}

impl Facts {
    /// Gathers them for the calling thread.
    pub fn gather(root: &Path, layout: &Layout, asked: FifoPriority, errno: Errno) -> Self {
        let capabilities = Capabilities::of_self(root).ok();
        Self {
            errno,
            asked,
            may_nice: capabilities.map(|own| own.missing(Ability::RealTime).is_empty()),
            priority_limit: rustix::process::getrlimit(Resource::Rtprio).current,
            cpu_group: cpu_group(root, layout),
        }
    }
}

fn cpu_group(root: &Path, layout: &Layout) -> Option<CpuGroup> {
    let hierarchy = layout.hierarchy(Controller::Cpu)?;
    let membership = Membership::read(root, layout.home(), "thread-self").ok()?;
    let group = membership.of(layout, Controller::Cpu)?;
    Some(match hierarchy.version {
        Version::V2 => CpuGroup::Unified {
            group: group.to_owned(),
        },
        Version::V1 => {
            let folder = hierarchy.folder(group)?;
            let text = read_bytes(&folder.join("cpu.rt_runtime_us")).ok();
            let runtime_us = text.and_then(|text| scan::signed_number(text.trim_ascii()));
            CpuGroup::Legacy { folder, runtime_us }
        }
    })
}

/// The reason these facts amount to.
pub fn diagnose(facts: &Facts) -> FifoRefusal {
    let asked = facts.asked.get();
    let allowed = facts.may_nice == Some(true)
        || facts
            .priority_limit
            .is_none_or(|limit| limit >= u64::from(asked));
    match (&facts.cpu_group, facts.priority_limit) {
        _ if facts.errno != Errno::PERM => FifoRefusal::Unknown { errno: facts.errno },
        (_, Some(0)) if !allowed && facts.may_nice == Some(false) => FifoRefusal::MissingCapability,
        (_, Some(limit)) if !allowed && facts.may_nice == Some(false) => {
            FifoRefusal::PriorityLimit { limit, asked }
        }
        (
            Some(CpuGroup::Legacy {
                folder,
                runtime_us: Some(0),
            }),
            _,
        ) => FifoRefusal::NoGroupRuntime {
            group: folder.clone(),
        },
        (Some(CpuGroup::Unified { group }), _) if allowed && group != "/" => {
            FifoRefusal::UnifiedGroup {
                group: group.clone(),
                errno: facts.errno,
            }
        }
        _ => FifoRefusal::Unknown { errno: facts.errno },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(
        may_nice: Option<bool>,
        priority_limit: Option<u64>,
        cpu_group: Option<CpuGroup>,
    ) -> Facts {
        Facts {
            errno: Errno::PERM,
            asked: FifoPriority::GUARD,
            may_nice,
            priority_limit,
            cpu_group,
        }
    }

    fn legacy(runtime_us: Option<i64>) -> CpuGroup {
        CpuGroup::Legacy {
            folder: "/cpu/x".into(),
            runtime_us,
        }
    }

    #[test]
    fn a_missing_right_is_named_before_the_group() {
        fn check(limit: Option<u64>, expected: &FifoRefusal) {
            let facts = facts(Some(false), limit, Some(legacy(Some(0))));
            assert_eq!(diagnose(&facts), *expected, "{facts:?}");
        }
        check(Some(0), &FifoRefusal::MissingCapability);
        check(
            Some(48),
            &FifoRefusal::PriorityLimit {
                limit: 48,
                asked: 49,
            },
        );
        check(
            Some(49),
            &FifoRefusal::NoGroupRuntime {
                group: "/cpu/x".into(),
            },
        );
        check(
            None,
            &FifoRefusal::NoGroupRuntime {
                group: "/cpu/x".into(),
            },
        );
    }

    #[test]
    fn with_the_right_the_group_is_the_reason() {
        fn check(may_nice: Option<bool>, group: Option<CpuGroup>, expected: &FifoRefusal) {
            let facts = facts(may_nice, Some(0), group);
            assert_eq!(diagnose(&facts), *expected, "{facts:?}");
        }
        let unified = |group: &str| {
            Some(CpuGroup::Unified {
                group: group.to_owned(),
            })
        };
        let unknown = FifoRefusal::Unknown { errno: Errno::PERM };
        let no_runtime = FifoRefusal::NoGroupRuntime {
            group: "/cpu/x".into(),
        };
        check(Some(true), Some(legacy(Some(0))), &no_runtime);
        check(None, Some(legacy(Some(0))), &no_runtime);
        check(Some(true), Some(legacy(Some(950_000))), &unknown);
        check(Some(true), Some(legacy(None)), &unknown);
        check(Some(true), None, &unknown);
        check(Some(true), unified("/"), &unknown);
        let in_group = FifoRefusal::UnifiedGroup {
            group: "/a".to_owned(),
            errno: Errno::PERM,
        };
        check(Some(true), unified("/a"), &in_group);
    }

    #[test]
    fn another_answer_than_eperm_is_none_of_these() {
        let facts = Facts {
            errno: Errno::NOSYS,
            ..facts(Some(false), Some(0), None)
        };
        assert_eq!(
            diagnose(&facts),
            FifoRefusal::Unknown {
                errno: Errno::NOSYS
            }
        );
    }

    #[test]
    fn the_message_says_what_to_do() {
        let message = FifoRefusal::NoGroupRuntime {
            group: "/sys/fs/cgroup/cpu/x".into(),
        }
        .to_string();
        assert!(
            message.contains("/sys/fs/cgroup/cpu/x") && message.contains("root cpu group"),
            "{message}"
        );
    }

    #[test]
    fn the_group_of_this_thread_is_found() {
        let root = Path::new("/");
        let layout = Layout::detect(root).expect("this machine");
        let facts = Facts::gather(root, &layout, FifoPriority::GUARD, Errno::PERM);
        assert!(facts.may_nice.is_some());
        assert_eq!(
            facts.cpu_group.is_some(),
            layout.hierarchy(Controller::Cpu).is_some()
        );
    }
}
