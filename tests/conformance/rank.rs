//! The order of victims.
//!
//! Cases of a single comparator hold for the whole order too: in each of them the other comparators see equal pods, or
//! agree.

use brink_core::node::observe::Layout;
use brink_core::node::rank::{Preferences, Ranking, rank};
use brink_core::node::signal::Signal;
use brink_core::node::workload::WorkloadTable;
use serde_json::Value;

use super::decode::{usage, workload};
use super::{AREAS, Case, of_areas};

/// What an area ranks for.
fn ranking(area: &str) -> Ranking {
    let layout = if area.contains("split") {
        Layout::Split
    } else {
        Layout::Single
    };
    let signal = match area {
        "rank-disk-split-imagefs" => Signal::ImagefsAvailable,
        _ if area.contains("inodes") => Signal::NodefsInodesFree,
        _ if area.contains("disk") => Signal::NodefsAvailable,
        _ if area.contains("pid") => Signal::PidAvailable,
        _ => Signal::MemoryAvailable,
    };
    Ranking {
        signal,
        layout,
        preferences: Preferences::Ignore,
    }
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .collect()
}

#[test]
fn every_area() {
    let areas: Vec<_> = AREAS
        .iter()
        .filter(|(_, test)| *test == "rank::every_area")
        .collect();
    let areas: Vec<&str> = areas.into_iter().map(|(area, _)| *area).collect();
    for Case {
        id,
        area,
        input,
        expect,
    } in of_areas(&areas)
    {
        let pods = input.as_array().unwrap();
        let table = WorkloadTable::new(pods.iter().map(workload).collect(), 1);
        let counts_inodes = area.contains("inodes");
        let figures: Vec<_> = pods.iter().map(|pod| usage(pod, counts_inodes)).collect();
        let mut order = Vec::new();
        rank(ranking(&area), &table, &figures, &mut order);
        let order: Vec<&str> = order
            .iter()
            .map(|&index| &*table.workloads()[index as usize].name)
            .collect();
        let expected = expect.get("full_order").unwrap_or(&expect);
        assert_eq!(order, names(expected), "{id}");
    }
}
