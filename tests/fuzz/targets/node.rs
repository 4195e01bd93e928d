//! The node's own counters under /proc. Every reader gets the same bytes: libFuzzer tells them apart by itself.

use brink_host::HotError;
use brink_host::loadavg::TaskCounts;
use brink_host::meminfo::Meminfo;
use brink_host::psi::Pressure;
use brink_host::swap::{SwapArea, Swaps};
use brink_host::zoneinfo::{Zone, ZoneTotals, Zoneinfo};

use crate::Taken;

/// Above this, sums saturate and identities between them end.
const FAR: u64 = 1 << 56;

/// meminfo, zoneinfo, loadavg, pressure and swaps.
pub(crate) fn node_files(bytes: &[u8]) -> Taken {
    let meminfo = read(bytes, Meminfo::parse);
    if let Some(info) = &meminfo {
        let most = info.active_file.saturating_add(info.inactive_file);
        assert!(info.reclaimable() <= most.saturating_add(info.slab_reclaimable));
        assert_eq!(info.memory_available_inputs().capacity, info.total);
        same_when_doubled(bytes, Meminfo::parse);
    }
    let zoneinfo = read(bytes, Zoneinfo::parse);
    if let Some(info) = &zoneinfo {
        check_zones(info);
    }
    let tasks = read(bytes, TaskCounts::parse);
    let pressure = read(bytes, Pressure::parse);
    if pressure.is_some() {
        same_when_doubled(bytes, Pressure::parse);
    }
    let swaps = read(bytes, Swaps::parse);
    if let Some(swaps) = &swaps {
        assert!(swaps.free() <= swaps.total());
        assert!(swaps.free_outside_memory() <= swaps.free());
        assert!(swaps.areas.iter().map(SwapArea::free).max() <= Some(swaps.free()));
    }
    let has_areas = swaps.is_some_and(|swaps| !swaps.areas.is_empty());
    let others = zoneinfo.is_some() || tasks.is_some() || pressure.is_some();
    Taken::from_accepted(meminfo.is_some() || others || has_areas)
}

/// What a reader makes of the bytes, if it takes them.
pub(crate) fn read<T>(bytes: &[u8], parse: impl Fn(&[u8]) -> Result<T, HotError>) -> Option<T> {
    match parse(bytes) {
        Ok(found) => Some(found),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

/// A file of named lines says the same when everything stands there twice.
pub(crate) fn same_when_doubled<T: PartialEq + std::fmt::Debug>(
    bytes: &[u8],
    parse: impl Fn(&[u8]) -> Result<T, HotError>,
) {
    let doubled = [bytes, b"\n", bytes].concat();
    assert_eq!(parse(bytes), parse(&doubled));
}

/// `usable` is what is free, less what is never given, with what zones lack of that.
fn check_zones(info: &Zoneinfo) {
    let totals = info.totals();
    let numbers = |zone: &Zone| [zone.free, zone.managed, zone.min, zone.protection];
    let is_near = |zone: &Zone| {
        zone.free <= zone.managed && numbers(zone).into_iter().all(|number| number < FAR)
    };
    if info.zones.len() <= 64 && info.zones.iter().all(is_near) {
        let ZoneTotals {
            free,
            usable,
            reserved,
            lacking,
            ..
        } = totals;
        assert_eq!(usable + reserved, free + lacking, "{totals:?}");
    }
    assert!(totals.reserved <= totals.managed);
    let nodes = info.nodes();
    assert!(nodes.is_sorted() && nodes.len() <= info.zones.len());
}
