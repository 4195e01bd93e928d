//! What a page of metrics is made from, gathered in one place at one moment.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;

use brink_host::clock::process_cpu_ns;
use brink_host::psi::{Pressure, PressureReader};

use super::counters::Tally;
use super::events::EventTally;
use crate::control::protocol::Status;
use crate::control::views::Views;
use crate::guard;
use crate::runtime::cluster::Cluster;
use crate::runtime::prepare::Running;

/// Everything that is shown, as of one moment.
#[derive(Clone, Debug)]
pub struct Facts {
    /// What `brink status` tells.
    pub status: Status,
    /// What was counted.
    pub tally: Tally,
    /// Events that were told; none where they are switched off.
    pub events: Option<EventTally>,
    /// Nanoseconds since the guard began its latest housekeeping pass; none before the first.
    pub turned: Option<u64>,
    /// What found no room in the queues of [`QUEUES`].
    pub lost: [u64; QUEUES.len()],
    /// Memory pressure of the node; none where the kernel does not account for it.
    pub pressure: Option<Pressure>,
    /// Nanoseconds that the sampler's ticks took; none where it does not run.
    pub sampler_busy: Option<u64>,
    /// Nanoseconds that the flight recorder's timer in the kernel took; none where it does not run.
    pub recorder_busy: Option<u64>,
    /// Whether the kubelet said what it goes by when it was asked last; none where it is not asked.
    pub knows_kubelet: Option<bool>,
    /// Kernel memory of the maps; none without programs.
    pub map_bytes: Option<u64>,
    /// The agent's own process.
    pub own: Own,
}

/// The queues between the guard and the others.
pub const QUEUES: [&str; 5] = ["commands", "reports", "steps", "pages", "evicted"];

/// The agent's own process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// Time on a processor, in nanoseconds.
    pub cpu: u64,
    /// Resident memory in bytes, if it can be read.
    pub resident: Option<u64>,
    /// Open descriptors, if they can be counted.
    pub files: Option<u64>,
    /// When it was started, in nanoseconds since 1970.
    pub started: u64,
}

impl Facts {
    /// Gathers them.
    pub fn gather(running: &Running, views: &Views) -> Self {
        let ports = &running.ports;
        let root = running.root.as_path();
        let meters = running.loaded.meters();
        Self {
            status: views.status(),
            tally: running.shared.counters.read(),
            events: running.shared.counters.events.read(running.telling.hub()),
            turned: turned(running),
            lost: [
                ports.commands.lost(),
                ports.reports.lost(),
                ports.steps_lost.load(Ordering::Relaxed),
                ports.pages_lost.load(Ordering::Relaxed),
                ports.evicted.lost(),
            ],
            pressure: pressure(root),
            sampler_busy: meters
                .as_ref()
                .and_then(|meters| Some(meters.sampler().ok()?.cost_ns)),
            recorder_busy: running
                .recorder
                .get()
                .and_then(|recorder| Some(recorder.followed()?.counted.cost_ns)),
            knows_kubelet: running.cluster.as_ref().and_then(Cluster::knows_kubelet),
            map_bytes: meters.and_then(|meters| meters.map_bytes()),
            own: Own::read(root, running.started.realtime_ns),
        }
    }
}

/// Nanoseconds since the guard began its latest housekeeping pass.
pub(super) fn turned(running: &Running) -> Option<u64> {
    let at = running.ports.passed()?;
    u64::try_from(guard::now().since(at).as_nanos()).ok()
}

fn pressure(root: &Path) -> Option<Pressure> {
    PressureReader::node(root, "memory").ok()?.read().ok()
}

impl Own {
    fn read(root: &Path, started: i64) -> Self {
        let own = root.join("proc/self");
        Self {
            cpu: process_cpu_ns(),
            resident: resident(&own),
            files: files(&own),
            started: u64::try_from(started).unwrap_or(0),
        }
    }
}

/// The second field of `statm` counts resident pages.
fn resident(own: &Path) -> Option<u64> {
    let statm = fs::read_to_string(own.join("statm")).ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

fn files(own: &Path) -> Option<u64> {
    let listed = fs::read_dir(own.join("fd")).ok()?;
    // The listing has a descriptor of its own.
    u64::try_from(listed.count().saturating_sub(1)).ok()
}
