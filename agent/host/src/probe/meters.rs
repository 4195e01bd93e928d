//! Counters of the programs, for whoever exports them: loss, cost, processes and reclaim per cgroup, map memory.

use std::os::fd::{AsFd as _, AsRawFd as _};

use aya::Ebpf;
use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray};
use brink_abi::meter::{self, CgroupMeter, Loss, ProcessMeter, SamplerMeter};

use super::coverage::Coverage;
use super::error::ProbeError;
use super::fdinfo;
use super::load::take;
use super::pod::Pod;
use super::skipped::Handles;

/// Which hooks a row of losses counts, and on which ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Row {
    /// ticks of the sampler
    SamplerSignals = meter::SAMPLER_SIGNALS,
    /// victims and last retries
    OomSignals = meter::OOM_SIGNALS,
    /// ends of processes, and the limit on threads
    ProcessSignals = meter::PROCESS_SIGNALS,
    /// cgroups that became empty
    CgroupSignals = meter::CGROUP_SIGNALS,
    /// reclaims
    ReclaimEvidence = meter::RECLAIM_EVIDENCE,
    /// changes of cgroups
    CgroupEvidence = meter::CGROUP_EVIDENCE,
    /// starts of programs
    ProcessEvidence = meter::PROCESS_EVIDENCE,
    /// victims of the OOM killer, on the ring of kills
    OomKills = meter::OOM_KILLS,
    /// SIGKILL, on the ring of kills
    SignalKills = meter::SIGNAL_KILLS,
    /// ends of those that were told as killed
    KillEnds = meter::KILL_ENDS,
}

impl Row {
    /// All rows.
    pub const ALL: [Self; meter::ROWS] = [
        Self::SamplerSignals,
        Self::OomSignals,
        Self::ProcessSignals,
        Self::CgroupSignals,
        Self::ReclaimEvidence,
        Self::CgroupEvidence,
        Self::ProcessEvidence,
        Self::OomKills,
        Self::SignalKills,
        Self::KillEnds,
    ];

    /// The label of its metric.
    pub fn label(self) -> &'static str {
        match self {
            Self::SamplerSignals => "sampler",
            Self::OomSignals => "oom",
            Self::ProcessSignals => "process_exit",
            Self::CgroupSignals => "cgroup_empty",
            Self::ReclaimEvidence => "reclaim",
            Self::CgroupEvidence => "cgroup",
            Self::ProcessEvidence => "process_exec",
            Self::OomKills => "oom_kill",
            Self::SignalKills => "sigkill",
            Self::KillEnds => "killed_end",
        }
    }
}

/// What the process hooks keep of the whole system.
const PROCESS: &str = "PROCESS";

/// Reading ends of the counters.
pub struct Meters {
    loss: PerCpuArray<MapData, Pod<Loss>>,
    sampler: Array<MapData, Pod<SamplerMeter>>,
    cgroups: HashMap<MapData, u64, Pod<CgroupMeter>>,
    process: Array<MapData, Pod<ProcessMeter>>,
    map_bytes: Option<u64>,
    handles: Handles,
}

impl Meters {
    /// Called before any other map is taken out, so that all of them are added up.
    pub(super) fn take(object: &mut Ebpf, coverage: &Coverage) -> Result<Self, ProbeError> {
        Ok(Self {
            handles: Handles::of(object, coverage, |_| true),
            map_bytes: object.maps().map(|(_, map)| memlock(map)).sum(),
            loss: take(object, "LOSS")?,
            sampler: take(object, "SAMPLER")?,
            cgroups: take(object, "CGROUPS")?,
            process: second(object, PROCESS)?,
        })
    }

    /// What became of the occasions of one row, over all CPUs. With no hook in flight
    /// `seen = sent + dropped + filtered`; a hook on each CPU may be between the two.
    ///
    /// # Errors
    /// [`ProbeError::Map`] when the map cannot be read.
    pub fn loss(&self, row: Row) -> Result<Loss, ProbeError> {
        let values = self.loss.get(&(row as u32), 0).map_err(map("LOSS"))?;
        Ok(values.iter().fold(Loss::default(), |sum, Pod(cpu)| Loss {
            seen: sum.seen + cpu.seen,
            sent: sum.sent + cpu.sent,
            dropped: sum.dropped + cpu.dropped,
            filtered: sum.filtered + cpu.filtered,
        }))
    }

