//! The node at a kill: its signals, its counters, its zones against their watermarks, its pressure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use brink_host::cgroup::Layout;
use brink_host::meminfo;
use brink_host::psi::{Pressure, PressureReader, Stall};
use brink_host::vmstat;
use brink_host::zoneinfo::{Zone, Zoneinfo};
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::incident::{NodeState, PressureState, ZoneState};

use super::{field, why, why_hot};
use crate::guard::figures::NodeFigures;
use crate::guard::files::{NodeFiles, NodePlan};
use crate::guard::now;

/// What the node is read from, held open as far as it can be.
#[derive(Debug)]
pub struct NodeReader {
    root: PathBuf,
    layout: Layout,
    plan: NodePlan,
    files: Option<NodeFiles>,
    pressure: Result<PressureReader, Missing>,
}

impl NodeReader {
    /// Opens what can be opened.
    pub fn open(root: &Path, layout: &Layout, plan: &NodePlan) -> Self {
        let pressure = PressureReader::node(root, "memory");
        Self {
            root: root.to_path_buf(),
            layout: layout.clone(),
            plan: plan.clone(),
            files: NodeFiles::open(root, layout, plan).ok(),
            pressure: pressure.map_err(|error| why(&error, Missing::KernelLacksIt)),
        }
    }

    /// The node now. `reclaim_ns` is what reclaim had cost the victim's tasks.
    pub fn read(&mut self, reclaim_ns: Field<u64>) -> NodeState {
        let zones = Zoneinfo::read(&self.root);
        let figures = self.figures();
        let memory = figures.and_then(|figures| figures.memory);
        let slow = self.files.as_ref().map(NodeFiles::slow);
        let swap = slow.filter(|_| figures.is_some()).map(|slow| slow.swap);
        NodeState {
            available: Field::or(memory.map(|memory| memory.available), Missing::Lost),
            headroom: Field::or(figures.and_then(|figures| figures.headroom), Missing::Lost),
            capacity: Field::or(memory.map(|memory| memory.capacity), Missing::Lost),
            usable_swap: Field::or(swap, Missing::Lost),
            meminfo: field(meminfo::table(&self.root), Missing::KernelLacksIt),
            vmstat: self.vmstat(),
            zones: field(
                zones.map(|zones| zones.zones.into_iter().map(zone).collect()),
                Missing::KernelLacksIt,
            ),
            pressure: self.pressure(),
            reclaim_ns,
        }
    }

    /// What could not be opened, or has gone since, may be there again: a cgroup that is the node can be made anew.
    fn figures(&mut self) -> Option<NodeFigures> {
        if let Some(figures) = self.files.as_mut().and_then(read) {
            return Some(figures);
        }
        self.files = NodeFiles::open(&self.root, &self.layout, &self.plan).ok();
        self.files.as_mut().and_then(read)
    }

    fn vmstat(&self) -> Field<BTreeMap<String, u64>> {
        match vmstat::table(&self.root) {
            // One that is made without counters of events has the file, and none of these in it.
            Ok(table) if table.is_empty() => Field::Missing(Missing::KernelLacksIt),
            table => field(table, Missing::KernelLacksIt),
        }
    }

    fn pressure(&self) -> Field<PressureState> {
        let reader = match &self.pressure {
            Ok(reader) => reader,
            Err(reason) => return Field::Missing(*reason),
        };
        match reader.read() {
            Ok(pressure) => Field::Value(state(pressure)),
            Err(error) => Field::Missing(why_hot(error)),
        }
    }
}

fn read(files: &mut NodeFiles) -> Option<NodeFigures> {
    // The reserves that headroom leaves out change with the watermarks.
    let _those_before_stand = files.refresh_zones();
    files.read(now()).ok()
}

fn state(pressure: Pressure) -> PressureState {
    PressureState {
        some: percent(pressure.some),
        full: pressure.full.map(percent),
        full_missing: pressure.full.is_none().then_some(Missing::KernelLacksIt),
    }
}

fn percent(stall: Stall) -> f64 {
    f64::from(stall.avg10) / 100.0
}

fn zone(zone: Zone) -> ZoneState {
    ZoneState {
        node: zone.node,
        zone: zone.name,
        free: zone.free,
        min: zone.min,
        low: zone.low,
        high: zone.high,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_read_whole() {
        let root = Path::new("/");
        let layout = Layout::detect(root).unwrap();
        let mut reader = NodeReader::open(root, &layout, &NodePlan::default());
        let node = reader.read(Field::Missing(Missing::ProgramNotLoaded));
        assert!(
            node.available.value().is_some_and(|bytes| *bytes > 0),
            "{node:?}"
        );
        assert!(node.headroom.value().is_some() && node.usable_swap.value().is_some());
        let capacity = node.capacity.value().expect("it is the machine");
        assert!(node.available.value().is_some_and(|bytes| bytes < capacity));
        let meminfo = node.meminfo.value().expect("every kernel has it");
        assert!(meminfo["MemTotal"] > 0 && meminfo["MemTotal"].is_multiple_of(1024));
        let vmstat = node.vmstat.value().expect("it counts events");
        assert!(vmstat.contains_key("pgscan_direct"), "{vmstat:?}");
        assert!(node.zones.value().is_some_and(|zones| !zones.is_empty()));
    }

    #[test]
    fn what_the_kernel_does_not_tell_of_pressure_is_no_zero() {
        let half = Stall {
            avg10: 5_000,
            ..Stall::default()
        };
        let (some, full) = (half, Some(Stall::default()));
        let told = state(Pressure { some, full });
        assert_eq!((told.full, told.full_missing), (Some(0.0), None));
        let told = state(Pressure { some, full: None });
        let lacks = Some(Missing::KernelLacksIt);
        assert_eq!((told.full, told.full_missing), (None, lacks));
        assert!((told.some - 50.0).abs() < f64::EPSILON);
    }

    #[test]
    fn files_that_could_not_be_opened_are_tried_again() {
        let root = tempfile::tempdir().unwrap();
        let real = Path::new("/");
        let layout = Layout::detect(real).unwrap();
        let mut reader = NodeReader::open(root.path(), &layout, &NodePlan::default());
        let mut available = || reader.read(Field::Missing(Missing::Pending)).available;
        assert_eq!(available(), Field::Missing(Missing::Lost));
        std::os::unix::fs::symlink("/proc", root.path().join("proc")).unwrap();
        assert!(available().value().is_some());
    }
}
