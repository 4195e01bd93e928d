//! Memory as the guard would see it, and the settings of the kernel that decide how shortage comes about.

use std::path::Path;

use brink_core::base::Moment;
use brink_host::cgroup::Layout;
use brink_host::meminfo::{Meminfo, MeminfoReader};
use brink_host::psi::{Pressure, PressureReader};
use brink_host::swap::Swaps;
use brink_host::zoneinfo::{ZoneTotals, Zoneinfo};

use super::kernel::page_size;
use super::source::{Known, choice, known, number};
use crate::guard::figures::{NodeFigures, Slow};
use crate::guard::files::{NodeFiles, NodePlan};

/// Memory.
#[derive(Debug)]
pub struct Memory {
    /// The node's counters.
    pub meminfo: Known<Meminfo>,
    /// What the zones keep back, bytes.
    pub zones: Known<ZoneTotals>,
    /// Both signals as the guard reads them.
    pub figures: Known<(NodeFigures, Slow)>,
    /// Swap.
    pub swaps: Known<Swaps>,
    /// Pressure of memory.
    pub pressure: Known<Pressure>,
    /// `always`, `madvise` or `never`.
    pub huge_pages: Known<String>,
    /// `vm.overcommit_memory`.
    pub overcommit: Known<u64>,
    /// `vm.panic_on_oom`.
    pub panic_on_oom: Known<u64>,
    /// `vm.min_free_kbytes`, bytes.
    pub min_free: Known<u64>,
}

impl Memory {
    /// Reads everything under a root.
    pub fn read(root: &Path, layout: &Known<Layout>, plan: &NodePlan) -> Self {
        let pressure = PressureReader::node(root, "memory");
        Self {
            meminfo: known(MeminfoReader::open(root))
                .and_then(|reader| known(reader.read().map_err(|error| error.at(reader.path())))),
            zones: known(Zoneinfo::read(root)).map(|zones| in_bytes(zones.totals())),
            figures: figures(root, layout, plan),
            swaps: swaps(root),
            pressure: known(pressure).and_then(|reader| known(reader.read())),
            huge_pages: choice(root, "/sys/kernel/mm/transparent_hugepage/enabled"),
            overcommit: number(root, "/proc/sys/vm/overcommit_memory"),
            panic_on_oom: number(root, "/proc/sys/vm/panic_on_oom"),
            min_free: number::<u64>(root, "/proc/sys/vm/min_free_kbytes")
                .map(|kibibytes| kibibytes.saturating_mul(1024)),
        }
    }

    /// What the kubelet's `memory.available` would still show when nothing more can be allocated, bytes: everything
    /// allocatable has become anonymous memory then, and what remains is what the formula never sees: memory of the
    /// kernel itself, huge pages that were set aside, and the zones' reserves.
    pub fn unseen(&self) -> Option<u64> {
        let (info, zones) = (self.meminfo.as_ref().ok()?, self.zones.as_ref().ok()?);
        let counted = info.memory_available_inputs();
        let to_be_had = info
            .free
            .saturating_sub(zones.reserved)
            .saturating_add(zones.on_cpus)
            .saturating_add(info.slab_reclaimable);
        let seen = counted.anon.saturating_add(counted.file);
        Some(info.total.saturating_sub(seen).saturating_sub(to_be_had))
    }
}

/// A kernel without swap has no such file, but it has the others.
fn swaps(root: &Path) -> Known<Swaps> {
    let swaps = known(Swaps::read(root))?;
    let proc = root.join("proc/meminfo");
    if swaps.areas.is_empty() && !proc.exists() {
        return Err(format!("{} is not there", proc.display()));
    }
    Ok(swaps)
}

fn figures(root: &Path, layout: &Known<Layout>, plan: &NodePlan) -> Known<(NodeFigures, Slow)> {
    let layout = layout.as_ref().map_err(Clone::clone)?;
    let mut files = known(NodeFiles::open(root, layout, plan))?;
    files.find_pods();
    Ok((known(files.read(Moment::START))?, files.slow()))
}

fn in_bytes(pages: ZoneTotals) -> ZoneTotals {
    let bytes = |pages: u64| pages.saturating_mul(page_size());
    ZoneTotals {
        free: bytes(pages.free),
        managed: bytes(pages.managed),
        min: bytes(pages.min),
        low: bytes(pages.low),
        high: bytes(pages.high),
        usable: bytes(pages.usable),
        reserved: bytes(pages.reserved),
        lacking: bytes(pages.lacking),
        on_cpus: bytes(pages.on_cpus),
    }
}
