//! Loads that are processes: a storm that fills its group and refills it when some die, and one that comes and goes.

use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitOptions};

use crate::hog::HogError;
use crate::hog::pace::{Pacer, Stop};
use crate::hog::raw::{Forked, exit_now, fork, reap_automatically};
use crate::hog::spec::HogSpec;
use crate::hot_file::read_bytes;
use crate::process::ProcessInfo;
use crate::scan;

/// The largest task limit a storm may have.
const LARGEST_STORM: u64 = 4096;

/// Every process forks as soon as it can; the group's task limit holds them, and whoever dies makes room for another.
pub(super) fn storm(spec: &HogSpec, pacer: &mut Pacer) -> Result<Stop, HogError> {
    let limited = spec
        .join
        .iter()
        .filter_map(|entrance| entrance.parent())
        .any(is_limited);
    if !limited {
        return Err(HogError::Needs {
            load: spec.load,
            what: "a group with pids.max of at most 4096",
        });
    }
    require_one_thread(spec)?;
    reap_automatically();
    let deadline = pacer.deadline();
    let mut is_first = true;
    while Instant::now() < deadline {
        match fork() {
            Ok(Forked::Child) => is_first = false,
            Ok(Forked::Parent { .. }) if is_first => {
                if let Some(stop) = pacer.took(1) {
                    return Ok(pacer.stopped(stop));
                }
            }
            Ok(Forked::Parent { .. }) => {}
            // Full: wait for room.
            Err(_) => sleep(Duration::from_micros(200)),
        }
    }
    if is_first {
        Ok(pacer.stopped(Stop::Deadline))
    } else {
        exit_now()
    }
}

fn is_limited(group: &Path) -> bool {
    let limit = read_bytes(&group.join("pids.max"))
        .ok()
        .and_then(|text| scan::lone_number(&text));
    limit.is_some_and(|limit| limit <= LARGEST_STORM)
}

/// Forks, waits for the child's end, and again.
pub(super) fn churn(spec: &HogSpec, pacer: &mut Pacer) -> Result<Stop, HogError> {
    require_one_thread(spec)?;
    while pacer.touched() < spec.bytes {
        match fork().map_err(|errno| HogError::Call {
            what: "forking",
            errno,
        })? {
            Forked::Child => exit_now(),
            Forked::Parent { child } => {
                let child = Pid::from_raw(child);
                rustix::process::waitpid(child, WaitOptions::empty()).map_err(|errno| {
                    HogError::Call {
                        what: "waiting for a child",
                        errno,
                    }
                })?;
            }
        }
        if let Some(stop) = pacer.took(1) {
            return Ok(pacer.stopped(stop));
        }
    }
    Ok(pacer.finish(spec))
}

/// Starts what is no program, again and again: the child shares our memory until it has failed.
pub(super) fn spawn_churn(spec: &HogSpec, pacer: &mut Pacer) -> Stop {
    let mut folder = Command::new("/");
    while pacer.touched() < spec.bytes {
        // It was a process for as long as it took to be refused, and was waited for.
        let _refused = folder.spawn();
        if let Some(stop) = pacer.took(1) {
            return pacer.stopped(stop);
        }
    }
    pacer.finish(spec)
}

fn require_one_thread(spec: &HogSpec) -> Result<(), HogError> {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    match ProcessInfo::read(Path::new("/"), own)? {
        Some(info) if info.threads == 1 => Ok(()),
        _ => Err(HogError::Needs {
            load: spec.load,
            what: "a process with a single thread",
        }),
    }
}
