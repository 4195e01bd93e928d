//! Loads that are processes: a storm that fills its group and refills it when some die, and one that comes and goes.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions};

use crate::clock::monotonic_ns;
use crate::hog::HogError;
use crate::hog::births::Births;
use crate::hog::pace::{Pacer, Stop};
use crate::hog::raw::{Briefly, Forked, exit_now, fork, reap_automatically};
use crate::hog::spec::HogSpec;
use crate::hot_file::read_bytes;
use crate::process::ProcessInfo;
use crate::scan;

/// The largest task limit a storm may have.
const LARGEST_STORM: u64 = 4096;

/// Every process forks as soon as it can; the group's task limit holds them, and whoever dies makes room for another.
pub(super) fn storm(
    spec: &HogSpec,
    births: Option<&Births>,
    pacer: &mut Pacer,
) -> Result<Stop, HogError> {
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
        let began_ns = monotonic_ns();
        match fork() {
            Ok(Forked::Child) => is_first = false,
            Ok(Forked::Parent { .. }) => {
                note(births, began_ns);
                if is_first && let Some(stop) = pacer.took(1) {
                    return Ok(pacer.stopped(stop));
                }
            }
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
pub(super) fn churn(
    spec: &HogSpec,
    births: Option<&Births>,
    pacer: &mut Pacer,
) -> Result<Stop, HogError> {
    require_one_thread(spec)?;
    come_and_go(spec, births, pacer, || match fork()? {
        Forked::Child => exit_now(),
        Forked::Parent { child } => Ok(child),
    })
}

/// The same with children that share our memory for as long as they live: the cheapest processes there are.
pub(super) fn spawn_churn(
    spec: &HogSpec,
    births: Option<&Births>,
    pacer: &mut Pacer,
) -> Result<Stop, HogError> {
    let mut briefly = Briefly::new();
    come_and_go(spec, births, pacer, || briefly.bear())
}

/// Makes children and waits for the end of each.
fn come_and_go(
    spec: &HogSpec,
    births: Option<&Births>,
    pacer: &mut Pacer,
    mut bear: impl FnMut() -> Result<i32, Errno>,
) -> Result<Stop, HogError> {
    let failed = |what| move |errno| HogError::Call { what, errno };
    while pacer.touched() < spec.bytes {
        let began_ns = monotonic_ns();
        let child = bear().map_err(failed("forking"))?;
        note(births, began_ns);
        rustix::process::waitpid(Pid::from_raw(child), WaitOptions::empty())
            .map_err(failed("waiting for a child"))?;
        if let Some(stop) = pacer.took(1) {
            return Ok(pacer.stopped(stop));
        }
    }
    Ok(pacer.finish(spec))
}

fn note(births: Option<&Births>, began_ns: u64) {
    if let Some(births) = births {
        births.note(began_ns);
    }
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