    /// What the sampler did and cost.
    ///
    /// # Errors
    /// [`ProbeError::Map`] when the map cannot be read.
    pub fn sampler(&self) -> Result<SamplerMeter, ProbeError> {
        self.sampler
            .get(&0, 0)
            .map(|Pod(found)| found)
            .map_err(map("SAMPLER"))
    }

    /// Processes and reclaim of one memory cgroup; `None` when it had neither.
    ///
    /// # Errors
    /// [`ProbeError::Map`] when the map cannot be read.
    pub fn cgroup(&self, id: u64) -> Result<Option<CgroupMeter>, ProbeError> {
        match self.cgroups.get(&id, 0) {
            Ok(Pod(found)) => Ok(Some(found)),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(map("CGROUPS")(error)),
        }
    }

    /// A number that is another one after every reclaim and every process that came into being, and mostly the same otherwise:
    /// while it stays, the reclaims and forks of no cgroup have changed. It may change a moment before they do.
    ///
    /// # Errors
    /// [`ProbeError::Map`] when a map cannot be read.
    pub fn pulse(&self) -> Result<u64, ProbeError> {
        let Pod(process) = self.process.get(&0, 0).map_err(map(PROCESS))?;
        // Who comes into being is counted among those that are there, and whoever ends goes from there to the exits.
        let born = process.exits.wrapping_add_signed(process.processes);
        let reclaims = self.loss(Row::ReclaimEvidence)?.seen;
        Ok(born.wrapping_add(reclaims))
    }

    /// Every counted memory cgroup with its counts; one that goes meanwhile is left out.
    pub fn cgroups(&self) -> impl Iterator<Item = (u64, CgroupMeter)> {
        self.cgroups
            .iter()
            .filter_map(|entry| entry.ok().map(|(id, Pod(found))| (id, found)))
    }

    /// How often the kernel left each of these programs out because it ran on that processor already, since it was loaded. None of those
    /// of which it does not tell, nor of the survey's, which are called and not hooked.
    pub fn skipped(
        &self,
        is_asked: impl Fn(&str) -> bool,
    ) -> impl Iterator<Item = (&'static str, u64)> {
        self.handles.skipped(is_asked)
    }

    /// Adds the maps of another object.
    pub(super) fn add_maps(&mut self, bytes: Option<u64>) {
        self.map_bytes = self.map_bytes.zip(bytes).map(|(all, more)| all + more);
    }

    /// Bytes of kernel memory all maps of the probe occupy, as the kernel accounted them at load; `None` when it does
    /// not tell. The maps are preallocated, so the number stays.
    pub fn map_bytes(&self) -> Option<u64> {
        self.map_bytes
    }
}

/// A reading end of a map that somebody else takes.
fn second(
    object: &Ebpf,
    name: &'static str,
) -> Result<Array<MapData, Pod<ProcessMeter>>, ProbeError> {
    let Some(Map::Array(data)) = object.map(name) else {
        return Err(ProbeError::NoMap(name));
    };
    let file = data.fd().as_fd().try_clone_to_owned();
    let file = file.map_err(|error| map(name)(MapError::IoError(error)))?;
    let data = MapData::from_fd(file).map_err(map(name))?;
    Array::try_from(Map::Array(data)).map_err(map(name))
}

/// `memlock:` of a map's `fdinfo`.
pub(super) fn memlock(map: &Map) -> Option<u64> {
    let (Map::Array(data)
    | Map::HashMap(data)
    | Map::LruHashMap(data)
    | Map::PerCpuArray(data)
    | Map::RingBuf(data)) = map
    else {
        return None;
    };
    let fd = data.fd().as_fd().as_raw_fd();
    fdinfo::value(&fdinfo::read(fd)?, "memlock:")?.parse().ok()
}

fn map(name: &'static str) -> impl Fn(MapError) -> ProbeError {
    move |error| ProbeError::Map { name, error }
}
